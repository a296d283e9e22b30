"""Search spaces of scans.

The paper names the hyper-parameters that it scanned and the best values, but not the ranges. These contain every
published value. A space has no conditions (each hyper-parameter is drawn in every trial), so that the sampler can
model how they depend on each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from optuna import Trial

from unmask.networks.transformer import POSITIONS
from unmask.workflow.settings import nested

Target = Literal["tokenizer", "detector"]


@dataclass(frozen=True)
class Range:
    """A number from ``low`` to ``high``; a whole number if both are; uniform in its logarithm with ``log``."""

    low: float
    high: float
    log: bool = False


#: By name a range, or the choices.
Space = Mapping[str, Range | tuple[str | int | float, ...]]

#: Settings of each choice of ``training.schedule``: the published warm-ups and lengths.
SCHEDULES: dict[str, dict[str, Any]] = {"constant": {"training.schedule": "constant"}} | {
    f"warmup-cosine {warmup}/{total}": {
        "training.schedule": "warmup-cosine",
        "training.warmup_steps": warmup,
        "training.total_steps": total,
    }
    for warmup, total in ((1_000, 10_000), (2_000, 20_000))
}

#: Settings by name, with a dot for those within a table, as in ``--set`` and in presets.
SPACES: dict[Target, Space] = {
    "tokenizer": {
        "latent": Range(4, 16),
        "hidden": (32, 64, 128),
        "n_heads": (2, 4, 8),
        "n_blocks": Range(1, 5),
        "alpha": Range(0.05, 5.0, log=True),
        "beta": Range(0.01, 1.0, log=True),
        "gamma": Range(0.05, 1.0, log=True),
        "training.learning_rate": Range(1e-4, 1e-2, log=True),
    },
    "detector": {
        "dropout": Range(0.0, 0.3),
        "position": POSITIONS,
        "ffn_expansion": (1, 2, 4),
        "training.learning_rate": Range(1e-5, 5e-3, log=True),
        "training.schedule": tuple(SCHEDULES),
        "training.gradient_clip": (1.0, 5.0, 1000.0),
    },
}


def suggest(space: Space, trial: Trial) -> dict[str, Any]:
    """Draw all hyper-parameters of a trial."""
    drawn: dict[str, Any] = {}
    for name, entry in space.items():
        if isinstance(entry, tuple):
            drawn[name] = trial.suggest_categorical(name, entry)
        elif isinstance(entry.low, int) and isinstance(entry.high, int):
            drawn[name] = trial.suggest_int(name, entry.low, entry.high, log=entry.log)
        else:
            drawn[name] = trial.suggest_float(name, entry.low, entry.high, log=entry.log)
    return drawn


def changes_for(target: Target, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the hyper-parameters of a trial into changes of settings.

    >>> changes_for("detector", {"dropout": 0.1, "training.schedule": "constant"})
    {'dropout': 0.1, 'training': {'schedule': 'constant'}}
    """
    flat: dict[str, Any] = {}
    for name, value in parameters.items():
        flat |= SCHEDULES[value] if name == "training.schedule" else {name: value}
    return {"tokenizer": nested(flat)} if target == "tokenizer" else nested(flat)
