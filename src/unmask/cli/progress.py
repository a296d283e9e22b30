"""Trainings and studies on the terminal: one line per training, overwritten each epoch, and a bar for the epoch."""

from __future__ import annotations

import time

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from unmask.cli.console import err, note, progress_bar
from unmask.errors import Interrupted
from unmask.fitted import EpochRecord, Reporter
from unmask.study.stages import Stage, StudyReporter

#: Seconds between two lines off a terminal.
_SECONDS_PER_LINE = 60


class TrainingLine(Reporter):
    """Shows the progress of a training; use as a context manager."""

    def __init__(self, title: str, max_epochs: int) -> None:
        self.title, self.max_epochs, self.line = title, max_epochs, ""
        self.n_epochs, self.seconds, self.shown = 0, 0.0, time.monotonic()
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=10), TimeRemainingColumn())
        self.bar = Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
        self.task = self.bar.add_task(title, total=None)

    def __enter__(self) -> TrainingLine:
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.bar.stop()
        if kind is Interrupted:
            note(f"{self.title}: interrupted; run the same command again to continue")
        elif kind is None:
            note(f"{self.line}  {self.seconds:,.0f} s" if self.line else f"{self.title:<20}  fitted")

    def epoch_started(self, epoch: int, n_steps: int) -> None:
        if epoch and not self.n_epochs:
            note(f"{self.title}: continuing after epoch {epoch}")
        self.n_epochs += 1
        self.bar.reset(self.task, total=n_steps, description=self.line or self.title)

    def step_done(self) -> None:
        self.bar.advance(self.task)

    def epoch_done(self, record: EpochRecord) -> None:
        self.seconds += record.seconds
        self.line = (
            f"{self.title:<20}  epoch {record.epoch}/{self.max_epochs}  loss {record.training_loss:.4f}  "
            f"val {record.validation_loss:.4f}  {record.events_per_second:,.0f} ev/s"
        )
        if not err.is_terminal and time.monotonic() - self.shown > _SECONDS_PER_LINE:
            left = (self.max_epochs - record.epoch) * record.seconds
            note(f"{self.line}  ETA {left / 60:.0f} min")
            self.shown = time.monotonic()


class StudyProgress(StudyReporter):
    """Shows trainings, bars and notes on stderr; on a terminal also the stage that is being made."""

    def stage_started(self, stage: Stage) -> None:
        if err.is_terminal:
            err.print(f"{stage.name} ...", end="\r", markup=False, highlight=False)

    note = staticmethod(note)
    bar = staticmethod(progress_bar)
    training = staticmethod(TrainingLine)
