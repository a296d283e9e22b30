"""The training loop: resuming, stopping, schedules and refusals."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from unmask.errors import ArtifactError, TrainingError, UsageError
from unmask.training import EpochRecord, Reporter, Task, TrainingSettings, checkpoints, train

SETTINGS = TrainingSettings(max_epochs=5, batch_size=8, learning_rate=0.01, device="cpu")
RADAM = replace(SETTINGS, optimizer="radam", schedule="plateau", gradient_clip=1.0)


class Regression(Task):
    """A small network with dropout and a running mean, so that parameters, buffers and random numbers all matter."""

    def __init__(self, n_train: int = 50, data_seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(data_seed)
        x = torch.randn(n_train, 4, generator=generator)
        data = (x, x.sum(1, keepdim=True))
        torch.manual_seed(7)
        network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))
        super().__init__(network, data, data, seed=0, identity="")
        self.data_seed = data_seed
        self.n_starts = 0

    def loss(self, *data: Tensor) -> Tensor:
        x, y = data
        return (self.network(x) - y).square().mean()

    def fingerprint(self) -> str:
        return f"regression {self.data_seed}"

    def start_training(self) -> None:
        self.n_starts += 1
        self.network[0].weight.mul_(0.5)


class Scripted(Regression):
    """Reports losses that are given beforehand and keeps the weights of each epoch."""

    def __init__(self, validation: list[float], training: list[float] | None = None) -> None:
        super().__init__()
        self.validation_losses, self.training_losses = validation, training or validation
        self.weights: list[dict[str, Tensor]] = []

    def evaluate(self) -> dict[str, float]:
        self.weights.append({name: value.clone() for name, value in self.network.state_dict().items()})
        epoch = len(self.weights) - 1
        return {"training_loss": self.training_losses[epoch], "validation_loss": self.validation_losses[epoch]}


class InEpoch(Reporter):
    """Acts after the second step of an epoch."""

    def __init__(self, epoch: int, act: Callable[[], None]) -> None:
        self.epoch, self.act, self.n_steps = epoch, act, -1

    def epoch_started(self, epoch: int, n_steps: int) -> None:
        self.n_steps = 0 if epoch == self.epoch else -(10**9)

    def step_done(self) -> None:
        self.n_steps += 1
        if self.n_steps == 2:
            self.act()


class StoppedError(Exception):
    """Stands for an interruption."""


def stop() -> None:
    raise StoppedError


def same_state(mine: nn.Module, other: nn.Module) -> bool:
    a, b = mine.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def without_times(history: list[EpochRecord]) -> list[EpochRecord]:
    return [replace(record, seconds=0.0, events_per_second=0.0) for record in history]


def train_until_killed(folder: str) -> None:
    """What the subprocess below does: it never returns."""
    torch.set_num_threads(1)
    train(
        Regression(),
        RADAM,
        run_folder=Path(folder),
        reporter=InEpoch(3, lambda: os.kill(os.getpid(), signal.SIGKILL)),
    )


def test_a_killed_run_resumes_to_the_same_weights_bit_for_bit(tmp_path: Path) -> None:
    code = f"from tests.training.test_loop import train_until_killed; train_until_killed({str(tmp_path)!r})"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 3

    undisturbed, resumed = Regression(), Regression()
    whole = train(undisturbed, RADAM)
    history = train(resumed, RADAM, run_folder=tmp_path)
    assert resumed.n_starts == 0
    assert without_times(history) == without_times(whole)
    assert same_state(resumed.network, undisturbed.network)


@pytest.mark.parametrize(
    "settings",
    [
        replace(SETTINGS, schedule="warmup-cosine", warmup_steps=4, total_steps=25),
        replace(SETTINGS, schedule="cosine"),
        RADAM,
    ],
    ids=["warmup-cosine", "cosine", "radam"],
)
@pytest.mark.parametrize("epoch", [0, 2])
def test_an_interrupted_run_resumes_to_the_same_weights(tmp_path: Path, settings: TrainingSettings, epoch: int) -> None:
    with pytest.raises(StoppedError):
        train(Regression(), settings, run_folder=tmp_path, reporter=InEpoch(epoch, stop))
    undisturbed, resumed = Regression(), Regression()
    train(undisturbed, settings)
    train(resumed, settings, run_folder=tmp_path)
    assert same_state(resumed.network, undisturbed.network)


def test_a_finished_run_is_not_trained_again_but_can_be_prolonged(tmp_path: Path) -> None:
    short, again, longer, whole = (Regression() for _ in range(4))
    history = train(short, SETTINGS, run_folder=tmp_path)
    assert train(again, SETTINGS, run_folder=tmp_path) == history
    assert same_state(again.network, short.network)
    settings = replace(SETTINGS, max_epochs=7)
    assert len(train(longer, settings, run_folder=tmp_path)) == 7
    train(whole, settings)
    assert same_state(longer.network, whole.network)


def test_the_same_seed_gives_the_same_weights_and_another_gives_others() -> None:
    first, second, other = Regression(), Regression(), Regression()
    train(first, SETTINGS)
    torch.rand(3)  # whatever the caller does with random numbers in between
    train(second, SETTINGS)
    train(other, replace(SETTINGS, seed=1))
    assert same_state(first.network, second.network)
    assert not same_state(first.network, other.network)


def test_training_learns() -> None:
    task = Regression(400)
    history = train(task, replace(SETTINGS, max_epochs=10))
    assert history[-1].validation_loss < 0.5 * history[0].validation_loss
    assert [record.epoch for record in history] == list(range(1, len(history) + 1))
    assert history[0].step == 50


@pytest.mark.parametrize(
    ("settings", "task", "difference"),
    [
        (replace(SETTINGS, batch_size=16), Regression(), "batch_size 8 -> 16"),
        (replace(SETTINGS, seed=2), Regression(), "seed 0 -> 2"),
        (SETTINGS, Regression(data_seed=1), "data and network 'regression 0' -> 'regression 1'"),
    ],
)
def test_a_folder_with_another_run_is_refused(
    tmp_path: Path, settings: TrainingSettings, task: Regression, difference: str
) -> None:
    train(Regression(), replace(SETTINGS, max_epochs=1), run_folder=tmp_path)
    before = (tmp_path / "checkpoint.safetensors").read_bytes()
    with pytest.raises(TrainingError, match=f"other settings .{difference}"):
        train(task, settings, run_folder=tmp_path)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    train(Regression(), replace(SETTINGS, max_epochs=1), run_folder=tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ArtifactError, match=r"checkpoint\.safetensors: remove this checkpoint to start again: damaged"):
        train(Regression(), SETTINGS, run_folder=tmp_path)


def test_a_checkpoint_with_one_flipped_bit_is_refused(tmp_path: Path) -> None:
    train(Regression(), replace(SETTINGS, max_epochs=1), run_folder=tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match="its checksum is wrong"):
        train(Regression(), SETTINGS, run_folder=tmp_path)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda tensors, _state: tensors.update({"network/0.weight": torch.zeros(2, 2)}), "size mismatch"),
        (lambda tensors, _state: tensors.update({"best/0.weight": torch.zeros(2, 2)}), "size mismatch"),
        (lambda tensors, _state: tensors.update({"optimizer/0/exp_avg": torch.zeros(3)}), "state of the optimizer"),
        (lambda tensors, _state: tensors.update({"optimizer/x/exp_avg": torch.zeros(3)}), "invalid literal"),
        (lambda tensors, _state: tensors.pop("network/0.weight"), "Missing key"),
        (lambda _tensors, state: state.pop("history"), "history: Field required"),
        (lambda _tensors, state: state["history"][0].update(epoch="x"), r"history\.0\.epoch: .* valid integer"),
    ],
)
def test_a_checkpoint_of_another_structure_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Tensor], dict[str, Any]], object], expected: str
) -> None:
    train(Regression(), replace(SETTINGS, max_epochs=1), run_folder=tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    with safe_open(path, framework="pt") as file:
        state, keys = json.loads(file.metadata()["state"]), file.keys()
        tensors = {key: file.get_tensor(key) for key in keys}
    change(tensors, state)
    text = json.dumps(state)
    save_file(tensors, path, metadata={"state": text, "digest": checkpoints._digest(tensors, text)})
    with pytest.raises(ArtifactError, match=expected):
        train(Regression(), SETTINGS, run_folder=tmp_path)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_the_run(tmp_path: Path, bad: float) -> None:
    with pytest.raises(TrainingError, match=r"NaN or infinite in epoch 2, at a learning rate of 0\.01"):
        train(Scripted([1.0, bad]), SETTINGS, run_folder=tmp_path)
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 1  # the last good state stays


def test_a_batch_whose_loss_is_no_number_stops_the_run() -> None:
    task = Scripted([1.0] * 5)
    task.train[1][3] = math.nan
    with pytest.raises(TrainingError, match="NaN or infinite in epoch 1"):
        train(task, replace(SETTINGS, batch_size=50))


def test_it_stops_after_the_largest_number_of_epochs() -> None:
    assert len(train(Scripted([1.0, 0.5, 0.25, 0.1]), replace(SETTINGS, max_epochs=3))) == 3


def test_it_stops_when_validation_no_longer_improves_enough() -> None:
    losses = [1.0, 0.5, 0.496, 0.493, 0.3, 0.2]
    settings = replace(SETTINGS, max_epochs=6, min_improvement=0.02, patience=2)
    assert len(train(Scripted(losses), settings)) == 4
    assert len(train(Scripted(losses), replace(settings, patience=3))) == 6
    assert len(train(Scripted(losses), replace(settings, min_improvement=0.001))) == 6


def test_it_stops_when_validation_runs_away_from_training() -> None:
    task = Scripted([1.0, 0.9, 0.85, 0.8], [1.0, 0.8, 0.7, 0.6])
    assert len(train(task, replace(SETTINGS, max_epochs=4, divergence=0.2))) == 3
    task = Scripted([1.0, 0.9, 0.85, 0.8], [1.0, 0.8, 0.7, 0.6])
    assert len(train(task, replace(SETTINGS, max_epochs=4, divergence=0.5))) == 4


def test_a_stopped_run_stays_stopped(tmp_path: Path) -> None:
    settings = replace(SETTINGS, min_improvement=0.1, patience=2)
    assert len(train(Scripted([1.0, 1.0, 1.0, 0.1, 0.1]), settings, run_folder=tmp_path)) == 3
    assert len(train(Scripted([1.0, 1.0, 1.0, 0.1, 0.1]), settings, run_folder=tmp_path)) == 3


def test_the_weights_of_the_best_epoch_are_kept() -> None:
    task = Scripted([1.0, 0.5, 0.8, 0.7])
    train(task, replace(SETTINGS, max_epochs=4, patience=9))
    final = task.network.state_dict()
    assert all(torch.equal(final[name], value) for name, value in task.weights[1].items())
    assert not torch.equal(final["0.weight"], task.weights[3]["0.weight"])
    assert not task.network.training


def test_constant_and_warmup_cosine_rates() -> None:
    constant = train(Scripted([1.0] * 3), replace(SETTINGS, max_epochs=3))
    assert {record.learning_rate for record in constant} == {0.01}
    # 6 steps an epoch; the record holds the rate of an epoch's last step.
    settings = replace(SETTINGS, max_epochs=4, schedule="warmup-cosine", warmup_steps=12, total_steps=18)
    history = train(Scripted([1.0] * 4), settings)
    assert [record.learning_rate for record in history] == pytest.approx([0.005, 0.01, 0.0016029, 0.001], rel=1e-4)


@pytest.mark.parametrize(("name", "value"), [("schedule", "cosin"), ("optimizer", "adamw"), ("precision", "bf32")])
def test_unknown_words_are_refused_with_what_is_near(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"training: {name} is '{value}'; did you mean"):
        TrainingSettings(**{name: value})


def test_the_cosine_ends_with_the_last_epoch() -> None:
    # 24 steps, of which one is warm-up: 10 % and 90 % of (1 + cos(pi i / 23)) / 2, at i = 4, 10, 16 and 22.
    history = train(Scripted([1.0] * 4), replace(SETTINGS, max_epochs=4, schedule="cosine"))
    assert [record.learning_rate for record in history] == pytest.approx(
        [0.009345, 0.006416, 0.002905, 0.001042], rel=1e-3
    )


def test_a_run_whose_schedule_ends_with_it_is_not_made_longer(tmp_path: Path) -> None:
    settings = replace(SETTINGS, max_epochs=2, schedule="cosine")
    train(Regression(), settings, run_folder=tmp_path)
    with pytest.raises(TrainingError, match="max_epochs"):
        train(Regression(), replace(settings, max_epochs=3), run_folder=tmp_path)


def test_the_plateau_rate_halves_when_validation_stalls() -> None:
    losses = [1.0, 0.9, *[0.9] * 4, 0.8, 0.7, 0.6]
    settings = replace(SETTINGS, max_epochs=9, schedule="plateau", patience=20)
    rates = [record.learning_rate for record in train(Scripted(losses), settings)]
    assert rates == pytest.approx([0.01] * 6 + [0.005] * 3)


def test_the_gradient_is_clipped() -> None:
    moved = []
    for clip in (None, 1e-12):
        task = Regression()
        start = task.network[3].weight.detach().clone()
        train(task, replace(SETTINGS, max_epochs=1, gradient_clip=clip))
        moved.append(float((task.network[3].weight.detach() - start).abs().max()))
    # Adam divides by the gradient's size; one far below its epsilon hardly moves anything.
    assert moved[1] < 0.01 * moved[0]


def test_the_log_holds_every_epoch(tmp_path: Path) -> None:
    history = train(Regression(), SETTINGS, run_folder=tmp_path)
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [asdict(record) for record in history]


def test_no_events_are_refused() -> None:
    with pytest.raises(UsageError, match="no events to train on"):
        train(Regression(0), SETTINGS)
