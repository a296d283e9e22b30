"""Style and files of all figures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import StringIO
from itertools import count
from math import lcm
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args
from xml.sax.saxutils import quoteattr

import numpy as np

from unmask.artifacts import atomic_path
from unmask.errors import UsageError, nearest, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Style = Literal["plain", "atlas", "cms"]
STYLES: tuple[Style, ...] = get_args(Style)
FORMATS = ("png", "pdf", "svg")
BACKGROUND_COLOR = "#3f90da"
SIGNAL_COLOR = "#bd1f01"

_PLAIN: dict[str, Any] = {
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "axes.spines.top": False,
    "axes.spines.right": False,
    # Text stays text, which can be searched and edited. The experiments' font is seldom installed, and not TrueType:
    # in their styles text becomes outlines.
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    # Told apart with any kind of color vision (arXiv:2107.02270).
    "axes.prop_cycle": "cycler(color=['3f90da', 'ffa90e', 'bd1f01', '832db6', 'a96b59', 'e76300', '717581', '94a4a2'])",
}
# The styles of the experiments are made for one large panel; these sizes are those of print, for any number of them.
_ALWAYS: dict[str, Any] = {
    "font.size": 9,
    **dict.fromkeys((f"{part}.labelsize" for part in ("axes", "xtick", "ytick")), "medium"),
    **dict.fromkeys(("axes.titlesize", "legend.fontsize"), "medium"),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size", "xtick.major.pad", "axes.labelpad"), 4),
    **dict.fromkeys(("xtick.minor.size", "ytick.minor.size"), 2),
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 2.8,  # long enough to tell the line styles
    "svg.hashsalt": "unmask",
}
# Lines differ in style too, for those who see or print no colors.
_LINES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (8, 3)), (0, (3, 1)), (0, (1, 3)))
# Figures drawn twice from the same numbers are the same files.
_NO_DATE: dict[str, dict[str, Any]] = {
    "png": {},
    "pdf": {"CreationDate": None},
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
}


@dataclass(frozen=True)
class Drawing:
    """A figure with its style, to be written in any format."""

    figure: Figure
    style: Style

    def write(self, path: str | Path, formats: Sequence[str] = ()) -> list[Path]:
        """Write the figure to ``path``: in the format of its suffix or, without one, in all ``formats``.

        The files take their places when all of them are complete.

        Raises
        ------
        UsageError
            If a format is not one of png, pdf and svg.
        """
        path = Path(path)
        paths = [path.with_name(f"{path.name}.{one}") for one in formats] or [path]
        for one in paths:
            check_format(one.suffix.lstrip("."), str(one))
        with _applied(self.style), ExitStack() as stack:
            for one in paths:
                metadata = _NO_DATE[one.suffix.lstrip(".")]
                self.figure.savefig(stack.enter_context(atomic_path(one)), dpi=200, metadata=metadata)
        return paths

    def svg(self, name: str, title: str) -> str:
        """Give the figure as an SVG element for an HTML page; see :func:`svg_element`."""
        text = StringIO()
        with _applied(self.style):
            self.figure.savefig(text, format="svg", metadata=_NO_DATE["svg"])
        return svg_element(text.getvalue(), name, title)


def check_format(name: str, what: str) -> None:
    """Refuse a format that figures are not written in, saying ``what`` asks for it."""
    if name not in FORMATS:
        raise UsageError(f"{what}: a figure is written as {', '.join(FORMATS)}")


def svg_element(svg: str, name: str, title: str) -> str:
    """Turn the text of an SVG file that :class:`Drawing` wrote into an element of an HTML page.

    All its ids begin with ``name``, which must be unlike those of the other figures of the page.
    """
    svg = svg[svg.index("<svg") :]  # an element of a page has no XML declaration
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    # Rules would hold for the page: keep them to this figure.
    svg = svg.replace('<style type="text/css">*{', f'<style type="text/css">#{name} *{{', 1)
    return svg.replace("<svg", f'<svg id="{name}" role="img" aria-label={quoteattr(title)}', 1)


@contextmanager
def new_figure(
    n_rows: int, n_columns: int, size: tuple[float, float], *, style: Style = "plain", **options: Any
) -> Iterator[tuple[Drawing, Any]]:
    """Give an empty figure of ``size`` inches and its axes (n_rows, n_columns), to be drawn on within the block."""
    require("matplotlib", "plot")
    from matplotlib.figure import Figure

    with _applied(style):
        figure = Figure(figsize=size, layout="constrained")  # without pyplot: no window, no global state
        yield Drawing(figure, style), figure.subplots(n_rows, n_columns, squeeze=False, **options)
        figure.draw_without_rendering()  # finds the layout, once for all formats
        figure.set_layout_engine(None)


@contextmanager
def _applied(style: Style) -> Iterator[None]:
    """Make figures look alike, whatever the user's matplotlib is set to, and leave no trace."""
    import matplotlib.style

    if style not in STYLES:
        raise UsageError(f"no style {style!r}: {nearest(style, STYLES)}")
    look = _PLAIN
    if style != "plain":
        require("mplhep", "plot")
        import mplhep

        look = getattr(mplhep.style, style.upper())
    with matplotlib.style.context({**look, **_ALWAYS}, after_reset=True):
        yield


def name_simulation(drawing: Drawing, axis: Axes) -> None:
    """Write "Simulation" where the styles of the experiments have their label; it claims no experiment's approval."""
    if drawing.style != "plain":
        axis.set_title("Simulation", loc="right", fontstyle="italic")


def line_styles() -> Iterator[dict[str, Any]]:
    """Give colors and line styles, without end; called within a figure's block.

    No pair of them comes twice before all have come (64 in the plain style).
    """
    import matplotlib as mpl
    from matplotlib.colors import to_rgb

    colors = mpl.rcParams["axes.prop_cycle"].by_key()["color"]
    # A light yellow would not be seen on white.
    dark = [color for color in colors if np.dot(to_rgb(color), (0.299, 0.587, 0.114)) < 0.75]
    period = lcm(len(dark), len(_LINES))  # after which both lists together would repeat
    for i in count():
        yield {"color": dark[i % len(dark)], "linestyle": _LINES[(i + i // period) % len(_LINES)]}


def legend_below(figure: Figure, axis: Axes) -> None:
    """Put the legend of ``axis`` below all panels, where it covers nothing, in as many columns as there is room for."""
    handles, labels = axis.get_legend_handles_labels()
    for n_columns in range(min(len(labels), 4), 0, -1):
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=n_columns)
        if legend.get_window_extent().width <= figure.bbox.width or n_columns == 1:
            return
        legend.remove()


def label_decades(axis: Axis) -> None:
    """Label a logarithmic axis of energies at 10, 30, 100, 300, ..., in plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(base=10, subs=(1.0, 3.0), numticks=9))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def write_drawings(folder: str | Path, drawings: Mapping[str, Drawing], formats: Sequence[str]) -> list[Path]:
    """Write figures, by the names of their files without suffix, into a folder and return the paths."""
    return [path for name, drawing in drawings.items() for path in drawing.write(Path(folder) / name, formats)]
