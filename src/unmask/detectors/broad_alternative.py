"""What a quantity would be if nothing spoke against more of it: the alternative that background is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.special import gammainc

from unmask.detectors.tail_bins import TailBins

FloatArray = npt.NDArray[np.float64]

#: A count falls this many times more slowly beyond the last bin than in background.
_STRETCH = 2.0


@dataclass(frozen=True, eq=False)
class BroadAlternative:
    """A quantity of no preferred size: as in background where it is low, and ever likelier than there as it rises.

    A count has all values alike from the most frequent one of background on, and twice the background's scale beyond
    the last bin. A continuous quantity has, where background has as much or more with probability t, the mean of the
    densities a t^(a - 1) over all powers a from 0 to 1, relative to background. The power 1 is background, and the
    smaller it is the further out is the quantity; the mean prefers none.

    Attributes
    ----------
    background : (n_bins,), the share of background in each bin.

    >>> values = np.repeat([2.0, 3.0, 4.0, 5.0], [200, 400, 300, 100])
    >>> alternative = BroadAlternative.fit(TailBins.fit(values, is_count=True), values)
    >>> np.exp(alternative.log_probability(np.array([2.0, 3.0, 4.0]))).round(2).tolist()
    [0.14, 0.29, 0.29]
    """

    bins: TailBins
    background: FloatArray

    @classmethod
    def fit(cls, bins: TailBins, values: FloatArray) -> Self:
        """Learn the shares of the bins from the values (n_events,) of background."""
        # Half an event more in each, so that none is impossible.
        counts = np.bincount(bins.bin_of(values), minlength=bins.n_bins) + 0.5
        return cls(bins, counts / counts.sum())

    def log_probability(self, values: FloatArray) -> FloatArray:
        """Logarithm of the probability of each value (n_events,), or of its density.

        The unit of a density is that of :meth:`~unmask.detectors.tail_bins.TailBins.log_share_at`, as it is for
        background: it cancels in a ratio of the two.
        """
        which = self.bins.bin_of(values)
        if self.bins.is_count:
            at_least = np.maximum.accumulate(self.background)
            return np.asarray(
                np.log(at_least / at_least.sum())[which] + self.bins.log_share_at(values, stretch=_STRETCH)
            )
        ratio = _log_mean_of_powers(self._log_tail(values))
        return np.asarray(np.log(self.background)[which] + self.bins.log_share_at(values) + ratio)

    def _log_tail(self, values: FloatArray) -> FloatArray:
        """Logarithm of the probability t that background has as much or more."""
        which = self.bins.bin_of(values)
        with np.errstate(divide="ignore"):  # nothing is above the last bin
            above = np.log(np.append(self.background[::-1].cumsum()[::-1], 0.0))[which + 1]
        own = np.log(self.background)[which] + self.bins.log_share_above(values)
        return np.asarray(np.logaddexp(above, own))


def _log_mean_of_powers(log_tail: FloatArray) -> FloatArray:
    """Logarithm of the mean of a t^(a - 1) over a from 0 to 1, which is (1 - t + t log t) / (t log^2 t).

    >>> np.exp(_log_mean_of_powers(np.log([1.0, 0.5, 1e-3]))).round(2).tolist()
    [0.5, 0.64, 20.79]
    """
    u = np.maximum(-log_tail, 1e-9)  # at t = 1 it is 1/2
    # 1 - (1 + u) exp(-u) is a gamma distribution, known to all digits where u is small.
    return np.asarray(u - 2 * np.log(u) + np.log(gammainc(2, u)))
