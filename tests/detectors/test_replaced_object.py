"""A classifier of background against background with objects replaced."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from tests.detectors.odd_events import insert
from unmask import load_sample
from unmask.detectors.replaced_object import ReplacedObjectDetector
from unmask.evaluation.metrics import roc_auc
from unmask.events.event_set import EventSet
from unmask.training import TrainingSettings

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
def detector(parts: tuple[EventSet, ...]) -> ReplacedObjectDetector:
    return ReplacedObjectDetector(backbone="part-noint", size="tiny", dropout=0.0, training=TRAINING).fit(
        parts[0], parts[1]
    )


@pytest.mark.parametrize(
    ("tags", "pt_gev", "met_gev", "auc"),
    [([2, 2], 50, 0, 0.7), ([], 0, 120, 0.6), ([3, 6], 40, 0, 0.95)],
    ids=["two b-jets", "MET", "two leptons"],
)
def test_what_is_added_is_found(
    detector: ReplacedObjectDetector,
    parts: tuple[EventSet, ...],
    tags: list[int],
    pt_gev: float,
    met_gev: float,
    auc: float,
) -> None:
    odd = insert(parts[2], tags, pt_gev=pt_gev, met_gev=met_gev)
    scores = np.concatenate([detector.score_events(parts[2]), detector.score_events(odd)])
    assert roc_auc(scores, np.arange(len(scores)) >= len(parts[2])).value > auc


def test_only_directions_about_the_beam_do_not_matter(
    detector: ReplacedObjectDetector, parts: tuple[EventSet, ...]
) -> None:
    events = parts[2][:200]
    turned = replace(events, phi=_wrapped(events.phi + 1), met_phi=_wrapped(events.met_phi + 1))
    np.testing.assert_allclose(detector.score_events(turned), detector.score_events(events), atol=1e-3)
    other = replace(events, met_phi=_wrapped(events.met_phi + 1))  # not balanced any more
    assert np.abs(detector.score_events(other) - detector.score_events(events)).mean() > 0.05


def _wrapped(phi: FloatArray) -> FloatArray:
    return (phi + np.float32(np.pi)) % np.float32(2 * np.pi) - np.float32(np.pi)


def test_the_object_that_does_not_belong_is_named(
    detector: ReplacedObjectDetector, parts: tuple[EventSet, ...]
) -> None:
    plain = parts[2][~(parts[2].tag == 7).any(axis=1)][:100]
    odd = insert(plain, [7], pt_gev=60, met_gev=80)
    explained = detector.explain(odd)
    assert [len(one.object_surprise) for one in explained] == odd.n_objects.tolist()
    is_photon = [np.argmax(one.object_surprise) == n - 1 for one, n in zip(explained, odd.n_objects, strict=True)]
    assert np.mean(is_photon) > 0.8  # photons are last
    assert detector.explain(odd[:0]) == []
