"""Search spaces of scans.

The paper names the hyper-parameters that it scanned and the best values, but not the ranges. These contain every
published value. A space has no conditions (each hyper-parameter is drawn in every trial), so that the sampler can
model how they depend on each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from optuna.distributions import BaseDistribution
from optuna.distributions import CategoricalDistribution as Choice
from optuna.distributions import FloatDistribution as Real
from optuna.distributions import IntDistribution as Whole

from unmask.networks.transformer import POSITIONS
from unmask.workflow.settings import nested

Target = Literal["tokenizer", "detector"]

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
SPACES: dict[Target, dict[str, BaseDistribution]] = {
    "tokenizer": {
        "latent": Whole(4, 16),
        "hidden": Choice((32, 64, 128)),
        "n_heads": Choice((2, 4, 8)),
        "n_blocks": Whole(1, 5),
        "alpha": Real(0.05, 5.0, log=True),
        "beta": Real(0.01, 1.0, log=True),
        "gamma": Real(0.05, 1.0, log=True),
        "training.learning_rate": Real(1e-4, 1e-2, log=True),
    },
    "detector": {
        "dropout": Real(0.0, 0.3),
        "position": Choice(POSITIONS),
        "ffn_expansion": Choice((1, 2, 4)),
        "training.learning_rate": Real(1e-5, 5e-3, log=True),
        "training.schedule": Choice(tuple(SCHEDULES)),
        "training.gradient_clip": Choice((1.0, 5.0, 1000.0)),
    },
}


def changes_for(target: Target, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the hyper-parameters of a trial into changes of settings.

    >>> changes_for("detector", {"dropout": 0.1, "training.schedule": "constant"})
    {'dropout': 0.1, 'training': {'schedule': 'constant'}}
    """
    flat: dict[str, Any] = {}
    for name, value in parameters.items():
        flat |= SCHEDULES[value] if name == "training.schedule" else {name: value}
    return {"tokenizer": nested(flat)} if target == "tokenizer" else nested(flat)
