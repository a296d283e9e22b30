"""Bins of a quantity that stay fine where background is rare, and a tail that goes on beyond the last of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

#: Where bins begin, as shares of background below: 2.5 % wide, and ever finer at the upper end.
BULK = np.arange(0.025, 0.95, 0.025)
TAIL = np.array([0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.994, 0.997, 0.9985, 0.9993])
#: The last bin keeps at least this many training events.
MIN_EVENTS = 20


@dataclass(frozen=True, eq=False)
class TailBins:
    """Bin b > 0 holds the values from ``edges[b - 1]`` on; bin 0 those below all edges.

    Attributes
    ----------
    edges : (n_bins - 1,), rising.
    lowest : the smallest value of background.
    tail_scale : mean of what background exceeds the last edge by.

    >>> bins = TailBins.fit(np.repeat([2.0, 3.0, 4.0], [700, 250, 50]), is_count=True)
    >>> bins.edges.tolist(), bins.bin_of(np.array([2.0, 4.0, 9.0])).tolist()
    ([3.0, 4.0], [0, 2, 2])
    """

    edges: FloatArray
    lowest: float
    tail_scale: float
    is_count: bool

    @classmethod
    def fit(cls, values: FloatArray, *, is_count: bool) -> Self:
        """Learn the bins of a quantity from its values (n_events,) in background."""
        ordered = np.sort(values)
        if is_count:  # a bin for each, even where background has none between others
            wanted = np.arange(ordered[0] + 1, ordered[-1] + 1)
        else:
            wanted = np.unique(np.quantile(ordered, np.concatenate([BULK, TAIL])))
        n_from = len(ordered) - np.searchsorted(ordered, wanted)
        edges = wanted[(n_from >= min(MIN_EVENTS, len(ordered))) & (wanted > ordered[0])]
        last = edges[-1] if len(edges) else ordered[0]
        excess = ordered[ordered >= last] - last
        # A count that never exceeds the last edge in background falls off e-fold by e-fold beyond it.
        scale = max(float(excess.mean()), 1.0 if is_count else 1e-6 * max(abs(last), 1.0))
        return cls(edges, float(ordered[0]), scale, is_count)

    @property
    def n_bins(self) -> int:
        return len(self.edges) + 1

    def bin_of(self, values: FloatArray) -> npt.NDArray[np.int64]:
        """The bin (n_events,) of each value."""
        return np.asarray(np.searchsorted(self.edges, values, side="right"))

    def log_share_above(self, values: FloatArray) -> FloatArray:
        """Logarithm of the share of its bin that is at or above each value (n_events,); exponential in the last bin."""
        code = self.bin_of(values)
        lower = np.concatenate([[self.lowest], self.edges])[code]
        excess = np.maximum(values - lower, 0)
        in_last = -excess / self.tail_scale
        if self.is_count:
            return np.asarray(np.where(code == len(self.edges), in_last, 0.0))
        upper = np.concatenate([self.edges, [np.inf]])[code]
        inside = np.log(np.clip(1 - excess / (upper - lower), 1e-6, 1))
        return np.asarray(np.where(code == len(self.edges), in_last, inside))

    def log_share_at(self, values: FloatArray, *, stretch: float = 1.0) -> FloatArray:
        """Logarithm of the share of its bin that is at each value (n_events,), in a tail ``stretch`` times as long.

        0 below the last bin: a count is alone in its bin there, and of a continuous quantity it is the density, in
        units of what it is in the mean of the bin. In the last bin a count falls geometrically from the edge on, the
        density of a continuous quantity exponentially; its unit is then that at the edge, without stretch.
        """
        last = self.edges[-1] if len(self.edges) else self.lowest
        scale = stretch * self.tail_scale
        at_edge = -np.expm1(-1 / scale) if self.is_count else 1 / stretch
        in_last = np.log(at_edge) - np.maximum(values - last, 0) / scale
        return np.asarray(np.where(self.bin_of(values) == len(self.edges), in_last, 0.0))

    def arrays(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """All that was learnt."""
        return {f"{name}.edges": self.edges, f"{name}.rest": np.array([self.lowest, self.tail_scale, self.is_count])}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]], name: str) -> Self:
        """Take back what :meth:`arrays` gave."""
        lowest, scale, is_count = arrays.pop(f"{name}.rest").tolist()
        return cls(arrays.pop(f"{name}.edges"), lowest, scale, bool(is_count))
