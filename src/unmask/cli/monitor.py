"""`unmask monitor`: does a detector apply to these events?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unmask.cli import options
from unmask.cli.console import note, note_problems, progress_bar, show_json, show_table

if TYPE_CHECKING:
    from unmask.workflow.sources import Sources


@options.reads_events
def monitor(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a detector, or sample:gluino-model.")],
    sources: Sources,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for monitor.json and distributions.svg.")
    ] = None,
    overwrite: options.Overwrite = False,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Compare files of events with the background that a detector was trained on.

    Observables, numbers and leading pT of objects of each type, and scores; one column per file, for a series in time
    in the order given. P-values are those of chi-square tests, corrected for their number.
    """
    import json as json_

    from unmask.artifacts import atomic_path
    from unmask.io.sample import resolve
    from unmask.outputs import check_output
    from unmask.workflow.monitor import monitor as compare
    from unmask.workflow.score import Scoring

    if out:
        check_output(out, ["comparison with background"], sources.files, overwrite=overwrite)
    monitored = compare(Scoring(resolve(model)).detector, sources, device=device, bar=progress_bar)
    note_problems(sources)
    result = monitored.to_json() | {"model": str(model)}
    if out:
        with atomic_path(out) as folder:
            monitored.draw().write(folder / "distributions.svg")
            (folder / "monitor.json").write_text(json_.dumps(result, indent=1) + "\n")
        note(f"wrote monitor.json, distributions.svg -> {out}")
    if json:
        show_json(result)
    else:
        show_table("Means (* unlike the training background, p < 0.01)", *monitored.table())
