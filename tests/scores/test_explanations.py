"""The most anomalous events are found in a stream, and what is said of them is what the model computed."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from unmask.detectors.base import Detector
from unmask.detectors.masked_token import MaskedTokenDetector
from unmask.errors import ArtifactError, UsageError
from unmask.events.event_set import EventSet
from unmask.networks.masked_token_scoring import token_probabilities
from unmask.scores.explanations import (
    MostAnomalous,
    explained_path,
    read_explanations,
    write_explanations,
)
from unmask.tokenizers.lookup_table import LookupTableTokenizer
from unmask.tokenizers.vqvae import VQVAETokenizer
from unmask.training import TrainingSettings

MakeEvents = Callable[..., EventSet]
TRAINING = TrainingSettings(max_epochs=1, batch_size=64, learning_rate=3e-3, device="cpu")
EDGES = {"pt_mev": [1e5, 2e5], "abs_eta": [0.8, 1.6], "met_mev": [1e5, 2e5]}


@pytest.fixture(scope="module")
def detector(make_events: MakeEvents) -> MaskedTokenDetector:
    tokenizer = LookupTableTokenizer(3, edges=EDGES)
    fitted = MaskedTokenDetector(tokenizer, hidden=16, n_heads=2, training=TRAINING, seed=1)
    return fitted.fit(make_events(200), make_events(80, seed=1))


def test_most_anomalous_events_of_a_stream_are_kept_in_order(make_events: MakeEvents) -> None:
    events = make_events(100)
    score = np.random.default_rng(0).integers(0, 8, 100).astype(np.float64)  # many ties
    expected = sorted(range(100), key=lambda i: (-score[i], i))[:13]
    for chunk in (100, 7, 1):
        most = MostAnomalous(13)
        for start in range(0, 100, chunk):
            most.add(events[start : start + chunk], score[start : start + chunk])
        assert most.events.row.tolist() == expected
        assert most.score.tolist() == [score[i] for i in expected]
        assert most.n_scored == 100
    assert most.events.equals(events[np.array(expected)])


def test_fewer_events_than_asked_for_are_all_kept(make_events: MakeEvents) -> None:
    most = MostAnomalous(50)
    most.add(make_events(3), np.array([1.0, 3.0, np.nan]))
    assert most.events.row.tolist() == [1, 0]  # what has no score has no rank
    assert most.n_scored == 3


def test_contributions_are_the_losses_of_the_score(detector: MaskedTokenDetector, make_events: MakeEvents) -> None:
    events = make_events(20, seed=5)
    losses = detector.token_losses(events)
    for i, explanation in enumerate(detector.explain(events)):
        n = int(events.n_objects[i])
        np.testing.assert_allclose(explanation.object_contribution, losses[i, :n], atol=1e-4)
        assert explanation.met_contribution == pytest.approx(losses[i, 18:].sum(), abs=2e-4)
        of_terms = (term.contribution for term in explanation.terms)
        parts = [*explanation.object_contribution, explanation.met_contribution, *of_terms]
        score = detector.score_events(events[i : i + 1])[0]
        assert sum(part for part in parts if part is not None) / 20 == pytest.approx(score, abs=1e-3)
        for token in explanation.tokens:
            assert token.token_loss == pytest.approx(-np.log(token.probability), abs=1e-3)


def test_expectations_are_the_probabilities_of_the_model_in_words(
    detector: MaskedTokenDetector, make_events: MakeEvents
) -> None:
    events = make_events(40, seed=6)
    i = int(np.argmax((events.tag[:, 0] == 2) & (events.n_objects > 3)))
    event = events[i : i + 1]
    (explanation,) = detector.explain(event)
    tokens = detector.tokenizer.encode(event).tokens
    first = token_probabilities(detector.network_, torch.tensor(tokens))[0, 0].double().numpy()
    by_words: dict[str, float] = {}
    for token, probability in enumerate(first):
        words = detector.tokenizer.describe(token, brief=True) if token else "no further object"
        by_words[words] = by_words.get(words, 0) + probability
    best = sorted(by_words.items(), key=lambda item: -item[1])[:3]
    said = explanation.tokens[0]
    assert [guess.text for guess in said.expected] == [words for words, _ in best]
    assert [guess.probability for guess in said.expected] == pytest.approx([p for _, p in best], abs=1e-5)
    assert said.name == "b-jet"
    assert said.text.startswith(said.observed.text + ", |eta| ")
    assert said.observed.probability == pytest.approx(by_words[said.observed.text], abs=1e-5)
    assert said.object == 0
    assert [token.name for token in explanation.tokens[-3:]] == ["MET", "MET phi", "empty slot"]
    assert explanation.tokens[-3].text.startswith("MET ")
    assert explanation.tokens[-3].text.endswith(" GeV")


def test_loss_of_padding_belongs_to_the_number_of_objects(
    detector: MaskedTokenDetector, make_events: MakeEvents
) -> None:
    events = make_events(5, seed=7)
    losses = detector.token_losses(events)
    for i, explanation in enumerate(detector.explain(events)):
        n = int(events.n_objects[i])
        (term,) = explanation.terms
        assert (term.name, term.value) == ("number of objects", n)
        assert term.contribution == pytest.approx(losses[i, n:18].sum(), abs=1e-3)
        assert term.text.startswith(f"{n} objects and {18 - n} empty slots")
    ignoring = MaskedTokenDetector(
        detector.tokenizer, hidden=16, n_heads=2, padding="ignore", training=TRAINING, seed=1
    ).fit(make_events(100), make_events(40, seed=1))
    for explanation in ignoring.explain(events):
        assert explanation.terms == []
        assert all(token.name != "empty slot" for token in explanation.tokens)


def test_events_with_all_slots_full_or_none(detector: MaskedTokenDetector, make_events: MakeEvents) -> None:
    empty = make_events(4, max_objects=0)
    assert [len(explanation.tokens) for explanation in detector.explain(empty)] == [3] * 4  # MET, its phi, a slot
    events = make_events(400, seed=2, max_objects=18)
    full = events[events.n_objects == 18]
    assert len(full)
    for explanation in detector.explain(full):
        assert len(explanation.object_contribution) == 18
        assert explanation.terms == []
    assert detector.explain(EventSet.empty()) == []


def test_codes_of_a_learnt_tokenizer_are_put_in_words(make_events: MakeEvents) -> None:
    train = make_events(300)
    tokenizer = VQVAETokenizer(16, hidden=8, n_heads=2, n_blocks=1, training=replace(TRAINING, optimizer="radam"))
    fitted = MaskedTokenDetector(tokenizer, hidden=16, n_heads=2, training=TRAINING, seed=1)
    fitted.fit(train, make_events(80, seed=1))
    events = make_events(3, seed=3)
    for i, explanation in enumerate(fitted.explain(events)):
        n = int(events.n_objects[i])
        assert explanation.tokens[0].name == "MET"  # the event comes first in these sequences
        assert [token.object for token in explanation.tokens[1 : n + 1]] == list(range(n))
        for token in explanation.tokens[1 : n + 1]:
            assert all("GeV" in guess.text or guess.text == "no further object" for guess in token.expected)
            assert "% of background" not in token.expected[0].text


def test_a_file_of_explanations_says_what_the_events_are(
    detector: MaskedTokenDetector, make_events: MakeEvents, tmp_path: Path
) -> None:
    events = make_events(60, seed=9, processes=("ttH", "<b>ttW</b>"))
    most = MostAnomalous(10)
    most.add(events, detector.score_events(events))
    path = write_explanations(
        tmp_path / "scores.parquet",
        most,
        detector.explain(most.events),
        provenance={"command": "test"},
    )
    assert path == explained_path(tmp_path / "scores.parquet") == tmp_path / "scores.explained.json"
    assert [file.name for file in tmp_path.iterdir()] == ["scores.explained.json"]
    content = read_explanations(path)
    assert (content.n_scored, len(content.events)) == (60, 10)
    assert content.provenance == {"command": "test"}
    for rank, event in enumerate(content.events, start=1):
        i = event.row
        assert event.rank == rank
        assert event.score == detector.score_events(events)[i]
        assert (event.file, event.process, event.label) == ("events.csv", events.process[i], 0)
        assert (event.event_id, event.weight) == (events.event_id[i], events.weight[i])
        assert event.met_mev == pytest.approx(events.met_mev[i], abs=0.1)
        found = [(o.pt_mev, o.eta, o.phi, o.energy_mev) for o in event.objects]
        columns = (events.pt_mev, events.eta, events.phi, events.energy_mev)
        np.testing.assert_allclose(
            np.array(found).reshape(-1, 4), np.stack([c[i, events.is_object[i]] for c in columns], 1), atol=0.1
        )
        assert [o.contribution for o in event.objects] == [t.token_loss for t in event.tokens if t.object is not None]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda content: content.update(format_version=99), "format version 99"),
        (lambda content: content["events"][0].pop("met_mev"), "events.0.met_mev"),
        (lambda content: content["events"][0].update(score="high"), "events.0.score"),
        (lambda content: content.clear(), "not a file of explanations"),
    ],
)
def test_damaged_files_are_refused_with_the_place(
    detector: MaskedTokenDetector,
    make_events: MakeEvents,
    tmp_path: Path,
    change: Callable[[dict[str, object]], object],
    says: str,
) -> None:
    most = MostAnomalous(2)
    events = make_events(5)
    most.add(events, detector.score_events(events))
    path = write_explanations(tmp_path / "scores.parquet", most, detector.explain(most.events))
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ArtifactError, match=says) as raised:
        read_explanations(path)
    assert str(path) in str(raised.value)


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.explained.json").write_text("{")
    with pytest.raises(ArtifactError, match="not a file of explanations"):
        read_explanations(tmp_path / "x.explained.json")
    with pytest.raises(ArtifactError, match="no such file"):
        read_explanations(tmp_path / "y.explained.json")


def test_a_detector_that_cannot_explain_says_so(detector: MaskedTokenDetector) -> None:
    with pytest.raises(UsageError, match="this masked-token detector cannot explain its scores"):
        Detector.explain(detector, EventSet.empty())
