"""A study as a person watches it: a line for each stage, bars for files and epochs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from unmask.cli.console import note, progress_bar
from unmask.errors import UnmaskError
from unmask.study.stages import Stage, StudyReporter

if TYPE_CHECKING:
    from unmask.training import Reporter


class StudyProgress(StudyReporter):
    """Says on stderr what is being done."""

    def stage_started(self, stage: Stage, number: int, n_stages: int) -> None:
        note(f"[{number}/{n_stages}] {stage.name}")

    def stage_waits(self, stage: Stage, why: str) -> None:
        note(f"{stage.name}: {why}")

    def stage_failed(self, stage: Stage, error: UnmaskError) -> None:
        note(f"{stage.name} failed: {error}")

    def note(self, text: str) -> None:
        note(text)

    def reading(self, path: Path) -> AbstractContextManager[Callable[[float], None]]:
        return progress_bar(f"reading {path.name}")

    def training(self, title: str, max_epochs: int) -> AbstractContextManager[Reporter]:
        from unmask.cli.training_bar import TrainingBar

        return TrainingBar(title, max_epochs)
