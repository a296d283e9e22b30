"""The ROC curve, its band and the significance improvement, against hand calculations, scikit-learn and formulas."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_curve as sklearn_roc

from tests.evaluation.toy_scores import roc_curve
from unmask.evaluation.intervals import TAILS
from unmask.evaluation.metrics import measure
from unmask.evaluation.roc import RankedScores, Roc, roc_replicas
from unmask.scores import intervals


def max_sic(roc: Roc) -> tuple[float, float] | None:
    """Largest significance improvement, and the background efficiency where it is."""
    best = roc.best_improvement
    return None if best is None else (roc.significance_improvement[best], roc.background_efficiency[best])


def test_curve_by_hand_with_ties_and_weights() -> None:
    score = np.array([5.0, 4, 4, 4, 1])
    is_signal = np.array([True, True, False, False, False])
    roc = roc_curve(score, is_signal, np.array([1.0, 3, 2, 4, 4]))
    np.testing.assert_array_equal(roc.threshold, [np.inf, 5, 4, 1])
    np.testing.assert_allclose(roc.signal_efficiency, [0, 0.25, 1, 1])
    np.testing.assert_allclose(roc.background_efficiency, [0, 0, 0.6, 1])
    # So few events are all measured with one weight, (2^2 + 4^2 + 4^2) / 10.
    np.testing.assert_allclose(roc.n_background_above, [0, 0, 6 / 3.6, 10 / 3.6])


def test_curve_agrees_with_scikit_learn() -> None:
    rng = np.random.default_rng(1)
    is_signal = rng.random(2000) < 0.4
    score = np.round(rng.normal(is_signal, 1), 1)
    weight = rng.exponential(size=2000)
    background, signal, threshold = sklearn_roc(is_signal, score, sample_weight=weight, drop_intermediate=False)
    roc = roc_curve(score, is_signal, weight)
    np.testing.assert_allclose(roc.threshold, threshold)
    np.testing.assert_allclose(roc.background_efficiency, background, atol=1e-12)
    np.testing.assert_allclose(roc.signal_efficiency, signal, atol=1e-12)


def test_band_of_exponential_scores_holds_the_true_curve() -> None:
    """Exponential scores, signal with k times the scale: eps_S = eps_B^(1/k)."""
    grid = np.array([0.005, 0.02, 0.1, 0.5])
    rng = np.random.default_rng(2)
    is_signal = np.arange(4000) < 1000
    hits = []
    for seed in range(200):
        score = rng.exponential(1 + 2.0 * is_signal)
        replicas = roc_replicas(roc_curve(score, is_signal), n_replicas=120, seed=seed)
        low, high = np.quantile(replicas.signal_efficiency_at(grid), TAILS, axis=0)
        hits.append((low <= grid ** (1 / 3)) & (grid ** (1 / 3) <= high))
    # 200 toys: one standard deviation is 0.015
    np.testing.assert_allclose(np.mean(hits, axis=0), 0.95, atol=0.045)


def test_replicas_of_many_events_are_as_wide_as_the_binomial() -> None:
    """The curve is thinned out where it is dense; the spread must not notice."""
    rng = np.random.default_rng(3)
    is_signal = np.arange(60_000) < 20_000
    roc = roc_curve(rng.random(60_000), is_signal)
    replicas = roc_replicas(roc, n_replicas=1000)
    assert len(replicas.point) < 3000
    expected = np.sqrt(0.1 * 0.9 / 20_000 + 0.1 * 0.9 / 40_000)
    assert replicas.signal_efficiency_at(np.array([0.1])).std() == pytest.approx(expected, rel=0.25)
    assert replicas.background_efficiency_at(np.array([0.1])).std() == pytest.approx(expected, rel=0.25)


def test_significance_improvement_of_exponential_scores() -> None:
    rng = np.random.default_rng(4)
    is_signal = np.arange(200_000) < 100_000
    roc = roc_curve(rng.exponential(1 + 3.0 * is_signal), is_signal)
    improvement = roc.significance_improvement
    n_above = roc.background_efficiency * 100_000
    np.testing.assert_array_equal(np.isnan(improvement), n_above < 9.5)
    chosen = roc.background_efficiency > 0.01
    np.testing.assert_allclose(improvement[chosen], roc.background_efficiency[chosen] ** (1 / 4 - 1 / 2), rtol=0.05)
    best = max_sic(roc)
    assert best is not None
    assert best[1] < 0.001  # it grows without limit towards small efficiencies


def test_maximum_of_two_gaussians_is_where_the_formula_says() -> None:
    rng = np.random.default_rng(5)
    is_signal = np.arange(400_000) < 200_000
    best = max_sic(roc_curve(rng.normal(1.2 * is_signal, 1), is_signal))
    grid = np.linspace(-1, 3, 2000)
    truth = norm.sf(grid - 1.2) / np.sqrt(norm.sf(grid))
    assert best is not None
    assert best[0] == pytest.approx(truth.max(), rel=0.02)
    assert norm.isf(best[1]) == pytest.approx(grid[truth.argmax()], abs=0.35)


def test_few_background_events_support_no_improvement() -> None:
    is_signal = np.arange(100) < 91
    assert max_sic(roc_curve(np.arange(100.0), is_signal)) is None


def test_with_negative_weights_the_curve_never_falls() -> None:
    score, is_signal = np.array([6.0, 5, 4, 3, 2, 1]), np.array([False, True] * 3)
    roc = roc_curve(score, is_signal, np.array([2, 3, -1, -1, 3, 1.0]))
    # 2, 1, 4 of 4 and 3, 2, 3 of 3: a negative weight is taken from what follows
    np.testing.assert_allclose(roc.background_efficiency, [0, 0.5, 0.5, 0.5, 0.5, 1, 1])
    np.testing.assert_allclose(roc.signal_efficiency, [0, 0, 1, 1, 1, 1, 1])


def test_bins_of_very_many_events_change_no_digit_that_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    is_signal = rng.random(300_000) < 0.05
    score, weight = rng.normal(1.5 * is_signal, 1), rng.uniform(0.5, 1.5, 300_000)
    binned = RankedScores.of(score, is_signal, weight)
    monkeypatch.setattr(intervals, "MAX_EXACT", 10**6)
    exact = RankedScores.of(score, is_signal, weight)
    assert len(binned.value) < len(exact.value) / 2
    one, other = measure(binned), measure(exact)
    assert one.auc.value == pytest.approx(other.auc.value, abs=5e-6)
    for at in (1e-2, 1e-3, 1e-4):
        found, expected = one.signal_efficiency[at], other.signal_efficiency[at]
        assert found is not None
        assert expected is not None
        assert found.value == pytest.approx(expected.value, rel=1e-3)
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=0.02)


def test_scores_sorted_once_give_the_curves_of_some_of_the_events() -> None:
    rng = np.random.default_rng(6)
    is_signal = rng.random(500) < 0.4
    score, weight = np.round(rng.normal(is_signal, 1), 1), rng.exponential(size=500)
    chosen = (rng.random(500) < 0.3) & (score < 1.5)
    some, alone = (
        RankedScores.of(score, is_signal, weight)[chosen],
        RankedScores.of(score[chosen], is_signal[chosen], weight[chosen]),
    )
    for one, other in ((Roc.of(some), Roc.of(alone)), (some.placements, alone.placements)):
        for name, values in vars(other).items():
            np.testing.assert_array_equal(getattr(one, name), values)
