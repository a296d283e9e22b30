"""What a set of events looks like."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.errors import UsageError
from unmask.events.event_set import BACKGROUND, SIGNAL, UNKNOWN, EventSet
from unmask.events.observables import OBSERVABLES, Observable
from unmask.report.style import (
    BACKGROUND_COLOUR,
    SIGNAL_COLOUR,
    Drawing,
    Style,
    label_decades,
    legend_below,
    new_figure,
)

_STYLES = {
    BACKGROUND: ("background", BACKGROUND_COLOUR, "-"),
    SIGNAL: ("signal", SIGNAL_COLOUR, "--"),
    UNKNOWN: ("unlabelled", "0.3", "-."),
}


def _edges(observable: Observable, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Bins of an observable, up to its largest count or beyond nearly all momenta."""
    if observable.is_count:
        return np.arange(-0.5, values.max() + 1)
    return np.linspace(0, max(np.quantile(values, 0.999), 1.0), 41)


def draw_events(events: EventSet, *, signal: str = "signal", style: Style = "plain") -> Drawing:
    """Draw all observables of events, and pT and eta of their objects, each class normalised to its sum of weights.

    ``signal`` is what the events labelled as signal are called.
    """
    if not len(events):
        raise UsageError("there are no events to plot")
    n_rows = -(-(len(OBSERVABLES) + 2) // 4)
    with new_figure(n_rows, 4, (12, 2.5 * n_rows), style=style) as (drawing, axes):
        panels: list[tuple[str, npt.NDArray[Any], npt.NDArray[np.float64]]] = [
            (one.axis_label, one.shown(events), _edges(one, one.shown(events))) for one in OBSERVABLES.values()
        ]
        panels += [
            ("pT of all objects [GeV]", events.pt_mev / 1e3, np.geomspace(15, 2000, 41)),
            ("eta of all objects", events.eta, np.linspace(-3, 3, 41)),
        ]
        for axis in axes.flat[len(panels) :]:
            axis.set_axis_off()
        for axis, (title, values, edges) in zip(axes.flat, panels, strict=False):
            for label, (name, colour, line) in _STYLES.items():
                chosen = events.label == label
                if not chosen.any():
                    continue
                weight = events.weight[chosen] / events.weight[chosen].sum()
                shown = values[chosen]
                if shown.ndim == 2:
                    is_object = events.is_object[chosen]
                    weight = np.broadcast_to(weight[:, None], shown.shape)[is_object]
                    shown = shown[is_object]
                # What lies beyond the last edge is shown in the last bin, so that nothing is hidden.
                counts, _ = np.histogram(np.clip(shown, edges[0], np.nextafter(edges[-1], 0)), edges, weights=weight)
                shown_name = signal if label == SIGNAL else name
                axis.stairs(counts, edges, label=f"{shown_name} ({chosen.sum():,})", color=colour, linestyle=line)
            axis.set_xlabel(title)
            if title.startswith("pT"):
                axis.set_xscale("log")
                label_decades(axis.xaxis)
            if "eta" not in title and title != OBSERVABLES["n_objects"].label:
                axis.set_yscale("log")
        legend_below(drawing.figure, axes[0, 0])
        for axis in axes[:, 0]:
            axis.set_ylabel("per event, normalised")
    return drawing
