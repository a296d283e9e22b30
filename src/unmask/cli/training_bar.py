"""Training as a person watches it: a bar for the epoch, and a line for each epoch that is done."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from unmask.cli.console import err, note
from unmask.errors import MissingExtraError
from unmask.training import EpochRecord, Reporter

#: Steps between two looks at the clock.
_STEPS_PER_UPDATE = 10


class TrainingBar(Reporter):
    """Shows progress with losses, rate, events/s and time left; use as a context manager."""

    def __init__(self, title: str, max_epochs: int, tensorboard: Path | None = None) -> None:
        self.title, self.max_epochs = title, max_epochs
        self.n_pending = 0
        self.is_first_epoch = True
        self.board = _open_board(tensorboard) if tensorboard else None
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=err,
            transient=True,
            disable=not err.is_terminal,
        )
        self.task: TaskID = self.bar.add_task(title, total=None)

    def __enter__(self) -> TrainingBar:
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.bar.stop()
        if kind is KeyboardInterrupt:
            note(f"{self.title}: interrupted; run the same command again to continue")
        if self.board:
            self.board.close()

    def epoch_started(self, epoch: int, n_steps: int) -> None:
        if epoch and self.is_first_epoch:
            note(f"{self.title}: continuing after epoch {epoch}")
        self.is_first_epoch = False
        self.bar.reset(self.task, total=n_steps, description=f"{self.title}, epoch {epoch + 1} of {self.max_epochs}")

    def step_done(self) -> None:
        self.n_pending += 1
        if self.n_pending == _STEPS_PER_UPDATE:
            self.bar.advance(self.task, self.n_pending)
            self.n_pending = 0

    def epoch_done(self, record: EpochRecord) -> None:
        further = "".join(f"  {name.replace('_', ' ')} {value:.4g}" for name, value in record.further.items())
        left = (self.max_epochs - record.epoch) * record.seconds
        err.print(
            f"{self.title}: epoch {record.epoch:3d}  training {record.training_loss:.4f}  "
            f"validation {record.validation_loss:.4f}  rate {record.learning_rate:.2g}  "
            f"{record.events_per_second:,.0f} events/s  at most {left / 60:.0f} min left{further}",
            highlight=False,
            soft_wrap=True,
        )
        if self.board:
            for name in ("mean_batch_loss", "training_loss", "validation_loss", "learning_rate", "events_per_second"):
                self.board.add_scalar(name, getattr(record, name), record.step)
            for name, value in record.further.items():
                self.board.add_scalar(name, value, record.step)


def _open_board(folder: Path) -> Any:
    if find_spec("tensorboard") is None:
        raise MissingExtraError("tensorboard is not installed; run: pip install tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder))
