"""Metrics against hand calculations, scikit-learn and simulation."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from unmask.errors import BadDataError, UsageError
from unmask.evaluation.metrics import roc_auc, signal_efficiency_at


def test_auc_by_hand() -> None:
    score, is_signal = np.array([1.0, 3, 2, 3, 4]), np.array([False, False, True, True, True])
    # pairs won: 2>1; 3>1, 3=3 (half); 4>1, 4>3; lost: 2<3  ->  4.5 of 6
    assert roc_auc(score, is_signal).value == pytest.approx(4.5 / 6)
    # the background event at 3 counts three times: (2: 1 of 4) + (3: 1 + 1.5 of 4) + (4: 4 of 4), over 3
    weight = np.array([1.0, 3, 1, 1, 1])
    assert roc_auc(score, is_signal, weight).value == pytest.approx((1 + 2.5 + 4) / 12)


def test_auc_agrees_with_scikit_learn_with_ties_and_weights() -> None:
    rng = np.random.default_rng(1)
    is_signal = rng.random(3000) < 0.3
    score = np.round(rng.normal(is_signal, 1), 1)
    weight = rng.exponential(size=3000)
    assert roc_auc(score, is_signal, weight).value == pytest.approx(
        roc_auc_score(is_signal, score, sample_weight=weight), abs=1e-12
    )


def test_auc_interval_covers_the_truth() -> None:
    rng = np.random.default_rng(2)
    truth = norm.cdf(1.2 / np.sqrt(2))
    is_signal = np.arange(500) < 150
    hits = [
        (estimate := roc_auc(rng.normal(1.2 * is_signal, 1), is_signal)).low <= truth <= estimate.high
        for _ in range(600)
    ]
    assert 0.93 < np.mean(hits) < 0.97


def test_signal_efficiency_of_two_gaussians() -> None:
    rng = np.random.default_rng(3)
    is_signal = np.arange(40_000) < 20_000
    estimate = signal_efficiency_at(rng.normal(2.0 * is_signal, 1), is_signal, background_efficiency=0.01)
    assert estimate is not None
    truth = norm.sf(norm.isf(0.01) - 2)
    assert estimate.low < truth < estimate.high
    assert estimate.value == pytest.approx(truth, abs=0.02)


def test_signal_efficiency_interval_covers_the_truth() -> None:
    rng = np.random.default_rng(4)
    is_signal = np.arange(4000) < 1000
    truth = norm.sf(norm.isf(0.02) - 1.5)
    hits = []
    for _ in range(200):
        score = rng.normal(1.5 * is_signal, 1)
        estimate = signal_efficiency_at(score, is_signal, background_efficiency=0.02, n_replicas=150)
        assert estimate is not None
        hits.append(estimate.low <= truth <= estimate.high)
    assert 0.88 < np.mean(hits) <= 1.0


def test_constant_scores_separate_nothing() -> None:
    is_signal = np.arange(4000) < 2000
    assert roc_auc(np.ones(4000), is_signal).value == 0.5
    estimate = signal_efficiency_at(np.ones(4000), is_signal, background_efficiency=0.01)
    assert estimate is not None
    assert estimate.value == pytest.approx(0.01)


def test_a_working_point_without_statistics_is_no_number() -> None:
    is_signal = np.arange(2000) < 1000
    score = np.random.default_rng(5).normal(size=2000)
    assert signal_efficiency_at(score, is_signal, background_efficiency=0.001) is None


def test_what_cannot_be_measured_is_an_error() -> None:
    with pytest.raises(UsageError, match="all events are of one class"):
        roc_auc(np.arange(3.0), np.ones(3, np.bool_))
    with pytest.raises(BadDataError, match="1 of 2 scores are NaN"):
        roc_auc(np.array([1.0, np.nan]), np.array([True, False]))
    with pytest.raises(UsageError, match="do not go together"):
        roc_auc(np.arange(3.0), np.array([True, False]))
