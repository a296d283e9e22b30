"""Exact statistics of one counting region whose background is known from auxiliary events.

An estimate ``b`` with error ``e`` counts as ``m = (b / e)²`` auxiliary events, of which ``tau = m / b`` are seen per
expected event. P-values are those of the binomial test of two Poisson rates, which no rate of background makes too
small. For limits the background rate has the distribution that gives the same p-values, Gamma(m + 1) / tau.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import betainc, betaln, gammainccinv, gammaincinv, ndtri, pdtr

from unmask.scores.intervals import CONFIDENCE

FloatArray = npt.NDArray[np.float64]

#: Quantiles of the expected limits, in standard deviations.
BANDS = (-2, -1, 0, 1, 2)
#: Fewer auxiliary events than this make an estimate that is as good as none: its error is 1,000 times its value.
_MIN_AUXILIARY = 1e-6
#: Smaller ones are rounded to this: 37 standard deviations.
_SMALLEST_P = 1e-300


@dataclass(frozen=True)
class CountedBackground:
    """Expected events and the auxiliary events behind them; numbers, or arrays of one shape.

    >>> background = CountedBackground.of(9.8, 1.5)
    >>> float(background.p_values(12).round(3))
    0.317
    """

    n_auxiliary: Any
    tau: Any

    @classmethod
    def of(cls, expected: Any, error: Any) -> CountedBackground:
        """Background of positive ``expected`` events with an ``error`` of one standard deviation."""
        expected, error = np.asarray(expected, np.float64), np.maximum(np.asarray(error, np.float64), 1e-9)
        n = np.maximum((expected / error) ** 2, _MIN_AUXILIARY)
        return cls(n, n / expected)

    @property
    def expected(self) -> Any:
        """Expected events."""
        return self.n_auxiliary / self.tau

    def p_values(self, observed: Any) -> FloatArray:
        """P(N >= observed) of background alone, also of numbers between counts; never zero."""
        observed = np.asarray(observed, np.float64)
        with np.errstate(invalid="ignore"):
            p = betainc(observed, self.n_auxiliary + 1, 1 / (1 + self.tau))
        return np.asarray(np.where(observed > 0, np.maximum(p, _SMALLEST_P), 1.0))

    def next_p_values(self, observed: Any) -> FloatArray:
        """P(N > observed) at the same sum of observed and auxiliary events.

        A number drawn between this and :meth:`p_values` is uniform, where counts alone are discrete.
        """
        observed = np.asarray(observed, np.float64)
        with np.errstate(invalid="ignore"):
            p = betainc(observed + 1, self.n_auxiliary, 1 / (1 + self.tau))
        return np.asarray(np.where(self.n_auxiliary > 0, p, 0.0))

    def interval(self) -> tuple[Any, Any]:
        """Interval of the expected events, after Garwood."""
        tail = (1 - CONFIDENCE) / 2
        with np.errstate(invalid="ignore"):
            low = np.where(self.n_auxiliary > 0, gammaincinv(self.n_auxiliary, tail), 0.0)
        return low / self.tau, gammainccinv(self.n_auxiliary + 1, tail) / self.tau

    def probabilities(self, n_max: int) -> FloatArray:
        """P(N = n) for n from 0 to ``n_max`` of one background alone: negative binomial."""
        n, shape = np.arange(n_max + 1.0), float(self.n_auxiliary) + 1
        log_p = shape * np.log(self.tau / (1 + self.tau)) - n * np.log1p(self.tau)
        return np.asarray(np.exp(log_p - np.log(n + shape) - betaln(n + 1, shape)))

    def quantile(self, probability: float) -> int:
        """Smallest n with P(N <= n) of at least ``probability``, of one background alone."""
        low, high = -1, 1
        while 1 - self.p_values(high + 1) < probability:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if 1 - self.p_values(middle + 1) >= probability else (middle, high)
        return high


def z_value(p: Any) -> Any:
    """Standard deviations of a one-sided p-value; 0 for those above 1/2.

    >>> z_value(2.866515718791939e-07).round(6), z_value(1.0)
    (np.float64(5.0), np.float64(0.0))
    """
    return np.maximum(-ndtri(p), 0.0)


def cls_value(observed: int, signal: float, background: CountedBackground) -> float:
    """CLs of ``signal`` expected events: P(N <= observed) with signal, over that of background alone."""
    p = background.probabilities(observed)
    return float(p @ pdtr(np.arange(observed, -1, -1), signal) / p.sum())


def events_limit(observed: int, background: CountedBackground) -> float:
    """Upper limit on the expected signal events by CLs.

    >>> round(events_limit(0, CountedBackground.of(3.0, 0.1)), 3)
    2.996
    """
    from scipy.optimize import brentq

    high = 3.0 + observed
    while cls_value(observed, high, background) > 1 - CONFIDENCE:
        high *= 2
    return float(brentq(lambda signal: cls_value(observed, signal, background) - 1 + CONFIDENCE, 0, high, xtol=1e-9))


def expected_events_limits(background: CountedBackground) -> list[float]:
    """Limits of the quantiles of background alone, at -2 to 2 standard deviations."""
    from scipy.special import ndtr

    return [events_limit(background.quantile(float(ndtr(band))), background) for band in BANDS]
