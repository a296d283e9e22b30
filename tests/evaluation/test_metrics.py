"""Metrics against hand calculations, scikit-learn, formulas and simulation."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from tests.evaluation.toy_scores import roc_auc, roc_curve
from unmask.errors import BadDataError, UsageError
from unmask.evaluation.metrics import (
    BACKGROUND_EFFICIENCIES,
    Metrics,
    background_efficiency,
    signal_efficiencies,
)
from unmask.evaluation.metrics import measure as measure_ranked
from unmask.evaluation.roc import RankedScores, roc_replicas
from unmask.scores.intervals import Estimate


def measure(*scored: npt.NDArray[Any] | None, **options: int) -> Metrics:
    return measure_ranked(RankedScores.of(*scored), **options)  # type: ignore[arg-type]


def signal_efficiency_at(efficiency: float, *scored: npt.NDArray[Any]) -> Estimate | None:
    roc = roc_curve(*scored)
    return signal_efficiencies(roc, roc_replicas(roc), [efficiency])[efficiency]


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


def test_everything_by_hand() -> None:
    """20 background events at 0..19, 4 signal events at 9.5, 17, 17 and 21."""
    score = np.array([*range(20), 9.5, 17, 17, 21])
    is_signal = np.arange(24) >= 20
    found = measure(score, is_signal)
    assert (found.n_signal, found.n_background) == (4, 20)
    assert found.auc.value == pytest.approx((10 + 17.5 + 17.5 + 20) / 80)
    # 20 events support none of them
    assert {at for at, one in found.signal_efficiency.items() if one is None} == set(BACKGROUND_EFFICIENCIES)
    assert found.signal_efficiency[0.5].value == 1  # type: ignore[union-attr]
    assert found.total_improvement is None
    assert found.background_efficiency is None
    best = found.best_threshold
    assert best is not None
    assert best.threshold.value == 17  # 3/4 of signal, 3/20 of background
    assert best.difference.value == pytest.approx(3 / 4 - 3 / 20)
    assert (best.signal_efficiency, best.background_efficiency) == pytest.approx((3 / 4, 3 / 20))
    improvement = found.max_significance_improvement
    assert improvement is not None
    # ten background events are above 10 and below; 9.5 lets all signal through
    assert improvement.improvement.value == pytest.approx(1 / np.sqrt(10 / 20))
    assert improvement.background_efficiency == pytest.approx(10 / 20)
    # bins are 0.21 wide: 17 shares its bin with 1/20 of the background
    assert found.overlap_area is not None
    assert found.overlap_area.value == pytest.approx(1 / 20)
    # at the working point of half the background: 9.5, 17, 17, 21 are above 9
    assert signal_efficiency_at(0.5, score, is_signal).value == 1  # type: ignore[union-attr]
    roc = roc_curve(score, is_signal)
    assert background_efficiency(roc, roc_replicas(roc), 1.0).value == 0.5  # type: ignore[union-attr]


def test_whole_weights_are_repeated_events() -> None:
    rng = np.random.default_rng(2)
    is_signal = np.arange(4000) < 1500
    score = np.round(rng.normal(1.0 * is_signal, 1), 2)
    times = rng.integers(1, 4, 4000)
    weighted = asdict(measure(score, is_signal, times))
    repeated = asdict(measure(np.repeat(score, times), np.repeat(is_signal, times)))

    def values(found: dict[str, object]) -> list[float]:
        """All measured values, not their intervals: events with weights are fewer than events."""
        flat = []
        for key, value in found.items():
            if str(key).endswith("_limit"):
                continue
            if isinstance(value, dict):
                flat += values(value)
            elif not str(key).startswith("n_") and key not in {"low", "high"} and value:
                flat.append(float(str(value)))
        return flat

    assert len(values(weighted)) >= 8
    assert values(weighted) == pytest.approx(values(repeated), rel=1e-9)
    assert weighted["auc"]["high"] - weighted["auc"]["low"] > repeated["auc"]["high"] - repeated["auc"]["low"]


def test_total_improvement_is_the_best_working_point() -> None:
    rng = np.random.default_rng(3)
    is_signal = np.arange(40_000) < 10_000
    found = measure(rng.normal(2.0 * is_signal, 1), is_signal)
    measured = {at: one.value / np.sqrt(at) for at, one in found.signal_efficiency.items() if one}
    assert list(measured) == [1e-2, 1e-3]  # 30,000 events do not support 1e-4
    assert found.total_improvement is not None
    assert found.total_improvement.value == pytest.approx(max(measured.values()))


TRUTH: dict[str, tuple[Callable[[Metrics], Estimate | None], Callable[[float], float]]] = {
    "AUC": (lambda m: m.auc, lambda d: norm.cdf(d / np.sqrt(2))),
    "eps_S": (lambda m: m.signal_efficiency[0.01], lambda d: norm.sf(norm.isf(0.01) - d)),
    "eps_B": (lambda m: m.background_efficiency, lambda d: norm.sf(norm.isf(0.01) + d)),
    "eps_B limit": (
        lambda m: Estimate(0, 0, m.background_efficiency_limit or 0),
        lambda d: norm.sf(norm.isf(0.01) + d),
    ),
    "threshold": (lambda m: m.best_threshold and m.best_threshold.threshold, lambda d: d / 2),
    "TPR - FPR": (lambda m: m.best_threshold and m.best_threshold.difference, lambda d: 2 * norm.cdf(d / 2) - 1),
    "overlap": (lambda m: m.overlap_area, lambda d: 2 * norm.cdf(-d / 2)),
    "max SIC": (
        lambda m: m.max_significance_improvement and m.max_significance_improvement.improvement,
        lambda d: max(norm.sf(norm.isf(b) - d) / np.sqrt(b) for b in np.geomspace(10 / 2500, 1, 500)),
    ),
    "total improvement": (lambda m: m.total_improvement, lambda d: norm.sf(norm.isf(0.01) - d) / 0.1),
}
#: Made to be conservative: the best of many intervals, with an allowance for a bias, or measured only if not too small.
CONSERVATIVE = {"threshold", "TPR - FPR", "overlap", "max SIC", "eps_B", "eps_B limit"}


#: Weights of events, at random: none, of two processes 10 to 1, and as of a generator at next-to-leading order.
WEIGHTS: dict[str, tuple[list[float], list[float]]] = {
    "equal": ([1], [1]),
    "10 to 1": ([1, 10], [0.7, 0.3]),
    "negative": ([1, -1], [0.88, 0.12]),
}


@pytest.mark.parametrize(
    ("separation", "weights"), [(1.5, "equal"), (0.1, "equal"), (1.0, "10 to 1"), (1.5, "negative")]
)
def test_every_interval_covers_the_truth(separation: float, weights: str) -> None:
    """Unit Gaussians ``separation`` apart, 2500 background and 1000 signal events, 100 toys: 0.95 +- 0.022."""
    rng = np.random.default_rng(4)
    is_signal = np.arange(3500) < 1000
    truth = {name: float(of(separation)) for name, (_, of) in TRUTH.items()}
    hits: dict[str, list[bool]] = {name: [] for name in TRUTH}
    for seed in range(100):
        score = rng.normal(separation * is_signal, 1)
        value, probability = WEIGHTS[weights]
        weight = rng.choice(value, 3500, p=probability)
        found = measure(score, is_signal, weight, n_replicas=120, seed=seed)
        for name, (get, _) in TRUTH.items():
            estimate = get(found)
            if estimate is not None:
                assert estimate.low <= estimate.value <= estimate.high
                hits[name].append(estimate.low <= truth[name] <= estimate.high)
    for name, found_hits in hits.items():
        if len(found_hits) < 80:  # eps_B cannot be measured where hardly any background is above the threshold
            assert name == "eps_B"
            continue
        assert np.mean(found_hits) >= 0.88, name
        if name not in CONSERVATIVE:
            assert np.mean(found_hits) <= 0.995, name
    assert len(hits["eps_B"]) > 80 or separation > 0.5


@pytest.mark.parametrize("shape", [None, 0.2])
def test_the_auc_interval_is_no_wider_than_it_must_be(shape: float | None) -> None:
    """Also where a few events have most of the weight (of a gamma distribution)."""
    rng = np.random.default_rng(5)
    is_signal = np.arange(500) < 150
    truth, hits = norm.cdf(1.2 / np.sqrt(2)), []
    for _ in range(600):
        weight = rng.gamma(shape, size=500) if shape else np.ones(500)
        estimate = roc_auc(rng.normal(1.2 * is_signal, 1), is_signal, weight)
        hits.append(estimate.low <= truth <= estimate.high)
    assert 0.93 < np.mean(hits) < (0.98 if shape else 0.97)


def test_no_signal_above_the_threshold_is_not_certain_to_stay_so() -> None:
    score = np.concatenate([np.zeros(50), np.arange(1, 2001)])
    estimate = signal_efficiency_at(0.01, score, np.arange(2050) < 50)
    assert estimate is not None
    assert (estimate.value, estimate.low) == (0, 0)
    assert 0.02 < estimate.high < 0.08  # Clopper and Pearson: 0.071, Jeffreys: 0.049


def test_constant_scores_separate_nothing() -> None:
    is_signal = np.arange(4000) < 2000
    found = measure(np.ones(4000), is_signal)
    assert found.auc.value == 0.5
    estimate = found.signal_efficiency[0.01]
    assert estimate is not None
    assert estimate.value == pytest.approx(0.01)
    assert found.overlap_area is not None
    assert found.overlap_area.value == pytest.approx(1)


@pytest.mark.parametrize("n", [3, 10])
def test_the_interval_of_a_perfect_area_covers_the_true_one(n: int) -> None:
    """Uniform scores, signal higher by a: the area is 1 - (1 - a)^2 / 2, and few events often show none of the rest."""
    rng, is_signal, shift = np.random.default_rng(0), np.arange(2 * n) < n, 0.8
    found = [roc_auc(rng.random(2 * n) + shift * is_signal, is_signal) for _ in range(400)]
    perfect = [one for one in found if one.value == 1]
    assert len(perfect) > 100
    assert all(0.2 < one.low < 1 - (1 - shift) ** 2 / 2 for one in perfect)
    assert {round(one.low, 9) for one in perfect} == {round(0.025 ** (1 / n), 9)}


def test_separate_scores_are_perfect() -> None:
    is_signal = np.arange(4000) < 2000
    found = measure(np.where(is_signal, 2.0, 1.0), is_signal)
    assert found.auc.value == 1
    assert found.overlap_area is not None
    assert found.overlap_area.value == 0
    assert found.best_threshold is not None
    assert found.best_threshold.difference.value == 1


def test_a_working_point_without_statistics_is_no_number() -> None:
    is_signal = np.arange(2000) < 1000
    score = np.random.default_rng(5).normal(size=2000)
    assert signal_efficiency_at(0.01, score, is_signal) is not None
    assert signal_efficiency_at(0.0099, score, is_signal) is None
    heavy = np.where(score > 2, 1000.0, 1.0)  # a few events carry all the weight
    assert signal_efficiency_at(0.01, score, is_signal, heavy) is None


def test_negative_weights_give_the_numbers_of_the_events_that_they_stand_for() -> None:
    rng = np.random.default_rng(6)
    is_signal = np.arange(40_000) < 10_000
    score = rng.normal(1.5 * is_signal, 1)
    weight = np.where(rng.random(40_000) < 0.12, -1.0, 1.0)
    found, plain = asdict(measure(score, is_signal, weight)), measure(score, is_signal)
    assert found["n_background_effective"] == pytest.approx(30_000 * (1 - 2 * 0.12) ** 2, rel=0.02)
    assert found["signal_efficiency"].keys() == plain.signal_efficiency.keys()
    for name, one in asdict(plain).items():
        of = {"best_threshold": "difference", "max_significance_improvement": "improvement", "signal_efficiency": 0.01}
        of |= {"background_rejection": 0.5, "background_rejection_limit": 0.5}
        one, other = (each[of[name]] if name in of else each for each in (one, found[name]))
        if isinstance(one, dict):
            assert other["low"] < one["value"] < other["high"], name
            assert other["high"] - other["low"] > one["high"] - one["low"], name
    # Where they outweigh the others there is nothing.
    nothing = measure(score, is_signal, np.where(score > 2, -1.0, 1.0))
    assert nothing.signal_efficiency[0.01] is not None
    assert 0 <= nothing.overlap_area.low <= nothing.overlap_area.high <= 1


def test_what_cannot_be_measured_is_an_error() -> None:
    with pytest.raises(UsageError, match="all events are of one class"):
        roc_auc(np.arange(3.0), np.ones(3, np.bool_))
    with pytest.raises(BadDataError, match="1 of 2 scores are NaN"):
        roc_auc(np.array([1.0, np.nan]), np.array([True, False]))
    with pytest.raises(BadDataError, match="1 of 2 weights are NaN"):
        measure(np.array([1.0, 2.0]), np.array([True, False]), np.array([np.inf, 1]))
