"""Settings of a training: devices, seeds, learning-rate schedules and early stopping."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch

from unmask.errors import UsageError
from unmask.fitted import EpochRecord
from unmask.parameters import Count, NotNegative, Positive, at_least, mistakes_in

Precision = Literal["float32", "tf32", "bf16"]
Optimizer = Literal["adam", "radam"]
Schedule = Literal["constant", "warmup-cosine", "cosine", "plateau"]

#: The cosine ends at this fraction of the peak.
_FINAL_RATE = 0.1
#: Fraction of the steps that are warm-up with the schedule "cosine".
_WARMUP = 0.05
#: The plateau schedule halves the rate after so many epochs and one more without this relative improvement.
_PLATEAU_PATIENCE, _PLATEAU_IMPROVEMENT, _MIN_PLATEAU_RATE = 3, 1e-4, 1e-6


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Settings of a training; the defaults are those that the published configurations share.

    Attributes
    ----------
    batch_size
        Events per step, all processes together.
    schedule
        "constant"; "warmup-cosine" (linear warm-up, cosine to 10%); "cosine" (the same, with 5% of the steps as
        warm-up and the end at ``max_epochs``, so that a run cannot be prolonged); "plateau" (halved when the validation
        loss stalls).
    gradient_clip
        Maximum norm of the gradient; None for no limit.
    min_improvement, patience
        Stop after ``patience`` epochs in which the best validation loss did not improve by this relative amount.
    divergence
        Stop when (validation loss - training loss) / training loss exceeds it.
    precision
        "float32", or on CUDA "tf32" or "bf16" for speed.
    deterministic
        Reproducible runs on CUDA too, which are slower.
    """

    max_epochs: Count = 100
    batch_size: Count = 512
    optimizer: Optimizer = "adam"
    learning_rate: NotNegative = 1e-3  # a rate of 0 trains nothing, but is of use in tests and benchmarks
    schedule: Schedule = "constant"
    warmup_steps: Annotated[int, at_least(0)] = 1000
    total_steps: Count = 10_000
    gradient_clip: Positive | None = None
    min_improvement: NotNegative = 0.001
    patience: Count = 5
    divergence: NotNegative = 0.2
    seed: Annotated[int, at_least(0)] = 0
    device: str = "auto"
    precision: Precision = "float32"
    deterministic: bool = False

    def __post_init__(self) -> None:
        if mistakes := mistakes_in(type(self), vars(self)):
            raise UsageError("training: " + "; ".join(mistakes))

    def rate_at(self, step: int, steps_per_epoch: int, history: Sequence[EpochRecord]) -> float:
        """Learning rate of a step, counted from 0, after the epochs of ``history``."""
        match self.schedule:
            case "constant":
                return self.learning_rate
            case "plateau":
                return _plateau(self.learning_rate, history)
            case "warmup-cosine":
                warmup, total = self.warmup_steps, self.total_steps
            case "cosine":
                total = self.max_epochs * steps_per_epoch
                warmup = int(_WARMUP * total)
        if step < warmup:
            return self.learning_rate * (step + 1) / warmup
        done = min((step - warmup) / max(total - warmup, 1), 1.0)
        return self.learning_rate * (_FINAL_RATE + (1 - _FINAL_RATE) * 0.5 * (1 + math.cos(math.pi * done)))

    def is_over(self, history: Sequence[EpochRecord]) -> bool:
        """Whether a training with this history ends before ``max_epochs``."""
        best, n_waiting = math.inf, 0
        for record in history:
            loss, training_loss = record.validation_loss, record.training_loss
            best, n_waiting = (loss, 0) if _improves(loss, best, self.min_improvement) else (best, n_waiting + 1)
            if n_waiting >= self.patience or loss - training_loss > self.divergence * abs(training_loss):
                return True
        return False


def _plateau(rate: float, history: Sequence[EpochRecord]) -> float:
    best, n_waiting = math.inf, 0
    for record in history:
        if _improves(record.validation_loss, best, _PLATEAU_IMPROVEMENT):
            best, n_waiting = record.validation_loss, 0
        elif n_waiting == _PLATEAU_PATIENCE:
            rate, n_waiting = max(0.5 * rate, _MIN_PLATEAU_RATE), 0
        else:
            n_waiting += 1
    return rate


def _improves(loss: float, best: float, relative: float) -> bool:
    """Whether ``loss``, which may be negative, is below ``best`` by more than this relative amount."""
    return best == math.inf or loss < best - relative * abs(best)


def derive_seed(*parts: object) -> int:
    """Derive one seed from several words and numbers.

    >>> derive_seed(1, "epoch", 2) == derive_seed(1, "epoch", 2) != derive_seed(1, "epoch", 3)
    True
    """
    words = [int.from_bytes(str(part).encode(), "little") for part in parts]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> np.uint64(1))


def pick_device(name: str = "auto") -> torch.device:
    """Turn "auto", "cpu", "cuda" or "cuda:N" into an available device."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"unknown device {name!r}; choose from auto, cpu, cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device {name!r}: torch finds no CUDA device; use --device cpu")
    return device
