"""Graphs of the other detectors: every network, position encoding and bin is traced as it is."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unmask import load_sample
from unmask.detectors import Detector
from unmask.detectors.contrast import ContrastDetector
from unmask.detectors.ddd import DDDDetector
from unmask.detectors.deep_svdd import DeepSVDDDetector
from unmask.detectors.masked_token import MaskedTokenDetector
from unmask.errors import UsageError
from unmask.events.event_set import EventSet
from unmask.export.onnx_detector import OnnxDetector
from unmask.export.probes import probe_events
from unmask.export.write import export
from unmask.tokenizers.lookup_table import LookupTableTokenizer
from unmask.tokenizers.vqvae import VQVAETokenizer
from unmask.training import TrainingSettings

TRAINING = TrainingSettings(max_epochs=1, batch_size=256, device="cpu")
SMALL = {"hidden": 16, "n_heads": 2, "training": TRAINING}
KINDS: dict[str, Callable[[], Detector]] = {
    "contrast, mlp": lambda: ContrastDetector(backbone="mlp", size="tiny", training=TRAINING),
    "ddd, part-sm": lambda: DDDDetector(backbone="part-sm", size="tiny", training=TRAINING),
    "ddd, transformer": lambda: DDDDetector(backbone="transformer", size="tiny", training=TRAINING),
    "deep-svdd, mlp": lambda: DeepSVDDDetector(size="tiny", training=TRAINING),
    "deep-svdd, part-noint": lambda: DeepSVDDDetector(backbone="part-noint", size="tiny", training=TRAINING),
    "masked-token": lambda: MaskedTokenDetector(LookupTableTokenizer(3), **SMALL),
    "masked-token, rotary": lambda: MaskedTokenDetector(
        LookupTableTokenizer(3, signed_eta=True), padding="ignore", position="rotary", score="sum", n_layers=1, **SMALL
    ),
    "masked-token, convolutional": lambda: MaskedTokenDetector(
        LookupTableTokenizer(5, features=("charge", "pt", "phi"), met_phi=False),
        position="convolutional",
        n_layers=1,
        **SMALL,
    ),
}


@pytest.fixture(scope="module")
def background() -> EventSet:
    events = load_sample("gluino")
    return events[events.label == 0][::40]


@pytest.mark.parametrize("name", KINDS)
def test_a_graph_gives_what_its_detector_gives(name: str, background: EventSet, tmp_path: Path) -> None:
    detector = KINDS[name]().fit(background[:400], background[400:])
    detector.save(tmp_path / "model")
    differences = export(tmp_path / "model", tmp_path / "model.onnx")
    assert max(differences.values()) < 1e-3
    graph = OnnxDetector.load(tmp_path / "model.onnx")
    events = probe_events(detector, seed=1)[200:]
    np.testing.assert_allclose(graph.score_events(events), detector.score_events(events), rtol=1e-5, atol=1e-5)
    assert graph.record() == json.loads(json.dumps(detector.record()))
    if isinstance(detector, MaskedTokenDetector):
        np.testing.assert_array_equal(graph.run(events)["token"], detector.tokenizer.encode(events).tokens)
        losses = [each.scores(events, with_token_losses=True).token_loss for each in (graph, detector)]
        np.testing.assert_allclose(*losses, atol=1e-4)
        one, other = (each.explain(events[:3])[0] for each in (graph, detector))
        assert [(token.text, token.name) for token in one.tokens] == [(two.text, two.name) for two in other.tokens]
        assert [token.expected[0].text for token in one.tokens] == [token.expected[0].text for token in other.tokens]
        with pytest.raises(UsageError, match="choose from"):
            graph.scores(events, reduction="max")


def test_what_has_no_graph_is_named(background: EventSet, tmp_path: Path) -> None:
    tokenizer = VQVAETokenizer(8, hidden=8, training=replace(TRAINING, max_epochs=1))
    detector = MaskedTokenDetector(tokenizer, **SMALL).fit(background[:400], background[400:])
    detector.save(tmp_path / "model")
    with pytest.raises(UsageError, match="a detector with a vqvae tokenizer cannot be exported"):
        export(tmp_path / "model", tmp_path / "model.onnx")
