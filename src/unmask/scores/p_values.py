"""Background p-values of scores, and combinations of those of several scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from unmask.scores.intervals import (
    above_each,
    clopper_pearson,
    cumulated_variance,
    distinct_values,
    variance_of_efficiency,
)

Array = npt.NDArray[np.float64]
Rule = Literal["average", "and", "or", "product"]

#: Fraction of background whose scores say how the tail falls off beyond the largest of them.
TAIL_FRACTION = 0.05
#: Relative steps of the p-value that are kept: 5,000 of 10^5 background events, all of the last thousand among them.
_PRECISION = 1e-3


@dataclass(frozen=True, eq=False)
class Survival:
    """Weighted P(score >= s) of background at each of its scores, which makes any score a p-value.

    Attributes
    ----------
    score
        Distinct scores (n_values,), rising.
    p_value, efficiency, unit
        For events at each score, and for events above all of them (n_values + 1,): the p-value, the fraction of
        background there, and the weight that one event has there, of weights that add up to 1.
    """

    score: Array
    p_value: Array
    efficiency: Array
    unit: Array

    @classmethod
    def of(cls, background: npt.NDArray[Any], weight: Array | None = None, *, exact: bool = True) -> Self:
        """Count background events, of which there is at least one; if not ``exact``, very many of them to 1e-4."""
        value = np.unique(background) if exact else distinct_values(background)
        place = np.searchsorted(value, background, side="right") - 1
        efficiency, unit = above_each(place, np.ones(len(place)) if weight is None else weight, len(value))
        # An event that was never seen weighs as much as any other, or as those around it if these are heavier.
        unseen = np.maximum(unit, unit[-1])
        p_value = np.maximum.accumulate((unseen + efficiency) / (unseen + 1))
        return cls(value.astype(np.float64), p_value[::-1], efficiency[::-1], unit[::-1])

    @property
    def n_effective(self) -> float:
        """Effective number of background events."""
        return float(1 / self.unit[0])

    @property
    def variance(self) -> Array:
        """Sum of the squared weights of the events with each score or more (n_values + 1,)."""
        return cumulated_variance(self.efficiency[::-1], self.unit[::-1])[::-1]

    def p_values(self, score: npt.NDArray[Any]) -> Array:
        """(u + w) / (u + 1): the weight w of background with this score or more, of 1, and of one more event, u.

        Without weights (1 + n) / (1 + N), where n of N background events have this score or more. Never zero, and valid
        for any N: at most a fraction p of new background events has a p-value of p or less.
        """
        return self.p_value[self._place(score)]

    def intervals(self, score: npt.NDArray[Any]) -> tuple[Array, Array]:
        """Interval of P(score >= s) of all background: Clopper and Pearson's for events of that variance."""
        place, variance = self._place(score), self.variance
        efficiency = self.efficiency[place]
        spread = variance_of_efficiency(efficiency, variance[place], variance[0])
        binomial = efficiency * (1 - efficiency)
        n_events = np.divide(binomial, spread, out=1 / self.unit[place], where=(spread > 0) & (binomial > 0))
        return clopper_pearson(n_events * efficiency, n_events)

    def _place(self, score: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
        return np.searchsorted(self.score, score, side="left")


def p_values(background: npt.NDArray[Any], score: npt.NDArray[Any], weight: Array | None = None) -> Array:
    """P-values of scores in weighted background, very many of it to 1e-4; see :meth:`Survival.p_values`.

    >>> p_values(np.array([1, 2, 2, 4]), np.array([0, 2, 3, 9])).tolist()
    [1.0, 0.8, 0.4, 0.2]
    """
    return Survival.of(background, weight, exact=False).p_values(score)


def p_value_text(minus_log_p: float, beyond: float) -> str:
    """A p-value as text; beyond the largest score of background there is an order but nothing measured."""
    return "beyond all background" if minus_log_p > beyond else f"p = {np.exp(-minus_log_p):.2g}"


@dataclass(frozen=True)
class BackgroundTail:
    """Minus the logarithm of the p-value of a score: 0 for an ordinary event, and never equal for two anomalous ones.

    At the scores of the background events it is that of :func:`p_values`, where there are many of them to 0.1%. In
    between it is interpolated, so that events between two background events are not tied. Beyond the largest score,
    where there is no background to count, it falls to at most 1 / (1 + N) and goes on along an exponential tail with
    the mean excess of the last 5% of background: an extrapolation that orders events, not a measured probability.

    >>> tail = BackgroundTail.of(np.array([1.0, 2.0, 2.0, 4.0]))
    >>> np.exp(-tail.minus_log_p_of(np.array([0.0, 2.0, 4.0]))).round(6).tolist()
    [1.0, 0.8, 0.4]

    ``value`` are distinct scores of background and one beyond them, rising, with their ``minus_log_p``; ``scale``: mean
    excess.
    """

    value: Array
    minus_log_p: Array
    scale: float

    @classmethod
    def of(cls, background: npt.NDArray[Any], *, max_slope: float = np.inf) -> Self:
        """Learn from the scores of background events, of which there is at least one.

        Scores that are rounded need a ``max_slope``: where two background events have almost the same score, the
        p-value of an event between them would else depend on rounding.
        """
        value = np.unique(background).astype(np.float64)
        minus_log_p = -np.log(p_values(background, value))
        kept = [0]
        for i in np.flatnonzero(np.diff(np.floor(minus_log_p / _PRECISION), prepend=-1)[1:] > 0) + 1:
            if minus_log_p[i] - minus_log_p[kept[-1]] <= max_slope * (value[i] - value[kept[-1]]):
                kept.append(int(i))
        start = np.quantile(background, 1 - TAIL_FRACTION)
        excess = background[background > start] - start
        # If so many are equal that none is left above, any score beyond them all is new: one unit is as good as any.
        scale = float(excess.mean()) if len(excess) else 1.0
        unseen = max(np.log1p(len(background)), minus_log_p[kept[-1]] + 1)
        return cls(np.append(value[kept], value[kept[-1]] + scale), np.append(minus_log_p[kept], unseen), scale)

    def minus_log_p_of(self, score: npt.NDArray[Any]) -> Array:
        """Minus the natural logarithm of the p-value (n_events,)."""
        beyond = np.maximum(score - self.value[-1], 0) / self.scale
        return np.asarray(np.interp(score, self.value, self.minus_log_p, left=0.0) + beyond, np.float64)

    def text(self, minus_log_p: float) -> str:
        """A p-value as text; beyond the largest score of background there is an order but nothing measured.

        >>> BackgroundTail.of(np.arange(100.0)).text(-np.log(0.02))
        'p = 0.02'
        """
        return p_value_text(minus_log_p, self.beyond)

    @property
    def beyond(self) -> float:
        """Minus the logarithm of the p-value of the largest score of background."""
        return float(self.minus_log_p[-2])

    def arrays(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """Everything learned, for an artifact."""
        parts = {"value": self.value, "minus_log_p": self.minus_log_p, "scale": np.array([self.scale])}
        return {f"{name}.{part}": array for part, array in parts.items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]], name: str) -> Self:
        """Take back what :meth:`arrays` gave."""
        return cls(arrays[f"{name}.value"], arrays[f"{name}.minus_log_p"], float(arrays[f"{name}.scale"][0]))


#: From minus log p of several scores, (n_scores, n_events), to one score; larger is more anomalous.
COMBINE: dict[Rule, Callable[[Array], Array]] = {
    # Minus the logarithm of the mean p-value has the order of the mean of the ranks 1 - p, but does not round to 1.
    "average": lambda minus_log_p: np.log(len(minus_log_p)) - np.logaddexp.reduce(-minus_log_p, axis=0),
    "and": lambda minus_log_p: minus_log_p.min(axis=0),
    "or": lambda minus_log_p: minus_log_p.max(axis=0),
    "product": lambda minus_log_p: minus_log_p.sum(axis=0),
}
