"""`unmask evaluate` and `unmask report`: how well scores separate signal from background."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from unmask.cli import options
from unmask.cli.console import note, show, show_json, working
from unmask.errors import MissingExtraError, UsageError


def evaluate(
    scores: Annotated[
        list[Path], typer.Argument(metavar="SCORES...", help="Scores files, or tables with columns score and label.")
    ],
    name: Annotated[
        list[str] | None, typer.Option("--name", help="Name of a detector, one per file [default: the file's name].")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for metrics.json, tables, leaderboard.csv, figures.")
    ] = None,
    style: Annotated[
        Literal["plain", "atlas", "cms"] | None, typer.Option(help="Style of the figures [default: plain].")
    ] = None,
    formats: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Formats of the figures [default: png,pdf,svg].")
    ] = None,
    channel: Annotated[
        Literal["1", "2a", "2b", "3"] | None, typer.Option(help="Dark Machines channel in leaderboard.csv.")
    ] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Measure how well scores separate signal from background, beside untrained baseline scores, with 95% intervals.

    Several files are compared in pairs and must hold the same events. The terminal shows the main numbers, --json and
    --out all of them.
    """
    from unmask.artifacts import atomic_path
    from unmask.evaluation.evaluate import evaluate as evaluate_scores
    from unmask.events.event_set import UNKNOWN
    from unmask.outputs import check_output
    from unmask.report.score_figures import write_score_figures
    from unmask.report.style import FORMATS, check_format
    from unmask.report.tables import result_files
    from unmask.scores.score_table import read_scores

    names = name or [path.stem for path in scores]
    if len(names) != len(scores):
        raise UsageError(f"{len(scores)} scores files and {len(names)} names: give --name once for each file")
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise UsageError(f"two detectors are called {twice[0]!r}: give each a --name")
    if (style or formats or channel) and not out:
        raise UsageError("--style, --formats and --channel are of files that are written to a folder: give --out")
    chosen = [one.strip() for one in formats.split(",")] if formats else FORMATS
    for one in chosen:
        check_format(one, f"--formats {formats}")
    if out:
        check_output(out, ["results"], scores, overwrite=overwrite)
    read = {}
    with working(f"reading {len(scores)} scores file{'s' if len(scores) > 1 else ''}") as progress:
        for key, path in zip(names, scores, strict=True):
            scored = read_scores(path)
            is_labeled = scored.label != UNKNOWN
            read[key] = scored[is_labeled] if is_labeled.any() else scored
            if n_other := len(scored) - len(read[key]):
                note(f"note: {key}: {n_other:,} of {len(scored):,} events have no label and are left out")
            progress(len(read) / len(scores))
    with working(f"measuring scores of {len(next(iter(read.values()))):,} events") as progress:
        evaluation = evaluate_scores(read, progress=progress)
    for text in evaluation.notes:
        note(f"note: {text}")
    if out:
        texts = result_files(evaluation, channel or "")
        for file, text in texts.items():
            with atomic_path(out / file) as path:
                path.write_text(text, encoding="utf-8")
        note(f"wrote {', '.join(texts)} -> {out}")
        try:
            with working("drawing figures") as progress:
                paths = write_score_figures(
                    out / "figures", read, style=style or "plain", formats=chosen, progress=progress
                )
            note(f"wrote {len(paths)} files -> {out / 'figures'}")
        except MissingExtraError as error:
            note(f"no figures: {error}")
    if json:
        show_json(evaluation.to_json())
    else:
        for table in evaluation.tables(evaluation.short):
            show(table.terminal() + "\n")


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Scores files, or folders of the scores files of a run.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Heading of the report.")] = "Anomaly report",
    overwrite: options.Overwrite = False,
) -> None:
    """Write one HTML file with metrics, figures, settings and the most anomalous events; it opens anywhere.

    Events can be looked at one by one if they were scored with --explain.
    """
    from unmask.outputs import check_output
    from unmask.report.page import write_report

    check_output(out, ["report"], runs, endings=(".html", ".htm"), overwrite=overwrite)
    read = write_report(runs, out, title=title)
    for run in read:
        if run.explanations is None:
            note(f"{run.path}: no explained events; score with --explain 50 to look at the most anomalous ones")
    show(f"{len(read)} detector{'s' if len(read) > 1 else ''} -> {out}")
