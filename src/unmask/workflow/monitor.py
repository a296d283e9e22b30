"""Compare files of events with the background that a detector was trained on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from unmask.artifacts import Json
from unmask.detectors import Detector
from unmask.detectors.base import SCORE
from unmask.events.distributions import Difference, Histograms, add, count, differences, variables_of
from unmask.report.style import Drawing, legend_below, new_figure
from unmask.workflow.sources import Bar, Sources, no_bar

_N_COLUMNS = 4
#: P-values that a table marks.
SMALL = 0.01


@dataclass(frozen=True)
class Monitored:
    """Distributions of variables and scores in each of several files, in their order.

    Attributes
    ----------
    background
        Variables of the training events, and scores of the validation events.
    files
        By name of the file; those without events are left out.
    """

    background: Histograms
    files: dict[str, Histograms]

    def differences(self) -> dict[str, list[Difference]]:
        """Compare each file with background; p-values are corrected for the number of all variables and files."""
        return dict(zip(self.files, differences(self.background, *self.files.values()), strict=True))

    def to_json(self) -> dict[str, Json]:
        """All numbers by file and variable."""
        return {
            "files": {
                name: {
                    "sum_of_weights": self.files[name][SCORE].sum_of_weights,
                    "variables": {one.variable: asdict(one) for one in compared},
                }
                for name, compared in self.differences().items()
            }
        }

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Columns and rows of a table: means in background and in each file, and the smallest p-value of the files."""
        columns = self.differences()
        rows = [
            [
                each[0].variable,
                f"{each[0].background_mean:.4g}",
                *(f"{one.mean:.4g}{' *' if one.p_value < SMALL else ''}" for one in each),
                min(each, key=lambda one: one.p_value).p_text.removeprefix("p = ").removeprefix("p "),
            ]
            for each in zip(*columns.values(), strict=True)
        ]
        stems = [Path(name).stem for name in columns]
        return ["variable", "background", *(stems if len({*stems}) == len(stems) else columns), "smallest p"], rows

    def draw(self) -> Drawing:
        """Draw the distributions: events in each bin, over those expected from background."""
        n_rows = -(-len(self.background) // _N_COLUMNS)
        with new_figure(n_rows, _N_COLUMNS, (12, 2.2 * n_rows + 0.5)) as (drawing, axes):
            from matplotlib import colormaps

            colors = colormaps["viridis"](np.linspace(0, 0.9, len(self.files)))  # of a series in time
            for axis in axes.flat[len(self.background) :]:
                axis.set_axis_off()
            for axis, (variable, there) in zip(axes.flat, self.background.items(), strict=False):
                is_filled = there.content > 0
                upper = [f"{edge:.4g}" for edge in there.edges[is_filled[:-1]]]
                names = [*(f"≤ {edge}" for edge in upper), f"> {there.edges[-1]:.4g}"][: is_filled.sum()]
                for (file, here), color in zip(self.files.items(), colors, strict=True):
                    ratio = here[variable].fractions[is_filled] / there.fractions[is_filled]
                    axis.stairs(ratio, label=file, color=color)
                axis.axhline(1, color="0.3", linewidth=0.8, linestyle=":")
                ticks = np.unique(np.linspace(0, len(names) - 1, 4).astype(int))
                axis.set_xticks(ticks + 0.5, [names[i] for i in ticks])
                axis.set_xlabel(variable)
            for axis in axes[:, 0]:
                axis.set_ylabel("events / background")
            legend_below(drawing.figure, axes.flat[0])
        return drawing


def monitor(detector: Detector, sources: Sources, *, device: str = "auto", bar: Bar = no_bar) -> Monitored:
    """Score all events of files, in bounded memory, and count what is compared."""
    files: dict[Path, Histograms] = {}
    for file, events in sources.by_file(bar=bar):
        if len(events):
            values = variables_of(events, detector.schema_.types)
            values[SCORE] = detector.score_events(events, device=device)
            files[file] = add(files.get(file, {}), count(detector.background_, values, events.weight))
    names = [file.name for file in files]
    unique = [str(file) if names.count(file.name) > 1 else file.name for file in files]
    return Monitored(detector.background_, dict(zip(unique, files.values(), strict=True)))
