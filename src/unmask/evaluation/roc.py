"""ROC curves of weighted events, ties exact, and replicas of them for bands and intervals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.errors import BadDataError, UsageError
from unmask.evaluation.intervals import Placements
from unmask.scores.intervals import (
    FloatArray,
    above_each,
    check_finite,
    cumulated_variance,
    distinct_values,
    is_supported,
)

#: Replicas follow the curve at every event at first, then at steps of this fraction of the events above.
_STEP = 0.02


@dataclass(frozen=True, eq=False)
class RankedScores:
    """Scores of signal and background, sorted once for all metrics of them, or of some of the events.

    Attributes
    ----------
    value
        Distinct scores (n_values,), rising; of very many events, those that bound narrow bins.
    place, is_signal, weight
        (n_events,): the index of the value that it reaches, the class and the weight of each event.
    """

    value: FloatArray
    place: npt.NDArray[np.int32]
    is_signal: npt.NDArray[np.bool_]
    weight: FloatArray

    @classmethod
    def of(
        cls, score: npt.NDArray[Any], is_signal: npt.NDArray[np.bool_], weight: npt.NDArray[Any] | None = None
    ) -> RankedScores:
        """Sort scores, after checking them; see :func:`check_scores`."""
        weight = np.ones(len(score)) if weight is None else weight
        check_scores(score, is_signal, weight)
        score = score.astype(np.float64, copy=False)
        value = distinct_values(score[is_signal], score[~is_signal])
        place = (np.searchsorted(value, score, side="right") - 1).astype(np.int32)
        return cls(value, place, is_signal, weight)

    def __getitem__(self, chosen: slice | npt.NDArray[Any]) -> RankedScores:
        """Some of the events, without sorting them again."""
        place = self.place[chosen]
        is_taken = np.bincount(place, minlength=len(self.value)) > 0
        if not is_taken.all():
            place = (np.cumsum(is_taken, dtype=np.int32) - 1)[place]
        return RankedScores(self.value[is_taken], place, self.is_signal[chosen], self.weight[chosen])

    @cached_property
    def placements(self) -> Placements:
        """Parts of the area under the ROC curve and of its variance; ties count half."""

        def below(which: npt.NDArray[np.bool_]) -> FloatArray:
            counts = np.bincount(self.place[~which], self.weight[~which], len(self.value))
            cumulated, place = np.append(0.0, np.cumsum(counts)), self.place[which]
            return np.asarray((cumulated[place] + cumulated[place + 1]) / 2 / cumulated[-1])

        of_signal, of_background = self.is_signal, ~self.is_signal
        areas = below(of_signal), 1 - below(of_background)
        return Placements(*areas, self.weight[of_signal], self.weight[of_background])


def check_scores(score: npt.NDArray[Any], is_signal: npt.NDArray[np.bool_], weight: FloatArray) -> None:
    """Refuse what is not finite, one class alone, and weights of a class that do not add up to a positive number."""
    check_finite(score)
    check_finite(weight, "weights")
    if is_signal.all() or not is_signal.any():
        raise UsageError("signal and background events are both needed; all events are of one class")
    for name, chosen in (("signal", is_signal), ("background", ~is_signal)):
        if weight[chosen].sum() <= 0:
            raise BadDataError(f"the weights of the {name} events do not add up to a positive number")


@dataclass(frozen=True, eq=False)
class Roc:
    """Background and signal efficiency at each distinct score, all (n_points,) and rising from 0 to 1.

    Attributes
    ----------
    threshold
        Falling; the first is infinite: nothing is above it.
    background_unit, signal_unit
        Weight of one event around each threshold, of weights that add up to 1: 1/n for n equal weights.
    """

    background_efficiency: FloatArray
    signal_efficiency: FloatArray
    threshold: FloatArray
    background_unit: FloatArray
    signal_unit: FloatArray

    @classmethod
    def of(cls, ranked: RankedScores) -> Roc:
        """Efficiencies at all thresholds, see :func:`~unmask.scores.intervals.above_each`.

        Between two points the curve is straight, as if ties were broken at random.

        >>> roc = Roc.of(RankedScores.of(np.array([1, 2, 2, 3]), np.array([False, False, True, True])))
        >>> roc.threshold, roc.background_efficiency, roc.signal_efficiency
        (array([inf,  3.,  2.,  1.]), array([0. , 0. , 0.5, 1. ]), array([0. , 0.5, 1. , 1. ]))
        """
        signal, background = (
            above_each(ranked.place[chosen], ranked.weight[chosen], len(ranked.value))
            for chosen in (ranked.is_signal, ~ranked.is_signal)
        )
        threshold = np.append(np.inf, ranked.value[::-1])
        return cls(background[0], signal[0], threshold, background[1], signal[1])

    @cached_property
    def background_variance(self) -> FloatArray:
        """Sum of the squared weights of the background events above each threshold."""
        return cumulated_variance(self.background_efficiency, self.background_unit)

    @cached_property
    def signal_variance(self) -> FloatArray:
        """Sum of the squared weights of the signal events above each threshold."""
        return cumulated_variance(self.signal_efficiency, self.signal_unit)

    @property
    def n_background_above(self) -> FloatArray:
        """Effective number of background events above each threshold."""
        variance = np.maximum(self.background_variance, np.finfo(np.float64).tiny)
        return np.asarray(self.background_efficiency**2 / variance)

    @property
    def is_supported(self) -> npt.NDArray[np.bool_]:
        """Where enough background events are above the threshold."""
        return np.asarray(is_supported(self.n_background_above))

    @property
    def significance_improvement(self) -> FloatArray:
        """ε_S / √ε_B at each point; NaN where fewer than ten background events (effective) are above."""
        improvement = np.full(len(self.threshold), np.nan)
        chosen = self.is_supported
        improvement[chosen] = self.signal_efficiency[chosen] / np.sqrt(self.background_efficiency[chosen])
        return improvement

    @property
    def best_improvement(self) -> int | None:
        """Point of the largest significance improvement; None where none is supported."""
        improvement = self.significance_improvement
        return None if np.isnan(improvement).all() else int(np.nanargmax(improvement))


@dataclass(frozen=True, eq=False)
class RocReplicas:
    """Curves (n_replicas, n_points) that other samples of the same size could have given.

    Where the curve is dense they have not all of its points; ``point`` (n_points,) are the indices of these.
    """

    point: npt.NDArray[np.intp]
    background_efficiency: FloatArray
    signal_efficiency: FloatArray

    def signal_efficiency_at(self, background_efficiency: FloatArray) -> FloatArray:
        """Each replica at given background efficiencies: (n_replicas, n_given)."""
        curves = zip(self.background_efficiency, self.signal_efficiency, strict=True)
        return np.stack([np.interp(background_efficiency, *curve) for curve in curves])

    def background_efficiency_at(self, signal_efficiency: FloatArray) -> FloatArray:
        """Each replica at given signal efficiencies: (n_replicas, n_given)."""
        curves = zip(self.signal_efficiency, self.background_efficiency, strict=True)
        return np.stack([lowest_at(signal_efficiency, *curve) for curve in curves])


def lowest_at(at: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    """The lowest y of a rising curve at each given x; ``np.interp``, which takes the last of equal x, the highest."""
    return np.interp(-at, -x[::-1], y[::-1])


def roc_replicas(roc: Roc, *, n_replicas: int = 400, seed: int = 0) -> RocReplicas:
    """Draw replicas by the Bayesian bootstrap: every event gets a random weight from an exponential distribution.

    Unlike in the ordinary bootstrap no event ever drops out, so that few events above a threshold have a sensible
    spread (that of an order statistic). Events between two points of the curve are drawn together, a gamma variate with
    the mean and the variance of their sum; half an event at either end stands for those that were not met (Jeffreys).
    """
    rng = np.random.default_rng(seed)
    kept = np.union1d(_steps(roc.background_efficiency), _steps(roc.signal_efficiency))

    def draw(efficiency: FloatArray, variance: FloatArray, unit: FloatArray) -> FloatArray:
        mean, spread = np.diff(efficiency[kept]), np.diff(variance[kept])
        scale = np.divide(spread, mean, out=np.zeros_like(mean), where=mean > 0)
        shape = np.divide(mean, scale, out=np.zeros_like(mean), where=scale > 0)
        cells = rng.standard_gamma(shape, (n_replicas, len(shape))) * scale
        unseen = rng.standard_gamma(0.5, (2, n_replicas, 1)) * unit[[0, -1]].reshape(2, 1, 1)
        above = np.cumsum(np.concatenate([unseen[0], cells], axis=1), axis=1)
        return np.asarray(above / (above[:, -1:] + unseen[1]))

    background = draw(roc.background_efficiency, roc.background_variance, roc.background_unit)
    signal = draw(roc.signal_efficiency, roc.signal_variance, roc.signal_unit)
    return RocReplicas(kept, background, signal)


def _steps(efficiency: FloatArray) -> npt.NDArray[np.intp]:
    """Points of the curve: all at small efficiencies, then growing by a few per cent; first and last among them."""
    steps = np.geomspace(1e-7, 1, int(np.log(1e7) / _STEP) + 1)
    points = np.searchsorted(efficiency, steps)
    return np.unique(np.concatenate([[0], np.minimum(points, len(efficiency) - 1), [len(efficiency) - 1]]))
