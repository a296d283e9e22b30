"""`unmask evaluate`: how well scores tell signal from background."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.cli.reading import JsonOption

if TYPE_CHECKING:
    from unmask.evaluation.metrics import Estimate

BACKGROUND_EFFICIENCIES = (1e-2, 1e-3)


def evaluate(
    scores: Annotated[list[Path], typer.Argument(metavar="SCORES...", help="Files that unmask score wrote.")],
    streaming: Annotated[
        bool, typer.Option("--streaming", help="Only the AUC, exactly, for more scores than fit in memory.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Print AUC and signal efficiencies with 95 % intervals for labelled, scored events."""
    from unmask.cli.console import emit_json, show_table
    from unmask.detectors.scores import read_scores
    from unmask.errors import BadDataError
    from unmask.evaluation.metrics import roc_auc, signal_efficiency_at
    from unmask.evaluation.streaming_roc import streaming_roc
    from unmask.events.event_set import SIGNAL, UNKNOWN

    rows: list[dict[str, Any]] = []
    for path in scores:
        if streaming:
            rows.append({"scores": str(path), "AUC": streaming_roc(path).auc})
            continue
        events = read_scores(path)
        if (events.label == UNKNOWN).any():
            raise BadDataError("some events have no label; score files with --label or --signal-process", path=path)
        measured = (events.score, events.label == SIGNAL, events.weight)
        row: dict[str, Any] = {"scores": str(path), "AUC": roc_auc(*measured)}
        for efficiency in BACKGROUND_EFFICIENCIES:
            row[f"eps_S({efficiency:g})"] = signal_efficiency_at(*measured, background_efficiency=efficiency)
        rows.append(row)
    if json:
        emit_json(
            [{name: vars(value) if hasattr(value, "low") else value for name, value in row.items()} for row in rows]
        )
        return
    cells = [[str(row["scores"]), *map(_cell, list(row.values())[1:])] for row in rows]
    show_table("signal against background (95 % intervals)", list(rows[0]), cells)


def _cell(estimate: Estimate | None) -> str:
    return "too few events" if estimate is None else str(estimate)
