"""How well a score tells signal from background: weights honoured, ties exact, an interval on every number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit
from scipy.stats import norm

from unmask.errors import BadDataError, UsageError

FloatArray = npt.NDArray[np.float64]

#: Fewer background events above a threshold than this do not support a working point.
MIN_BACKGROUND_EVENTS = 10


@dataclass(frozen=True)
class Estimate:
    """A measured number and its confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


def roc_auc(
    score: npt.NDArray[Any],
    is_signal: npt.NDArray[np.bool_],
    weight: npt.NDArray[Any] | None = None,
    *,
    confidence: float = 0.95,
) -> Estimate:
    """Area under the ROC curve with DeLong's interval, symmetric in the logit so that it stays within (0, 1).

    The area is the probability that a signal event has a larger score than a background event, ties counting half.

    >>> roc_auc(np.array([1, 2, 2, 3]), np.array([False, False, True, True])).value
    0.875
    """
    signal, background, w_signal, w_background = _classes(score, is_signal, weight)
    place_signal = _place(signal, background, w_background)  # share of background below each signal event
    place_background = 1 - _place(background, signal, w_signal)
    area = float(np.average(place_signal, weights=w_signal))
    variance = _variance_of_mean(place_signal, w_signal) + _variance_of_mean(place_background, w_background)
    return logit_interval(area, np.sqrt(variance), confidence)


def signal_efficiency_at(
    score: npt.NDArray[Any],
    is_signal: npt.NDArray[np.bool_],
    weight: npt.NDArray[Any] | None = None,
    *,
    background_efficiency: float,
    confidence: float = 0.95,
    n_replicas: int = 400,
    seed: int = 0,
) -> Estimate | None:
    """Share of signal above the threshold that lets ``background_efficiency`` of the background through.

    Where events are tied at the threshold, both efficiencies are interpolated, as if ties were broken at random. The
    interval is that of a bootstrap of signal and background. None where fewer than ten background events are above the
    threshold: the statistics do not support the working point.
    """
    signal, background, w_signal, w_background = _classes(score, is_signal, weight)
    effective = w_background.sum() ** 2 / (w_background**2).sum()
    if effective * background_efficiency < MIN_BACKGROUND_EVENTS:
        return None
    values, code = np.unique(np.concatenate([signal, background]), return_inverse=True)
    signal_code, background_code = code[: len(signal)], code[len(signal) :]

    def efficiency(of_signal: FloatArray, of_background: FloatArray) -> float:
        above_signal, above_background = (
            np.concatenate([[0], np.cumsum(np.bincount(which, weights, len(values))[::-1])])
            for which, weights in ((signal_code, of_signal), (background_code, of_background))
        )
        wanted = background_efficiency * above_background[-1]
        return float(np.interp(wanted, above_background, above_signal) / above_signal[-1])

    rng = np.random.default_rng(seed)
    replicas = [
        efficiency(w_signal * rng.poisson(1, len(w_signal)), w_background * rng.poisson(1, len(w_background)))
        for _ in range(n_replicas)
    ]
    low, high = np.quantile(replicas, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(efficiency(w_signal, w_background), float(low), float(high))


def _classes(
    score: npt.NDArray[Any], is_signal: npt.NDArray[np.bool_], weight: npt.NDArray[Any] | None
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    score = np.asarray(score, np.float64)
    is_signal = np.asarray(is_signal, np.bool_)
    weight = np.ones(len(score)) if weight is None else np.asarray(weight, np.float64)
    if not len(score) == len(is_signal) == len(weight):
        raise UsageError(f"{len(score)} scores, {len(is_signal)} labels and {len(weight)} weights do not go together")
    if not np.isfinite(score).all():
        raise BadDataError(f"{np.count_nonzero(~np.isfinite(score)):,} of {len(score):,} scores are NaN or infinite")
    if is_signal.all() or not is_signal.any():
        raise UsageError("signal and background events are both needed; all events are of one class")
    for name, chosen in (("signal", is_signal), ("background", ~is_signal)):
        if weight[chosen].sum() <= 0:
            raise BadDataError(f"the weights of the {name} events do not add up to a positive number")
    return score[is_signal], score[~is_signal], weight[is_signal], weight[~is_signal]


def _place(values: FloatArray, others: FloatArray, weights: FloatArray) -> FloatArray:
    """Share of ``others`` below each of ``values``, ties counting half."""
    order = np.argsort(others, kind="stable")
    cumulated = np.concatenate([[0], np.cumsum(weights[order])])
    below = cumulated[np.searchsorted(others[order], values, side="left")]
    up_to = cumulated[np.searchsorted(others[order], values, side="right")]
    return np.asarray((below + up_to) / 2 / cumulated[-1])


def _variance_of_mean(values: FloatArray, weights: FloatArray) -> float:
    mean = np.average(values, weights=weights)
    n_effective = weights.sum() ** 2 / (weights**2).sum()
    bessel = n_effective / max(n_effective - 1, 1)
    return float(bessel * (weights**2 * (values - mean) ** 2).sum() / weights.sum() ** 2)


def logit_interval(value: float, error: float, confidence: float) -> Estimate:
    """The interval of a value in (0, 1) with a standard error, symmetric in the logit."""
    if not 0 < value < 1:  # perfect separation, where the error is 0
        return Estimate(value, value, value)
    half = norm.ppf((1 + confidence) / 2) * error / (value * (1 - value))
    return Estimate(value, float(expit(logit(value) - half)), float(expit(logit(value) + half)))
