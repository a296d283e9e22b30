"""The area that the histograms of signal and background share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from unmask.evaluation.intervals import Estimate, logit_interval
from unmask.evaluation.roc import Roc

FloatArray = npt.NDArray[np.float64]

#: Equal bins over the pooled range, in which the overlap of the score histograms is measured.
OVERLAP_BINS = 100


def score_bins(roc: Roc) -> tuple[FloatArray, npt.NDArray[np.intp]]:
    """Edges of equal bins over the range of all scores, and the point of the curve at each: what is above it."""
    rising = roc.threshold[:0:-1]
    edges = np.histogram_bin_edges(rising, OVERLAP_BINS)
    point = len(rising) - np.searchsorted(rising, edges)
    point[-1] = 0  # the largest score is in the last bin
    return edges, point


def overlap_area(roc: Roc, *, confidence: float = 0.95) -> Estimate:
    """Area that the normalised histograms of signal and background share, in 100 equal bins of the pooled range.

    The area is the share of signal in bins where background is denser, plus that of background in all others; the
    interval is that of these two shares. Fluctuations make the smaller of two bins smaller, so that the area comes out
    too small where there are few events in a bin; the high end of the interval makes up for that.
    """
    _, point = score_bins(roc)
    share_s, share_b, square_s, square_b = (
        -np.diff(above[point])
        for above in (roc.signal_efficiency, roc.background_efficiency, roc.signal_variance, roc.background_variance)
    )
    is_less = share_s < share_b
    area = float(np.minimum(share_s, share_b).sum())
    variance = _variance_of_share(share_s[is_less].sum(), square_s[is_less].sum(), square_s.sum())
    variance += _variance_of_share(share_b[~is_less].sum(), square_b[~is_less].sum(), square_b.sum())
    error, n_least = np.sqrt(variance), 1 / max(roc.signal_variance[-1], roc.background_variance[-1])
    largest = min(area + _shortfall(share_s - share_b, square_s + square_b), 1.0)
    high = logit_interval(largest, error, confidence, n_least).high
    return Estimate(area, logit_interval(area, error, confidence, n_least).low, high)


def _shortfall(difference: FloatArray, variance: FloatArray) -> float:
    """How much the smaller of two bins, summed over bins, can be expected to be too small.

    Gaussian bins with the found difference would fall short by the expression below. What was found has fluctuated
    already: for bins that are truly equal the shortfall is on average 1 / (sqrt(2) - 1) times that.
    """
    error = np.sqrt(variance[variance > 0])
    size = np.abs(difference[variance > 0])
    shortfall = error * np.exp(-((size / error) ** 2) / 2) / np.sqrt(2 * np.pi) - size * ndtr(-size / error)
    return float(shortfall.sum() / (np.sqrt(2) - 1))


def _variance_of_share(share: float, square_inside: float, square: float) -> float:
    """Variance of a weighted share, from sums of squared weights (that add up to 1) inside and in all."""
    return float(square_inside * (1 - share) ** 2 + (square - square_inside) * share**2)
