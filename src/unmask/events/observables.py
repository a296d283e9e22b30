"""Observables: numbers that describe a whole event, each with a direction, since new physics is expected at more.

One registry: summaries, figures, untrained scores, scores files and the tail term of the default detector take
``OBSERVABLES`` from it, cuts also those that serve cuts alone. A new observable is one entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.events.event_set import EventSet
from unmask.events.objects import by_tag

Function = Callable[[EventSet], npt.NDArray[Any]]


@dataclass(frozen=True)
class Observable:
    """One number per event.

    Attributes
    ----------
    name
        Identifier, as in selections and settings.
    label
        What figures and tables call it.
    function
        Values of events; momenta in MeV.
    is_count
        Whether it counts something; otherwise it is a momentum.
    is_combined
        Whether the combinations of untrained scores include it.
    """

    name: str
    label: str
    function: Function
    is_count: bool = False
    is_combined: bool = False

    @property
    def column(self) -> str:
        """Name in scores files, with the unit."""
        return self.name if self.is_count else f"{self.name}_mev"

    @property
    def axis_label(self) -> str:
        """Label with the unit of figures."""
        return self.label if self.is_count else f"{self.label} [GeV]"

    def of(self, events: EventSet) -> npt.NDArray[np.float64]:
        """(n_events,), larger is more."""
        return np.asarray(self.function(events), np.float64)

    def shown(self, events: EventSet) -> npt.NDArray[np.float64]:
        """(n_events,), in the unit of figures: momenta in GeV."""
        return self.of(events) if self.is_count else self.of(events) / 1e3

    def text(self, value: float) -> str:
        """A value with its unit.

        >>> OBSERVABLES["met"].text(123456.0)
        '123 GeV'
        """
        return f"{value:.0f}" if self.is_count else f"{value / 1e3:.0f} GeV"


OBSERVABLES: dict[str, Observable] = {
    one.name: one
    for one in (
        Observable("n_objects", "number of objects", lambda events: events.n_objects, is_count=True, is_combined=True),
        Observable("ht", "HT", lambda events: events.ht_mev, is_combined=True),
        Observable("met", "MET", lambda events: events.met_mev, is_combined=True),
        Observable("n_b_jets", "number of b-jets", lambda events: events.n_b_jets, is_count=True, is_combined=True),
        Observable("n_jets", "number of jets", lambda events: events.n_jets, is_count=True),
        Observable("sum_pt", "sum of pT of all objects", lambda events: events.sum_pt_mev),
    )
}


def _of_families(*families: str) -> tuple[Function, Function]:
    """Number and largest pT of the objects of some families."""
    is_one = np.array(by_tag(lambda one: one.family in families))
    return (
        lambda events: is_one[events.tag].sum(axis=1),
        lambda events: np.where(is_one[events.tag], events.pt_mev, 0).max(axis=1),
    )


#: By plural: families of objects that cuts count, and whose leading one they take.
_COUNTED = {
    "leptons": ("electron", "muon"),
    "electrons": ("electron",),
    "muons": ("muon",),
    "photons": ("photon",),
    "jets": ("jet",),
    "taus": ("tau",),
    "large_r_jets": ("large-R-jet",),
}
_COUNTS = {plural: _of_families(*families) for plural, families in _COUNTED.items()}

#: Names for cuts: they alone use ``n_leptons`` and ``leading_lepton_pt``, and so on.
CUT_OBSERVABLES: dict[str, Observable] = {
    **{f"n_{name}": Observable(f"n_{name}", f"number of {name}", n, is_count=True) for name, (n, _) in _COUNTS.items()},
    **{
        f"leading_{name[:-1]}_pt": Observable(f"leading_{name[:-1]}_pt", f"largest pT of {name}", pt)
        for name, (_, pt) in _COUNTS.items()
    },
    **OBSERVABLES,
}
