"""What a scan found: its trials as a table, and the best one as a preset."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.artifacts import atomic_path
from unmask.errors import UsageError
from unmask.studies.presets import Preset
from unmask.tuning.plan import plan_of

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial


def complete_trials(study: Study) -> list[FrozenTrial]:
    """Trials that were trained to their end, the best first."""
    from optuna.trial import TrialState

    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return sorted(trials, key=lambda trial: (trial.value, trial.number))


def summary(study: Study, limit: int) -> dict[str, Any]:
    """The study and its ``limit`` best trials, as JSON."""
    states = Counter(trial.state.name.lower() for trial in study.get_trials(deepcopy=False))
    plan = plan_of(study)
    return {
        "study": study.study_name,
        "target": plan.target,
        "preset": plan.preset.name,
        "padding": plan.padding,
        "trials": dict(sorted(states.items())),
        "best": [
            {
                "trial": trial.number,
                "validation_loss": trial.value,
                "epochs": len(trial.intermediate_values),
                "seconds": trial.user_attrs.get("seconds"),
                "parameters": trial.params,
            }
            for trial in complete_trials(study)[:limit]
        ],
    }


def best_preset(study: Study, number: int | None = None) -> Preset:
    """The scan's preset with the hyper-parameters of its best trial, or of trial ``number``.

    Raises
    ------
    UsageError
        If no trial is complete, or there is no such one.
    """
    trials = complete_trials(study)
    if not trials:
        raise UsageError(f"study {study.study_name!r} has no complete trial yet")
    chosen = [trial for trial in trials if number is None or trial.number == number]
    if not chosen:
        raise UsageError(f"study {study.study_name!r} has no complete trial {number}; the best is {trials[0].number}")
    trial, plan = chosen[0], plan_of(study)
    description = (
        f"{plan.preset.name} with the {plan.target} of trial {trial.number} of study {study.study_name}: "
        f"validation loss {trial.value:.5g}"
    )
    return plan.tuned_preset(trial.params, description)


def write_preset(path: Path, preset: Preset) -> None:
    """Write a preset as TOML, for ``unmask train --preset``."""
    if path.suffix != ".toml":
        raise UsageError(f"{path}: a preset is written as .toml")
    content = {"description": preset.description, "tokenizer": preset.tokenizer, "detector": preset.detector}
    with atomic_path(path) as scratch:
        scratch.write_text(toml_text(content))


def toml_text(table: Mapping[str, Any], name: str = "") -> str:
    """A table of words, numbers, lists and further tables as TOML.

    >>> print(toml_text({"seed": 1, "training": {"rate": 5e-05, "schedule": "constant"}}))
    seed = 1
    <BLANKLINE>
    [training]
    rate = 5e-05
    schedule = "constant"
    <BLANKLINE>
    """
    # What JSON writes for words, numbers, booleans and lists is TOML too.
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in table.items() if not isinstance(value, Mapping)]
    header = f"\n[{name}]\n" if name and (lines or not table) else ""
    inner = [
        toml_text(value, f"{name}.{key}" if name else key) for key, value in table.items() if isinstance(value, Mapping)
    ]
    return header + "".join(lines) + "".join(inner)
