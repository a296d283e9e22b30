"""Bin edges of the published look-up tables, put right.

Inner edges only, natural logarithms of MeV for pT and MET. In the publication's table for N = 4 the pT and |eta| rows
of the two studies are exchanged (their medians then disagree with those of N = 6); here each stands with its study.
"""

from __future__ import annotations

import math

from unmask.errors import UsageError

PUBLISHED_EDGES: dict[str, dict[int, dict[str, tuple[float, ...]]]] = {
    "four-top": {
        4: {
            "log_pt": (10.75, 11.33, 12.0),
            "abs_eta": (0.4325, 0.9, 1.482),
            "log_met": (11.69, 12.22, 12.66),
        },
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
        4: {
            "log_pt": (10.47, 10.95, 11.41),
            "abs_eta": (0.4871, 1.009, 1.634),
            "log_met": (11.14, 11.42, 11.70),
        },
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
