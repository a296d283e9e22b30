"""A scan in three figures: how the best loss fell, which hyper-parameters mattered, and which values went together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unmask.errors import UsageError
from unmask.evaluation.plotting import BACKGROUND_COLOUR, SIGNAL_COLOUR, Drawing, new_figure, write_drawings
from unmask.tuning.plan import plan_of
from unmask.tuning.results import complete_trials
from unmask.tuning.search_spaces import Choice, Range

if TYPE_CHECKING:
    from optuna import Study

#: Fewer complete trials say nothing about importances.
MIN_TRIALS = 3
_LOSS = "validation loss (background)"


def draw_figures(study: Study, folder: Path, format_: str = "png") -> list[Path]:
    """Draw all three figures into ``folder`` and return their paths.

    Raises
    ------
    UsageError
        If fewer than three trials are complete.
    """
    n_complete = len(complete_trials(study))
    if n_complete < MIN_TRIALS:
        raise UsageError(f"study {study.study_name!r} has {n_complete} complete trials; figures need {MIN_TRIALS}")
    drawers = {"history": draw_history, "importances": draw_importances, "parallel-coordinates": draw_parallel}
    return write_drawings(folder, {name: draw(study) for name, draw in drawers.items()}, [format_])


def draw_history(study: Study) -> Drawing:
    """Loss of each trial, and the best so far."""
    from optuna.trial import TrialState

    trials = sorted(complete_trials(study), key=lambda trial: trial.number)
    number, loss = [trial.number for trial in trials], [float(trial.value or 0) for trial in trials]
    pruned = study.get_trials(deepcopy=False, states=(TrialState.PRUNED,))
    given_up = [(trial.number, trial.value) for trial in pruned if trial.value is not None]
    with new_figure(1, 1, (6, 3.5)) as (drawing, axes):
        ax = axes[0, 0]
        if given_up:
            ax.scatter(*zip(*given_up, strict=True), marker="x", color="0.6", s=20, label="pruned (last epoch)")
        ax.scatter(number, loss, color=BACKGROUND_COLOUR, s=20, label="complete")
        ax.step(number, np.minimum.accumulate(loss), where="post", color=SIGNAL_COLOUR, label="best so far")
        ax.set(xlabel="trial", ylabel=_LOSS, title=study.study_name)
        ax.legend()
    return drawing


def draw_importances(study: Study) -> Drawing:
    """Share of each hyper-parameter in what separates good trials from the others (PED-ANOVA)."""
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    importances = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    names = sorted(importances, key=lambda name: importances[name])
    with new_figure(1, 1, (6, 0.6 + 0.35 * len(names))) as (drawing, axes):
        ax = axes[0, 0]
        ax.barh(names, [importances[name] for name in names], color=BACKGROUND_COLOUR)
        ax.set(xlabel="importance", title=study.study_name)
    return drawing


def draw_parallel(study: Study) -> Drawing:
    """Each complete trial as a line through its hyper-parameters to its loss; dark lines are the good ones."""
    trials = complete_trials(study)[::-1]  # the best are drawn last, on top
    space = plan_of(study).space
    loss = np.array([trial.value for trial in trials], float)
    columns = {name: _Axis(entry, [trial.params[name] for trial in trials]) for name, entry in space.items()}
    columns["loss"] = _Axis(Range(float(loss.min()), float(loss.max())), list(loss))
    heights = np.stack([axis.height for axis in columns.values()], axis=1)
    with new_figure(1, 1, (1.5 + 1.3 * len(columns), 4)) as (drawing, axes):
        import matplotlib as mpl

        ax = axes[0, 0]
        rank = np.argsort(np.argsort(loss)) / max(len(loss) - 1, 1)
        for line, colour in zip(heights, mpl.colormaps["viridis"](rank), strict=True):
            ax.plot(line, color=colour, alpha=0.8)
        for i, axis in enumerate(columns.values()):
            ax.axvline(i, color="0.4", linewidth=0.8)
            for place, text in axis.ticks:
                ax.annotate(
                    text,
                    (i, place),
                    xytext=(3, 0),
                    textcoords="offset points",
                    fontsize=7,
                    va="center",
                    bbox={"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.5},
                )
        ax.set_xticks(range(len(columns)), [name.removeprefix("training.") for name in columns], rotation=20)
        ax.set_yticks([])
        ax.set_xlim(-0.2, len(columns) - 0.4)
        ax.grid(visible=False)
        ax.set_title(f"{study.study_name} (colour: rank of the loss, dark is best)")
    return drawing


class _Axis:
    """Where values lie between 0 and 1 on the axis of a hyper-parameter, and what is written there."""

    height: npt.NDArray[np.float64]
    ticks: list[tuple[float, str]]

    def __init__(self, entry: Choice | Range, values: Sequence[Any]) -> None:
        if isinstance(entry, Choice):
            places = np.linspace(0, 1, len(entry.values))
            self.height = places[[entry.values.index(value) for value in values]]
            self.ticks = [(float(place), str(value)) for place, value in zip(places, entry.values, strict=True)]
            return
        low, high, data = np.float64(entry.low), np.float64(entry.high), np.asarray(values, float)
        middle = np.sqrt(low * high) if entry.log else (low + high) / 2
        if entry.log:
            low, high, data = np.log(low), np.log(high), np.log(data)
        self.height = (data - low) / (high - low if high > low else 1.0)
        self.ticks = [(0.0, f"{entry.low:.4g}"), (0.5, f"{middle:.3g}"), (1.0, f"{entry.high:.4g}")]
