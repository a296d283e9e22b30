"""Theories as a prior: how often each is drawn, what is refused, and what it is good for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import unmask
from unmask import EventSet, load_sample
from unmask.detectors import load_detector
from unmask.detectors.contrast import TRAINING, ContrastDetector
from unmask.detectors.ddd import DDDDetector
from unmask.detectors.prior import families, in_family, probabilities, without_families
from unmask.errors import BadDataError, UsageError
from unmask.events.columns import Names
from unmask.export.write import export

SHORT = replace(TRAINING, max_epochs=6, device="cpu")


@pytest.fixture(scope="module")
def background() -> EventSet:
    events = load_sample("gluino")
    return events[events.label == 0][:3300]


@pytest.fixture(scope="module")
def signal() -> EventSet:
    """Background with softer leptons than any copy has: no anomaly of which there is more."""
    events = load_sample("gluino")
    background = events[events.label == 0][4000:6000]
    is_lepton = (background.tag >= 3) & (background.tag <= 6)
    kept = background[(np.where(is_lepton, background.pt_mev, np.inf).min(axis=1) * 0.75) > 15e3]
    factor = np.where((kept.tag >= 3) & (kept.tag <= 6), 0.75, 1.0)
    softer = replace(kept, pt_mev=kept.pt_mev * factor, energy_mev=kept.energy_mev * factor)
    return softer.with_label(1)


def test_families_count_the_same_and_so_do_the_processes_of_a_family() -> None:
    events = load_sample("gluino")[:100]
    names = Names.of(["a: one"] * 10 + ["a: two"] * 30 + ["b: one"] * 60)
    theories = replace(events, process_names=names)
    assert families(theories) == {"a": 40, "b": 60}
    probability = probabilities(theories)
    totals = [probability[names.code == code].sum() for code in range(3)]
    assert totals == pytest.approx([0.25, 0.25, 0.5])
    assert families(without_families(theories, ["a"])) == {"b": 60}
    assert families(in_family(events, "c")) == {"c": 100}
    with pytest.raises(BadDataError, match="no family 'd'; it has a, b"):
        without_families(theories, ["d"])
    with pytest.raises(BadDataError, match="no theory is left"):
        without_families(theories, ["a", "b"])


def test_a_prior_finds_what_it_has_seen_and_refuses_those_very_events(
    background: EventSet, signal: EventSet, tmp_path_factory: pytest.TempPathFactory
) -> None:
    train, validation, test = background[:2400], background[2400:2800], background[2800:]
    theories, others = in_family(signal[::2], "softer"), signal[1::2]
    auc = {}
    for name, prior in {"alone": None, "with prior": theories}.items():
        detector = ContrastDetector(training=SHORT, seed=1, tail_weight=0).fit(train, validation, prior=prior)
        scores = [detector.score_events(events) for events in (test, others)]
        auc[name] = roc_auc_score(np.repeat([0, 1], list(map(len, scores))), np.concatenate(scores))
    assert auc["with prior"] > auc["alone"] + 0.02
    assert f"prior of {len(theories):,} theory events" in repr(detector)
    folder = tmp_path_factory.mktemp("prior") / "model"
    detector.save(folder)
    assert "It is semi-supervised" in (folder / "MODEL_CARD.md").read_text()
    export(folder, folder.with_name("model.onnx"))
    for one in (detector, load_detector(folder), unmask.load(folder.with_name("model.onnx"))):
        assert len(one.scores(others)) == len(others)
        with pytest.raises(BadDataError, match="among the theories"):
            one.scores(EventSet.concatenate([others, theories[:3]]))


def test_a_prior_of_background_or_for_other_detectors_is_refused(background: EventSet, signal: EventSet) -> None:
    train, validation = background[:200], background[200:400]
    with pytest.raises(UsageError, match="100 events of the prior are labeled background"):
        ContrastDetector(training=SHORT).fit(train, validation, prior=background[400:500])
    with pytest.raises(UsageError, match="trained on background alone"):
        DDDDetector(training=SHORT).fit(train, validation, prior=signal)
    far = replace(signal, met_mev=signal.met_mev * 1e-3)
    with pytest.raises(BadDataError, match="no theory of the prior passes the selection"):
        ContrastDetector(training=SHORT).fit(train, validation, prior=far)
