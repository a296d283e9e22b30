"""Commands that can cut their work into parts: for a Dask cluster, or a share of it for each job of a batch system."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unmask.cli.reading import Reading

if TYPE_CHECKING:
    from unmask.cluster.plan import Task, Work, WorkKind
    from unmask.cluster.work import Model, Outcome

DaskOption = Annotated[
    str | None,
    typer.Option(
        "--dask",
        metavar="ADDRESS",
        help="Do it on a Dask cluster: tcp://HOST:8786, or local:2 for two processes here. OUT is then a folder of "
        "parts, and running the command again does only what is missing.",
    ),
]
ShardOption = Annotated[
    str | None,
    typer.Option(
        "--shard", metavar="I/N", help="Do share I of N here, from 1/N to N/N. OUT is then a folder of parts."
    ),
]
PartEventsOption = Annotated[
    int,
    typer.Option(
        min=1, help="Largest part of a Parquet or ROOT file, with --dask or --shard; other files are one part."
    ),
]
PART_EVENTS = 500_000


def run_in_parts(
    reading: Reading,
    kind: WorkKind,
    out: Path,
    *,
    dask: str | None,
    shard: str | None,
    part_events: int,
    model: Path | None = None,
    how: str | None = None,
    token_losses: bool = False,
    device: str = "auto",
) -> None:
    """Do the work of a command in parts, say what came of it, and exit with 3 if some of it failed."""
    from unmask.cluster.plan import Shard, Work, make_tasks, open_folder
    from unmask.cluster.work import Model, load_model, provide_model
    from unmask.errors import UsageError

    if dask and shard:
        raise UsageError("--dask shares out all of the work; leave out --shard")
    if out.suffix == ".parquet":
        raise UsageError(f"{out}: with --dask or --shard, OUT is a folder of parts, which cannot end in .parquet")
    share = Shard.parse(shard) if shard else Shard()
    sent = Model.of(model) if model else None
    work = Work(
        kind,
        model=sent.digest if sent else None,
        file_kind=reading.kind,
        options=reading.options,
        signal_process=tuple(reading.signal_process),
        skip_bad=reading.bad.skip,
        how=how,
        token_losses=token_losses,
        device=device,
        command=" ".join(["unmask", *sys.argv[1:]]),
    )
    if sent:
        provide_model(sent)
        load_model(work)  # what is no such model is an error now, not in every task
    tasks = make_tasks(work, reading.files, out, part_events=part_events)
    open_folder(out, tasks, part_events=part_events)
    mine = share.of(tasks)
    report = _Report(len(mine))
    with report:
        for outcome in _on_dask(dask, mine, sent) if dask else _here(mine):
            report.add(outcome)
    report.show(out, work)


def _here(tasks: list[Task]) -> Iterator[Outcome]:
    from unmask.cluster.work import Outcome, run_part

    for task in tasks:
        try:
            yield run_part(task)
        except OSError as error:
            yield Outcome(task, failure=f"{task.path}: {error}")


def _on_dask(address: str, tasks: list[Task], model: Model | None) -> Iterator[Outcome]:
    from unmask.cluster.work import Outcome, part_length
    from unmask.errors import require

    require("distributed", "dask")
    from unmask.cluster.dask_run import connect, run_tasks

    missing = []
    for task in tasks:
        n_events = part_length(task)
        if n_events is None:
            missing.append(task)
        else:
            yield Outcome(task, n_events, is_kept=True)
    if missing:
        with connect(address) as client:
            yield from run_tasks(client, missing, model)


class _Report:
    """Counts what came of the tasks, under a bar, and sums it up."""

    def __init__(self, n_tasks: int) -> None:
        from unmask.cli.console import progress_bar

        self.n_tasks = n_tasks
        self.outcomes: list[Outcome] = []
        self._bar = progress_bar(f"{n_tasks:,} parts")

    def __enter__(self) -> None:
        self._update = self._bar.__enter__()

    def __exit__(self, *failure: object) -> None:
        self._bar.__exit__(*failure)  # type: ignore[arg-type]

    def add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self._update(len(self.outcomes) / max(self.n_tasks, 1))

    def show(self, out: Path, work: Work) -> None:
        from unmask.cli.console import note
        from unmask.cli.console import out as console

        failed = [outcome for outcome in self.outcomes if outcome.failure]
        kept = [outcome for outcome in self.outcomes if outcome.is_kept]
        done = [outcome for outcome in self.outcomes if not outcome.failure and not outcome.is_kept]
        self._show_skipped()
        seen = {process for outcome in done for process in outcome.processes}
        for name in work.signal_process if done else ():
            if name not in seen:
                note(f"--signal-process {name!r} is in none of the parts done now")
        n_events = sum(outcome.n_events for outcome in self.outcomes)
        console.print(
            f"{n_events:,} events in {len(done) + len(kept):,} parts ({len(done):,} done now, {len(kept):,} there "
            f"before) -> {out}",
            highlight=False,
            soft_wrap=True,
        )
        if failed:
            by_file: dict[str, list[Outcome]] = {}
            for outcome in failed:
                by_file.setdefault(str(outcome.task.path), []).append(outcome)
            note(f"{len(failed):,} parts of {len(by_file):,} files failed; all others are complete:")
            for outcomes in by_file.values():
                note(f"  {len(outcomes):,} x {outcomes[0].failure}")
            raise typer.Exit(3)

    def _show_skipped(self) -> None:
        from unmask.cli.console import note
        from unmask.events.readers import BadEvents

        total = BadEvents(skip=True)
        for outcome in self.outcomes:
            total.reasons.update(outcome.bad.reasons)
            total.examples = outcome.bad.examples | total.examples
        if total.n_skipped:
            note(f"skipped {total.n_skipped:,} bad events:")
            for line in total.summary():
                note(f"  {line}")
