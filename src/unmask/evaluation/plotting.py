"""How all figures look, and how they are written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.artifacts import atomic_path
from unmask.errors import UsageError, require

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")
BACKGROUND_COLOUR = "#3f90da"
SIGNAL_COLOUR = "#bd1f01"
STYLE: Any = {
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "unmask",
    "svg.fonttype": "none",  # text stays text: it can be searched and edited
}


@contextmanager
def new_figure(path: Path, n_rows: int, n_columns: int, size: tuple[float, float], **options: Any) -> Iterator[Any]:
    """Give the axes of a new figure, which is written to ``path`` (png, pdf or svg) when the block succeeds."""
    require("matplotlib", "plot")
    if path.suffix.lstrip(".") not in FORMATS:
        raise UsageError(f"{path}: a figure is written as {', '.join(FORMATS)}")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size)  # without pyplot: no window, no global state
        yield figure.subplots(n_rows, n_columns, squeeze=False, **options)
        _write(figure, path)


def label_decades(axis: Axis) -> None:
    """Label a logarithmic axis of energies at 10, 20, 50, 100, ..., in plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0), numticks=9))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _write(figure: Figure, path: Path) -> None:
    with atomic_path(path) as scratch:
        figure.savefig(scratch, dpi=150)
