"""The distribution of the score in data, background and signals, in bins that respect the edges of the regions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from unmask.artifacts import Json
from unmask.scores.score_table import Scores
from unmask.searches.regions import Regions

#: Bins of the control region, and of each other one.
_N_BINS = (12, 5)
_N_PROCESSES = 5
OTHER = "other"


def spectrum(
    regions: Regions,
    background: Scores,
    scale: float,
    signals: Mapping[str, Scores],
    data: Scores | None,
    *,
    blind: bool,
) -> dict[str, Json]:
    """Histograms as JSON: background by process with its simulated error, signals, and data, None where blind.

    ``scale`` normalizes the background. What lies beyond the last edge is in the last bin.
    """
    known = [background.score, *(one.score for one in signals.values()), *([] if data is None else [data.score])]
    low = min(float(np.quantile(one, 0.001)) for one in known if len(one))
    high = max(float(np.quantile(one, 0.999)) for one in known if len(one))
    corners = [min(low, regions.thresholds[0] - 1e-9), *regions.thresholds]
    corners.append(max(high, corners[-1] + (corners[-1] - corners[-2])))
    parts = [
        np.linspace(a, b, n, endpoint=False) for a, b, n in zip(corners, corners[1:], _sizes(corners), strict=False)
    ]
    edges = np.append(np.concatenate(parts), corners[-1])

    def counts(scores: Scores, weight: npt.NDArray[np.float64] | None = None) -> npt.NDArray[np.float64]:
        inside = np.clip(scores.score, edges[0], np.nextafter(edges[-1], edges[0]))
        return np.asarray(
            np.histogram(inside, edges, weights=scores.weight if weight is None else weight)[0], np.float64
        )

    processes = background.process
    names, code = np.unique(processes, return_inverse=True)
    order = names[np.argsort(-np.bincount(code, background.weight))]
    groups = {str(name): processes == name for name in order[:_N_PROCESSES]}
    if len(order) > _N_PROCESSES:
        groups[OTHER] = np.isin(processes, order[_N_PROCESSES:])
    seen: list[float | None] | None = None
    if data is not None:
        is_hidden = (edges[:-1] >= regions.thresholds[1]) & blind
        seen = [None if hidden else float(n) for n, hidden in zip(counts(data), is_hidden, strict=True)]
    return {
        "edges": edges.tolist(),
        "background": {name: (scale * counts(background[chosen])).tolist() for name, chosen in groups.items()},
        "background_error": (scale * np.sqrt(counts(background, background.weight**2))).tolist(),
        "signals": {name: counts(one).tolist() for name, one in signals.items()},
        "data": seen,
    }


def _sizes(corners: list[float]) -> list[int]:
    return [_N_BINS[0], *[_N_BINS[1]] * (len(corners) - 2)]
