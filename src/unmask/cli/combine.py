"""`unmask combine`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from unmask.cli.fitting import DeviceOption, OutOption
from unmask.cli.reading import Reading, reads_events, resolve


@reads_events
def combine(
    reading: Reading,
    model: Annotated[list[Path], typer.Option(help="Folder of a trained detector (repeatable: two or more).")],
    out: OutOption,
    how: Annotated[
        Literal["average", "and", "or", "product"],
        typer.Option(help="What is done with the detectors' p-values; and: all must find an event odd; or: one."),
    ] = "product",
    device: DeviceOption = "auto",
) -> None:
    """Make one detector of several: FILE... are background events that none of them was trained on.

    Each score becomes the share of these events with that score or more; the shares become one score. The detectors
    are copied into OUT, which is then used like any other: unmask score OUT ...
    """
    from unmask.artifacts import check_can_save
    from unmask.cli.console import out as console
    from unmask.detectors import load_detector
    from unmask.detectors.combination import CombinationDetector
    from unmask.events.event_set import concatenate_events

    check_can_save(out)
    members = [load_detector(resolve(folder)) for folder in model]
    events = concatenate_events(list(reading.stream()))
    combination = CombinationDetector(members, how=how).calibrate(events, device=device)
    combination.save(out)
    reading.report_skipped()
    names = ", ".join(member.kind for member in members)
    console.print(f"{how} of {names}, calibrated on {len(events):,} events -> {out}", highlight=False, soft_wrap=True)
