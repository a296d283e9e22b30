"""A measured number with its interval, and the ways that such an interval is found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import betainccinv, betaincinv, expit, logit, ndtri

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A measured number and its confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


def logit_interval(value: float, error: float, confidence: float, n_trials: float) -> Estimate:
    """The interval of a value in (0, 1) with a standard error, symmetric in the logit.

    A value of 0 or 1 has no such error; there it is the interval of Clopper and Pearson for ``n_trials`` independent
    trials, none or all of which pass. For an area under a ROC curve these are pairs of a signal and a background event,
    each in one pair at most. With negative weights a value can lie outside; its interval is symmetric as it is.
    """
    half = ndtri((1 + confidence) / 2) * error
    if value in (0, 1):
        low, high = clopper_pearson(np.array([value * n_trials]), n_trials, confidence)
        return Estimate(value, float(low[0]), float(high[0]))
    if not 0 < value < 1:
        return Estimate(value, float(value - half), float(value + half))
    half /= value * (1 - value)
    return Estimate(value, float(expit(logit(value) - half)), float(expit(logit(value) + half)))


def percentile_interval(value: float, replicas: FloatArray, confidence: float) -> Estimate:
    """The interval that holds the middle of the replicas, and the value itself."""
    low, high = np.quantile(replicas, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(value, float(min(low, value)), float(max(high, value)))


def clopper_pearson(
    n_passed: FloatArray, n: FloatArray | float, confidence: float = 0.95
) -> tuple[FloatArray, FloatArray]:
    """Interval of the share of ``n`` trials that pass; ``n_passed`` need not be whole (effective numbers).

    >>> low, high = clopper_pearson(np.array([0.0, 5.0]), 10)
    >>> low.round(3), high.round(3)
    (array([0.   , 0.187]), array([0.308, 0.813]))
    """
    tail = (1 - confidence) / 2
    with np.errstate(invalid="ignore"):
        low = np.where(n_passed > 0, betaincinv(n_passed, n - n_passed + 1, tail), 0.0)
        high = np.where(n_passed < n, betainccinv(n_passed + 1, n - n_passed, tail), 1.0)
    return low, high
