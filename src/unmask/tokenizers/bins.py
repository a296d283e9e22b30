"""Bins of one variable: their edges and descriptions.

Edges are the ``n_bins - 1`` inner ones, in single precision like the values that they are compared with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.errors import BadDataError, UsageError

#: Variables with edges: label, unit of the label, and that unit in the unit of the column.
VARIABLE_NAMES: dict[str, tuple[str, str, float]] = {
    "pt_mev": ("pT", "GeV", 1e3),
    "abs_eta": ("|eta|", "", 1.0),
    "eta": ("eta", "", 1.0),
    "met_mev": ("MET", "GeV", 1e3),
}

#: Inner edges of the published look-up tables by study and number of bins, natural logarithms of MeV for pT and MET. In
#: the publication's table for N = 4 the pT and |eta| rows of the two studies are exchanged (their medians then disagree
#: with those of N = 6); here each stands with its study.
PUBLISHED_EDGES: dict[str, dict[int, dict[str, tuple[float, ...]]]] = {
    "four-top": {
        4: {"log_pt": (10.75, 11.33, 12.0), "abs_eta": (0.4325, 0.9, 1.482), "log_met": (11.69, 12.22, 12.66)},
        5: {
            "log_pt": (10.64, 11.10, 11.57, 12.17),
            "abs_eta": (0.3444, 0.7052, 1.109, 1.633),
            "log_met": (11.55, 12.03, 12.40, 12.76),
        },
        6: {
            "log_pt": (10.56, 10.94, 11.33, 11.75, 12.31),
            "abs_eta": (0.2853, 0.5806, 0.9, 1.26, 1.74),
            "log_met": (11.43, 11.90, 12.22, 12.51, 12.83),
        },
    },
    "gluino": {
        4: {"log_pt": (10.47, 10.95, 11.41), "abs_eta": (0.4871, 1.009, 1.634), "log_met": (11.14, 11.42, 11.70)},
        5: {
            "log_pt": (10.37, 10.76, 11.13, 11.52),
            "abs_eta": (0.3877, 0.7918, 1.239, 1.789),
            "log_met": (11.08, 11.31, 11.52, 11.78),
        },
        6: {
            "log_pt": (10.3, 10.64, 10.95, 11.25, 11.59),
            "abs_eta": (0.3228, 0.6551, 1.009, 1.403, 1.901),
            "log_met": (11.04, 11.23, 11.42, 11.6, 11.84),
        },
    },
}

#: Range of the equal-width bins, as quantiles of the background.
EQUAL_WIDTH_RANGE = (0.001, 0.999)

_MANY_EDGES = 20


@dataclass(frozen=True)
class Bin:
    """One bin of one variable: ``low`` is included, ``high`` is not; None where the bin is open."""

    variable: str
    number: int
    low: float | None
    high: float | None
    unit: str

    def __str__(self) -> str:
        low, high = (None if edge is None else self._text(edge) for edge in (self.low, self.high))
        between = f"below {high}" if low is None else f"above {low}" if high is None else f"{low} to {high}"
        return f"{self.variable} {between} {self.unit}".rstrip()

    def _text(self, edge: float) -> str:
        return f"{edge:.2f}" if self.unit != "GeV" else f"{edge:.1f}" if edge < 100 else f"{edge:.0f}"


def published_edges(study: str, n_bins: int) -> dict[str, tuple[float, ...]]:
    """Edges in MeV, by the names of the columns.

    >>> [round(edge / 1e3) for edge in published_edges("gluino", 4)["pt_mev"]]
    [35, 57, 90]
    """
    if n_bins not in PUBLISHED_EDGES[study]:
        known = ", ".join(map(str, PUBLISHED_EDGES[study]))
        raise UsageError(f"no published edges of the {study} study for {n_bins} bins; choose from {known}")
    edges = PUBLISHED_EDGES[study][n_bins]
    return {
        "pt_mev": tuple(map(math.exp, edges["log_pt"])),
        "abs_eta": edges["abs_eta"],
        "met_mev": tuple(map(math.exp, edges["log_met"])),
    }


def explicit_edges(
    name: str, edges: Sequence[float] | npt.NDArray[np.floating[Any]], n_bins: int
) -> npt.NDArray[np.float32]:
    """Validate given edges: finite, rising and of the right number."""
    try:
        with np.errstate(over="ignore"):  # beyond single precision becomes inf, which is refused below
            array = np.asarray(edges, np.float32)
    except (TypeError, ValueError):
        raise UsageError(f"edges of {name} are {edges!r}; expected numbers") from None
    if array.shape != (n_bins - 1,):
        raise UsageError(f"{n_bins} bins of {name} need {n_bins - 1} inner edges; given: {_listed(array.ravel())}")
    if not np.isfinite(array).all() or not (np.diff(array) > 0).all():
        raise UsageError(f"edges of {name} are {_listed(array)}; expected finite and rising numbers")
    return array


def quantile_edges(name: str, values: npt.NDArray[np.float32], n_bins: int) -> npt.NDArray[np.float32]:
    """Edges of equal occupancy. Each is an observed value, so it is the same quantile in MeV and in log(MeV).

    >>> quantile_edges("met_mev", np.arange(8, dtype=np.float32), 4)
    array([2., 4., 6.], dtype=float32)
    """
    _check_enough(name, values, n_bins)
    edges: npt.NDArray[np.float32] = np.quantile(values, np.arange(1, n_bins) / n_bins, method="higher")
    if not (np.diff(edges, prepend=values.min()) > 0).all():
        raise BadDataError(
            f"{name} cannot be cut into {n_bins} bins of equal occupancy, too many values are equal: smallest "
            f"{values.min():.6g}, edges {_listed(edges)}; check the column, use fewer bins or give explicit edges"
        )
    return edges


def equal_width_edges(name: str, values: npt.NDArray[np.float32], n_bins: int) -> npt.NDArray[np.float32]:
    """Edges of bins of the same width, in the logarithm for pT and MET."""
    is_energy = name in ("pt_mev", "met_mev")
    scaled = np.log(values[values > 0].astype(np.float64)) if is_energy else values.astype(np.float64)
    _check_enough(name, scaled, n_bins)
    low, high = np.quantile(scaled, EQUAL_WIDTH_RANGE)
    inner = np.linspace(low, high, n_bins + 1)[1:-1]
    edges: npt.NDArray[np.float32] = (np.exp(inner) if is_energy else inner).astype(np.float32)
    if not high > low or not (np.diff(edges) > 0).all():
        raise BadDataError(f"{name} cannot be cut into {n_bins} bins: nearly all values are {np.median(values):.6g}")
    return edges


def phi_edges(n_bins: int) -> npt.NDArray[np.float64]:
    """Edges of equal bins from -pi to pi, these two included; 0, where it is one, is exact."""
    return np.pi * (2 * np.arange(n_bins + 1) - n_bins) / n_bins


def count_edges(edges: npt.NDArray[np.float32], values: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
    """Number of edges at or below each value: with inner edges, its bin counted from 0.

    >>> count_edges(np.array([10, 20], np.float32), np.array([9, 10, 15, 99], np.float32))
    array([0, 1, 1, 2], dtype=int32)
    """
    if len(edges) > _MANY_EDGES:
        return np.searchsorted(edges, values, side="right").astype(np.int32)
    # Comparing a whole column with a few edges is several times faster than a search for each value.
    n_edges = np.zeros(len(values), np.uint8)
    for edge in edges:
        n_edges += values >= edge
    return n_edges.astype(np.int32)


def _check_enough(name: str, values: npt.NDArray[np.floating[Any]], n_bins: int) -> None:
    if len(values) < n_bins:
        raise UsageError(
            f"{n_bins} bins of {name} need at least {n_bins} values; the training events have {len(values)}"
        )


def _listed(values: npt.NDArray[Any]) -> str:
    return ", ".join(f"{value:.6g}" for value in values[:10]) + (", ..." if len(values) > 10 else "")
