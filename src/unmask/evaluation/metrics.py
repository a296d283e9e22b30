"""Metrics of a score: area under the ROC curve, efficiencies, overlap; weights honored, an interval on every number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from unmask.evaluation.intervals import N_ERRORS, TAILS, logit_interval, percentile_interval
from unmask.evaluation.roc import RankedScores, Roc, RocReplicas, lowest_at, roc_replicas
from unmask.scores.intervals import CONFIDENCE, Estimate, FloatArray, is_supported, variance_of_efficiency

#: Where the signal efficiency is measured, and where else if too few events support the first: the tightest that do.
BACKGROUND_EFFICIENCIES = (1e-2, 1e-3, 1e-4)
LOOSER_EFFICIENCIES = (0.02, 0.05, 0.1, 0.2, 0.5)
#: Where the background rejection, 1 / ε_B, is measured.
SIGNAL_EFFICIENCIES = (0.5, 0.3)
#: Where publications give the background efficiency.
SIGNAL_EFFICIENCY = 1e-2
#: Equal bins over the pooled range, in which the overlap of the score histograms is measured.
OVERLAP_BINS = 100
#: Text in the place of a number.
TOO_FEW = "too few events"


@dataclass(frozen=True)
class BestThreshold:
    """The largest ε_S - ε_B: its threshold, its value and the efficiencies there."""

    threshold: Estimate
    difference: Estimate
    signal_efficiency: float
    background_efficiency: float


@dataclass(frozen=True)
class MaxImprovement:
    """The largest ε_S / √ε_B, and the background efficiency where it is."""

    improvement: Estimate
    background_efficiency: float

    def __str__(self) -> str:
        return f"{self.improvement} at ε_B = {100 * self.background_efficiency:.2g}%"


@dataclass(frozen=True)
class Metrics:
    """All metrics of one score; None where the statistics do not support a number.

    Attributes
    ----------
    n_signal_effective, n_background_effective
        Numbers of events of equal weight that fluctuate as much.
    signal_efficiency
        By background efficiency: 1e-2, 1e-3 and 1e-4; where too few events support the first, at looser ones too.
    background_rejection, background_rejection_limit
        1 / ε_B by signal efficiency, and its lower limit with the same confidence, also where it cannot be measured.
    background_efficiency, background_efficiency_limit
        At a signal efficiency of 0.01, and its upper limit.
    """

    n_signal: int
    n_background: int
    n_signal_effective: float
    n_background_effective: float
    auc: Estimate
    signal_efficiency: dict[float, Estimate | None]
    background_rejection: dict[float, Estimate | None]
    background_rejection_limit: dict[float, float]
    background_efficiency: Estimate | None
    background_efficiency_limit: float
    best_threshold: BestThreshold
    overlap_area: Estimate
    max_significance_improvement: MaxImprovement | None
    total_improvement: Estimate | None


def measure(ranked: RankedScores, *, n_replicas: int = 400, seed: int = 0) -> Metrics:
    """Measure everything."""
    n_signal = int(np.count_nonzero(ranked.is_signal))
    roc = Roc.of(ranked)
    replicas = roc_replicas(roc, n_replicas=n_replicas, seed=seed)
    efficiencies = signal_efficiencies(roc, replicas, BACKGROUND_EFFICIENCIES)
    if efficiencies[BACKGROUND_EFFICIENCIES[0]] is None:
        looser = signal_efficiencies(roc, replicas, LOOSER_EFFICIENCIES)
        efficiencies |= {at: one for at, one in looser.items() if one is not None}
    limits = {
        at: _background_efficiency_limit(roc, replicas, at, seed) for at in (*SIGNAL_EFFICIENCIES, SIGNAL_EFFICIENCY)
    }
    return Metrics(
        n_signal,
        len(ranked.is_signal) - n_signal,
        n_signal_effective=1 / float(roc.signal_unit[-1]),
        n_background_effective=1 / float(roc.background_unit[-1]),
        auc=ranked.placements.auc(),
        signal_efficiency=efficiencies,
        background_rejection={at: _inverse(background_efficiency(roc, replicas, at)) for at in SIGNAL_EFFICIENCIES},
        background_rejection_limit={at: 1 / limits[at] for at in SIGNAL_EFFICIENCIES},
        background_efficiency=background_efficiency(roc, replicas, SIGNAL_EFFICIENCY),
        background_efficiency_limit=limits[SIGNAL_EFFICIENCY],
        best_threshold=_best_threshold(roc, replicas),
        overlap_area=overlap_area(roc),
        max_significance_improvement=_max_improvement(roc, replicas),
        total_improvement=_total_improvement(efficiencies, replicas),
    )


def signal_efficiencies(
    roc: Roc, replicas: RocReplicas, background_efficiencies: Sequence[float]
) -> dict[float, Estimate | None]:
    """Signal efficiency at each background efficiency; ties at the threshold are interpolated linearly.

    None where fewer than ten background events are above the threshold: the statistics do not support it.
    """
    at = np.array(background_efficiencies)
    values = np.interp(at, roc.background_efficiency, roc.signal_efficiency)
    n_above = at**2 / np.interp(at, roc.background_efficiency, roc.background_variance)
    spread = replicas.signal_efficiency_at(at)
    return {
        one: percentile_interval(float(values[i]), spread[:, i]) if is_supported(n_above[i]) else None
        for i, one in enumerate(background_efficiencies)
    }


def background_efficiency(roc: Roc, replicas: RocReplicas, signal_efficiency: float) -> Estimate | None:
    """Background efficiency at a signal efficiency; None if fewer than ten background events pass."""
    at = np.array([signal_efficiency])
    value = lowest_at(at, roc.signal_efficiency, roc.background_efficiency)[0]
    variance = np.interp(value, roc.background_efficiency, roc.background_variance)
    if not value or not is_supported(value**2 / variance):
        return None
    return percentile_interval(float(value), replicas.background_efficiency_at(at)[:, 0])


def _inverse(efficiency: Estimate | None) -> Estimate | None:
    """Rejection from an efficiency that some background events pass."""
    return efficiency and Estimate(1 / efficiency.value, 1 / efficiency.high, 1 / efficiency.low)


def _background_efficiency_limit(roc: Roc, replicas: RocReplicas, at: float, seed: int) -> float:
    measured = replicas.background_efficiency_at(np.array([at]))[:, 0]
    # Background between the last event above the threshold and the threshold is, with what replicas have, one event.
    unseen = np.random.default_rng(seed).standard_gamma(0.5, len(measured))
    return float(min(np.quantile(measured + unseen * roc.background_unit[0], CONFIDENCE), 1.0))


def _best_threshold(roc: Roc, replicas: RocReplicas) -> BestThreshold:
    difference = roc.signal_efficiency - roc.background_efficiency
    best = int(np.argmax(difference[1:])) + 1  # the first point has no threshold
    point = replicas.point[1:]
    spread = (replicas.signal_efficiency - replicas.background_efficiency)[:, 1:]
    at_best = int(np.argmin(np.abs(point - best)))
    # The threshold could be any whose difference is not significantly smaller than the largest.
    error = np.std(spread[:, [at_best]] - spread, axis=0)
    is_as_good = difference[best] - difference[point] <= N_ERRORS * error
    as_good = roc.threshold[[best, *point[is_as_good]]]
    low, high = _range_of_maximum(difference[point], spread - difference[point])
    value = float(difference[best])
    return BestThreshold(
        Estimate(float(roc.threshold[best]), float(as_good.min()), float(as_good.max())),
        Estimate(value, min(low, value), min(max(high, value), 1.0)),
        float(roc.signal_efficiency[best]),
        float(roc.background_efficiency[best]),
    )


def _max_improvement(roc: Roc, replicas: RocReplicas) -> MaxImprovement | None:
    best = roc.best_improvement
    if best is None:
        return None
    improvement = roc.significance_improvement
    value, at = float(improvement[best]), float(roc.background_efficiency[best])
    improvement = improvement[replicas.point]
    chosen = improvement > 0  # nor NaN
    if not chosen.any():
        return MaxImprovement(Estimate(value, 0.0, value), at)
    curve = np.log(improvement[chosen])
    spread = np.log(replicas.signal_efficiency[:, chosen] / np.sqrt(replicas.background_efficiency[:, chosen]))
    low, high = np.exp(_range_of_maximum(curve, spread - curve))
    return MaxImprovement(Estimate(value, float(min(low, value)), float(max(high, value))), at)


def _range_of_maximum(curve: FloatArray, deviation: FloatArray) -> tuple[float, float]:
    """Interval of the maximum of a curve, from deviations (n_replicas, n_points) of the curve.

    A plain bootstrap of the maximum would repeat its bias: the largest of many numbers is one that fluctuated upwards.
    So the low end is the best of a lower band that holds for the whole curve, and the high end is the best of the
    intervals at each point, one of which is where the true maximum lies: conservative.
    """
    error = deviation.std(axis=0) + np.finfo(np.float64).eps
    band = np.quantile((deviation / error).max(axis=1), TAILS[1])
    return float((curve - band * error).max()), float((curve + np.quantile(deviation, TAILS[1], axis=0)).max())


def _total_improvement(efficiencies: dict[float, Estimate | None], replicas: RocReplicas) -> Estimate | None:
    """The largest ε_S / √ε_B at the supported ones of the three working points (arXiv:2105.14027)."""
    supported = {at: one for at, one in efficiencies.items() if one is not None and at in BACKGROUND_EFFICIENCIES}
    if not supported:
        return None
    points = np.array(list(supported))
    value = max(one.value / np.sqrt(at) for at, one in supported.items())
    spread = replicas.signal_efficiency_at(points) / np.sqrt(points)
    low, high = np.quantile(spread, [TAILS[0] / len(points), TAILS[1]], axis=0).max(axis=1)
    return Estimate(float(value), float(min(low, value)), float(max(high, value)))


def score_bins(roc: Roc) -> tuple[FloatArray, npt.NDArray[np.intp]]:
    """Edges of equal bins over the range of all scores, and the point of the curve at each: what is above it."""
    rising = roc.threshold[:0:-1]
    edges = np.histogram_bin_edges(rising, OVERLAP_BINS)
    point = len(rising) - np.searchsorted(rising, edges)
    point[-1] = 0  # the largest score is in the last bin
    return edges, point


def overlap_area(roc: Roc) -> Estimate:
    """Common area of the normalized histograms of signal and background, in 100 equal bins of the pooled range.

    It is the fraction of signal in bins where background is denser, plus that of background in all others; the interval
    is that of these two fractions. Fluctuations make the smaller of two bins smaller, so that the area comes out too
    small where there are few events in a bin; the high end of the interval makes up for that.
    """
    _, point = score_bins(roc)
    signal, background, square_s, square_b = (
        -np.diff(above[point])
        for above in (roc.signal_efficiency, roc.background_efficiency, roc.signal_variance, roc.background_variance)
    )
    is_less = signal < background
    area = float(np.minimum(signal, background).sum())
    variance = variance_of_efficiency(signal[is_less].sum(), square_s[is_less].sum(), square_s.sum())
    variance += variance_of_efficiency(background[~is_less].sum(), square_b[~is_less].sum(), square_b.sum())
    half, n_least = N_ERRORS * float(np.sqrt(variance)), 1 / max(roc.signal_unit[-1], roc.background_unit[-1])
    largest = min(area + _shortfall(signal - background, square_s + square_b), 1.0)
    high = logit_interval(largest, half, n_least).high
    return Estimate(area, logit_interval(area, half, n_least).low, high)


def _shortfall(difference: FloatArray, variance: FloatArray) -> float:
    """By how much the smaller of two bins, summed over bins, can be expected to be too small.

    Gaussian bins with the observed difference would fall short by the expression below. What was observed has
    fluctuated already: for bins that are truly equal the shortfall is on average 1 / (sqrt(2) - 1) times that.
    """
    error = np.sqrt(variance[variance > 0])
    size = np.abs(difference[variance > 0])
    shortfall = error * np.exp(-((size / error) ** 2) / 2) / np.sqrt(2 * np.pi) - size * ndtr(-size / error)
    return float(shortfall.sum() / (np.sqrt(2) - 1))
