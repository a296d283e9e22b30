"""Observables: numbers that describe a whole event, each with a direction, since new physics is expected at more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.events.event_set import EventSet


@dataclass(frozen=True)
class Observable:
    """What it is called, how it is computed, and whether it counts something; momenta are in MeV."""

    label: str
    function: Callable[[EventSet], npt.NDArray[Any]]
    is_count: bool

    def of(self, events: EventSet) -> npt.NDArray[np.float64]:
        """(n_events,), larger is more."""
        return np.asarray(self.function(events), np.float64)

    def text(self, value: float) -> str:
        """A value with its unit.

        >>> OBSERVABLES["met"].text(123456.0)
        '123 GeV'
        """
        return f"{value:.0f}" if self.is_count else f"{value / 1e3:.0f} GeV"


OBSERVABLES: dict[str, Observable] = {
    "n_objects": Observable("number of objects", lambda events: events.n_objects, True),
    "ht": Observable("HT", lambda events: events.ht_mev, False),
    "met": Observable("MET", lambda events: events.met_mev, False),
    "n_b_jets": Observable("number of b-jets", lambda events: events.n_b_jets, True),
    "sum_pt": Observable("sum of pT of all objects", lambda events: events.sum_pt_mev, False),
}
