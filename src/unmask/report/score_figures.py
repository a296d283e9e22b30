"""Figures of scores: ROC curves, significance improvement, and distributions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from unmask.evaluation.intervals import TAILS
from unmask.evaluation.metrics import overlap_area, score_bins
from unmask.evaluation.roc import RankedScores, Roc, roc_replicas
from unmask.events.event_set import SIGNAL
from unmask.report.style import (
    BACKGROUND_COLOR,
    FORMATS,
    SIGNAL_COLOR,
    Drawing,
    Style,
    legend_below,
    line_styles,
    name_simulation,
    new_figure,
)
from unmask.scores.calibration import Calibration
from unmask.scores.intervals import Estimate, FloatArray
from unmask.scores.score_table import Scores

_N_POINTS = 120


@dataclass(frozen=True, eq=False)
class RocWithBand:
    """The ROC curve of one detector with its 95% interval, at the background efficiencies where it is drawn.

    These are dense on linear and logarithmic scales, from the first point that enough background events support (see
    :attr:`Roc.is_supported`) to 1.
    """

    roc: Roc
    auc: Estimate
    background_efficiency: FloatArray
    signal_efficiency: FloatArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def of(cls, score: FloatArray, is_signal: npt.NDArray[np.bool_], weight: FloatArray | None = None) -> RocWithBand:
        """Measure it."""
        ranked = RankedScores.of(score, is_signal, weight)
        roc = Roc.of(ranked)
        least = float(roc.background_efficiency[roc.is_supported].min(initial=1.0))
        # Straight lines between the few points of a discrete score are curves on a logarithmic scale.
        at = np.union1d(np.geomspace(least, 1, _N_POINTS), np.linspace(least, 1, _N_POINTS))
        signal_efficiency = np.interp(at, roc.background_efficiency, roc.signal_efficiency)
        low, high = np.quantile(roc_replicas(roc, n_replicas=200).signal_efficiency_at(at), TAILS, axis=0)
        # Where no signal is left below the threshold, replicas still allow for some.
        low, high = np.minimum(low, signal_efficiency), np.maximum(high, signal_efficiency)
        return cls(roc, ranked.placements.auc(), at, signal_efficiency, low, high)


def draw_roc(curves: Mapping[str, RocWithBand], *, style: Style = "plain") -> Drawing:
    """Draw ROC curves with 95% bands, by the names of detectors, at linear and logarithmic background efficiency.

    On the logarithmic scale they begin where ten background events (effective) are above the threshold.
    """
    with new_figure(1, 2, (8, 4 + 0.15 * len(curves)), style=style, sharey=True) as (drawing, axes):
        linear, logarithmic = axes[0]
        for (name, curve), line in zip(curves.items(), line_styles(), strict=False):
            x, y = curve.background_efficiency, curve.signal_efficiency
            for axis in (linear, logarithmic):
                axis.fill_between(x, curve.low, curve.high, color=line["color"], alpha=0.25, linewidth=0)
            logarithmic.plot(x, y, **line)
            is_start = curve.roc.background_efficiency < x[0]
            linear.plot(
                np.append(curve.roc.background_efficiency[is_start], x),
                np.append(curve.roc.signal_efficiency[is_start], y),
                **line,
                label=f"{name}: AUC {curve.auc.value:.3f} [{curve.auc.low:.3f}, {curve.auc.high:.3f}]",
            )
        least = _least(curves)
        diagonal = np.geomspace(least, 1, _N_POINTS)
        linear.plot([0, 1], [0, 1], color="0.5", linewidth=0.8, label="no separation")
        logarithmic.plot(diagonal, diagonal, color="0.5", linewidth=0.8)
        linear.set(xlabel="background efficiency", ylabel="signal efficiency", xlim=(0, 1), ylim=(0, 1))
        logarithmic.set(xlabel="background efficiency", xscale="log", xlim=(least, 1))
        name_simulation(drawing, logarithmic)
        legend_below(drawing.figure, linear)
    return drawing


def _least(curves: Mapping[str, RocWithBand]) -> float:
    """Smallest background efficiency that is drawn; with too few events for any curve, an empty panel."""
    return min(0.1, *(float(curve.background_efficiency[0]) for curve in curves.values()))


def draw_significance_improvement(curves: Mapping[str, RocWithBand], *, style: Style = "plain") -> Drawing:
    """Draw ε_S / √ε_B against ε_B with 95% bands, from where ten background events (effective) support it."""
    with new_figure(1, 1, (6, 4 + 0.15 * len(curves)), style=style) as (drawing, axes):
        axis = axes[0, 0]
        for (name, curve), line in zip(curves.items(), line_styles(), strict=False):
            at, root = curve.background_efficiency, np.sqrt(curve.background_efficiency)
            axis.fill_between(at, curve.low / root, curve.high / root, color=line["color"], alpha=0.25, linewidth=0)
            best, improvement = curve.roc.best_improvement, curve.roc.significance_improvement
            largest = "too few background events"
            if best is not None:
                where = curve.roc.background_efficiency[best]
                largest = f"max {improvement[best]:.2f} at ε_B = {100 * where:.2g}%"
            axis.plot(at, curve.signal_efficiency / root, **line, label=f"{name}: {largest}")
        least = _least(curves)
        diagonal = np.geomspace(least, 1, _N_POINTS)
        axis.plot(diagonal, np.sqrt(diagonal), color="0.5", linewidth=0.8, label="no separation")
        axis.set(xlabel="background efficiency", xscale="log", xlim=(least, 1), ylim=(0, None))
        axis.set_ylabel("significance improvement:\nsignal efficiency / sqrt(background efficiency)")
        name_simulation(drawing, axis)
        legend_below(drawing.figure, axis)
    return drawing


def draw_score_histogram(
    score: FloatArray,
    is_signal: npt.NDArray[np.bool_],
    weight: FloatArray | None = None,
    *,
    name: str = "",
    calibration: Calibration | None = None,
    style: Style = "plain",
) -> Drawing:
    """Draw the scores of signal and background, their overlap, and the threshold of a calibration.

    Each class adds up to 1 in 100 equal bins, with errors from the sums of squared weights; the axis is logarithmic if
    most of them would be too low to be seen.
    """
    roc = Roc.of(RankedScores.of(score, is_signal, weight))
    overlap = overlap_area(roc).value
    edges, _ = score_bins(roc)
    weight = np.ones(len(score)) if weight is None else weight
    (background, background_error), (signal, signal_error) = (
        _histogram(score[chosen], weight[chosen], edges) for chosen in (~is_signal, is_signal)
    )
    with new_figure(1, 1, (5.5, 4), style=style) as (drawing, axes):
        axis = axes[0, 0]
        n_signal = np.count_nonzero(is_signal)
        n_background = len(is_signal) - n_signal
        text = f"background ({n_background:,} events)"
        axis.stairs(background, edges, color=BACKGROUND_COLOR, fill=True, alpha=0.5, label=text)
        axis.stairs(signal, edges, color=SIGNAL_COLOR, linewidth=1.4, label=f"signal ({n_signal:,} events)")
        for height, error, color in ((background, background_error, "0.3"), (signal, signal_error, SIGNAL_COLOR)):
            bars = {"fmt": "none", "ecolor": color, "elinewidth": 0.6}
            axis.errorbar((edges[1:] + edges[:-1]) / 2, height, np.where(error > 0, error, np.nan), **bars)
        hatched = {"fill": True, "facecolor": "none", "edgecolor": "0.2", "hatch": "////", "linewidth": 0}
        axis.stairs(
            np.maximum(np.minimum(background, signal), 0), edges, **hatched, label=f"overlap area {overlap:.3f}"
        )
        if calibration:
            text = f"threshold {calibration.threshold:.4g} (ε_B = {calibration.measured.value:.2%} when calibrated)"
            axis.axvline(calibration.threshold, color="0.1", linestyle="--", label=text)
        axis.set(xlabel="anomaly score", ylabel=f"fraction of events per {edges[1] - edges[0]:.2g}")
        axis.set_xlim(edges[0], edges[-1])
        shown = np.concatenate([background[background > 0], signal[signal > 0]])
        if np.median(shown) < 0.02 * shown.max():
            axis.set_yscale("log")
        else:
            axis.set_ylim(0, 1.08 * shown.max())
        axis.set_title(name, loc="left")
        name_simulation(drawing, axis)
        legend_below(drawing.figure, axis)
    return drawing


def _histogram(score: FloatArray, weight: FloatArray, edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Share of the weights in each bin, and its error."""
    sums, squares = (np.histogram(score, edges, weights=weight**power)[0] for power in (1, 2))
    return sums / weight.sum(), np.sqrt(squares) / weight.sum()


def _score_figures(
    scores: Mapping[str, Scores], calibrations: Mapping[str, Calibration] | None, style: Style
) -> Iterator[tuple[str, str, Drawing]]:
    """Draw one figure after the other: (name of its file, title, drawing)."""
    events = {name: (one.score, one.label == SIGNAL, one.weight) for name, one in scores.items()}
    if not events:
        return
    curves = {name: RocWithBand.of(*one) for name, one in events.items()}
    yield "roc", "ROC curves", draw_roc(curves, style=style)
    yield "significance-improvement", "Significance improvement", draw_significance_improvement(curves, style=style)
    for number, (name, (score, is_signal, weight)) in enumerate(events.items(), start=1):
        known = (calibrations or {}).get(name)
        drawing = draw_score_histogram(score, is_signal, weight, name=name, calibration=known, style=style)
        # The number keeps apart names that differ only in what cannot be part of a file's name.
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        yield f"scores-{number}-{slug}".rstrip("-"), f"Scores of {name}", drawing


def write_score_figures(
    folder: str | Path,
    scores: Mapping[str, Scores],
    *,
    calibrations: Mapping[str, Calibration] | None = None,
    style: Style = "plain",
    formats: Sequence[str] = FORMATS,
    progress: Callable[[float], None] = lambda _: None,
) -> list[Path]:
    """Write ROC, significance improvement and score histograms of detectors, by their names, and return the paths.

    Histograms show the thresholds of ``calibrations``, by the same names; ``progress`` gets the fraction done.
    """
    paths = []
    for number, (name, _, drawing) in enumerate(_score_figures(scores, calibrations, style), start=1):
        paths += drawing.write(Path(folder) / name, formats)
        progress(number / (len(scores) + 2))
    return paths


def score_figures_svg(
    scores: Mapping[str, Scores],
    *,
    calibrations: Mapping[str, Calibration] | None = None,
    style: Style = "plain",
) -> dict[str, str]:
    """Give the figures of :func:`write_score_figures` as SVG elements by title."""
    return {title: drawing.svg(name, title) for name, title, drawing in _score_figures(scores, calibrations, style)}
