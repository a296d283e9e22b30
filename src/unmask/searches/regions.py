"""Regions of a search: intervals of the background p-value, fixed by background alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unmask.artifacts import Json
from unmask.errors import BadDataError, UsageError
from unmask.scores.calibration import Calibration, ScoredBy
from unmask.scores.flagged import Flagged
from unmask.scores.intervals import MIN_BACKGROUND_EVENTS, Estimate, check_finite, n_effective
from unmask.scores.p_values import BackgroundTail, Survival
from unmask.scores.score_table import Scores

#: Edges in the p-value, from the control region down; the first that enough background supports is the default.
DEFAULT_EDGES = ((0.2, 0.01, 0.001), (0.2, 0.01), (0.5, 0.1))


@dataclass(frozen=True, eq=False)
class Regions:
    """Control, validation and signal regions, in this order.

    Attributes
    ----------
    edges
        Falling p-values: the control region lies above the first, validation between the first two, and each further
        one begins another signal region, the last of which holds all smaller p-values.
    thresholds
        Scores of these p-values.
    """

    survival: Survival
    edges: tuple[float, ...]
    thresholds: tuple[float, ...]

    @classmethod
    def of(cls, calibrating: Scores, edges: Sequence[float] | None = None, n_estimating: float = np.inf) -> Regions:
        """Calibrate p-values with background events, and find the edges, by default those that are supported.

        ``n_estimating`` is the effective number of other background events, which must support default edges too.
        """
        check_finite(calibrating.score)
        n = min(n_effective(calibrating.weight), n_estimating)
        if edges is None:
            supported = [some for some in DEFAULT_EDGES if n * some[-1] >= MIN_BACKGROUND_EVENTS]
            if not supported:
                raise BadDataError(
                    f"{n:,.0f} background events (effective number) are too few for a search: a signal region of "
                    f"p <= {DEFAULT_EDGES[-1][-1]:g} needs {MIN_BACKGROUND_EVENTS / DEFAULT_EDGES[-1][-1]:,.0f} to "
                    "calibrate and as many to estimate; give more background"
                )
            edges = supported[0]
        edges = tuple(float(edge) for edge in edges)
        if len(edges) < 2 or list(edges) != sorted(set(edges), reverse=True) or not 0 < edges[-1] <= edges[0] < 1:
            raise UsageError(f"edges {edges}: expected two or more falling p-values between 0 and 1, such as 0.2, 0.01")
        survival = Survival.of(calibrating.score, calibrating.weight)
        p = survival.p_values(survival.score)
        if p[-1] > edges[-1]:
            raise BadDataError(
                f"no background event is as anomalous as the edge p <= {edges[-1]:g}: {len(calibrating):,} events "
                f"reach {p[-1]:.2g}; give more background, or larger --edges"
            )
        thresholds = tuple(float(survival.score[np.argmax(p <= edge)]) for edge in edges)
        if len(set(thresholds)) < len(thresholds):
            raise BadDataError(f"scores are equal so often that edges {edges} leave a region empty; choose others")
        return cls(survival, edges, thresholds)

    @property
    def names(self) -> list[str]:
        """Names of the regions."""
        n = len(self.edges) - 1
        return ["control", "validation", *(["signal"] if n == 1 else [f"signal-{i + 1}" for i in range(n)])]

    def assign(self, scores: Scores) -> npt.NDArray[np.int64]:
        """The region (n_events,) of each event, from 0 for control."""
        check_finite(scores.score)
        return np.searchsorted(self.thresholds, scores.score, side="right")

    def flag(self, data: Scores, calibrating: Scores) -> Flagged:
        """Find the events of the signal regions, with p-values and what is unusual in them."""
        low, high = self.survival.intervals(np.array([self.thresholds[1]]))
        efficiency = Estimate(self.edges[1], float(low[0]), float(high[0]))
        tails = {name: BackgroundTail.of(values) for name, values in calibrating.observables.items()}
        known = np.sort(calibrating.event_key)
        return Calibration(self.survival, self.thresholds[1], self.edges[1], efficiency, ScoredBy(), known, tails).flag(
            data
        )

    def to_json(self, i: int) -> dict[str, Json]:
        """Limits of region ``i`` in p-value and score; None where there is none."""
        p, score = (1.0, *self.edges, 0.0), (None, *self.thresholds, None)
        return {"p_above": p[i + 1], "p_up_to": p[i], "score_from": score[i], "score_below": score[i + 1]}
