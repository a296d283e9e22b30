"""Observables: numbers that describe a whole event, each with a direction, since new physics is expected at more.

``OBSERVABLES`` is the one registry: summaries, figures, untrained scores, scores files, the tail term of the default
detector and selections take their observables from it. A new observable is one entry.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.errors import UsageError, nearest
from unmask.events.event_set import EventSet

_COMPARE = {">=": operator.ge, "<=": operator.le, "==": operator.eq, ">": operator.gt, "<": operator.lt}
_CUT = re.compile(r"\s*(\w+)\s*(>=|<=|==|>|<)\s*([-+.\w]+)\s*")


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
    function: Callable[[EventSet], npt.NDArray[Any]]
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


def passes(events: EventSet, cuts: str) -> npt.NDArray[np.bool_]:
    """Which events (n_events,) pass cuts such as ``met > 200 and n_b_jets >= 2``; momenta are in GeV."""
    is_kept = np.ones(len(events), np.bool_)
    for cut in re.split(r"\band\b", cuts):
        match = _CUT.fullmatch(cut)
        try:
            name, sign, limit = match.groups() if match else ("", "", "")
            value = float(limit)
        except ValueError:
            raise UsageError(f"cut {cut.strip()!r}; expected OBSERVABLE > NUMBER, several joined by and") from None
        if name not in OBSERVABLES:
            raise UsageError(f"cut {cut.strip()!r}: unknown observable; {nearest(name, OBSERVABLES)}")
        is_kept &= _COMPARE[sign](OBSERVABLES[name].shown(events), value)
    return is_kept
