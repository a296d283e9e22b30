"""Several processes train as one would, on a CPU with gloo; torchrun starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.training.together import KINDS, InThirdEpoch, train
from unmask import read_events, write_events
from unmask.cli import app
from unmask.detectors import load_detector
from unmask.errors import UsageError
from unmask.events.event_set import EventSet
from unmask.training import EpochRecord

ROOT = Path(__file__).parents[2]
# Sums in another order differ by some 1e-7, and so do the losses in the end. Adam makes full steps of 1e-3 of gradients
# that are zero but for rounding, as those of the biases of keys, so that such weights differ by more.
LOSS_TOLERANCE = 1e-5
WEIGHT_TOLERANCE = 5e-4


def torchrun(*arguments: str | Path, n_processes: int = 2) -> subprocess.CompletedProcess[str]:
    """Run a module in several processes that find each other at a free port."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n_processes}", "-m"]
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    return subprocess.run(
        [*command, *map(str, arguments)],
        cwd=ROOT,
        env=environment | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def curve(history: list[EpochRecord]) -> list[float]:
    return [x for r in history for x in (r.mean_batch_loss, r.training_loss, r.validation_loss)]


def left_by(path: Path) -> tuple[list[EpochRecord], dict[str, torch.Tensor]]:
    history = [EpochRecord(**record) for record in json.loads(path.with_suffix(".json").read_text())]
    return history, load_file(path.with_suffix(".safetensors"))


def assert_same_training(
    history: list[EpochRecord],
    weights: dict[str, torch.Tensor],
    other_history: list[EpochRecord],
    other_weights: dict[str, torch.Tensor],
) -> None:
    assert len(history) == len(other_history) == 3
    assert curve(history) == pytest.approx(curve(other_history), rel=LOSS_TOLERANCE)
    assert weights.keys() == other_weights.keys()
    for name, value in weights.items():
        torch.testing.assert_close(value, other_weights[name], rtol=WEIGHT_TOLERANCE, atol=WEIGHT_TOLERANCE)


def stop() -> None:
    raise InterruptedError


@pytest.fixture(scope="module")
def of_two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two-processes")
    with pytest.raises(InterruptedError):
        train("padding-predicted", folder / "begun-by-one", reporter=InThirdEpoch(stop))
    done = torchrun("tests.training.together", "whole", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def alone() -> Callable[[str], tuple[list[EpochRecord], dict[str, torch.Tensor]]]:
    found: dict[str, tuple[list[EpochRecord], dict[str, torch.Tensor]]] = {}

    def train_alone(kind: str) -> tuple[list[EpochRecord], dict[str, torch.Tensor]]:
        if kind not in found:
            history, network = train(kind, None)
            found[kind] = history, network.state_dict()
        return found[kind]

    return train_alone


Alone = Callable[[str], tuple[list[EpochRecord], dict[str, torch.Tensor]]]


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_train_as_one(of_two_processes: Path, alone: Alone, kind: str) -> None:
    assert_same_training(*left_by(of_two_processes / kind / "process-0"), *alone(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_all_processes_end_with_the_same(of_two_processes: Path, kind: str) -> None:
    (history, weights), (other_history, other_weights) = (
        left_by(of_two_processes / kind / f"process-{rank}") for rank in (0, 1)
    )
    assert curve(history) == curve(other_history)
    assert all(torch.equal(weights[name], other_weights[name]) for name in weights)


def test_only_the_first_process_writes_log_and_checkpoint(of_two_processes: Path) -> None:
    for kind in KINDS:
        written = {path.name for path in (of_two_processes / kind / "run-0").iterdir()}
        assert written == {"checkpoint.safetensors", "log.jsonl"}
        assert not (of_two_processes / kind / "run-1").exists()


def test_one_process_continues_what_two_began_and_none_is_left_hanging(tmp_path: Path, alone: Alone) -> None:
    started = time.monotonic()
    done = torchrun("tests.training.together", "killed", tmp_path)  # only the first process is killed
    assert done.returncode != 0
    assert time.monotonic() - started < 60
    assert len((tmp_path / "run" / "log.jsonl").read_text().splitlines()) == 2
    history, network = train("padding-predicted", tmp_path / "run")
    assert_same_training(history, network.state_dict(), *alone("padding-predicted"))


def test_two_processes_continue_what_one_began(of_two_processes: Path, alone: Alone) -> None:
    for rank in (0, 1):
        history, weights = left_by(of_two_processes / "resumed" / f"process-{rank}")
        assert_same_training(history, weights, *alone("padding-predicted"))
    lines = (of_two_processes / "begun-by-one" / "log.jsonl").read_text().splitlines()
    assert len(lines) == 3


def test_processes_that_do_not_fit_together_are_refused_by_all(of_two_processes: Path) -> None:
    for rank in (0, 1):
        no_checkpoint, other_seed, small_batch = json.loads((of_two_processes / f"refusals-{rank}.json").read_text())
        assert "2 processes do not start from the same settings, data and checkpoint" in no_checkpoint
        assert "2 processes do not start from the same settings" in other_seed
        assert "a batch of 1 events cannot be shared by 2 processes" in small_batch


def test_an_incomplete_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="LOCAL_RANK, MASTER_ADDR, MASTER_PORT, RANK is not set: start them"):
        train("padding-predicted", None)


def test_the_command_line_under_torchrun(tmp_path: Path, make_events: Callable[..., EventSet]) -> None:
    write_events(tmp_path / "events.parquet", make_events(600))
    training = ("max_epochs=2", "batch_size=64", "schedule=constant", "learning_rate=0.003")
    changes = ["dropout=0.0", "hidden=16", *(f"training.{change}" for change in training)]
    options = ("--device", "cpu", *(word for change in changes for word in ("--set", change)))
    command = ("unmask", "train", tmp_path / "events.parquet", "--preset", "gluino-lut-456", *options)
    together = torchrun(*command, "--out", tmp_path / "together")
    assert together.returncode == 0, together.stderr
    assert together.stdout.count("best validation loss") == 1
    assert together.stderr.count("epoch 2/2") == together.stderr.count("480 training and 60 validation events") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.parquet", "together", "together.run"]
    app([*map(str, command[1:]), "--out", str(tmp_path / "alone")], standalone_mode=False)
    events = read_events(tmp_path / "events.parquet")
    scores = [load_detector(tmp_path / name).score_events(events) for name in ("together", "alone")]
    assert scores[0] == pytest.approx(scores[1], rel=1e-4)
    history = [json.loads(line) for line in (tmp_path / "together.run" / "log.jsonl").read_text().splitlines()]
    assert history[1]["validation_loss"] < 0.9 * history[0]["mean_batch_loss"]  # both have learned something
