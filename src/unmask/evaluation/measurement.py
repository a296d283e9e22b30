"""Metrics of one score against one signal, as cells of tables, and the headings of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from unmask.evaluation.metrics import SIGNAL_EFFICIENCIES, SIGNAL_EFFICIENCY, TOO_FEW, Metrics
from unmask.evaluation.table import Cell
from unmask.events.observables import OBSERVABLES
from unmask.scores.intervals import Estimate

AUC, EPS_B = "AUC", f"ε_B at ε_S = {100 * SIGNAL_EFFICIENCY:g}%"
REJECTIONS = tuple(f"1/ε_B at ε_S = {100 * at:g}%" for at in SIGNAL_EFFICIENCIES)


def eps_s(background_efficiency: float) -> str:
    """Heading of the signal efficiencies at a background efficiency."""
    return f"ε_S at ε_B = {100 * background_efficiency:g}%"


def sic(background_efficiency: float) -> str:
    """Heading of the significance improvements at a background efficiency."""
    return f"ε_S/√ε_B at ε_B = {100 * background_efficiency:g}%"


@dataclass(frozen=True)
class Measurement:
    """Metrics of one score against one signal process, or all of them, and all background."""

    name: str
    kind: Literal["detector", "untrained"]
    signal: str
    metrics: Metrics

    def cells(self) -> dict[str, Cell]:
        """All metrics, by the headings of their columns."""
        of = self.metrics
        best, most = of.best_threshold, of.max_significance_improvement
        rejections = zip(of.background_rejection.values(), of.background_rejection_limit.values(), strict=True)
        cells: dict[str, Cell | None] = {
            AUC: of.auc,
            **{eps_s(at): one for at, one in of.signal_efficiency.items()},
            **dict(zip(REJECTIONS, (one or f"> {limit:.2g}" for one, limit in rejections), strict=True)),
            EPS_B: of.background_efficiency or f"< {of.background_efficiency_limit:.2g}",
            **{sic(at): one and one / at**0.5 for at, one in of.signal_efficiency.items()},
            "largest ε_S/√ε_B": str(most) if most else None,
            "overlap area": of.overlap_area,
            "total improvement": of.total_improvement,
            "threshold of largest ε_S - ε_B": self._in_units(best.threshold),
        }
        return {name: TOO_FEW if cell is None else cell for name, cell in cells.items()}

    def _in_units(self, threshold: Estimate) -> Cell:
        """A threshold on an observable with its unit."""
        observable = next((one for one in OBSERVABLES.values() if one.label == self.name), None)
        if self.kind == "detector" or observable is None:
            return threshold
        value, low, high = map(observable.text, (threshold.value, threshold.low, threshold.high))
        return f"{value} [{low}, {high}]"
