"""Scores sorted once: all that is measured of them, or of some of the events, begins here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.errors import BadDataError, UsageError

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RankedScores:
    """Scores of signal and background as places among their distinct values.

    Attributes
    ----------
    value : (n_values,), the distinct scores, rising.
    place : (n_events,), which of them an event has.
    is_signal, weight : (n_events,).
    """

    value: FloatArray
    place: npt.NDArray[np.intp]
    is_signal: npt.NDArray[np.bool_]
    weight: FloatArray

    @classmethod
    def of(
        cls, score: npt.NDArray[Any], is_signal: npt.NDArray[np.bool_], weight: npt.NDArray[Any] | None = None
    ) -> RankedScores:
        """Sort scores, after checking them; see :func:`check_scores`."""
        score, is_signal, weight = check_scores(score, is_signal, weight)
        value, place = np.unique(score, return_inverse=True)
        return cls(value, place, is_signal, weight)

    def __getitem__(self, chosen: npt.NDArray[Any]) -> RankedScores:
        """Some of the events, without sorting them again."""
        place = self.place[chosen]
        is_taken = np.bincount(place, minlength=len(self.value)) > 0
        place = (np.cumsum(is_taken) - 1)[place]
        return RankedScores(self.value[is_taken], place, self.is_signal[chosen], self.weight[chosen])

    @cached_property
    def placements(self) -> Placements:
        """What the area under the ROC curve and its variance are made of; ties count half."""
        of_signal, of_background = (
            (self.place[which], self.weight[which]) for which in (self.is_signal, ~self.is_signal)
        )

        def share_below(which: npt.NDArray[np.intp], others: npt.NDArray[np.intp], weights: FloatArray) -> FloatArray:
            cumulated = np.concatenate([[0.0], np.cumsum(np.bincount(others, weights, len(self.value)))])
            return np.asarray((cumulated[which] + cumulated[which + 1]) / 2 / cumulated[-1])

        return Placements(
            share_below(of_signal[0], *of_background),
            1 - share_below(of_background[0], *of_signal),
            of_signal[1],
            of_background[1],
        )


@dataclass(frozen=True, eq=False)
class Placements:
    """For each signal event the share of background below it, for each background event that of signal above it."""

    signal: FloatArray
    background: FloatArray
    signal_weight: FloatArray
    background_weight: FloatArray

    def mean(self) -> float:
        """The area under the ROC curve."""
        return float(np.average(self.signal, weights=self.signal_weight))

    def variance(self) -> float:
        """DeLong's variance of that area."""
        return _variance_of_mean(self.signal, self.signal_weight) + _variance_of_mean(
            self.background, self.background_weight
        )


def check_scores(
    score: npt.NDArray[Any], is_signal: npt.NDArray[np.bool_], weight: npt.NDArray[Any] | None
) -> tuple[FloatArray, npt.NDArray[np.bool_], FloatArray]:
    """Give scores, labels and weights as arrays.

    Raises
    ------
    BadDataError
        If scores or weights are not finite, or the weights of a class do not add up to a positive number.
    UsageError
        If all events are of one class.
    """
    score = np.asarray(score, np.float64)
    is_signal = np.asarray(is_signal, np.bool_)
    weight = np.ones(len(score)) if weight is None else np.asarray(weight, np.float64)
    if not len(score) == len(is_signal) == len(weight):
        raise UsageError(f"{len(score)} scores, {len(is_signal)} labels and {len(weight)} weights do not go together")
    for name, values in (("scores", score), ("weights", weight)):
        n_bad = np.count_nonzero(~np.isfinite(values))
        if n_bad:
            raise BadDataError(f"{n_bad:,} of {len(values):,} {name} are NaN or infinite")
    if is_signal.all() or not is_signal.any():
        raise UsageError("signal and background events are both needed; all events are of one class")
    for name, chosen in (("signal", is_signal), ("background", ~is_signal)):
        if weight[chosen].sum() <= 0:
            raise BadDataError(f"the weights of the {name} events do not add up to a positive number")
    return score, is_signal, weight


def n_effective(weights: FloatArray) -> float:
    """Number of events of equal weight that fluctuate as much."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def _variance_of_mean(values: FloatArray, weights: FloatArray) -> float:
    mean, n_events = np.average(values, weights=weights), n_effective(weights)
    bessel = n_events / max(n_events - 1, 1)
    return float(bessel * (weights**2 * (values - mean) ** 2).sum() / weights.sum() ** 2)
