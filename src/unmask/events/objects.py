"""The one table of object tags, symbols, units and physical limits."""

from __future__ import annotations

import math
from typing import Literal

MAX_OBJECTS = 18

#: Tag of an empty slot.
PADDING_TAG = 0

#: tag -> (canonical symbol, name in words); the tag follows the charge in the symbol.
OBJECTS: dict[int, tuple[str, str]] = {
    1: ("j", "jet"),
    2: ("b", "b-jet"),
    3: ("e-", "electron"),
    4: ("e+", "positron"),
    5: ("m-", "muon"),
    6: ("m+", "antimuon"),
    7: ("g", "photon"),
}
N_TAGS = len(OBJECTS)

#: Every accepted spelling of an object in a text file -> tag.
SYMBOL_TAGS: dict[str, int] = {symbol: tag for tag, (symbol, _) in OBJECTS.items()} | {"mu-": 5, "mu+": 6}

Unit = Literal["MeV", "GeV", "log-MeV", "log-GeV"]
UNITS: tuple[Unit, ...] = ("MeV", "GeV", "log-MeV", "log-GeV")

# What a reconstructed LHC object can be. The energy limits also unmask wrong units: a value in GeV read as
# MeV falls below the first, a value in MeV read as GeV lies above the second.
MIN_PT_MEV = 1e3
MAX_ENERGY_MEV = 14e6
MAX_ABS_ETA = 10.0
#: phi is given on [-pi, pi]; files round it, so a little more is accepted.
MAX_ABS_PHI = math.pi + 1e-3
#: E / (pT cosh eta) is 1 for a massless object; far away, E and pT are not in the same unit.
ENERGY_OVER_MOMENTUM = (0.5, 100.0)
