"""Confidence intervals of metrics: of efficiencies, of areas under ROC curves and of their paired differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit, logit, ndtri, stdtr, stdtrit

from unmask.scores.intervals import CONFIDENCE, Estimate, FloatArray, clopper_pearson, n_effective

#: Lower and upper quantile of an interval, and the number of standard errors that it reaches.
TAILS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
N_ERRORS = float(ndtri(TAILS[1]))


@dataclass(frozen=True)
class Difference(Estimate):
    """A difference, its interval, and the two-sided p-value of there being none.

    >>> str(Difference(0.00062, -0.00008, 0.0012, 0.09))
    '+0.0006 [-0.0001, +0.0012]'
    """

    p_value: float
    sign: ClassVar[str] = "+"

    @property
    def p_value_text(self) -> str:
        """The p-value, as small as a Gaussian tail can be trusted."""
        return f"{self.p_value:.2g}" if self.p_value >= 1e-16 else "< 1e-16"

    @property
    def verdict(self) -> str:
        """Verdict of the interval on the first against the second."""
        return "better" if self.low > 0 else "worse" if self.high < 0 else "no significant difference"


def logit_interval(value: float, half: float, n_trials: float) -> Estimate:
    """Interval of a value in (0, 1) from half its width, made symmetric in the logit.

    A value of 0 or 1 has no width; there it is the interval of Clopper and Pearson for ``n_trials`` independent
    trials, none or all of which pass. For an area under a ROC curve these are pairs of a signal and a background event,
    each in one pair at most. With negative weights a value can lie outside; its interval is symmetric as it is.
    """
    if value in (0, 1):
        low, high = clopper_pearson(np.array([value * n_trials]), n_trials)
        return Estimate(value, float(low[0]), float(high[0]))
    if not 0 < value < 1:
        return Estimate(value, float(value - half), float(value + half))
    half /= value * (1 - value)
    return Estimate(value, float(expit(logit(value) - half)), float(expit(logit(value) + half)))


def percentile_interval(value: float, replicas: FloatArray) -> Estimate:
    """The interval that holds the middle of the replicas, and the value itself."""
    low, high = np.quantile(replicas, TAILS)
    return Estimate(value, float(min(low, value)), float(max(high, value)))


@dataclass(frozen=True, eq=False)
class Placements:
    """For each signal event the background efficiency below it, for each background event that of signal above it."""

    signal: FloatArray
    background: FloatArray
    signal_weight: FloatArray
    background_weight: FloatArray

    def area(self) -> float:
        """The area under the ROC curve."""
        return float(np.average(self.signal, weights=self.signal_weight))

    def error(self) -> tuple[float, float]:
        """Standard error of that area by DeLong's variance, and its degrees of freedom.

        These are infinite for equal weights. A variance of few heavy events is itself uncertain: they are then those of
        a Student distribution, after Satterthwaite.
        """
        parts = [(self.signal, self.signal_weight), (self.background, self.background_weight)]
        variances = np.array([_variance_of_mean(*part) for part in parts])
        spread = [(w**4).sum() / (w**2).sum() ** 2 - 1 / len(w) for _, w in parts]
        uncertainty = float((variances**2 * np.maximum(spread, 0)).sum())
        total = float(variances.sum())
        return float(np.sqrt(total)), total**2 / uncertainty if uncertainty > 1e-12 * total**2 else np.inf

    def auc(self) -> Estimate:
        """The area with DeLong's interval, symmetric in the logit so that it stays within (0, 1)."""
        n_pairs = min(n_effective(self.signal_weight), n_effective(self.background_weight))
        error, freedom = self.error()
        return logit_interval(self.area(), float(stdtrit(freedom, TAILS[1])) * error, n_pairs)

    def __sub__(self, other: Placements) -> Difference:
        """The difference of two areas, paired: both must be of the same events in the same order."""
        signal, background = self.signal - other.signal, self.background - other.background
        paired = Placements(signal, background, self.signal_weight, self.background_weight)
        value, (error, freedom) = paired.area(), paired.error()
        p_value = float(2 * stdtr(freedom, -abs(value) / error)) if error else float(value == 0)
        half = float(stdtrit(freedom, TAILS[1])) * error
        return Difference(value, value - half, value + half, p_value)


def _variance_of_mean(values: FloatArray, weights: FloatArray) -> float:
    mean, n_events = np.average(values, weights=weights), n_effective(weights)
    bessel = n_events / max(n_events - 1, 1)
    return float(bessel * (weights**2 * (values - mean) ** 2).sum() / weights.sum() ** 2)
