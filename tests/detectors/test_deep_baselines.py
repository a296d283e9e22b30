"""DDD, DeepSVDD and DROCC beyond the contract of all detectors."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tests.evaluation.toy_scores import roc_auc
from unmask import load_sample
from unmask.detectors.ddd import DDDDetector, Distorter
from unmask.detectors.deep_svdd import DeepSVDDDetector
from unmask.detectors.drocc import DROCCDetector, DROCCTask
from unmask.errors import TrainingError, UsageError
from unmask.events.event_set import EventSet
from unmask.networks.event_network import BackboneName
from unmask.networks.event_tensors import event_tensors
from unmask.training import TrainingSettings

TRAINING = TrainingSettings(max_epochs=2, batch_size=128, learning_rate=3e-3, device="cpu")


@pytest.fixture(scope="module")
def events() -> EventSet:
    events = load_sample("gluino")
    return events[np.random.default_rng(1).permutation(len(events))]


@pytest.fixture(scope="module")
def background(events: EventSet) -> EventSet:
    return events[events.label == 0]


def auc(background: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    score = np.concatenate([background, other])
    return float(roc_auc(score, np.arange(len(score)) >= len(background)).value)


def test_ddd_finds_distortions_of_events_that_it_has_not_seen(background: EventSet) -> None:
    train, validation, test = background[:4000], background[4000:4500], background[5000:6000]
    training = replace(TRAINING, max_epochs=10, divergence=1.0)
    detector = DDDDetector(backbone="mlp", smear=0.5, add=0.5, remove=0.3, retag=0.3, training=training, seed=1)
    detector.fit(train, validation)
    torch.manual_seed(7)
    tensors = event_tensors(test)
    distorted = Distorter(detector, tensors)(tensors)
    scores = [detector.score_tensors(detector.network_, *some).double().numpy() for some in (tensors, distorted)]
    assert auc(*scores) > 0.8


@pytest.mark.parametrize("backbone", ["mlp", "part-noint"])
def test_a_collapsed_network_is_an_error(
    backbone: BackboneName, background: EventSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def collapse(task: object, settings: object, **_: object) -> list[object]:
        network = task.network  # type: ignore[attr-defined]
        network.get_buffer("center").fill_(0.5)
        with torch.no_grad():
            network.head.weight.zero_()
        return []

    detector = DeepSVDDDetector(backbone=backbone, size="tiny", training=TRAINING)
    monkeypatch.setattr("unmask.training.task.train", collapse)
    with pytest.raises(TrainingError, match=r"has collapsed.*lower the learning rate"):
        detector.fit(background[:300], background[300:500])
    assert detector.fitted_on_ is None


def test_the_center_is_that_of_the_initial_network_and_never_moves(background: EventSet) -> None:
    train, validation = background[:1000], background[1000:1300]
    untrained = replace(TRAINING, learning_rate=0.0, max_epochs=1)
    still = DeepSVDDDetector(size="tiny", training=untrained, seed=4).fit(train, validation)
    trained = DeepSVDDDetector(size="tiny", training=TRAINING, seed=4).fit(train, validation)
    center = still.network_.get_buffer("center")
    torch.testing.assert_close(trained.network_.get_buffer("center"), center)
    with torch.no_grad():
        outputs = still.network_(*event_tensors(train))
    assert outputs.shape == (1000, 10)
    far = outputs.mean(0).abs() > 0.1
    torch.testing.assert_close(outputs.mean(0)[far], center[far])
    assert center.abs().min() >= 0.1 - 1e-6
    # The network gathers the background around it.
    assert np.median(trained.score_events(validation)) < np.median(still.score_events(validation)) - 0.2


@pytest.mark.parametrize("backbone", ["mlp", "part-sm"])
def test_negatives_lie_in_the_shell_and_fool_the_network(backbone: BackboneName, background: EventSet) -> None:
    detector = DROCCDetector(backbone=backbone, size="tiny", radius=0.4, gamma=1.5, n_ascent_steps=4, training=TRAINING)
    network, tensors = detector.seeded_network(), event_tensors(background[:200])
    network.measure(*tensors)
    task = DROCCTask(detector, network, tensors, event_tensors(background[200:300]), seed=0, identity="")
    inputs, is_free = network.standardize(*tensors), network.is_free(tensors.types)
    torch.manual_seed(1)
    negatives = task.negatives(inputs, tensors.types)
    shift = (negatives - inputs).flatten(1)
    per_input = shift.norm(dim=1) / is_free.flatten(1).sum(1).sqrt()
    assert float(per_input.min()) >= 0.4 * 0.999
    assert float(per_input.max()) <= 0.6 * 1.001
    assert not negatives.requires_grad
    # Neither types nor padding have moved.
    assert (shift[~is_free.flatten(1)] == 0).all()
    # They look more like background than points that are drawn at random from the same shell.
    task.detector = replace_steps(detector, 0)
    torch.manual_seed(1)
    drawn = task.negatives(inputs, tensors.types)
    with torch.no_grad():
        logits = [task.network.of_inputs(points, tensors.types).mean() for points in (negatives, drawn)]
    assert logits[0] < logits[1] - 0.01


def test_a_classifier_that_tells_nothing_apart_is_an_error(background: EventSet) -> None:
    many_steps = TrainingSettings(max_epochs=2, batch_size=1, learning_rate=1e-6, device="cpu")
    detector = DROCCDetector(
        backbone="mlp", size="tiny", radius=0.01, n_ascent_steps=1, negative_weight=0.5, training=many_steps
    )
    # ln 1.5 + 0.5 ln 3
    with pytest.raises(
        TrainingError, match=r"not told apart.* 0\.9548 with a constant.*widen the radius \(it is 0\.01"
    ):
        detector.fit(background[:300], background[300:500])
    assert detector.fitted_on_ is None


def replace_steps(detector: DROCCDetector, n_ascent_steps: int) -> DROCCDetector:
    settings = detector.settings() | {"n_ascent_steps": n_ascent_steps, "training": TRAINING}
    return DROCCDetector(**settings)


def test_wrong_settings_are_listed_together() -> None:
    with pytest.raises(UsageError, match=r"radius is 0.*gamma is 0\.5"):
        DROCCDetector(radius=0, gamma=0.5).check()


def test_a_run_is_continued_only_with_the_same_strengths(background: EventSet, tmp_path: Path) -> None:
    train, validation = background[:600], background[600:800]
    whole = DDDDetector(backbone="mlp", size="tiny", training=TRAINING).fit(train, validation)
    one = replace(TRAINING, max_epochs=1)
    DDDDetector(backbone="mlp", size="tiny", training=one).fit(train, validation, run_folder=tmp_path)
    with pytest.raises(TrainingError, match="other settings"):
        DDDDetector(backbone="mlp", size="tiny", add=0.1, training=TRAINING).fit(train, validation, run_folder=tmp_path)
    continued = DDDDetector(backbone="mlp", size="tiny", training=TRAINING).fit(train, validation, run_folder=tmp_path)
    np.testing.assert_array_equal(continued.score_events(validation), whole.score_events(validation))
