"""How a training went, from the history of what was trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unmask.report.style import BACKGROUND_COLOUR, SIGNAL_COLOUR, Drawing, Style, new_figure

_COLUMNS = ("epoch", "training_loss", "validation_loss", "learning_rate")


def draw_training(history: Sequence[Any], *, title: str = "", style: Style = "plain") -> Drawing:
    """Draw the losses of a training with the epoch whose network was kept and, below, the learning rate.

    ``history`` has a record for each epoch, as the ``history_`` of a fitted detector.
    """
    log = {name: np.array([getattr(record, name) for record in history], np.float64) for name in _COLUMNS}
    epoch, rate = log["epoch"], log["learning_rate"]
    best = int(np.argmin(log["validation_loss"]))
    marker = "." if len(epoch) <= 50 else ""
    with new_figure(2, 1, (5.5, 4.5), style=style, sharex=True, height_ratios=[3, 1]) as (drawing, axes):
        upper, lower = axes[:, 0]
        for name, colour, line in (("training", BACKGROUND_COLOUR, "--"), ("validation", SIGNAL_COLOUR, "-")):
            upper.plot(epoch, log[f"{name}_loss"], line, color=colour, marker=marker, label=name)
        kept = f"best epoch {epoch[best]:.0f}: {log['validation_loss'][best]:.4f}"
        upper.axvline(epoch[best], color="0.4", linestyle=":", linewidth=1)
        upper.plot(epoch[best], log["validation_loss"][best], "*", color=SIGNAL_COLOUR, markersize=11, label=kept)
        upper.set_ylabel("loss (background)")
        upper.set_title(title, loc="left")
        upper.legend(loc="best")
        lower.plot(epoch, rate, color="0.2", marker=marker)
        lower.set(xlabel="epoch", ylabel="learning rate")
        if rate.min() > 0 and rate.max() > 10 * rate.min():
            lower.set_yscale("log")
        else:
            lower.set_ylim(0, 1.2 * rate.max() or 1)
            lower.ticklabel_format(axis="y", style="sci", scilimits=(-2, 4))
        lower.xaxis.get_major_locator().set_params(integer=True)
    return drawing
