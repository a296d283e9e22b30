"""Fixed-length features and the detectors that use them: flow, beta-VAE, isolation forest."""

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch

from tests.detectors.odd_events import Distortion, distort
from unmask import load_sample
from unmask.detectors import Detector
from unmask.detectors.beta_vae import BetaVAEDetector
from unmask.detectors.event_features import EventFeatures, FeatureKind, raw_features
from unmask.detectors.fixed_length import FixedLengthTask
from unmask.detectors.flow import FlowDetector
from unmask.detectors.isolation_forest import Forest, IsolationForestDetector
from unmask.errors import MissingExtraError, UsageError
from unmask.evaluation.metrics import roc_auc
from unmask.events.event_set import EventSet
from unmask.networks.fixed_length import NormalizingFlow
from unmask.training import TrainingSettings, train


@pytest.fixture(scope="module")
def background() -> EventSet:
    events = load_sample("gluino")
    events = events[events.label == 0]
    return events[np.random.default_rng(0).permutation(len(events))[:5000]]


def one_event(background: EventSet, **columns: Any) -> EventSet:
    """An event with a few objects, given as lists."""
    shape = {name: np.zeros((1, 18), getattr(background, name).dtype) for name in ("tag", "pt_mev", "eta", "phi")}
    shape["energy_mev"] = np.zeros((1, 18), np.float32)
    for name in shape:
        values = columns.pop(name, [])
        shape[name][0, : len(values)] = values
    event = {name: np.array([value], np.float32) for name, value in columns.items()}
    return replace(background[:1], **shape, **event)


def test_features_by_hand(background: EventSet) -> None:
    """A jet and two leptons of 50, 40 and 30 GeV, massless and central, at phi 0, pi/2 and pi; MET 10 GeV at phi 0."""
    pt = [50e3, 40e3, 30e3]
    event = one_event(
        background, tag=[1, 3, 6], pt_mev=pt, energy_mev=pt, phi=[0, np.pi / 2, np.pi], met_mev=10e3, met_phi=0
    )
    found = {name: float(value[0]) for name, value in raw_features(event, "summary").items()}
    counts = ("n_jets", "n_b_jets", "n_electrons", "n_muons", "n_photons", "total_charge")
    assert [found[name] for name in counts] == [1, 0, 1, 1, 0, 0]
    assert found["jet_1_pt"] == found["ht"] == pytest.approx(np.log(6))
    assert found["jet_2_pt"] == 0
    assert found["lepton_2_pt"] == pytest.approx(np.log(4))
    assert found["jet_1_from_met"] == pytest.approx(0, abs=1e-6)
    assert found["lepton_1_from_met"] == pytest.approx(np.pi / 2)
    assert found["b_jet_1_from_met"] == -1
    mass_of_leptons = np.sqrt(2 * 40 * 30)  # m^2 = 2 p1 p2 (1 - cos)
    assert found["least_mass_lepton_lepton"] == pytest.approx(np.log1p(mass_of_leptons / 10))
    assert found["nearest_lepton_lepton"] == pytest.approx(np.pi / 2)
    assert found["transverse_mass"] == pytest.approx(np.log1p(np.sqrt(2 * 40 * 10) / 10))
    flat = {name: float(value[0]) for name, value in raw_features(event, "flat").items()}
    assert (flat["tag2"], flat["tag4"], flat["E4"]) == (3, 0, 0)
    assert flat["phi3"] == pytest.approx(np.pi)


@pytest.mark.parametrize("kind", ["summary", "flat"])
def test_every_event_has_finite_features(kind: FeatureKind, background: EventSet) -> None:
    features = EventFeatures.fit(background, kind)
    empty = one_event(background, met_mev=0, met_phi=0)
    pt = np.full(18, 7e6)
    full = one_event(
        background, tag=np.full(18, 7), pt_mev=pt, energy_mev=pt, eta=np.full(18, -5), met_mev=14e6, met_phi=3
    )
    for event in (empty, full):
        assert np.isfinite(features.of(event)).all()
        assert np.isfinite(EventFeatures.fit(event, kind).of(background)).all()  # learnt from a single event
    assert features.of(background[:0]).shape == (0, len(raw_features(empty, kind)))


def test_features_are_standardised_by_their_ranks(background: EventSet) -> None:
    features = EventFeatures.fit(background, "summary")
    names = list(raw_features(background[:1], "summary"))
    found = features.of(background)
    for name in ("met", "ht", "visible_mass"):
        column = found[:, names.index(name)]
        assert abs(column.mean()) < 0.05
        assert column.std() == pytest.approx(1, abs=0.05)
    # More than background ever has is further out, by as much as there is more.
    odd = replace(background[:1], met_mev=background.met_mev.max(keepdims=True) * np.float32(10))
    odder = replace(odd, met_mev=odd.met_mev * np.float32(10))
    met = [features.of(events)[:, names.index("met")].max() for events in (background, odd, odder)]
    assert met[0] + 1 < met[1] < met[2] - 1
    # A photon is about as odd as it is rare.
    photons = found[:, names.index("n_photons")]
    share = (background.tag == 7).any(axis=1).mean()
    assert 0 < share < 0.05
    assert 1.5 < photons.max() < 6
    assert photons.min() == pytest.approx(0, abs=0.05)


def test_flow_learns_a_known_density() -> None:
    rng = np.random.default_rng(3)
    covariance = np.array([[1.0, 0.8], [0.8, 1.0]])
    sample = rng.multivariate_normal(np.zeros(2), covariance, 6000).astype(np.float32)
    torch.manual_seed(1)
    network = NormalizingFlow(2, n_transforms=2, hidden=32, n_layers=1, noise=0.1)
    settings = TrainingSettings(max_epochs=15, batch_size=250, learning_rate=5e-3, device="cpu")
    train(FixedLengthTask(network, sample[:5000], sample[5000:], 0, "a known density"), settings)
    from scipy.stats import multivariate_normal

    with torch.inference_mode():
        found = network.log_density(torch.from_numpy(sample[5000:])).numpy()
        assert (network.score(torch.from_numpy(sample[5000:])).numpy() == -found).all()
    truth = multivariate_normal(np.zeros(2), covariance + 0.01 * np.eye(2)).logpdf(sample[5000:])
    assert np.abs(found - truth).mean() < 0.1
    assert np.corrcoef(found, truth)[0, 1] > 0.97


FAST = TrainingSettings(max_epochs=15, batch_size=200, learning_rate=4e-3, device="cpu")
DETECTORS: dict[str, tuple[Detector, float]] = {
    "flow": (FlowDetector(n_transforms=1, hidden=32, n_layers=1, n_bins=4, training=FAST), 0.75),
    "beta-vae": (BetaVAEDetector(hidden=64, training=FAST), 0.75),
    "beta-vae, flat": (BetaVAEDetector(features="flat", hidden=64, training=FAST), 0.6),
    "isolation-forest": (IsolationForestDetector(), 0.7),
}


@pytest.mark.parametrize("name", DETECTORS)
def test_distorted_events_are_found(name: str, background: EventSet) -> None:
    detector, least = DETECTORS[name]
    detector.fit(background[:3000], background[3000:4000])
    test = background[4000:]
    for kind in get_args(Distortion):
        both = [detector.score_events(events, device="cpu") for events in (test, distort(test, kind))]
        found = roc_auc(np.concatenate(both), np.repeat([False, True], len(test))).value
        assert found > least - 0.05 * (kind == "retag"), kind


def test_forest_ranks_as_that_of_scikit_learn(background: EventSet) -> None:
    from scipy.stats import spearmanr
    from sklearn.ensemble import IsolationForest

    features = EventFeatures.fit(background, "summary").of(background)
    ours = Forest.grow(features, n_trees=200, sample_size=256, rng=np.random.default_rng(1)).mean_depth_of(features)
    theirs = IsolationForest(n_estimators=200, max_samples=256, random_state=1).fit(features).score_samples(features)
    assert spearmanr(ours, theirs).statistic > 0.95


def test_a_lone_point_is_isolated_first() -> None:
    points = np.concatenate([np.random.default_rng(1).normal(size=(255, 2)), [[9, 9]]]).astype(np.float32)
    forest = Forest.grow(points, n_trees=50, sample_size=256, rng=np.random.default_rng(2))
    depth = forest.mean_depth_of(points)
    assert depth.argmin() == 255
    assert depth.max() <= 8 + 10.3


def test_wrong_settings_are_told(background: EventSet) -> None:
    with pytest.raises(UsageError, match="0 trees of 256 events"):
        IsolationForestDetector(n_trees=0).fit(background[:100], background[100:200])
    with pytest.raises(UsageError, match="noise is 0"):
        FlowDetector(noise=0).fit(background[:100], background[100:200])
    with pytest.raises(UsageError, match="beta is 4"):
        BetaVAEDetector(beta=4).fit(background[:100], background[100:200])


def test_without_zuko_the_flow_says_what_to_install(background: EventSet, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "zuko" else find(name, *rest))
    with pytest.raises(MissingExtraError, match=r"unmask\[flow\]"):
        FlowDetector().fit(background[:100], background[100:200])


def test_another_beta_is_another_run(background: EventSet, tmp_path: Any) -> None:
    from unmask.errors import TrainingError

    short = replace(FAST, max_epochs=1)
    BetaVAEDetector(beta=0.5, training=short).fit(background[:400], background[400:500], run_folder=str(tmp_path))
    with pytest.raises(TrainingError, match="other settings"):
        BetaVAEDetector(beta=0.1, training=short).fit(background[:400], background[400:500], run_folder=tmp_path)
