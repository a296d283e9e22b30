"""Measured numbers as tables for people and programs: Markdown, LaTeX, and the Dark Machines results format."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from math import ceil, log10

from unmask.evaluation.comparison import Difference
from unmask.evaluation.evaluate import ALL_SIGNAL, Evaluation, Row
from unmask.evaluation.intervals import Estimate
from unmask.evaluation.metrics import BACKGROUND_EFFICIENCIES, SIGNAL_EFFICIENCY, TOO_FEW, Metrics

IMPROVEMENT_TITLE = "Total improvement over the signals"
IMPROVEMENT_HEADER = ("method", "smallest", "median", "largest", "signals with enough events")
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


def cell(estimate: Estimate | None, missing: str = TOO_FEW) -> str:
    """A number with as many digits as its interval bears, or why it is ``missing``.

    >>> cell(Estimate(0.98012, 0.9789, 0.9812)), cell(Estimate(0.00213, 0.0011, 0.0034)), cell(None)
    ('0.9801 [0.9789, 0.9812]', '0.0021 [0.0011, 0.0034]', 'too few events')
    """
    if estimate is None:
        return missing
    value, low, high = _rounded(estimate)
    return f"{value} [{low}, {high}]"


def p_value_cell(difference: Difference) -> str:
    """A p-value, as small as a Gaussian tail can be trusted."""
    return f"{difference.p_value:.2g}" if difference.p_value >= 1e-16 else "< 1e-16"


def improvement_rows(evaluation: Evaluation) -> list[list[str]]:
    """Smallest, median and largest total improvement over the signals, by method; see ``IMPROVEMENT_HEADER``."""
    return [
        [name, *(f"{value:.3g}" for value in (one.minimum, one.median, one.maximum)), str(one.n_signals)]
        for name, one in evaluation.improvement_over_signals.items()
    ]


def markdown_table(evaluation: Evaluation, signal: str = ALL_SIGNAL) -> str:
    """The table of one signal process, or of all together: method, AUC, eps_S at fixed eps_B, eps_B at fixed eps_S."""
    rows = [[escape_markdown(row.name), *_cells(row.metrics)] for row in evaluation.rows_of(signal)]
    return _markdown(["method", *(name for name, _ in HEADERS)], rows)


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (header, ["---"] * len(header), *rows))


def latex_table(evaluation: Evaluation) -> str:
    """The same for a paper (booktabs); if there are several signals, one below the other in one table."""
    lines = [
        rf"\begin{{tabular}}{{l{'c' * len(HEADERS)}}}",
        r"\toprule",
        " & ".join(["method", *(name for _, name in HEADERS)]) + r" \\",
    ]
    for signal in evaluation.selections:
        lines.append(r"\midrule")
        if len(evaluation.selections) > 1:
            lines.append(rf"\multicolumn{{{1 + len(HEADERS)}}}{{l}}{{\textit{{{escape_latex(signal)}}}}} \\")
        rows = ([escape_latex(row.name), *map(latex_number, _cells(row.metrics))] for row in evaluation.rows_of(signal))
        lines += [" & ".join(row) + r" \\" for row in rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def latex_number(text: str) -> str:
    r"""A cell as LaTeX prints it; words stay words.

    >>> print(latex_number("0.98 [0.97, 0.99]"), latex_number("< 0.002"), latex_number("-"))
    $0.98\;[0.97, 0.99]$ $< 0.002$ -
    """
    is_number = text[:1].isdigit() or text.startswith("<")
    return f"${text.replace(' [', chr(92) + ';[')}$" if is_number else text


def _cells(metrics: Metrics) -> list[str]:
    return [
        cell(metrics.auc),
        cell(metrics.signal_efficiency[BACKGROUND_EFFICIENCIES[0]], metrics.why_missing),
        cell(metrics.background_efficiency, background_limit(metrics)),
    ]


def background_limit(metrics: Metrics) -> str:
    """What stands for a background efficiency that cannot be measured: its upper limit, or why there is none."""
    limit = metrics.background_efficiency_limit
    return metrics.why_missing if limit is None else f"< {limit:.2g}"


def escape_markdown(text: str) -> str:
    r"""Text in a Markdown table, as it is.

    >>> print(escape_markdown("a|b <c>"))
    a\|b &lt;c>
    """
    return text.replace("|", r"\|").replace("<", "&lt;")


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
    for signal in evaluation.selections:
        title = f"## {escape_markdown(signal)} against background ({confidence})"
        yield f"{title}\n\n{markdown_table(evaluation, signal)}"
    if len(evaluation.signals) > 1:
        lines = [[escape_markdown(name), *cells] for name, *cells in improvement_rows(evaluation)]
        yield f"## {IMPROVEMENT_TITLE}\n\n{_markdown(IMPROVEMENT_HEADER, lines)}"
    if evaluation.comparisons:
        lines = [
            [escape_markdown(one.name), escape_markdown(one.other), cell(one.difference), p_value_cell(one.difference)]
            for one in evaluation.comparisons_of()
        ]
        table = _markdown(["method", "less", "difference of AUCs", "p-value"], lines)
        yield f"## Paired differences, all signal ({confidence})\n\n{table}"
    if evaluation.notes:
        yield "## Notes\n\n" + "\n".join(f"- {note}" for note in evaluation.notes) + "\n"


def result_files(evaluation: Evaluation, channel: str = "") -> dict[str, str]:
    """All that is written of an evaluation besides figures: texts by the names of their files."""
    return {
        "metrics.json": json.dumps(evaluation.to_json(), indent=1) + "\n",
        "table.md": all_markdown_tables(evaluation),
        "table.tex": latex_table(evaluation),
        "leaderboard.csv": leaderboard(evaluation, channel),
    }


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
