"""Trainings that the tests do in one process and in several; torchrun starts this module in each of them."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import torch
from safetensors.torch import save_file

from tests.conftest import _make_events
from unmask.detectors.masked_token import MaskedTokenDetector
from unmask.errors import UnmaskError
from unmask.tokenizers.lookup_table import LookupTableTokenizer
from unmask.tokenizers.vqvae import VQVAETokenizer
from unmask.training import EpochRecord, Reporter, TrainingSettings
from unmask.training.distributed import wait_for_all

# Two processes have 31 and 32 events of a batch.
TRAINING = TrainingSettings(
    max_epochs=3, batch_size=63, learning_rate=1e-3, gradient_clip=0.5, divergence=9.0, device="cpu", seed=5
)
KINDS = ("padding-predicted", "padding-ignored", "vqvae")


class InThirdEpoch(Reporter):
    """Acts after the second step of the third epoch."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act, self.n_steps = act, 0

    def epoch_started(self, epoch: int, n_steps: int) -> None:
        self.n_steps = 0 if epoch == 2 else -n_steps

    def step_done(self) -> None:
        self.n_steps += 1
        if self.n_steps == 2:
            self.act()


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def train(
    kind: str, run_folder: Path | None, *, training: TrainingSettings = TRAINING, reporter: Reporter | None = None
) -> tuple[list[EpochRecord], torch.nn.Module]:
    """Train on made-up events, without dropout; with one process or several."""
    events, validation = _make_events(500, seed=1), _make_events(100, seed=2)
    if kind == "vqvae":
        tokenizer = VQVAETokenizer(32, latent=4, hidden=16, n_heads=2, n_blocks=1, training=training)
        tokenizer.fit(events, validation, run_folder=run_folder, reporter=reporter)
        assert tokenizer.history_ is not None
        return tokenizer.history_, tokenizer.network_
    detector = MaskedTokenDetector(
        LookupTableTokenizer(3),
        hidden=16,
        n_layers=1,
        n_heads=2,
        dropout=0.0,
        padding="ignore" if kind == "padding-ignored" else "predict",
        training=training,
    )
    detector.fit(events, validation, run_folder=run_folder, reporter=reporter)
    return detector.history_, detector.network_


def write(path: Path, history: list[EpochRecord], network: torch.nn.Module) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(json.dumps([asdict(record) for record in history]))
    state = {name: value.contiguous() for name, value in network.state_dict().items()}
    save_file(state, path.with_suffix(".safetensors"))


def refusals(folder: Path, rank: int) -> list[str]:
    """What is said of a checkpoint that only the first process sees, of other settings, and of too small a batch."""
    messages = []
    for run_folder, training in (
        (folder / "padding-predicted" / f"run-{rank}", TRAINING),
        (None, replace(TRAINING, seed=rank)),
        (None, replace(TRAINING, batch_size=1)),
    ):
        try:
            train("padding-predicted", run_folder, training=training)
        except UnmaskError as error:
            messages.append(str(error))
    return messages


def in_each_process(folder: Path) -> None:
    """All that can be done in processes that live on, since starting them takes long."""
    rank = int(os.environ["RANK"])
    for kind in KINDS:
        # Folders of their own, to show which process writes.
        write(folder / kind / f"process-{rank}", *train(kind, folder / kind / f"run-{rank}"))
    write(folder / "resumed" / f"process-{rank}", *train("padding-predicted", folder / "begun-by-one"))
    (folder / f"refusals-{rank}.json").write_text(json.dumps(refusals(folder, rank)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "whole":
        in_each_process(Path(sys.argv[2]))
        wait_for_all()
        os._exit(0)  # as the command line does, since taking the connections apart can abort
    else:
        train("padding-predicted", Path(sys.argv[2]) / "run", reporter=InThirdEpoch(kill))
