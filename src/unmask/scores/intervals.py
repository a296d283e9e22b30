"""Measured numbers with confidence intervals, and the effective numbers of weighted events behind them."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log10
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import betainccinv, betaincinv

from unmask.errors import BadDataError

FloatArray = npt.NDArray[np.float64]

#: Confidence level of all intervals.
CONFIDENCE = 0.95
#: Fewer background events (effective) above a threshold than this do not support a working point.
MIN_BACKGROUND_EVENTS = 10
#: More values than this are binned: a bin holds this fraction of the values above it.
MAX_EXACT, _BIN = 2**17, 1e-4


@dataclass(frozen=True)
class Estimate:
    """A measured number and its confidence interval; as text with as many digits as the interval bears.

    >>> str(Estimate(0.98012, 0.9789, 0.9812)), str(Estimate(0.00213, 0.0011, 0.0034))
    ('0.9801 [0.9789, 0.9812]', '0.0021 [0.0011, 0.0034]')
    """

    value: float
    low: float
    high: float
    sign: ClassVar[str] = ""

    def texts(self) -> tuple[str, str]:
        """The value and its interval, with two digits of the interval's width: three to six after the point."""
        width, least = self.high - self.low, 3 if abs(self.value) < 100 else 0
        digits = min(max(ceil(-log10(width)) + 1, least), 6) if width > 0 else 4
        value, low, high = (f"{number:{self.sign}.{digits}f}" for number in (self.value, self.low, self.high))
        return value, f"[{low}, {high}]"

    def __str__(self) -> str:
        return " ".join(self.texts())

    def __truediv__(self, by: float) -> Estimate:
        return Estimate(self.value / by, self.low / by, self.high / by)


def clopper_pearson(n_passed: FloatArray, n: FloatArray | float) -> tuple[FloatArray, FloatArray]:
    """Interval of the efficiency of ``n`` trials, ``n_passed`` of which pass; both may be effective numbers.

    >>> low, high = clopper_pearson(np.array([0.0, 5.0]), 10)
    >>> low.round(3), high.round(3)
    (array([0.   , 0.187]), array([0.308, 0.813]))
    """
    tail = (1 - CONFIDENCE) / 2
    with np.errstate(invalid="ignore"):
        low = np.where(n_passed > 0, betaincinv(n_passed, n - n_passed + 1, tail), 0.0)
        high = np.where(n_passed < n, betainccinv(n_passed + 1, n - n_passed, tail), 1.0)
    return low, high


def is_supported(n_above: Any) -> Any:
    """Whether enough background events are above a threshold, up to rounding, for one effective number or many."""
    return n_above > MIN_BACKGROUND_EVENTS * (1 - 1e-9)


def n_effective(weights: FloatArray) -> float:
    """Number of events of equal weight that fluctuate as much."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def distinct_values(*samples: FloatArray) -> FloatArray:
    """Give all distinct values of samples, rising; of very many, those between which are 1e-4 of the values above."""
    if sum(map(len, samples)) > MAX_EXACT:
        samples = tuple(map(_thinned, samples))
    values = np.sort(np.concatenate(samples))  # np.unique hashes floats, which is slower
    return np.asarray(values[np.append(True, values[1:] != values[:-1])])


def _thinned(sample: FloatArray) -> FloatArray:
    rank = np.geomspace(1, len(sample), int(np.log(len(sample)) / _BIN) + 2).astype(np.int64)
    return np.asarray(np.sort(sample)[len(sample) - np.append(rank, len(sample))])


def above_each(place: npt.NDArray[Any], weight: FloatArray, n_values: int) -> tuple[FloatArray, FloatArray]:
    """Fraction of events at or above each value, and the weight that one event has around there.

    Both are (n_values + 1,) and of weights that add up to 1. The first are those above all values, the last those of
    all events. With negative weights a fraction can be smaller than that above a higher value; then the larger counts.

    The weight of one event is Σw² / Σw: half of the events that it is measured with, and at least 30, lie below the
    value. Those above alone say too little: where few heavy events are to be expected, there are none at times, and the
    uncertainty would come out small just where the fraction does.

    Parameters
    ----------
    place
        Index of the value of each event, of rising values.
    weight
        Weights (n_events,) that add up to a positive number.
    """
    counts, sums, squares = (
        np.append(0.0, np.cumsum(np.bincount(place, weight**power, n_values)[::-1])) for power in (0, 1, 2)
    )
    total = sums[-1]
    fraction = np.clip(np.maximum.accumulate(sums) / total, 0, 1)
    fraction[-1] = 1  # whatever was rounded on the way
    wide = np.minimum(np.searchsorted(counts, 2 * counts + 30), n_values)
    wide[sums[wide] <= 0] = n_values
    return fraction, squares[wide] / sums[wide] / total


def cumulated_variance(fraction: FloatArray, unit: FloatArray) -> FloatArray:
    """Sum of squared weights of the events above each value, from what :func:`above_each` gave."""
    return np.cumsum(np.diff(fraction, prepend=0) * unit)


def variance_of_efficiency(efficiency: Any, square_inside: Any, square: Any) -> Any:
    """Variance of a weighted efficiency, from sums of squared weights (that add up to 1) inside and in all."""
    return square_inside * (1 - efficiency) ** 2 + (square - square_inside) * efficiency**2


def check_finite(values: npt.NDArray[np.float64], name: str = "scores") -> None:
    """Refuse NaN and infinity with a :class:`BadDataError`."""
    n_bad = np.count_nonzero(~np.isfinite(values))
    if n_bad:
        raise BadDataError(f"{n_bad:,} of {len(values):,} {name} are NaN or infinite")
