"""Checks of events: an unusable one is an error, or a counted skip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.errors import BadDataError
from unmask.events.build import FlatEvents
from unmask.events.event_set import OBJECT_COLUMNS
from unmask.events.objects import ENERGY_OVER_MOMENTUM, MAX_ABS_ETA, MAX_ABS_PHI, MAX_ENERGY_MEV, MIN_PT_MEV

BoolArray = npt.NDArray[np.bool_]

#: With fewer events the unit of the MET column is not checked.
MIN_EVENTS_FOR_MET_UNIT = 20


#: Weights whose squares can be added up.
WEIGHTS = "0, or a number of size 1e-100 to 1e100"


def is_weight(values: npt.NDArray[np.floating[Any]]) -> BoolArray:
    """Which numbers (n_events,) can be weights of events: not NaN, and neither so large nor so small as to overflow."""
    size = np.abs(values)
    return np.asarray((size == 0) | ((size >= 1e-100) & (size <= 1e100)))


@dataclass
class BadEvents:
    """Collects bad events when ``skip`` is set; otherwise the first one is raised as an error."""

    skip: bool = False
    reasons: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, error: BadDataError, n_events: int = 1) -> None:
        """Count ``n_events`` bad events; ``error`` describes the first."""
        if not self.skip:
            raise error
        self.reasons[reason] += n_events
        self.examples.setdefault(reason, str(error))

    @property
    def n_skipped(self) -> int:
        return self.reasons.total()

    def summary(self) -> list[str]:
        """One line per reason: how often, and the first example."""
        return [f"{n:,} x {reason} (first: {self.examples[reason]})" for reason, n in self.reasons.most_common()]


def _energy_matches_momentum(flat: FlatEvents) -> BoolArray:
    # In single precision, as events are kept: one that passes here passes again when read back from Parquet.
    energy, pt, eta = (column.astype(np.float32) for column in (flat.energy_mev, flat.pt_mev, flat.eta))
    momentum = pt * np.cosh(np.clip(eta, -MAX_ABS_ETA, MAX_ABS_ETA))
    low, high = ENERGY_OVER_MOMENTUM
    return np.asarray((energy >= low * momentum) & (energy <= high * momentum))


_HINT = "if the file is not in MeV, declare its unit"
_ETA, _PHI = f"-{MAX_ABS_ETA:g} to {MAX_ABS_ETA:g}", "-pi to pi"
_TOGETHER = "an energy of the size of pT cosh(eta): E and pT must be in the same unit"
#: Reason, column, its limits or what holds for good values (and never for NaN), and what is accepted.
_RULES: tuple[tuple[str, str, tuple[float, float] | Callable[[FlatEvents], BoolArray], str], ...] = (
    ("bad weight", "weight", lambda flat: is_weight(flat.weight), WEIGHTS),
    ("bad MET", "met_mev", (0, MAX_ENERGY_MEV), f"0 to 14 TeV in MeV; {_HINT}"),
    ("bad MET phi", "met_phi", (-MAX_ABS_PHI, MAX_ABS_PHI), _PHI),
    ("bad energy", "energy_mev", (1, MAX_ENERGY_MEV), f"1 MeV to 14 TeV; {_HINT}"),
    ("bad pT", "pt_mev", (MIN_PT_MEV, MAX_ENERGY_MEV), f"1 GeV to 14 TeV in MeV; {_HINT}"),
    ("bad eta", "eta", (-MAX_ABS_ETA, MAX_ABS_ETA), _ETA),
    ("bad phi", "phi", (-MAX_ABS_PHI, MAX_ABS_PHI), _PHI),
    ("mixed units", "energy_mev", _energy_matches_momentum, _TOGETHER),
)


def check_events(flat: FlatEvents, *, path: Path | str, place: Callable[[int], str], bad: BadEvents) -> FlatEvents:
    """Return the good events; each bad one goes to ``bad`` under the first rule that it breaks.

    ``place`` turns an index into ``flat`` into words, such as "line 12".
    """
    is_bad: BoolArray = np.zeros(len(flat), np.bool_)
    broken: list[tuple[int, int, str, str]] = []  # first event, number of events, reason, message
    # Values that cannot be compared or multiplied are what we look for: they break a rule, silently.
    with np.errstate(invalid="ignore", over="ignore"):
        for reason, column, good, accepted in _RULES:
            values = getattr(flat, column)
            breaks = ~(good(flat) if callable(good) else (values >= good[0]) & (values <= good[1]))
            if not breaks.any():
                continue
            index = np.flatnonzero(breaks)
            events = flat.event_of_object[index] if column in OBJECT_COLUMNS else index
            is_new = ~is_bad[events]
            if is_new.any():
                new_events = np.unique(events[is_new])
                value = values[index[is_new][0]]
                # No other unit turns the sign of a momentum.
                accepted = accepted.removesuffix(f"; {_HINT}") if value < 0 else accepted
                message = f"{column} is {value:.6g}; accepted: {accepted}"
                broken.append((int(new_events[0]), len(new_events), reason, message))
                is_bad[new_events] = True
    for event, n_events, reason, message in sorted(broken, key=lambda one: one[0]):
        bad.add(reason, BadDataError(message, path=path, where=place(event)), n_events)
    if is_bad.any():
        flat = flat.keep(~is_bad)
    # MET can be small in one event, but hardly below 1 GeV in more events than from 1 to 3 GeV: then it is in another
    # unit than the objects, in all events or in some.
    is_small = (flat.met_mev > 0) & (flat.met_mev < MIN_PT_MEV)
    n_small, n_met = np.count_nonzero(is_small), np.count_nonzero(flat.met_mev > 0)
    n_next = np.count_nonzero((flat.met_mev >= MIN_PT_MEV) & (flat.met_mev < 3 * MIN_PT_MEV))
    if n_small >= MIN_EVENTS_FOR_MET_UNIT and n_small > max(n_next, 0.01 * n_met):
        raise BadDataError(
            f"mixed units: {n_small:,} of {n_met:,} events with MET have less than 1 GeV (median "
            f"{np.median(flat.met_mev[is_small]):.4g} MeV), and {n_next:,} from 1 to 3 GeV; MET and pT must be in the "
            "same unit",
            path=path,
        )
    return flat
