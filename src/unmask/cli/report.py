"""`unmask report`: one HTML file on what detectors found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Scores files, or folders that hold the scores files of a run."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Heading of the report.")] = "Anomaly report",
) -> None:
    """Write one HTML file with metrics, figures, settings and the most anomalous events; it opens anywhere.

    Events can be looked at one by one if they were scored with --explain.
    """
    from unmask.cli.console import note
    from unmask.cli.console import out as console
    from unmask.report.page import write_report

    read = write_report(runs, out, title=title)
    for run in read:
        if run.explanations is None:
            note(f"{run.path}: no explained events; score with --explain 50 to look at the most anomalous ones")
    console.print(f"{len(read)} detector{'s' if len(read) > 1 else ''} -> {out}", highlight=False, soft_wrap=True)
