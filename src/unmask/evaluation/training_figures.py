"""How a training went, from the history of what was trained or the log in its run folder."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.errors import BadDataError
from unmask.evaluation.plotting import BACKGROUND_COLOUR, SIGNAL_COLOUR, Drawing, Style, new_figure

_COLUMNS = ("epoch", "training_loss", "validation_loss", "learning_rate")


def read_training_log(path: str | Path) -> dict[str, npt.NDArray[np.float64]]:
    """Read epoch, losses and learning rate from a run's ``log.jsonl``, each (n_epochs,).

    Raises
    ------
    BadDataError
        If the log is empty, or a line does not hold these numbers.
    """
    path = Path(path)
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            record = json.loads(line)
            rows.append([float(record[name]) for name in _COLUMNS])
            if not all(map(math.isfinite, rows[-1])):
                raise ValueError("not a finite number")
        except (ValueError, TypeError, KeyError) as error:
            raise BadDataError(
                f"{line[:80]!r} is not the record of an epoch, with the numbers {', '.join(_COLUMNS)}",
                path=path,
                where=f"line {number}",
            ) from error
    if not rows:
        raise BadDataError("holds no epoch", path=path)
    return dict(zip(_COLUMNS, np.array(rows).T, strict=True))


def draw_training(history: str | Path | Sequence[Any], *, title: str = "", style: Style = "plain") -> Drawing:
    """Draw the losses of a training with the epoch whose network was kept and, below, the learning rate.

    ``history`` has a record for each epoch, as that of a fitted detector, or is a run's ``log.jsonl``: how far it came.
    """
    if isinstance(history, str | Path):
        log = read_training_log(history)
    else:
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
