"""The default: background against altered copies of it, times a tail of observables."""

from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

import unmask
from tests.detectors.odd_events import insert
from tests.evaluation.toy_scores import roc_auc
from unmask import load_sample
from unmask.detectors.alterations import Alterations
from unmask.detectors.contrast import ContrastDetector
from unmask.errors import UsageError
from unmask.events.event_set import EventSet
from unmask.study.results import write_detector_figures
from unmask.training import TrainingSettings
from unmask.workflow.settings import load_settings

FloatArray = npt.NDArray[np.float32]
TRAINING = TrainingSettings(max_epochs=15, batch_size=128, learning_rate=5e-3, device="cpu")


@pytest.fixture(scope="module")
def parts() -> tuple[EventSet, EventSet, EventSet]:
    """Training, validation and test background."""
    events = load_sample("gluino")
    background = events[events.label == 0]
    background = background[np.random.default_rng(0).permutation(len(background))]
    return background[:4000], background[4000:5000], background[5000:7000]


@pytest.fixture(scope="module")
def detector(parts: tuple[EventSet, ...]) -> ContrastDetector:
    return ContrastDetector(backbone="part-noint", size="tiny", training=TRAINING).fit(parts[0], parts[1])


@pytest.mark.parametrize(
    ("tags", "pt_gev", "met_gev", "auc"),
    [([2, 2], 50, 0, 0.7), ([], 0, 120, 0.6), ([3, 6], 40, 0, 0.95)],
    ids=["two b-jets", "MET", "two leptons"],
)
def test_what_is_added_is_found(
    detector: ContrastDetector,
    parts: tuple[EventSet, ...],
    tags: list[int],
    pt_gev: float,
    met_gev: float,
    auc: float,
) -> None:
    odd = insert(parts[2], tags, pt_gev=pt_gev, met_gev=met_gev)
    scores = np.concatenate([detector.score_events(parts[2]), detector.score_events(odd)])
    assert roc_auc(scores, np.arange(len(scores)) >= len(parts[2])).value > auc


def test_only_directions_about_the_beam_do_not_matter(detector: ContrastDetector, parts: tuple[EventSet, ...]) -> None:
    events = parts[2][:200]
    turned = replace(events, phi=_wrapped(events.phi + 1), met_phi=_wrapped(events.met_phi + 1))
    np.testing.assert_allclose(detector.score_events(turned), detector.score_events(events), atol=1e-3)
    other = replace(events, met_phi=_wrapped(events.met_phi + 1))  # not balanced any more
    assert np.abs(detector.score_events(other) - detector.score_events(events)).mean() > 0.05


def _wrapped(phi: FloatArray) -> FloatArray:
    return (phi + np.float32(np.pi)) % np.float32(2 * np.pi) - np.float32(np.pi)


def test_the_object_that_does_not_belong_is_named(detector: ContrastDetector, parts: tuple[EventSet, ...]) -> None:
    plain = parts[2][~(parts[2].tag == 7).any(axis=1)][:100]
    odd = insert(plain, [7], pt_gev=150, met_gev=80)
    explained = replace_tail_weight(detector, 0.0).explain(odd)
    assert [len(one.object_contribution) for one in explained] == odd.n_objects.tolist()
    is_photon = [np.argmax(one.object_contribution) == n - 1 for one, n in zip(explained, odd.n_objects, strict=True)]
    assert np.mean(is_photon) > 0.5  # photons are last; by chance it would be one in seven
    assert detector.explain(odd[:0]) == []


def test_the_explanation_names_both_terms_and_the_most_extreme_observable(
    detector: ContrastDetector, parts: tuple[EventSet, ...]
) -> None:
    events = replace(parts[2][:3], met_mev=np.array([9e5, 5.1e4, 9e5], np.float32))
    explained = detector.explain(events)
    for one in explained:
        assert [term.name for term in one.terms[:1]] == ["objects, together"]
        names = {"MET", "number of b-jets", "sum of pT of all objects", "number of objects"}
        assert {term.name for term in one.terms[1:]} == names
        surprises = [term.contribution for term in one.terms[1:]]
        assert surprises == sorted(surprises, reverse=True)
    assert explained[0].terms[1].name == "MET"
    assert explained[0].terms[1].text.startswith("900 GeV; ")
    assert explained[1].terms[1].name != "MET"


def test_without_its_object_the_score_is_that_of_the_event_without_it(
    detector: ContrastDetector, parts: tuple[EventSet, ...]
) -> None:
    """The b-jets of an event with five count in the tail term too, which a fall of the logit alone would not say."""
    background = parts[2]
    some = background[background.n_b_jets >= 3][:20]
    network_alone = replace_tail_weight(detector, 0.0)
    falls, without_tail = detector.explain(some), network_alone.explain(some)
    is_b_jet = [tag[tag > 0] == 2 for tag in some.tag]
    difference = [
        np.subtract(whole.object_contribution, part.object_contribution)
        for whole, part in zip(falls, without_tail, strict=True)
    ]
    assert np.mean([d[b].mean() for d, b in zip(difference, is_b_jet, strict=True)]) > 0.2


def replace_tail_weight(detector: ContrastDetector, weight: float) -> ContrastDetector:
    other = copy(detector)
    other.tail_weight = weight
    return other


def test_validation_events_decide_on_nothing_but_the_epoch(parts: tuple[EventSet, ...]) -> None:
    """So their scores are as those of any other background, and p-values calibrated on them are valid."""
    once = replace(TRAINING, max_epochs=1)
    train, test = parts[0][:1500], parts[2][:200]
    one, other = (
        ContrastDetector(backbone="part-noint", size="tiny", training=once, seed=1).fit(train, validation)
        for validation in (parts[1][:100], parts[1][100:])
    )
    np.testing.assert_array_equal(one.score_events(test), other.score_events(test))


def test_with_few_events_observables_count_more_and_batches_are_smaller(parts: tuple[EventSet, ...]) -> None:
    once = replace(TRAINING, max_epochs=1, batch_size=512)
    detectors = [
        ContrastDetector(backbone="mlp", size="tiny", training=once).fit(parts[0][:n], parts[1]) for n in (600, 4000)
    ]
    weights, n_steps = zip(*((one.network_weight_, one.history_[0].step) for one in detectors), strict=True)
    assert weights == pytest.approx((2600 / 7600, 6000 / 11000))
    assert n_steps == (20, 20)  # of 30 events and of 200


def test_a_killed_training_on_few_events_goes_on_as_if_it_had_not_been(
    parts: tuple[EventSet, ...], tmp_path: Path
) -> None:
    """Its events are mirrored anew in every epoch, whatever they were before."""
    once, twice = (replace(TRAINING, max_epochs=n, schedule="constant") for n in (1, 2))

    def scores(folder: str, *trainings: TrainingSettings) -> npt.NDArray[np.float64]:
        for training in trainings:
            detector = ContrastDetector(backbone="part-noint", size="tiny", training=training)
            detector.fit(parts[0][:600], parts[1][:200], run_folder=tmp_path / folder)
        return detector.score_events(parts[2][:100])

    np.testing.assert_array_equal(scores("continued", once, twice), scores("at once", twice))


def test_events_far_in_the_tail_are_never_tied(detector: ContrastDetector, parts: tuple[EventSet, ...]) -> None:
    events = parts[2][:500]
    factor = np.float32(8)
    hard = replace(events, pt_mev=events.pt_mev * factor, energy_mev=events.energy_mev * factor)
    scores = detector.score_events(replace(hard, met_mev=events.met_mev * factor))
    assert len(np.unique(scores)) == len(scores)
    assert scores.min() > np.quantile(detector.score_events(parts[2]), 0.9)


def test_scores_depend_on_neither_batches_nor_order_nor_threads(
    detector: ContrastDetector, parts: tuple[EventSet, ...]
) -> None:
    events = parts[2]
    scores = detector.score_events(events)
    one_by_one = np.concatenate([detector.score_events(events[i : i + 1]) for i in range(50)])
    np.testing.assert_allclose(one_by_one, scores[:50], atol=1e-5)
    order = np.random.default_rng(0).permutation(len(events))
    np.testing.assert_allclose(detector.score_events(events[order]), scores[order], atol=1e-5)
    n_threads = torch.get_num_threads()
    torch.set_num_threads(3 - min(n_threads, 2))
    try:
        np.testing.assert_allclose(detector.score_events(events), scores, atol=1e-5)
    finally:
        torch.set_num_threads(n_threads)


def test_scores_of_the_shipped_model_do_not_depend_on_batches() -> None:
    detector, events = unmask.load("sample:gluino-model"), load_sample("gluino")
    in_batches = np.concatenate([detector.score_events(some) for some in events.chunks(256)])
    np.testing.assert_allclose(in_batches, detector.score_events(events), rtol=0, atol=1e-5)


def test_altered_copies_are_drawn_beside_background(
    detector: ContrastDetector, parts: tuple[EventSet, ...], tmp_path: Path
) -> None:
    copies = detector.altered_copies(parts[2])
    assert 0.5 * len(parts[2]) < len(copies) < len(parts[2])
    assert copies.n_objects.min() >= parts[2].n_objects.min()
    assert copies.met_mev.mean() > parts[2].met_mev.mean()
    assert copies.n_objects.mean() > parts[2].n_objects.mean()
    write_detector_figures(tmp_path / "figures", "model", detector, parts[2], "plain")
    drawn = (tmp_path / "figures" / "altered-copies-beside-background.svg").read_text()
    assert f"altered copies ({len(copies):,})" in drawn


def test_class_preset_and_command_line_are_the_same_recipe() -> None:
    assert load_settings("default").new_detector().settings() == ContrastDetector().settings()
    changes = {"alterations": {"decays": 0.3}, "tail_weight": 0.25}
    changed = load_settings("default", changes).new_detector()
    assert changed.settings() == ContrastDetector(alterations=Alterations(decays=0.3), tail_weight=0.25).settings()


def test_impossible_settings_are_refused(parts: tuple[EventSet, ...]) -> None:
    with pytest.raises(UsageError, match="tail_weight is -1; expected 0 or more"):
        ContrastDetector(tail_weight=-1, training=TRAINING).fit(parts[0], parts[1])
