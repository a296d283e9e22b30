"""Cuts on observables, written as text."""

from __future__ import annotations

import operator
import re

import numpy as np
import numpy.typing as npt

from unmask.errors import UsageError, nearest
from unmask.events.event_set import EventSet
from unmask.events.observables import OBSERVABLES

_COMPARE = {">=": operator.ge, "<=": operator.le, "==": operator.eq, ">": operator.gt, "<": operator.lt}
_CUT = re.compile(r"\s*(\w+)\s*(>=|<=|==|>|<)\s*([-+.\w]+)\s*")


def passes(events: EventSet, cuts: str) -> npt.NDArray[np.bool_]:
    """Which events (n_events,) pass cuts such as ``met > 200 and n_b_jets >= 2``; momenta are in GeV.

    Raises
    ------
    UsageError
        If a cut cannot be read, or an observable is unknown.
    """
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
