"""What a set of events looks like."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.errors import UsageError
from unmask.events.event_set import BACKGROUND, SIGNAL, UNKNOWN, EventSet
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


def draw_events(events: EventSet, *, signal: str = "signal", style: Style = "plain") -> Drawing:
    """Draw multiplicity, b-jets, pT, MET, HT and eta, each class normalised to its sum of weights.

    ``signal`` is what the events labelled as signal are called.
    """
    if not len(events):
        raise UsageError("there are no events to plot")
    with new_figure(2, 3, (9, 5), style=style) as (drawing, axes):
        whole = np.arange(-0.5, events.max_objects + 1)
        panels: list[tuple[str, npt.NDArray[Any], npt.NDArray[np.float64]]] = [
            ("objects in the event", events.n_objects, whole),
            ("b-jets", events.n_b_jets, np.arange(-0.5, 9)),
            ("MET [GeV]", events.met_mev / 1e3, np.linspace(0, 800, 41)),
            ("HT [GeV]", events.ht_mev / 1e3, np.linspace(0, 2500, 51)),
            ("pT of all objects [GeV]", events.pt_mev / 1e3, np.geomspace(15, 2000, 41)),
            ("eta of all objects", events.eta, np.linspace(-3, 3, 41)),
        ]
        for axis, (title, values, edges) in zip(axes.flat, panels, strict=True):
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
            if edges is not whole and "eta" not in title:
                axis.set_yscale("log")
        legend_below(drawing.figure, axes[0, 0])
        for axis in axes[:, 0]:
            axis.set_ylabel("per event, normalised")
    return drawing
