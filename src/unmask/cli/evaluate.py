"""`unmask evaluate` and `unmask leaderboard`: how well scores tell signal from background."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unmask.cli.reading import JsonOption

if TYPE_CHECKING:
    from unmask.evaluation.evaluation import Evaluation

ScoresArgument = Annotated[
    list[Path], typer.Argument(metavar="SCORES...", help="Files that unmask score wrote, one a detector.")
]
NameOption = Annotated[
    list[str] | None, typer.Option("--name", help="Name of a detector, one for each file (default: the file's name).")
]


def evaluate(
    scores: ScoresArgument,
    name: NameOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for metrics.json, table.md, table.tex, leaderboard.csv.")
    ] = None,
    streaming: Annotated[
        bool, typer.Option("--streaming", help="Only the AUC, exactly, for more scores than fit in memory.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Measure how well scores tell signal from background, beside trivial scores, with 95 % intervals.

    Several files are compared in pairs and must hold the same events. The terminal shows the main numbers, --json and
    --out all of them.
    """
    from unmask.artifacts import atomic_path
    from unmask.cli.console import emit_json, note
    from unmask.errors import UsageError
    from unmask.evaluation.tables import all_markdown_tables, latex_table, leaderboard

    names = _names(scores, name)
    if streaming:
        if out:
            raise UsageError("--streaming measures the AUC only; leave out --out")
        _show_streamed(scores, names, json)
        return
    found = _evaluate(scores, names)
    if out:
        texts = {
            "metrics.json": json_format.dumps(found.to_json(), indent=1) + "\n",
            "table.md": all_markdown_tables(found),
            "table.tex": latex_table(found),
            "leaderboard.csv": leaderboard(found, channel=""),
        }
        for file, text in texts.items():
            with atomic_path(out / file) as path:
                path.write_text(text)
        note(f"wrote {', '.join(texts)} -> {out}")
    if json:
        emit_json(found.to_json())
    else:
        _show(found)


def leaderboard(
    scores: ScoresArgument,
    channel: Annotated[str, typer.Option(help="Dark Machines channel: 1, 2a, 2b or 3.")],
    name: NameOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="CSV file to write; by default it is printed.")
    ] = None,
) -> None:
    """Write results in the Dark Machines format, a row for each signal process and detector."""
    from unmask.artifacts import atomic_path
    from unmask.evaluation import tables

    text = tables.leaderboard(_evaluate(scores, _names(scores, name)), channel)
    if out is None:
        typer.echo(text, nl=False)
        return
    with atomic_path(out) as path:
        path.write_text(text)
    typer.echo(f"{text.count(chr(10)) - 1} rows -> {out}")


def _names(scores: list[Path], given: list[str] | None) -> list[str]:
    from unmask.errors import UsageError

    names = given or [path.stem for path in scores]
    if len(names) != len(scores):
        raise UsageError(f"{len(scores)} scores files and {len(names)} names: give --name once for each file")
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise UsageError(f"two detectors are called {twice[0]!r}: give each a --name")
    return names


def _evaluate(scores: list[Path], names: list[str]) -> Evaluation:
    from unmask.cli.console import note
    from unmask.detectors.scores import read_scores
    from unmask.evaluation.evaluation import evaluate

    found = evaluate({name: read_scores(path) for name, path in zip(names, scores, strict=True)})
    for text in found.notes:
        note(f"note: {text}")
    return found


def _show(found: Evaluation) -> None:
    from unmask.cli.console import show_table
    from unmask.evaluation.evaluation import ALL_SIGNAL
    from unmask.evaluation.tables import p_value_cell, short_cell

    for signal in dict.fromkeys(row.signal for row in found.rows):
        title = "all signal" if signal == ALL_SIGNAL else signal
        cells = []
        for row in found.rows_of(signal):
            efficiencies = list(row.metrics.signal_efficiency.values())[:2]
            best = row.metrics.max_significance_improvement
            numbers = (row.metrics.auc, *efficiencies, best.improvement if best else None)
            cells.append([row.name, *map(short_cell, numbers)])
        columns = ("score", "AUC", "eps_S(1e-2)", "eps_S(1e-3)", "max SIC")
        show_table(f"{title} against background ({found.confidence:.0%} intervals; SIC = eps_S/√eps_B)", columns, cells)
    detectors = {row.name for row in found.rows if row.kind == "detector"}
    pairs = [each for each in found.comparisons if each.other in detectors]
    if pairs:
        show_table(
            "paired differences of AUCs",
            ("score less another", "difference", "p-value"),
            [(f"{x.name} - {x.other}", short_cell(x.difference), p_value_cell(x.difference)) for x in pairs],
        )


def _show_streamed(scores: list[Path], names: list[str], json: bool) -> None:
    from unmask.cli.console import emit_json, show_table
    from unmask.evaluation.streaming_roc import streaming_roc
    from unmask.evaluation.tables import cell

    areas = [streaming_roc(path).auc for path in scores]
    if json:
        emit_json([{"scores": str(path), "AUC": vars(auc)} for path, auc in zip(scores, areas, strict=True)])
        return
    rows = [(name, cell(auc)) for name, auc in zip(names, areas, strict=True)]
    show_table("signal against background (95% intervals)", ("score", "AUC"), rows)
