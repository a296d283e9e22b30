"""How often background is as anomalous as this: p-values of scores, and how those of several scores become one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Rule = Literal["average", "and", "or", "product"]

#: The share of background whose scores say how the tail falls off beyond the largest of them.
TAIL_SHARE = 0.05
#: Relative steps of the p-value that are kept: 5,000 of 10^5 background events, all of the last thousand among them.
_PRECISION = 1e-3


def p_values(background: npt.NDArray[Any], score: npt.NDArray[Any], weight: Array | None = None) -> Array:
    """The share of background with that score or more, the event itself counted in: (1 + n) / (1 + N).

    With weights n and N are effective numbers; what negative ones would bring below 0 or above 1 stays there.

    >>> p_values(np.array([1, 2, 2, 4]), np.array([0, 2, 3, 9])).tolist()
    [1.0, 0.8, 0.4, 0.2]
    """
    weight = np.ones(len(background)) if weight is None else weight
    order = np.argsort(background, kind="stable")
    above = np.append(np.cumsum(weight[order][::-1])[::-1], 0.0) * (weight.sum() / (weight**2).sum())
    n_above = np.clip(above[np.searchsorted(background[order], score, side="left")], 0, above[0])
    return np.asarray((1 + n_above) / (1 + above[0]), np.float64)


@dataclass(frozen=True)
class BackgroundTail:
    """Minus the logarithm of the p-value of a score: 0 for an ordinary event, and never the same for two odd ones.

    At the scores of the background events it is that of :func:`p_values`, where there are many of them to 0.1 %. In
    between it is interpolated, so that events between two background events are not tied. Beyond
    the largest score, where there is no background to count, it goes on along an exponential tail with the mean
    excess of the last 5 % of background: an extrapolation that orders events, not a measured probability.

    Attributes
    ----------
    value, minus_log_p : (n_values,), the different scores of background, rising.
    scale : the mean excess.

    >>> tail = BackgroundTail.of(np.array([1.0, 2.0, 2.0, 4.0]))
    >>> np.exp(-tail.minus_log_p_of(np.array([0.0, 2.0, 4.0]))).round(6).tolist()
    [1.0, 0.8, 0.4]
    """

    value: Array
    minus_log_p: Array
    scale: float

    @classmethod
    def of(cls, background: npt.NDArray[Any]) -> Self:
        """Learn from the scores of background events, of which there is at least one."""
        value = np.unique(background).astype(np.float64)
        minus_log_p = -np.log(p_values(background, value))
        is_kept = np.diff(np.floor(minus_log_p / _PRECISION), prepend=-1) > 0
        start = np.quantile(background, 1 - TAIL_SHARE)
        excess = background[background > start] - start
        # If so many are equal that none is left above, any score beyond them all is new: one unit is as good as any.
        return cls(value[is_kept], minus_log_p[is_kept], float(excess.mean()) if len(excess) else 1.0)

    def minus_log_p_of(self, score: npt.NDArray[Any]) -> Array:
        """Minus the natural logarithm of the p-value (n_events,)."""
        beyond = np.maximum(score - self.value[-1], 0) / self.scale
        return np.asarray(np.interp(score, self.value, self.minus_log_p, left=0.0) + beyond, np.float64)

    def in_words(self, minus_log_p: float) -> str:
        """What a p-value means; beyond the largest score of background there is an order but nothing measured.

        >>> BackgroundTail.of(np.arange(100.0)).in_words(-np.log(0.02))
        '0.02 of background has as much or more'
        """
        if minus_log_p > self.minus_log_p[-1]:
            return "more than all background that it was compared with"
        return f"{np.exp(-minus_log_p):.2g} of background has as much or more"

    def arrays(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """All that was learnt."""
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
