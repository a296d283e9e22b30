"""Distributions of the variables of events in bounded memory, and by how much two samples differ in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc

from unmask.events.event_set import EventSet
from unmask.events.objects import ObjectType
from unmask.events.observables import OBSERVABLES

Array = npt.NDArray[np.float64]

N_BINS = 20
#: Expected events of the smaller sample in each bin of a comparison; bins with fewer are merged.
_MIN_EXPECTED = 5
_PARTS = ("edges", "content", "square", "total")


def variables_of(events: EventSet, types: Iterable[ObjectType]) -> dict[str, Array]:
    """All observables, and the number and the leading pT of the objects of each type; 0 without one."""
    values = {one.axis_label: one.shown(events) for one in OBSERVABLES.values()}
    rows = np.arange(len(events))
    for one in types:
        is_of_type = events.tag == one.tag
        n = is_of_type.sum(axis=1)
        if not one.is_b_jet:  # their number is an observable
            values[f"number of {one.name}s"] = n.astype(np.float64)
        # Objects of a type are in the order of their pT.
        leading = events.pt_mev[rows, is_of_type.argmax(axis=1)].astype(np.float64)
        values[f"leading {one.name} pT [GeV]"] = np.where(n > 0, leading / 1e3, 0)
    return values


@dataclass(frozen=True, eq=False)
class Histogram:
    """Weighted counts of one variable, in bins that hold about the same number of events of the first sample.

    Attributes
    ----------
    edges
        Upper edges (n_bins - 1,), which belong to their bins; the outer bins have no limits. Equal edges enclose
        no event.
    content, square
        Sum of weights and of their squares (n_bins,).
    total
        Sum of weights times values (1,).
    """

    edges: Array
    content: Array
    square: Array
    total: Array

    @classmethod
    def of(cls, values: npt.NDArray[Any], weight: npt.NDArray[Any]) -> Self:
        """Count events, of which there is at least one, in bins that are made for them."""
        edges = np.quantile(values, np.arange(1, N_BINS) / N_BINS, method="inverted_cdf").astype(np.float64)
        return cls(edges, np.zeros(N_BINS), np.zeros(N_BINS), np.zeros(1)).like(values, weight)

    def like(self, values: npt.NDArray[Any], weight: npt.NDArray[Any]) -> Self:
        """Count other events in the same bins."""
        place = np.searchsorted(self.edges, values)
        content, square = (_sums(place, weight**power) for power in (1, 2))
        return replace(self, content=content, square=square, total=np.array([weight @ values]))

    def __add__(self, other: Histogram) -> Self:
        parts = {name: getattr(self, name) + getattr(other, name) for name in _PARTS[1:]}
        return replace(self, **parts)

    @property
    def sum_of_weights(self) -> float:
        return float(self.content.sum())

    @property
    def mean(self) -> float:
        return float(self.total[0] / self.sum_of_weights) if self.sum_of_weights else float("nan")

    @property
    def fractions(self) -> Array:
        """Fraction of the events in each bin."""
        return np.asarray(self.content / self.sum_of_weights)


Histograms = dict[str, Histogram]


@dataclass(frozen=True)
class Difference:
    """Difference of a variable from its distribution in background.

    Attributes
    ----------
    mean, background_mean
        Of the variable.
    distance
        Fraction of the events that would have to move to other bins (the total variation distance), 0 to 1.
    p_value
        Of Pearson's chi-square test, after Holm's correction for the number of tests; 1 for fewer than ten events.
    """

    variable: str
    mean: float
    background_mean: float
    distance: float
    p_value: float

    @property
    def p_text(self) -> str:
        """The p-value with its sign of equality."""
        return f"p = {self.p_value:.2g}" if self.p_value > 1e-99 else "p < 1e-99"


def measure(values: Mapping[str, npt.NDArray[Any]], weight: npt.NDArray[Any]) -> Histograms:
    """Histograms of a first sample, by the name of the variable."""
    return {name: Histogram.of(each, weight) for name, each in values.items()}


def count(like: Histograms, values: Mapping[str, npt.NDArray[Any]], weight: npt.NDArray[Any]) -> Histograms:
    """Histograms of other events in the bins of the first, for the variables that are given."""
    return {name: like[name].like(values[name], weight) for name in like if name in values}


def add(one: Histograms, other: Histograms) -> Histograms:
    """Sum over both samples; an empty one adds nothing."""
    return {name: one[name] + other[name] for name in one} if one and other else one or other


def differences(background: Histograms, *samples: Histograms) -> list[list[Difference]]:
    """Compare the variables of each sample with background, in their order; p-values are corrected for all of them."""
    pairs = [[(name, one, background[name]) for name, one in sample.items()] for sample in samples]
    corrected = iter(_holm(np.array([_p_value(there, one) for pair in pairs for _, one, there in pair])).tolist())
    return [
        [Difference(name, one.mean, there.mean, _distance(there, one), next(corrected)) for name, one, there in pair]
        for pair in pairs
    ]


def to_arrays(histograms: Histograms, prefix: str) -> dict[str, npt.NDArray[Any]]:
    """Everything in them but the names, for an artifact."""
    each = histograms.values()
    return {f"{prefix}/{part}": np.stack([getattr(one, part) for one in each]) for part in _PARTS}


def from_arrays(names: Iterable[str], arrays: Mapping[str, npt.NDArray[Any]], prefix: str) -> Histograms:
    """Take back what :func:`to_arrays` gave."""
    rows = zip(*(arrays[f"{prefix}/{part}"] for part in _PARTS), strict=True)
    return {name: Histogram(*row) for name, row in zip(names, rows, strict=True)}


def _distance(one: Histogram, other: Histogram) -> float:
    if one.sum_of_weights <= 0 or other.sum_of_weights <= 0:
        return float("nan")
    return float(0.5 * np.abs(one.fractions - other.fractions).sum())


def _p_value(*pair: Histogram) -> float:
    """Of Pearson's chi-square test that two samples have the same distribution, with effective numbers of events."""
    if min(each.sum_of_weights for each in pair) <= 0:
        return 1.0
    n = [each.sum_of_weights**2 / each.square.sum() for each in pair]
    common = np.maximum(np.average([each.fractions for each in pair], axis=0, weights=n), 0)
    expected = np.cumsum(common) * min(n)
    last = max(min(n) // _MIN_EXPECTED - 1, 0)
    group = np.clip(np.floor((expected - 1e-9) / _MIN_EXPECTED), 0, last).astype(np.int64)
    excess = _sums(group, pair[0].fractions - pair[1].fractions)
    # The squared weights of a bin, spread as the common distribution: without weights it is f (1 / n + 1 / m).
    variance = _sums(group, common * sum(_mean_weight(each) / each.sum_of_weights for each in pair))
    is_used = variance > 0
    chi_square = float((excess[is_used] ** 2 / variance[is_used]).sum())
    return float(chdtrc(is_used.sum() - 1, chi_square)) if is_used.sum() > 1 else 1.0


def _mean_weight(histogram: Histogram) -> Array:
    """Mean weight of an event in each bin (n_bins,), at least that in all bins: few events may miss the large ones."""
    overall = histogram.square.sum() / histogram.sum_of_weights
    is_filled = histogram.content > 0
    of_bins = np.divide(histogram.square, histogram.content, out=np.zeros(N_BINS), where=is_filled)
    return np.asarray(np.maximum(of_bins, overall))


def _sums(group: npt.NDArray[np.intp], weight: npt.NDArray[Any]) -> Array:
    """Sum of weights (n_bins,) by group."""
    return np.asarray(np.bincount(group, weight, minlength=N_BINS), np.float64)


def _holm(p_values: Array) -> Array:
    """Corrected for the number of p-values by Holm's method."""
    order = np.argsort(p_values)
    rising = np.maximum.accumulate(p_values[order] * np.arange(len(order), 0, -1))
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(rising, 1)
    return corrected
