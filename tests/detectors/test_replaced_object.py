"""A classifier of background against altered background."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from unmask import load_sample
from unmask.detectors.combination import CombinationDetector
from unmask.detectors.likelihood_ratio import LikelihoodRatioDetector
from unmask.detectors.replaced_object import ReplacedObjectDetector
from unmask.detectors.trivial import TrivialDetector
from unmask.errors import UsageError
from unmask.evaluation.metrics import roc_auc
from unmask.events.event_set import EventSet
from unmask.events.insertions import insert
from unmask.networks.fixed_length import AlterationClassifier
from unmask.training import TrainingSettings

TRAINING = TrainingSettings(max_epochs=8, batch_size=256, learning_rate=3e-3, device="cpu")


@pytest.fixture(scope="module")
def parts() -> tuple[EventSet, EventSet, EventSet]:
    """Training, validation and test background."""
    events = load_sample("gluino")
    background = events[events.label == 0]
    background = background[np.random.default_rng(0).permutation(len(background))]
    return background[:4000], background[4000:5000], background[5000:7000]


@pytest.fixture(scope="module")
def detector(parts: tuple[EventSet, ...]) -> ReplacedObjectDetector:
    return ReplacedObjectDetector(hidden=64, training=TRAINING).fit(parts[0], parts[1])


@pytest.mark.parametrize(("kind", "auc"), [("two b-jets", 0.7), ("MET", 0.6), ("two leptons", 0.95)])
def test_what_is_added_is_found(
    detector: ReplacedObjectDetector, parts: tuple[EventSet, ...], kind: str, auc: float
) -> None:
    odd = insert(parts[2], kind, seed=1)
    scores = np.concatenate([detector.score_events(parts[2]), detector.score_events(odd)])
    assert roc_auc(scores, np.arange(len(scores)) >= len(parts[2])).value > auc


def test_directions_do_not_matter(detector: ReplacedObjectDetector, parts: tuple[EventSet, ...]) -> None:
    events = parts[2][:200]
    turned = replace(events, phi=-events.phi, eta=np.zeros_like(events.eta), met_phi=events.met_phi / 2)
    np.testing.assert_array_equal(detector.score_events(turned), detector.score_events(events))


def test_the_object_that_does_not_belong_is_named(
    detector: ReplacedObjectDetector, parts: tuple[EventSet, ...]
) -> None:
    plain = parts[2][~(parts[2].tag == 7).any(axis=1)][:100]
    odd = insert(plain, "photon, MET", seed=1)
    explained = detector.explain(odd)
    assert [len(one.object_surprise) for one in explained] == odd.n_objects.tolist()
    is_photon = [np.argmax(one.object_surprise) == n - 1 for one, n in zip(explained, odd.n_objects, strict=True)]
    assert np.mean(is_photon) > 0.8  # photons are last
    without = detector.score_events(insert(plain[:0], "MET", seed=1))
    assert without.shape == (0,)
    assert detector.explain(odd[:0]) == []


def test_a_combination_gives_the_p_values_of_its_members_and_what_they_say(
    detector: ReplacedObjectDetector, parts: tuple[EventSet, ...]
) -> None:
    other = LikelihoodRatioDetector(hidden=16, n_heads=2, training=replace(TRAINING, max_epochs=2))
    both = CombinationDetector([other, detector, TrivialDetector("ht")]).fit(parts[0], parts[1])
    events = parts[2][:5]
    p_values, said = both.minus_log_p(events), both.explain(events)
    assert [one.object_surprise for one in said] == [one.object_surprise for one in detector.explain(events)]
    for i, one in enumerate(said):
        assert [term.name for term in one.terms[:3]] == ["likelihood-ratio", "replaced-object", "trivial"]
        np.testing.assert_allclose([term.surprise for term in one.terms[:3]], p_values[:, i])
        assert one.terms[3:] == other.explain(events)[i].terms
        assert one.terms[1].text == f"{np.exp(-p_values[1, i]):.2g} of background is as odd, or odder"
    (beyond,) = both.explain(insert(events[:1], "of everything", seed=1))
    assert {term.text for term in beyond.terms[:2]} == {"odder than all background that it was compared with"}
    silent = CombinationDetector([TrivialDetector("ht"), TrivialDetector("met")]).fit(parts[0], parts[1])
    with pytest.raises(UsageError, match="a combination detector cannot explain"):
        silent.explain(events)


def test_events_and_copies_count_the_same() -> None:
    network = AlterationClassifier(3, hidden=8, n_layers=1)
    event, one, other = torch.randn(3, 5, 3).unbind()
    logits = [network.score(features) for features in (event, one, other)]
    expected = (-(-logits[0]).sigmoid().log() - (logits[1].sigmoid().log() + logits[2].sigmoid().log()) / 2) / 2
    torch.testing.assert_close(network.loss(torch.cat([event, one, other], dim=1), torch.zeros(5, 0)), expected)


def test_without_copies_there_is_nothing_to_learn(parts: tuple[EventSet, ...]) -> None:
    with pytest.raises(UsageError, match="n_copies is 0; accepted: 1 or more"):
        ReplacedObjectDetector(n_copies=0).fit(parts[0], parts[1])
