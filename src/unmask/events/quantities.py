"""Numbers that describe a whole event, each with a direction: new physics is expected where there is more of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from unmask.events.event_set import EventSet

QuantityName = Literal[
    "n_objects", "n_jets", "n_b_jets", "n_leptons", "lepton_charge", "n_photons", "ht", "met", "lepton_pt"
]


@dataclass(frozen=True)
class Quantity:
    """What it is called, how it is computed, and whether it counts something; energies are in MeV."""

    words: str
    value: Callable[[EventSet], npt.NDArray[Any]]
    is_count: bool

    def of(self, events: EventSet) -> npt.NDArray[np.float64]:
        """(n_events,), larger is more."""
        return np.asarray(self.value(events), np.float64)

    def show(self, value: float) -> str:
        """A value in words."""
        return f"{value:.0f}" if self.is_count else f"{value / 1e3:.0f} GeV"


def _is_lepton(events: EventSet) -> npt.NDArray[np.bool_]:
    return np.asarray((events.tag >= 3) & (events.tag <= 6))


def _charge(events: EventSet) -> npt.NDArray[np.int64]:
    """Charges of electrons and muons, (n_events, objects); of other objects 0."""
    return np.where(_is_lepton(events), np.where(events.tag % 2 == 0, 1, -1), 0)


QUANTITIES: dict[QuantityName, Quantity] = {
    "n_objects": Quantity("objects", lambda events: events.n_objects, True),
    "n_jets": Quantity("jets without b-tag", lambda events: (events.tag == 1).sum(axis=1), True),
    "n_b_jets": Quantity("b-jets", lambda events: events.n_b_jets, True),
    "n_leptons": Quantity("electrons and muons", lambda events: _is_lepton(events).sum(axis=1), True),
    "lepton_charge": Quantity("net lepton charge", lambda events: np.abs(_charge(events).sum(axis=1)), True),
    "n_photons": Quantity("photons", lambda events: (events.tag == 7).sum(axis=1), True),
    "ht": Quantity("HT", lambda events: events.ht_mev, False),
    "met": Quantity("MET", lambda events: events.met_mev, False),
    "lepton_pt": Quantity(
        "sum of lepton pT",
        lambda events: np.where(_is_lepton(events), events.pt_mev, 0).sum(axis=1, dtype=np.float64),
        False,
    ),
}
