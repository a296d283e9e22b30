"""Search spaces of scans.

The paper names the hyper-parameters that it scanned and the best values, but not the ranges. These contain every
published value. A space has no conditions (each hyper-parameter is drawn in every trial), so that the sampler can
model how they depend on each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from unmask.networks.positional_encoding import POSITIONS

if TYPE_CHECKING:
    from optuna import Trial

Target = Literal["tokenizer", "detector"]
TARGETS: tuple[Target, ...] = get_args(Target)


@dataclass(frozen=True)
class Choice:
    """One of a few values."""

    values: tuple[str | int | float, ...]

    def suggest(self, trial: Trial, name: str) -> Any:
        return trial.suggest_categorical(name, self.values)

    def __contains__(self, value: object) -> bool:
        return value in self.values


@dataclass(frozen=True)
class Range:
    """A number from ``low`` to ``high``; a whole number if both are; even in its logarithm with ``log``."""

    low: float
    high: float
    log: bool = False

    def suggest(self, trial: Trial, name: str) -> Any:
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(name, self.low, self.high, log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)

    def __contains__(self, value: Any) -> bool:
        return bool(self.low <= value <= self.high)


Space = Mapping[str, Choice | Range]

#: Settings of each choice of ``training.schedule``: the published warm-ups and lengths.
SCHEDULES: dict[str, dict[str, Any]] = {
    "constant": {"training.schedule": "constant"},
    "warmup-cosine 1000/10000": {
        "training.schedule": "warmup-cosine",
        "training.warmup_steps": 1_000,
        "training.total_steps": 10_000,
    },
    "warmup-cosine 2000/20000": {
        "training.schedule": "warmup-cosine",
        "training.warmup_steps": 2_000,
        "training.total_steps": 20_000,
    },
}

#: Settings by name, with a dot for those within a table, as in ``--set`` and in presets.
SPACES: dict[Target, Space] = {
    "tokenizer": {
        "latent": Range(4, 16),
        "hidden": Choice((32, 64, 128)),
        "n_heads": Choice((2, 4, 8)),
        "n_blocks": Range(1, 5),
        "alpha": Range(0.05, 5.0, log=True),
        "beta": Range(0.01, 1.0, log=True),
        "gamma": Range(0.05, 1.0, log=True),
        "training.learning_rate": Range(1e-4, 1e-2, log=True),
    },
    "detector": {
        "dropout": Range(0.0, 0.3),
        "position": Choice(POSITIONS),
        "ffn_expansion": Choice((1, 2, 4)),
        "training.learning_rate": Range(1e-5, 5e-3, log=True),
        "training.schedule": Choice(tuple(SCHEDULES)),
        "training.gradient_clip": Choice((1.0, 5.0, 1000.0)),
    },
}


def suggest(space: Space, trial: Trial) -> dict[str, Any]:
    """Draw all hyper-parameters of a trial."""
    return {name: entry.suggest(trial, name) for name, entry in space.items()}


def describe(space: Space) -> dict[str, Any]:
    """The space as JSON, by which a study is recognised."""
    return {name: {"type": type(entry).__name__, **asdict(entry)} for name, entry in space.items()}


def set_parameters(table: dict[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Set the hyper-parameters of a trial in a table of settings, and return it.

    >>> set_parameters({"training": {"seed": 1}}, {"dropout": 0.1, "training.schedule": "constant"})
    {'training': {'seed': 1, 'schedule': 'constant'}, 'dropout': 0.1}
    """
    for name, value in parameters.items():
        settings = SCHEDULES[value] if name == "training.schedule" else {name: value}
        for dotted, setting in settings.items():
            *tables, key = dotted.split(".")
            inner = table
            for part in tables:
                inner = inner.setdefault(part, {})
            inner[key] = setting
    return table
