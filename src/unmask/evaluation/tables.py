"""Measured numbers as tables for people and programs: Markdown, LaTeX, and the Dark Machines results format."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from math import ceil, log10

from unmask.evaluation.comparison import Difference
from unmask.evaluation.evaluation import ALL_SIGNAL, Evaluation, Row
from unmask.evaluation.intervals import Estimate
from unmask.evaluation.metrics import BACKGROUND_EFFICIENCIES, SIGNAL_EFFICIENCY, Metrics

TOO_FEW = "too few events"
LEADERBOARD_HEADER = ("Signal", "Model", "Chan", "AUC", "1e-2", "1e-3", "1e-4")

#: Columns after the method: in Markdown, in LaTeX.
HEADERS = (
    ("AUC", "AUC"),
    (
        f"eps_S(eps_B = {BACKGROUND_EFFICIENCIES[0]:.0%})",
        rf"$\epsilon_S(\epsilon_B={BACKGROUND_EFFICIENCIES[0] * 100:g}\,\%)$",
    ),
    (f"eps_B(eps_S = {SIGNAL_EFFICIENCY:.0%})", rf"$\epsilon_B(\epsilon_S={SIGNAL_EFFICIENCY * 100:g}\,\%)$"),
)
_LATEX_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip


def cell(estimate: Estimate | None) -> str:
    """A number with as many digits as its interval bears.

    >>> cell(Estimate(0.98012, 0.9789, 0.9812)), cell(Estimate(0.00213, 0.0011, 0.0034)), cell(None)
    ('0.9801 [0.9789, 0.9812]', '0.0021 [0.0011, 0.0034]', 'too few events')
    """
    if estimate is None:
        return TOO_FEW
    value, low, high = _rounded(estimate)
    return f"{value} [{low}, {high}]"


def short_cell(estimate: Estimate | None) -> str:
    """The same in less space: the larger half of the interval.

    >>> short_cell(Estimate(0.704, 0.677, 0.73))
    '0.704 ± 0.027'
    """
    if estimate is None:
        return TOO_FEW
    half = max(estimate.high - estimate.value, estimate.value - estimate.low)
    digits = min(max(ceil(-log10(half)) + 1, 2), 4) if half > 0 else 4
    return f"{estimate.value:.{digits}f} ± {half:.{digits}f}"


def p_value_cell(difference: Difference) -> str:
    """A p-value, as small as a Gaussian tail can be trusted."""
    return f"{difference.p_value:.2g}" if difference.p_value >= 1e-16 else "< 1e-16"


def markdown_table(evaluation: Evaluation, signal: str = ALL_SIGNAL) -> str:
    """The table of one signal process, or of all together: method, AUC, eps_S at fixed eps_B, eps_B at fixed eps_S."""
    rows = [[row.name.replace("|", r"\|"), *_cells(row.metrics)] for row in evaluation.rows_of(signal)]
    header = ["method", *(name for name, _ in HEADERS)]
    return "".join(f"| {' | '.join(line)} |\n" for line in (header, ["---"] * len(header), *rows))


def latex_table(evaluation: Evaluation, signal: str = ALL_SIGNAL) -> str:
    """The same for a paper (booktabs)."""
    rows = [
        [escape_latex(row.name), *(_latex_number(text) for text in _cells(row.metrics))]
        for row in evaluation.rows_of(signal)
    ]
    lines = [
        rf"\begin{{tabular}}{{l{'c' * len(HEADERS)}}}",
        r"\toprule",
        " & ".join(["method", *(name for _, name in HEADERS)]) + r" \\",
        r"\midrule",
        *(" & ".join(row) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _latex_number(text: str) -> str:
    return text if text == TOO_FEW else "$" + text.replace(" [", r"\;[") + "$"


def _cells(metrics: Metrics) -> list[str]:
    background = cell(metrics.background_efficiency)
    if metrics.background_efficiency is None and metrics.background_efficiency_limit is not None:
        background = f"< {metrics.background_efficiency_limit:.2g}"
    return [cell(metrics.auc), cell(metrics.signal_efficiency[BACKGROUND_EFFICIENCIES[0]]), background]


def escape_latex(text: str) -> str:
    r"""Text as LaTeX prints it.

    >>> print(escape_latex("lut_456 & 5%"))
    lut\_456 \& 5\%
    """
    return "".join(_LATEX_ESCAPES.get(character, character) for character in text)


def all_markdown_tables(evaluation: Evaluation) -> str:
    """A Markdown table for all signal together, one for each process if there are several, and the comparisons."""
    return "\n".join(_sections(evaluation))


def _sections(evaluation: Evaluation) -> Iterable[str]:
    confidence = f"{evaluation.confidence:.0%} intervals"
    for signal in dict.fromkeys(row.signal for row in evaluation.rows):
        title = "all signal" if signal == ALL_SIGNAL else signal
        yield f"## {title} against background ({confidence})\n\n{markdown_table(evaluation, signal)}"
    if evaluation.comparisons:
        lines = [
            f"| {each.name} | {each.other} | {cell(each.difference)} | {p_value_cell(each.difference)} |"
            for each in evaluation.comparisons
        ]
        head = "| method | less | difference of AUCs | p-value |\n|---|---|---|---|\n"
        yield f"## Paired differences, all signal ({confidence})\n\n{head}" + "\n".join(lines) + "\n"
    if evaluation.notes:
        yield "## Notes\n\n" + "\n".join(f"- {note}" for note in evaluation.notes) + "\n"


def leaderboard(evaluation: Evaluation, channel: str) -> str:
    """Rows in the Dark Machines results format: a signal process and a detector each; empty what is not supported."""
    processes = list(evaluation.signals)
    rows = [row for row in evaluation.rows if row.kind == "detector"]
    if len(processes) > 1:
        rows = [row for row in rows if row.signal != ALL_SIGNAL]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(LEADERBOARD_HEADER)
    for row in rows:
        writer.writerow([processes[0] if row.signal == ALL_SIGNAL else row.signal, *_leaderboard_cells(row, channel)])
    return text.getvalue()


def _leaderboard_cells(row: Row, channel: str) -> Sequence[str]:
    efficiencies = [row.metrics.signal_efficiency[wanted] for wanted in BACKGROUND_EFFICIENCIES]
    numbers = [f"{row.metrics.auc.value:.6g}", *(f"{each.value:.6g}" if each else "" for each in efficiencies)]
    return [row.name, channel, *numbers]


def _rounded(estimate: Estimate) -> tuple[str, str, str]:
    """Value and ends with two digits of half the interval, at least three and at most six after the point."""
    half = (estimate.high - estimate.low) / 2
    digits = min(max(ceil(-log10(half)) + 1, 3), 6) if half > 0 else 4
    return f"{estimate.value:.{digits}f}", f"{estimate.low:.{digits}f}", f"{estimate.high:.{digits}f}"
