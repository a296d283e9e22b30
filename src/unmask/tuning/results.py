"""What a scan found: its best trials, figures, and the best one as a preset."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from unmask.artifacts import atomic_path
from unmask.errors import UsageError, require
from unmask.tuning.scan import Plan
from unmask.tuning.space import set_parameters
from unmask.workflow.presets import Preset

#: Fewer complete trials say nothing about importances.
MIN_TRIALS = 3


def complete_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Trials that were trained to their end, the best first."""
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return sorted(trials, key=lambda trial: (trial.value, trial.number))


def summary(study: optuna.Study, limit: int) -> dict[str, Any]:
    """The study and its ``limit`` best trials, as JSON."""
    plan = Plan.of(study)
    states = Counter(trial.state.name.lower() for trial in study.get_trials(deepcopy=False))
    best = [
        {
            "trial": trial.number,
            "validation_loss": trial.value,
            "epochs": len(trial.intermediate_values),
            "seconds": trial.user_attrs.get("seconds"),
            "parameters": trial.params,
        }
        for trial in complete_trials(study)[:limit]
    ]
    facts = {"study": study.study_name, "target": plan.target, "preset": plan.preset.name, "padding": plan.padding}
    return {**facts, "trials": dict(sorted(states.items())), "best": best}


def draw_figures(study: optuna.Study, folder: Path, format_: str = "png") -> list[Path]:
    """Draw Optuna's figures of losses, importances and parallel coordinates, and return their paths.

    Raises
    ------
    UsageError
        If fewer than three trials are complete.
    """
    require("matplotlib", "plot")
    import matplotlib as mpl
    from matplotlib import pyplot as plt
    from optuna.importance import PedAnovaImportanceEvaluator
    from optuna.visualization import matplotlib as plots

    n_complete = len(complete_trials(study))
    if n_complete < MIN_TRIALS:
        raise UsageError(f"study {study.study_name!r} has {n_complete} complete trials; figures need {MIN_TRIALS}")
    loss = "validation loss (background)"
    drawers: dict[str, Callable[[], object]] = {
        "history": lambda: plots.plot_optimization_history(study, target_name=loss),
        "importances": lambda: plots.plot_param_importances(study, evaluator=PedAnovaImportanceEvaluator()),
        "parallel-coordinates": lambda: plots.plot_parallel_coordinate(study, target_name=loss),
    }
    paths = []
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna calls its figures experimental
        for name, draw in drawers.items():
            draw()
            figure = plt.gcf()
            paths.append(folder / f"{name}.{format_}")
            with atomic_path(paths[-1]) as scratch:
                figure.savefig(scratch, bbox_inches="tight")
            plt.close(figure)
    return paths


def best_preset(study: optuna.Study, number: int | None = None) -> Preset:
    """The scan's preset with the hyper-parameters of its best trial, or of trial ``number``.

    How long to train stays the preset's own choice.

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
    trial, plan = chosen[0], Plan.of(study)
    description = (
        f"{plan.preset.name} with the {plan.target} of trial {trial.number} of study {study.study_name}: "
        f"validation loss {trial.value:.5g}"
    )
    tables = {"tokenizer": deepcopy(dict(plan.preset.tokenizer)), "detector": deepcopy(dict(plan.preset.detector))}
    if plan.padding:
        tables["detector"]["padding"] = plan.padding
    set_parameters(tables[plan.target], trial.params)
    return Preset(f"{plan.preset.name}-tuned", description, **tables)


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
