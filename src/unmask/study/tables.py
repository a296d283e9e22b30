"""The tables that a study ends with: measured beside published, and one detector against many signals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from unmask.evaluation.evaluate import Evaluation, Row
from unmask.evaluation.metrics import BACKGROUND_EFFICIENCIES, Metrics
from unmask.evaluation.trivial import FISHER
from unmask.report.page import Row as ReportRow
from unmask.report.page import Table as ReportTable
from unmask.report.tables import HEADERS, background_limit, cell, escape_latex, escape_markdown, latex_number
from unmask.study.configurations import Study

CAVEAT = "published: what the paper reports, for other simulated events; compare methods, not these numbers with those"


@dataclass(frozen=True)
class StudyTable:
    """A table of texts; the first column names the rows. ``latex_columns`` are the headings in LaTeX."""

    title: str
    columns: tuple[str, ...]
    latex_columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """The table in Markdown, its columns aligned, so that it can also be read as it is.

        >>> print(StudyTable("", ("method", "AUC"), (), (("one", "0.9"),)).markdown(), end="")
        | method | AUC |
        | ------ | --- |
        | one    | 0.9 |
        """
        lines = [self.columns, *((escape_markdown(name), *cells) for name, *cells in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        lines.insert(1, tuple("-" * width for width in widths))
        return "".join(
            f"| {' | '.join(text.ljust(width) for text, width in zip(line, widths, strict=True))} |\n" for line in lines
        )

    def latex(self) -> str:
        """The table for a paper (booktabs)."""
        rows = [" & ".join([escape_latex(name), *map(latex_number, cells)]) for name, *cells in self.rows]
        head = [rf"\begin{{tabular}}{{l{'c' * (len(self.columns) - 1)}}}", r"\toprule"]
        body = [" & ".join(self.latex_columns) + r" \\", r"\midrule", *(f"{row} \\\\" for row in rows)]
        return "\n".join([f"% {self.title}", *head, *body, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def for_report(self, trivial: frozenset[str] = frozenset()) -> ReportTable:
        """The table as reports show it; rows that are ``trivial`` are set apart."""
        rows = [ReportRow(name, [(text, "") for text in cells], name in trivial) for name, *cells in self.rows]
        return ReportTable(self.title, [title.replace("eps_", "ε_") for title in self.columns], rows)


def study_tables(evaluation: Evaluation, study: Study) -> Iterator[StudyTable]:
    """All tables of a study: its methods and, if there are several signals, each of these."""
    yield summary_table(evaluation, study)
    if len(evaluation.signals) > 1:
        yield signals_table(evaluation)


def summary_table(evaluation: Evaluation, study: Study) -> StudyTable:
    """Methods with AUC and efficiencies, each number beside the published one where there is any."""
    with_published = any(row.name in study.published for row in evaluation.rows_of())
    titles = [("method", "method")]
    for header in HEADERS:
        titles += [header, ("published", "published")] if with_published else [header]
    rows = []
    for row in evaluation.rows_of():
        cells = list(_numbers(row.metrics))
        if with_published:
            published = study.published.get(row.name, ("", "", ""))
            cells = [text for pair in zip(cells, published, strict=True) for text in pair]
        rows.append((row.name, *cells))
    title = f"{study.description[0].upper()}{study.description[1:]} ({evaluation.confidence:.0%} intervals)"
    plain_titles, latex_titles = zip(*titles, strict=True)
    return StudyTable(title, plain_titles, latex_titles, tuple(rows))


def published_notes(evaluation: Evaluation, study: Study) -> list[str]:
    """What must be said about the published numbers in the table."""
    names = [row.name for row in evaluation.rows_of() if row.name in study.published]
    return [CAVEAT, *(study.notes[name] for name in names if name in study.notes)] if names else []


def signals_table(evaluation: Evaluation) -> StudyTable:
    """AUC and signal efficiency of the same detectors against each signal; beside them the best of the trivial."""
    by_signal: dict[str, dict[str, Row]] = {
        signal: {row.name: row for row in evaluation.rows_of(signal)} for signal in evaluation.signals
    }
    first = next(iter(by_signal.values()))
    names = [name for name, row in first.items() if row.kind == "detector" or name == FISHER]
    efficiency, efficiency_latex = HEADERS[1]
    columns = ["signal", "events", *(f"{name}: {what}" for name in names for what in ("AUC", efficiency))]
    latex = ["signal", "events"]
    latex += [f"{escape_latex(name)}: {what}" for name in names for what in ("AUC", efficiency_latex)]
    rows = []
    for signal, found in by_signal.items():
        cells = [text for name in names for text in list(_numbers(found[name].metrics))[:2]]
        rows.append((signal, f"{evaluation.signals[signal]:,}", *cells))
    title = f"One background model against each signal ({evaluation.confidence:.0%} intervals)"
    return StudyTable(title, tuple(columns), tuple(latex), tuple(rows))


def _numbers(metrics: Metrics) -> Iterator[str]:
    """AUC, eps_S at eps_B = 1 %, eps_B at eps_S = 1 %: the columns of ``HEADERS``."""
    yield cell(metrics.auc)
    yield cell(metrics.signal_efficiency[BACKGROUND_EFFICIENCIES[0]], metrics.why_missing)
    yield cell(metrics.background_efficiency, background_limit(metrics))
