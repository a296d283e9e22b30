"""Untrained scores as detectors: whatever is worth its training must beat them."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.artifacts import Json
from unmask.detectors.base import Detector
from unmask.errors import UsageError, nearest
from unmask.events.event_set import EventSet
from unmask.events.fingerprints import fingerprints, random_numbers
from unmask.events.observables import OBSERVABLES
from unmask.scores.p_values import COMBINE, BackgroundTail, Rule

_OBSERVABLES = {name.replace("_", "-"): one for name, one in OBSERVABLES.items()}
_FOUR = {name: one for name, one in _OBSERVABLES.items() if one.is_combined}
_OF_ALL_FOUR: dict[str, Rule] = {"product": "product", "smallest": "or"}
SCORES = (*_OBSERVABLES, *_OF_ALL_FOUR, "random")


@dataclass(eq=False, repr=False)
class UntrainedDetector(Detector):
    """An observable, four of them together, or a random number.

    Parameters
    ----------
    score
        Name of an observable with hyphens, such as "n-objects" or "met" (momenta in MeV); "product" or "smallest",
        minus the logarithm of the product or of the smallest of the p-values of number of objects, HT, MET and number
        of b-jets in training background; or "random", from 0 to 1, a function of the event's content and ``seed`` only.
    """

    kind = "untrained"

    score: str = "product"
    _: KW_ONLY
    seed: int = 0

    def check(self) -> None:
        if self.score not in SCORES:
            raise UsageError(f"unknown score {self.score!r}; {nearest(self.score, SCORES)}")

    def _fit(self, train: EventSet, validation: EventSet, **options: Any) -> None:  # noqa: ARG002
        self.tails_ = {name: BackgroundTail.of(one.function(train)) for name, one in _FOUR.items()}

    def score_events(self, events: EventSet, *, device: str = "auto") -> npt.NDArray[np.float64]:  # noqa: ARG002
        self.check_fitted()
        if self.score in _OBSERVABLES:
            return _OBSERVABLES[self.score].of(events)
        if self.score == "random":
            return random_numbers(fingerprints(events), self.seed)
        minus_log_p = [tail.minus_log_p_of(_FOUR[name].function(events)) for name, tail in self.tails_.items()]
        return COMBINE[_OF_ALL_FOUR[self.score]](np.stack(minus_log_p))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        tails = {key: array for name, tail in self.tails_.items() for key, array in tail.arrays(name).items()}
        return super().arrays() | tails

    def restore(self, arrays: dict[str, npt.NDArray[Any]], metadata: dict[str, Json]) -> None:
        super().restore(arrays, metadata)
        self.tails_ = {name: BackgroundTail.from_arrays(arrays, name) for name in _FOUR}
