"""`unmask stress`: what a detector finds, measured without any signal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unmask.cli.fitting import DeviceOption
from unmask.cli.reading import JsonOption, Reading, reads_events, resolve

if TYPE_CHECKING:
    from unmask.evaluation.intervals import Estimate


@reads_events
def stress(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Folder of a trained detector, or sample:gluino-model.")
    ],
    reading: Reading,
    seed: Annotated[int, typer.Option(help="Seed of what is added, exchanged and distorted.")] = 0,
    max_odd: Annotated[int, typer.Option(min=100, help="Odd events made of each kind.")] = 5000,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Find background events with something added, exchanged or distorted: compare detectors before there is a signal.

    FILE... hold background that the detector was not trained on, such as the validation events.
    """
    from dataclasses import asdict

    from unmask.cli.console import emit_json, progress_bar, show_table
    from unmask.detectors import load_detector
    from unmask.evaluation.tables import cell
    from unmask.events.event_set import concatenate_events
    from unmask.studies.stress import GROUPS, stress

    detector = load_detector(resolve(model))
    events = concatenate_events(list(reading.stream()))
    reading.report_skipped()
    n_kinds = sum(map(len, GROUPS.values()))
    results = []
    with progress_bar("odd events") as progress:
        for result in stress(detector, events, seed=seed, max_odd=max_odd, device=device):
            results.append(result)
            progress(len(results) / n_kinds)
    if json:
        emit_json([asdict(result) for result in results])
        return
    cells = [[r.kind, *map(cell, (r.auc, *r.efficiency.values()))] for r in results]
    for group in GROUPS:
        mine = [result for result in results if result.group == group]
        efficiencies = [[r.efficiency[share] for r in mine] for share in mine[0].efficiency]
        cells.append([f"mean: {group}", _mean([r.auc for r in mine]), *map(_mean, efficiencies)])
    show_table(
        f"odd events against {len(events):,} of background (95 % intervals)",
        ("kind", "AUC", "found at 1e-2", "found at 1e-3"),
        cells,
    )


def _mean(estimates: Sequence[Estimate | None]) -> str:
    values = [estimate.value for estimate in estimates if estimate is not None]
    return f"{sum(values) / len(values):.3f}" if len(values) == len(estimates) else "too few events"
