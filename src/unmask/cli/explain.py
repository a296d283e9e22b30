"""`unmask explain`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unmask.cli import options
from unmask.cli.console import note, note_problems, progress_bar, show, show_json, show_table
from unmask.errors import UsageError

if TYPE_CHECKING:
    from unmask.workflow.sources import Sources

_MAX_EVENTS = 10


@options.reads_events
def explain(
    model: options.Model,
    sources: Sources,
    event: Annotated[int, typer.Option(help="Event id, as in the scores file.")],
    figure: Annotated[Path | None, typer.Option(help="Figure of the contributions: png, pdf or svg.")] = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Explain the score of one event: what each object contributes, and what was expected instead."""
    from unmask.events.event_set import EventSet
    from unmask.report.explained import draw_explained, object_rows
    from unmask.scores.explanations import MostAnomalous, explained_events
    from unmask.workflow.score import load_model

    detector = load_model(model)
    chosen = EventSet.concatenate([some[some.event_id == event] for some in sources.stream(bar=progress_bar)])
    note_problems(sources)
    if not 0 < len(chosen) <= _MAX_EVENTS:
        found = f"{len(chosen):,} events have" if len(chosen) else "no event has"
        raise UsageError(f"--event {event}: {found} this id in {', '.join(map(str, sources.files))}; give one file")
    most = MostAnomalous(len(chosen))
    most.add(chosen, detector.score_events(chosen, device=device))
    explained = explained_events(most, detector.explain(most.events, device=device))
    if json:
        show_json([asdict(one) for one in explained])
    for one in [] if json else explained:
        show(f"event {one.event_id} ({one.process}), row {one.row} of {one.file}: score {one.score:.4f}\n")
        rows = [row.cells for row in object_rows(one)]
        columns = ("object", "kinematics", "contribution", "expected instead")
        n = 4 if any(row[3] for row in rows) else 3
        show_table("", columns[:n], [row[:n] for row in rows])
        if one.terms:
            show_table("", ("term", "value", "size"), [(t.name, t.text, f"{t.contribution:.2f}") for t in one.terms])
    if figure:
        draw_explained(explained[0]).write(figure)
        note(f"figure -> {figure}")
