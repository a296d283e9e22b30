"""The numbers and figures of a report: the one place that asks evaluation for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from unmask.errors import BadDataError
from unmask.evaluation.comparison import select
from unmask.evaluation.evaluate import ALL_SIGNAL, Comparison, Evaluation, evaluate, notes_on
from unmask.evaluation.metrics import SIGNAL_EFFICIENCY, Metrics
from unmask.events.event_set import BACKGROUND, LABEL_NAMES, SIGNAL, UNKNOWN
from unmask.report.score_figures import drawable, score_figures_svg
from unmask.report.style import Style, new_figure
from unmask.report.tables import (
    IMPROVEMENT_HEADER,
    IMPROVEMENT_TITLE,
    background_limit,
    cell,
    improvement_rows,
    p_value_cell,
)
from unmask.scores.score_table import Scores

#: In points (of 1/72 inch): figures with one panel are narrower.
_WIDE = 500


@dataclass(frozen=True)
class Row:
    """A row of a table: its name, and numbers each with an interval (or nothing) beside it."""

    name: str
    cells: list[tuple[str, str]]
    is_trivial: bool = False


@dataclass(frozen=True)
class Table:
    """A table of texts; the first column names the rows."""

    title: str
    header: list[str]
    rows: list[Row]


@dataclass(frozen=True)
class Figure:
    """A figure as an SVG element."""

    title: str
    svg: str

    @property
    def is_wide(self) -> bool:
        """Whether it has panels side by side, and so needs the width of the page."""
        box = re.search(r'viewBox="\S+ \S+ (\S+) (\S+)"', self.svg)
        if box is None:
            return False
        width, height = float(box[1]), float(box[2])
        return width > min(_WIDE, 1.6 * height)  # a long legend makes it high, but no narrower


@dataclass
class Measured:
    """What is said of the scores: tables, figures and what the reader must be told besides.

    Without ``warnings`` numbers would be misread, or missed; ``notes`` are remarks.
    """

    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def measure(scores: Mapping[str, Scores], *, style: Style = "plain", evaluation: Evaluation | None = None) -> Measured:
    """Measure all runs: against their labels where there are signal and background, else by their distributions."""
    measured = Measured()
    labelled = {}
    without: dict[str, list[str]] = {}
    for number, (name, one) in enumerate(scores.items(), start=1):
        n_unknown = np.count_nonzero(one.label == UNKNOWN)
        has_both = bool((one.label == SIGNAL).any() and (one.label == BACKGROUND).any())
        if has_both:
            labelled[name] = select(one, np.flatnonzero(one.label != UNKNOWN)) if n_unknown else one
            if n_unknown:
                measured.warnings.append(
                    f"{name}: {n_unknown:,} of {len(one):,} events have no label; metrics leave them out"
                )
        if not has_both or (one.weight < 0).any():  # no efficiencies
            title = f"Scores of {name}"
            measured.figures.append(Figure(title, _histogram_svg(one, title, f"distribution-{number}", style)))
        if not has_both:
            without.setdefault(_why_no_metrics(one), []).append(name)
    measured.warnings += [f"no metrics of {', '.join(names)}: {why}" for why, names in without.items()]
    known = notes_on({**scores, **labelled})
    measured.warnings += known
    for found in [evaluation] if evaluation else _evaluations(labelled, measured.warnings):
        measured.notes += [note for note in found.notes if note not in known]
        measured.tables += _metrics_tables(found)
    drawn = drawable(labelled)
    if drawn:
        measured.figures += [Figure(title, svg) for title, svg in score_figures_svg(drawn, style=style).items()]
    measured.tables.append(_events_table(scores))
    return measured


def _why_no_metrics(scores: Scores) -> str:
    missing = [label for label in (SIGNAL, BACKGROUND) if not (scores.label == label).any()]
    if len(missing) == 2:
        return "no events have a label"
    return f"no events are labelled {LABEL_NAMES[missing[0]]}"


def _evaluations(labelled: Mapping[str, Scores], warnings: list[str]) -> list[Evaluation]:
    """One evaluation of all, paired; or, if they are not of the same events, one of each and a note of why."""
    if not labelled:
        return []
    try:
        return [evaluate(labelled)]
    except BadDataError as error:
        if len(labelled) == 1:
            raise
        warnings.append(f"measured one by one, not compared: {error}")
        return [evaluate({name: one}) for name, one in labelled.items()]


def _metrics_tables(evaluation: Evaluation) -> list[Table]:
    confidence = f"{evaluation.confidence:.0%} intervals"
    tables = []
    for signal in evaluation.selections:
        rows = evaluation.rows_of(signal)
        columns = [_columns(row.metrics) for row in rows]
        title = f"{'All signal' if signal == ALL_SIGNAL else signal} against background, {confidence}"
        cells = [[*each.values()] for each in columns]
        listed = [Row(row.name, found, row.kind == "trivial") for row, found in zip(rows, cells, strict=True)]
        tables.append(Table(title, ["score", *columns[0]], listed))
    if len(evaluation.signals) > 1:
        trivial = {row.name for row in evaluation.rows if row.kind == "trivial"}
        lines = improvement_rows(evaluation)
        found = [Row(name, [(text, "") for text in texts], name in trivial) for name, *texts in lines]
        tables.append(Table(IMPROVEMENT_TITLE, [*IMPROVEMENT_HEADER], found))
    detectors = {row.name for row in evaluation.rows if row.kind == "detector"}
    pairs = [pair for pair in evaluation.comparisons_of() if pair.other in detectors]
    if pairs:
        header = ["score less another", "difference of AUCs", "p-value of no difference"]
        tables.append(Table(f"Detectors compared on the same events, {confidence}", header, [*map(_pair, pairs)]))
    return tables


def _columns(metrics: Metrics) -> dict[str, tuple[str, str]]:
    """All metrics, by their headings."""
    best, improvement = metrics.best_threshold, metrics.max_significance_improvement
    at_signal = f"ε_B at ε_S\u00a0=\u00a0{SIGNAL_EFFICIENCY:g}"
    estimates = {
        "AUC": metrics.auc,
        **{f"ε_S at ε_B\u00a0=\u00a0{at:g}": found for at, found in metrics.signal_efficiency.items()},
        at_signal: metrics.background_efficiency,
        "largest ε_S/√ε_B": improvement.improvement if improvement else None,
        "overlap area": metrics.overlap_area,
        "total improvement": metrics.total_improvement,
    }
    missing = dict.fromkeys(estimates, metrics.why_missing) | {at_signal: background_limit(metrics)}
    cells = {name: _value_and_interval(cell(found, missing[name])) for name, found in estimates.items()}
    if best:  # in the units of the score, which may be large
        at = best.threshold
        cells["threshold of largest ε_S less ε_B"] = (f"{at.value:.4g}", f"[{at.low:.4g}, {at.high:.4g}]")
    else:
        cells["threshold of largest ε_S less ε_B"] = ("", metrics.why_missing)
    return cells


def _value_and_interval(text: str) -> tuple[str, str]:
    value, bracket, rest = text.partition(" [")
    return (value, f"[{rest}") if bracket else ("", text)  # without an interval: words why there is none


def _pair(pair: Comparison) -> Row:
    cells = [_value_and_interval(cell(pair.difference)), (p_value_cell(pair.difference), "")]
    return Row(f"{pair.name} less {pair.other}", cells)


def _histogram_svg(scores: Scores, title: str, identity: str, style: Style) -> str:
    """The weighted distribution of scores of which no efficiencies are known."""
    with new_figure(1, 1, (5.5, 4), style=style) as (drawing, axes):
        axis = axes[0, 0]
        axis.hist(scores.score, bins=100, weights=scores.weight, histtype="stepfilled", color="0.6")
        axis.set(xlabel="anomaly score", ylabel="sum of weights")
        if (scores.weight >= 0).all():
            axis.set_yscale("log")
    return drawing.svg(identity, title)


def _events_table(scores: Mapping[str, Scores]) -> Table:
    """How many events of each label there are, and where their scores lie."""
    labels = [label for label in LABEL_NAMES if any((one.label == label).any() for one in scores.values())]
    rows = []
    for name, one in scores.items():
        numbers = [len(one), *(int(np.count_nonzero(one.label == label)) for label in labels)]
        quantiles = np.quantile(one.score, [0, 0.5, 1])
        texts = [*(f"{number:,}" for number in numbers), *(f"{value:.4g}" for value in quantiles)]
        rows.append(Row(name, [(text, "") for text in texts]))
    header = ["score", "events", *(LABEL_NAMES[label] for label in labels), "lowest score", "median", "highest"]
    return Table("Events", header, rows)
