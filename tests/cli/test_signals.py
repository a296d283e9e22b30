"""Ctrl-C, and the signals that batch systems send: heard, said, nothing half written."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.cli.running import failing, running
from unmask import load_sample, write_events
from unmask.cli import data
from unmask.cli.progress import TrainingLine

NUMBERS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sample = load_sample("gluino")
    path = tmp_path_factory.mktemp("events") / "events.parquet"
    write_events(path, sample[sample.label == 0][:400])
    return path


@pytest.fixture(autouse=True)
def _signals_arrive() -> Iterator[None]:
    """Undo what a shell does to processes in the background: it has them ignore Ctrl-C."""
    before = {
        number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@NUMBERS
def test_a_signal_stops_a_command_and_leaves_nothing(
    events: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    @contextmanager
    def bar(_text: str) -> Iterator[object]:
        yield lambda _fraction: os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    with patch.object(data, "progress_bar", bar):
        code, message = failing("data", "convert", events, "--out", tmp_path / "new" / "out.parquet")
    assert code == 128 + number
    assert f"stopped by {number.name}" in message
    assert f"{number.name}: stopping; send it again to stop at once" in capfd.readouterr().err
    assert not [*tmp_path.iterdir()]
    assert signal.getsignal(number) == before


def test_a_signal_that_the_caller_ignores_is_ignored(events: Path, tmp_path: Path) -> None:
    @contextmanager
    def bar(_text: str) -> Iterator[object]:
        yield lambda _fraction: os.kill(os.getpid(), signal.SIGHUP)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with patch.object(data, "progress_bar", bar):
            running("data", "convert", events, "--out", tmp_path / "out.parquet")
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_training_that_is_stopped_continues_to_the_same_model(events: Path, tmp_path: Path) -> None:
    command = ("train", events, "--device", "cpu", "--set", "training.max_epochs=2", "--out")
    running(*command, tmp_path / "undisturbed")

    def started(_line: TrainingLine, epoch: int, _n_steps: int) -> None:
        if epoch == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    with patch.object(TrainingLine, "epoch_started", started):
        code, message = failing(*command, tmp_path / "model")
    assert code == 143
    assert "run the same command again to continue" in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.run", "undisturbed", "undisturbed.run"]
    assert "continuing after epoch 1" in running(*command, tmp_path / "model")[1]
    arrays = "arrays.safetensors"
    assert (tmp_path / "model" / arrays).read_bytes() == (tmp_path / "undisturbed" / arrays).read_bytes()
