"""Figures of scores say what the metrics say: curves, numbers in legends, histograms."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
import pytest

from tests.evaluation.toy_scores import roc_auc, roc_curve, toy_scores
from unmask.evaluation.intervals import TAILS
from unmask.evaluation.metrics import overlap_area
from unmask.evaluation.roc import roc_replicas
from unmask.report.score_figures import (
    RocWithBand,
    draw_roc,
    draw_score_histogram,
    draw_significance_improvement,
    score_figures_svg,
    write_score_figures,
)
from unmask.report.style import Drawing
from unmask.scores.calibration import calibrate
from unmask.scores.score_table import Scores

ScoredEvents = tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.float64]]


def scores_of(events: ScoredEvents) -> Scores:
    score, is_signal, weight = events
    return toy_scores(score, is_signal, weight=weight)


def some_events(shift: float = 1.0, n: int = 2000, *, is_discrete: bool = False) -> ScoredEvents:
    rng = np.random.default_rng(7)
    is_signal = rng.random(n) < 0.3
    score = rng.normal(size=n) + shift * is_signal
    return (np.round(score) if is_discrete else score), is_signal, rng.uniform(0.5, 2, n)


def legend_texts(drawing: Drawing) -> list[str]:
    return [text.get_text() for legend in drawing.figure.legends for text in legend.get_texts()]


def drawn(drawing: Drawing, panel: int = 0) -> dict[str, npt.NDArray[np.float64]]:
    """Points (n, 2) of the lines of a panel, by what the legend says."""
    return {str(line.get_label()): np.asarray(line.get_xydata()) for line in drawing.figure.axes[panel].lines}


@pytest.mark.parametrize("is_discrete", [False, True])
def test_roc_shows_the_curve_its_band_and_the_area(is_discrete: bool) -> None:
    events = {"one <1>": some_events(is_discrete=is_discrete), "other": some_events(0.3)}
    drawing = draw_roc({name: RocWithBand.of(*given) for name, given in events.items()})
    linear, logarithmic = drawing.figure.axes
    assert (linear.get_xscale(), logarithmic.get_xscale()) == ("linear", "log")
    assert {axis.get_xlabel() for axis in (linear, logarithmic)} == {"background efficiency"}
    assert linear.get_ylabel() == "signal efficiency"
    auc = roc_auc(*events["one <1>"])
    label = f"one <1>: AUC {auc.value:.3f} [{auc.low:.3f}, {auc.high:.3f}]"
    assert legend_texts(drawing)[0] == label
    assert legend_texts(drawing)[1].startswith("other: AUC 0.5")
    assert legend_texts(drawing)[2] == "no separation"
    roc = roc_curve(*events["one <1>"])
    curve = drawn(drawing)[label]
    assert np.allclose(curve[:, 1], np.interp(curve[:, 0], roc.background_efficiency, roc.signal_efficiency), atol=0.03)
    assert curve[0].tolist() == [0, 0]
    assert curve[-1].tolist() == [1, 1]
    # As exactly as lines are drawn, no point of the ROC is off the line.
    between = np.interp(roc.background_efficiency, *curve.T)
    assert np.abs(between - roc.signal_efficiency)[roc.is_supported].max() < 0.025
    # On the logarithmic scale the curve begins with ten events above, and is dense enough to be a curve.
    supported = np.asarray(logarithmic.lines[0].get_xydata())
    assert supported[0, 0] == roc.background_efficiency[roc.is_supported].min() >= logarithmic.get_xlim()[0] > 0
    assert np.diff(np.log(supported[:, 0])).max() < 0.06
    replicas = roc_replicas(roc, n_replicas=200)
    low, high = np.quantile(replicas.signal_efficiency_at(supported[:, 0]), TAILS, axis=0)
    corners = linear.collections[0].get_paths()[0].vertices
    assert np.isin(np.minimum(low, supported[:, 1]), corners[:, 1]).all()
    assert np.isin(np.maximum(high, supported[:, 1]), corners[:, 1]).all()


def test_significance_improvement_is_drawn_where_it_is_supported() -> None:
    events = some_events(2.0)
    drawing = draw_significance_improvement({"one": RocWithBand.of(*events)})
    roc = roc_curve(*events)
    improvement = roc.significance_improvement
    most = roc.background_efficiency[np.nanargmax(improvement)]
    label = f"one: max {np.nanmax(improvement):.2f} at ε_B = {100 * most:.2g}%"
    assert legend_texts(drawing) == [label, "no separation"]
    curve = drawn(drawing)[label]
    first = roc.background_efficiency[roc.is_supported][0]
    first = np.flatnonzero(roc.background_efficiency == first)[-1]  # the upper end of a step
    assert curve[0] == pytest.approx([roc.background_efficiency[first], improvement[first]])
    at = np.searchsorted(roc.background_efficiency, 0.1)
    assert np.interp(0.1, *curve.T) == pytest.approx(improvement[at], rel=0.03)
    (band,) = drawing.figure.axes[0].collections
    assert band.get_paths()[0].contains_points(curve[curve[:, 0] < 0.99]).mean() > 0.95
    axis = drawing.figure.axes[0]
    assert (axis.get_xlabel(), axis.get_xscale()) == ("background efficiency", "log")
    assert "signal efficiency / sqrt(background efficiency)" in axis.get_ylabel()


def test_too_few_events_are_said_and_not_drawn() -> None:
    score, is_signal = np.arange(12.0), np.arange(12) % 2 == 0
    curves = {"one": RocWithBand.of(score, is_signal)}
    improvement = draw_significance_improvement(curves)
    assert legend_texts(improvement)[0] == "one: too few background events"
    logarithmic = draw_roc(curves).figure.axes[1]
    assert np.unique(np.asarray(logarithmic.lines[0].get_xdata())).tolist() == [1.0]


@pytest.mark.parametrize("name", ["HT", "masked-token LUT-456", "scores of a detector with quite a long name, run 2"])
def test_legends_stay_inside_the_figure(name: str) -> None:
    curves = {f"{name} {i}": RocWithBand.of(*some_events(n=200)) for i in range(3)}
    for drawing in (draw_roc(curves), draw_significance_improvement(curves)):
        drawing.figure.draw_without_rendering()
        box = drawing.figure.legends[0].get_window_extent()
        assert drawing.figure.bbox.x0 <= box.x0 < box.x1 <= drawing.figure.bbox.x1
        assert box.y1 <= min(axis.get_tightbbox().y0 for axis in drawing.figure.axes)


def test_score_histogram_shows_shares_overlap_and_threshold() -> None:
    score, is_signal, weight = some_events(2.0)
    assert weight is not None
    calibration = calibrate(scores_of((score, is_signal, weight))[~is_signal], background_efficiency=0.1)
    drawing = draw_score_histogram(score, is_signal, weight, name="one", calibration=calibration)
    axis = drawing.figure.axes[0]
    roc, threshold = roc_curve(score, is_signal, weight), calibration.threshold
    assert legend_texts(drawing) == [
        f"background ({np.count_nonzero(~is_signal):,} events)",
        f"signal ({np.count_nonzero(is_signal):,} events)",
        f"overlap area {overlap_area(roc).value:.3f}",
        f"threshold {threshold:.4g} (ε_B = {calibration.measured.value:.2%} when calibrated)",
    ]
    assert axis.get_title("left") == "one"
    assert axis.lines[0].get_xdata()[0] == threshold
    background, signal, overlap = (patch.get_data() for patch in axis.patches)
    edges = np.linspace(score.min(), score.max(), 101)
    assert np.allclose(background.edges, edges)
    inside = is_signal & (score >= edges[60]) & (score < edges[61])
    assert signal.values[60] == pytest.approx(weight[inside].sum() / weight[is_signal].sum())
    assert background.values.sum() == pytest.approx(1)
    assert overlap.values.sum() == pytest.approx(overlap_area(roc).value)
    assert axis.get_yscale() == "linear"
    assert (axis.get_xlabel(), axis.get_ylabel()) == (
        "anomaly score",
        f"fraction of events per {edges[1] - edges[0]:.2g}",
    )
    # Without colours they differ too: filled, a line, hatched.
    assert [bool(patch.get_fill()) for patch in axis.patches] == [True, False, True]
    assert [patch.get_hatch() for patch in axis.patches] == [None, None, "////"]


def test_long_tails_are_drawn_logarithmically() -> None:
    rng = np.random.default_rng(1)
    score, is_signal = rng.pareto(2, size=20_000), np.arange(20_000) % 20 == 0
    assert draw_score_histogram(score, is_signal).figure.axes[0].get_yscale() == "log"


def test_all_figures_of_scores_as_files_and_in_a_page(tmp_path: Path) -> None:
    parts = {"LUT 456": some_events(), "lut-456": some_events(0.5), "HT": some_events(0.2, is_discrete=True)}
    events = {name: scores_of(part) for name, part in parts.items()}
    paths = write_score_figures(tmp_path, events, formats=("svg",))
    names = ["roc", "significance-improvement", "scores-1-lut-456", "scores-2-lut-456", "scores-3-ht"]
    assert [path.name for path in paths] == [f"{name}.svg" for name in names]
    assert sorted(paths) == sorted(tmp_path.iterdir())
    figures = score_figures_svg(events)
    titles = ["ROC curves", "Significance improvement", "Scores of LUT 456", "Scores of lut-456", "Scores of HT"]
    assert list(figures) == titles
    page = ElementTree.fromstring(f"<html>{''.join(figures.values())}</html>")
    assert [svg.get("id") for svg in page] == names
    ids = [element.get("id") for element in page.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    assert "AUC" in "".join(page[0].itertext())
    assert "TeX Gyre" not in figures["ROC curves"]
    assert sum(map(len, figures.values())) < 500_000


def test_with_negative_weights_there_are_all_figures() -> None:
    score, is_signal, _ = some_events()
    negative = np.where(np.arange(2000) % 8 == 0, -1.0, 1.0)
    figures = score_figures_svg({"one": scores_of((score, is_signal, negative))})
    assert list(figures) == ["ROC curves", "Significance improvement", "Scores of one"]
    axis = draw_score_histogram(score, is_signal, negative).figure.axes[0]
    height, edges, _ = axis.patches[0].get_data()
    inside = ~is_signal & (score >= edges[60]) & (score < edges[61])
    assert height[60] == pytest.approx(negative[inside].sum() / negative[~is_signal].sum())
    (low, high), *_ = [part.get_segments()[60][:, 1] for part in axis.collections if hasattr(part, "get_segments")]
    assert high - low == pytest.approx(2 * np.sqrt(np.count_nonzero(inside)) / negative[~is_signal].sum())
