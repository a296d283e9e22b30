"""Results of a scan: its best trials, figures, and the best one as a preset."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from unmask.artifacts import atomic_path
from unmask.errors import UsageError, require
from unmask.tuning.scan import Plan
from unmask.tuning.space import changes_for
from unmask.workflow.settings import Settings, flat

#: Complete trials needed for importances.
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
    origin = {"study": study.study_name, "target": plan.target, "preset": plan.settings.name}
    return {**origin, "trials": dict(sorted(states.items())), "best": best}


def draw_figures(study: optuna.Study, folder: Path, format_: str = "png") -> list[Path]:
    """Draw Optuna's figures of losses, importances and parallel coordinates, and return their paths."""
    require("matplotlib", "plot")
    import matplotlib as mpl
    from matplotlib import pyplot as plt
    from optuna.importance import PedAnovaImportanceEvaluator
    from optuna.visualization import matplotlib as plots

    n_complete = len(complete_trials(study))
    if n_complete < MIN_TRIALS:
        raise UsageError(f"study {study.study_name!r} has {n_complete} complete trials; figures need {MIN_TRIALS}")
    loss = {"target_name": "validation loss (background)"}
    paths = []
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna calls its figures experimental
        for name, draw, options in (
            ("history", plots.plot_optimization_history, loss),
            ("importances", plots.plot_param_importances, {"evaluator": PedAnovaImportanceEvaluator()}),
            ("parallel-coordinates", plots.plot_parallel_coordinate, loss),
        ):
            draw(study, **options)
            paths.append(folder / f"{name}.{format_}")
            with atomic_path(paths[-1]) as scratch:
                plt.savefig(scratch, bbox_inches="tight")
            plt.close()
    return paths


def best_settings(study: optuna.Study, number: int | None = None) -> Settings:
    """Settings of the scan, and its number of epochs, with the hyper-parameters of its best trial or of ``number``."""
    trials = complete_trials(study)
    if not trials:
        raise UsageError(f"study {study.study_name!r} has no complete trial yet")
    chosen = [trial for trial in trials if number is None or trial.number == number]
    if not chosen:
        raise UsageError(f"study {study.study_name!r} has no complete trial {number}; the best is {trials[0].number}")
    trial, plan = chosen[0], Plan.of(study)
    best = plan.settings.with_changes(changes_for(plan.target, trial.params), {})
    origin = f"the {plan.target} of trial {trial.number} of study {study.study_name}"
    description = f"{best.name} with {origin}: validation loss {trial.value:.5g}"
    return replace(best, name=f"{best.name}-tuned", description=description)


def write_settings(path: Path, settings: Settings) -> None:
    """Write settings as TOML, for ``unmask train --preset``."""
    if path.suffix != ".toml":
        raise UsageError(f"{path}: a preset is written as .toml")
    content = flat({key: value for key, value in vars(settings).items() if key != "name"})
    with atomic_path(path) as scratch:
        # JSON texts of words, numbers, booleans and lists are TOML too.
        scratch.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in content.items()))
