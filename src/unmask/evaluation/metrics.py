"""How well a score tells signal from background: weights honoured, ties exact, an interval on every number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from unmask.evaluation.intervals import Estimate, logit_interval, percentile_interval
from unmask.evaluation.overlap import overlap_area
from unmask.evaluation.ranked_scores import FloatArray, Placements, RankedScores, n_effective
from unmask.evaluation.roc import (
    MIN_BACKGROUND_EVENTS,
    Roc,
    RocReplicas,
    highest_at,
    lowest_at,
    max_sic,
    roc_curve,
    roc_replicas,
    significance_improvement,
)

#: Where the signal efficiency is measured.
BACKGROUND_EFFICIENCIES = (1e-2, 1e-3, 1e-4)
#: Where the background efficiency is measured.
SIGNAL_EFFICIENCY = 1e-2
#: What stands in the place of a number.
TOO_FEW, NEGATIVE_WEIGHTS = "too few events", "neg. weights"


@dataclass(frozen=True)
class BestThreshold:
    """Where the difference of the efficiencies (TPR - FPR) is largest, and what they are there."""

    threshold: Estimate
    difference: Estimate
    signal_efficiency: float
    background_efficiency: float


@dataclass(frozen=True)
class MaxImprovement:
    """The largest eps_S / sqrt(eps_B), and the background efficiency where it is."""

    improvement: Estimate
    background_efficiency: float


@dataclass(frozen=True)
class Metrics:
    """All that is measured of one score; None where the statistics do not support a number.

    Attributes
    ----------
    signal_efficiency : by background efficiency.
    background_efficiency : at a signal efficiency of 0.01.
    background_efficiency_limit : what it is below with the same confidence, also where it cannot be measured.
    """

    n_signal: int
    n_background: int
    auc: Estimate
    signal_efficiency: dict[float, Estimate | None]
    background_efficiency: Estimate | None
    background_efficiency_limit: float | None
    best_threshold: BestThreshold | None
    overlap_area: Estimate | None
    max_significance_improvement: MaxImprovement | None
    total_improvement: Estimate | None

    @property
    def why_missing(self) -> str:
        """Why a number is None, in words."""
        return TOO_FEW if self.best_threshold else NEGATIVE_WEIGHTS


def measure(
    score: npt.NDArray[Any],
    is_signal: npt.NDArray[np.bool_],
    weight: npt.NDArray[Any] | None = None,
    *,
    confidence: float = 0.95,
    n_replicas: int = 400,
    seed: int = 0,
) -> Metrics:
    """Measure everything; with negative weights only the AUC, since efficiencies can then fall with the threshold."""
    ranked = RankedScores.of(score, is_signal, weight)
    return measure_ranked(ranked, confidence=confidence, n_replicas=n_replicas, seed=seed)


def measure_ranked(ranked: RankedScores, *, confidence: float = 0.95, n_replicas: int = 400, seed: int = 0) -> Metrics:
    """Measure everything of scores that are sorted already; see :func:`measure`."""
    n_signal = int(np.count_nonzero(ranked.is_signal))
    auc = _auc(ranked.placements, confidence)
    counts = (n_signal, len(ranked.is_signal) - n_signal)
    if np.min(ranked.weight) < 0:
        nothing: dict[float, Estimate | None] = dict.fromkeys(BACKGROUND_EFFICIENCIES)
        return Metrics(*counts, auc, nothing, None, None, None, None, None, None)
    roc = Roc.of(ranked)
    replicas = roc_replicas(roc, n_replicas=n_replicas, seed=seed)
    at_background = _signal_efficiencies(roc, replicas, BACKGROUND_EFFICIENCIES, confidence)
    return Metrics(
        *counts,
        auc=auc,
        signal_efficiency=at_background,
        background_efficiency=_background_efficiency(roc, replicas, SIGNAL_EFFICIENCY, confidence),
        background_efficiency_limit=_background_efficiency_limit(roc, replicas, SIGNAL_EFFICIENCY, confidence, seed),
        best_threshold=_best_threshold(roc, replicas, confidence),
        overlap_area=overlap_area(roc, confidence=confidence),
        max_significance_improvement=_max_improvement(roc, replicas, confidence),
        total_improvement=_total_improvement(at_background, replicas, confidence),
    )


def roc_auc(
    score: npt.NDArray[Any],
    is_signal: npt.NDArray[np.bool_],
    weight: npt.NDArray[Any] | None = None,
    *,
    confidence: float = 0.95,
) -> Estimate:
    """Area under the ROC curve with DeLong's interval, symmetric in the logit so that it stays within (0, 1).

    The area is the probability that a signal event has a larger score than a background event, ties counting half.

    >>> roc_auc(np.array([1, 2, 2, 3]), np.array([False, False, True, True])).value
    0.875
    """
    return _auc(RankedScores.of(score, is_signal, weight).placements, confidence)


def _auc(placed: Placements, confidence: float) -> Estimate:
    n_pairs = min(map(n_effective, (placed.signal_weight, placed.background_weight)))
    return logit_interval(placed.mean(), np.sqrt(placed.variance()), confidence, n_pairs)


def signal_efficiency_at(
    score: npt.NDArray[Any],
    is_signal: npt.NDArray[np.bool_],
    weight: npt.NDArray[Any] | None = None,
    *,
    background_efficiency: float,
    confidence: float = 0.95,
    n_replicas: int = 400,
    seed: int = 0,
) -> Estimate | None:
    """Share of signal above the threshold that lets ``background_efficiency`` of the background through.

    Where events are tied at the threshold, both efficiencies are interpolated, as if ties were broken at random. The
    interval is that of a bootstrap of signal and background. None where fewer than ten background events are above the
    threshold: the statistics do not support the working point.
    """
    roc = roc_curve(score, is_signal, weight)
    replicas = roc_replicas(roc, n_replicas=n_replicas, seed=seed)
    return _signal_efficiencies(roc, replicas, [background_efficiency], confidence)[background_efficiency]


def background_efficiency_at(
    score: npt.NDArray[Any],
    is_signal: npt.NDArray[np.bool_],
    weight: npt.NDArray[Any] | None = None,
    *,
    signal_efficiency: float = SIGNAL_EFFICIENCY,
    confidence: float = 0.95,
    n_replicas: int = 400,
    seed: int = 0,
) -> Estimate | None:
    """Share of background above the threshold that lets ``signal_efficiency`` of the signal through, as above."""
    roc = roc_curve(score, is_signal, weight)
    replicas = roc_replicas(roc, n_replicas=n_replicas, seed=seed)
    return _background_efficiency(roc, replicas, signal_efficiency, confidence)


def _signal_efficiencies(
    roc: Roc, replicas: RocReplicas, background_efficiencies: Sequence[float], confidence: float
) -> dict[float, Estimate | None]:
    wanted = np.array(background_efficiencies)
    values = highest_at(wanted, roc.background_efficiency, roc.signal_efficiency)
    n_above = wanted**2 / np.interp(wanted, roc.background_efficiency, roc.background_variance)
    spread = replicas.signal_efficiency_at(wanted)
    return {
        wanted_one: percentile_interval(float(values[i]), spread[:, i], confidence) if _supports(n_above[i]) else None
        for i, wanted_one in enumerate(background_efficiencies)
    }


def _background_efficiency(
    roc: Roc, replicas: RocReplicas, signal_efficiency: float, confidence: float
) -> Estimate | None:
    wanted = np.array([signal_efficiency])
    value = lowest_at(wanted, roc.signal_efficiency, roc.background_efficiency)[0]
    variance = np.interp(value, roc.background_efficiency, roc.background_variance)
    if not value or not _supports(value**2 / variance):
        return None
    return percentile_interval(float(value), replicas.background_efficiency_at(wanted)[:, 0], confidence)


def _background_efficiency_limit(
    roc: Roc, replicas: RocReplicas, signal_efficiency: float, confidence: float, seed: int
) -> float:
    found = replicas.background_efficiency_at(signal_efficiency)[:, 0]
    # Background between the last event above the threshold and the threshold: as much as one event, exponentially.
    unseen = np.random.default_rng(seed).exponential(roc.background_variance[-1], len(found))
    return float(min(np.quantile(found + unseen, confidence), 1.0))


def _best_threshold(roc: Roc, replicas: RocReplicas, confidence: float) -> BestThreshold:
    difference = roc.signal_efficiency - roc.background_efficiency
    best = int(np.argmax(difference[1:])) + 1  # the first point has no threshold
    point = replicas.point[1:]
    spread = (replicas.signal_efficiency - replicas.background_efficiency)[:, 1:]
    at_best = int(np.argmin(np.abs(point - best)))
    # The threshold could be any whose difference is not significantly smaller than the largest.
    error = np.std(spread[:, [at_best]] - spread, axis=0)
    is_as_good = difference[best] - difference[point] <= ndtri((1 + confidence) / 2) * error
    as_good = roc.threshold[[best, *point[is_as_good]]]
    low, high = _range_of_maximum(difference[point], spread - difference[point], confidence)
    value = float(difference[best])
    return BestThreshold(
        Estimate(float(roc.threshold[best]), float(as_good.min()), float(as_good.max())),
        Estimate(value, min(low, value), min(max(high, value), 1.0)),
        float(roc.signal_efficiency[best]),
        float(roc.background_efficiency[best]),
    )


def _max_improvement(roc: Roc, replicas: RocReplicas, confidence: float) -> MaxImprovement | None:
    found = max_sic(roc)
    if found is None:
        return None
    value, where = found
    improvement = significance_improvement(roc)[replicas.point]
    chosen = improvement > 0  # nor NaN
    if not chosen.any():
        return MaxImprovement(Estimate(value, 0.0, value), where)
    curve = np.log(improvement[chosen])
    spread = np.log(replicas.signal_efficiency[:, chosen] / np.sqrt(replicas.background_efficiency[:, chosen]))
    low, high = np.exp(_range_of_maximum(curve, spread - curve, confidence))
    return MaxImprovement(Estimate(value, float(min(low, value)), float(max(high, value))), where)


def _range_of_maximum(curve: FloatArray, deviation: FloatArray, confidence: float) -> tuple[float, float]:
    """Interval of the maximum of a curve, from deviations (n_replicas, n_points) of the curve.

    A plain bootstrap of the maximum would repeat its bias: the largest of many numbers is one that fluctuated upwards.
    So the low end is the best of a lower band that holds for the whole curve, and the high end is the best of the
    intervals at each point, one of which is where the true maximum lies: conservative.
    """
    likely = (1 + confidence) / 2
    error = deviation.std(axis=0) + np.finfo(np.float64).eps
    band = np.quantile((deviation / error).max(axis=1), likely)
    return float((curve - band * error).max()), float((curve + np.quantile(deviation, likely, axis=0)).max())


def _total_improvement(
    efficiencies: dict[float, Estimate | None], replicas: RocReplicas, confidence: float
) -> Estimate | None:
    """The largest eps_S / sqrt(eps_B) at the supported ones of the three working points (arXiv:2105.14027)."""
    supported = {wanted: found for wanted, found in efficiencies.items() if found is not None}
    if not supported:
        return None
    points = np.array(list(supported))
    value = max(found.value / np.sqrt(wanted) for wanted, found in supported.items())
    spread = replicas.signal_efficiency_at(points) / np.sqrt(points)
    tail = (1 - confidence) / 2
    low, high = np.quantile(spread, [tail / len(points), 1 - tail], axis=0).max(axis=1)
    return Estimate(float(value), float(min(low, value)), float(max(high, value)))


def _supports(n_above: float) -> bool:
    return bool(n_above > MIN_BACKGROUND_EVENTS * (1 - 1e-9))  # whole numbers may come out a rounding below
