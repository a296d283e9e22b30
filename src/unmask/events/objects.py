"""The one table of object types, and the units and physical limits of reconstructed objects.

A further type is one row of ``OBJECT_TYPES``, and a branch of the reader that finds such objects.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from unmask.errors import UsageError, nearest

#: Objects kept of an event, those of largest pT, unless more are asked for.
MAX_OBJECTS = 18

#: Tag of an empty slot.
PADDING_TAG = 0
#: Tags are below this.
TAG_LIMIT = 32
#: Type of the MET where the positions of an event have types: beyond all tags, however many there are.
MET_TYPE = TAG_LIMIT


@dataclass(frozen=True)
class ObjectType:
    """A type of reconstructed object.

    Attributes
    ----------
    tag
        Number in events, tables and models: never changed, and used for no other type.
    symbols
        Spellings in text files, the canonical one first.
    name
        Label in figures, tables and messages; models are saved with the names of the types that they know.
    family
        Types of the same particle: jets with and without b-tag, both charges of a lepton.
    charge
        Electric charge.
    is_b_jet
        Whether it is a jet with a b-tag.
    """

    tag: int
    symbols: tuple[str, ...]
    name: str
    family: str
    charge: int = 0
    is_b_jet: bool = False


OBJECT_TYPES = (
    ObjectType(1, ("j",), "jet", family="jet"),
    ObjectType(2, ("b",), "b-jet", family="jet", is_b_jet=True),
    ObjectType(3, ("e-",), "electron", family="electron", charge=-1),
    ObjectType(4, ("e+",), "positron", family="electron", charge=+1),
    ObjectType(5, ("m-", "mu-"), "muon", family="muon", charge=-1),
    ObjectType(6, ("m+", "mu+"), "antimuon", family="muon", charge=+1),
    ObjectType(7, ("g",), "photon", family="photon"),
    ObjectType(8, ("tau", "tau-", "tau+"), "tau", family="tau"),
    ObjectType(9, ("fj",), "large-R-jet", family="large-R-jet"),
)
#: Types that every model knows; it knows others if they are among its training events.
COMMON_TYPES = ("jet", "b-jet", "electron", "positron", "muon", "antimuon", "photon")

#: By tag, rising.
OBJECTS: dict[int, ObjectType] = {one.tag: one for one in OBJECT_TYPES}
#: By name.
TAGS: dict[str, int] = {one.name: one.tag for one in OBJECT_TYPES}
#: Kinds of objects, by which they are selected.
FAMILIES = tuple(dict.fromkeys(one.family for one in OBJECT_TYPES))
#: Every accepted spelling of an object in a text file -> tag.
SYMBOL_TAGS: dict[str, int] = {symbol: one.tag for one in OBJECT_TYPES for symbol in one.symbols}
KNOWN_TAGS = ", ".join(f"{tag} {one.name}" for tag, one in OBJECTS.items())

#: Tags of electrons and muons: one row per family, negative and positive.
LEPTON_TAGS = tuple(
    tuple(next(one.tag for one in OBJECT_TYPES if (one.family, one.charge) == (family, charge)) for charge in (-1, +1))
    for family in ("electron", "muon")
)


def tags_of(names: Iterable[str]) -> list[int]:
    """Tags of the types with these names, or of these families.

    >>> tags_of(["jet", "positron"])
    [1, 2, 4]
    """
    names = list(names)
    for name in names:
        if name not in (*TAGS, *FAMILIES):
            raise UsageError(f"unknown object {name!r}; {nearest(name, TAGS)}")
    return [one.tag for one in OBJECT_TYPES if one.name in names or one.family in names]


def by_tag(holds: Callable[[ObjectType], bool]) -> tuple[bool, ...]:
    """(33,): for each tag, whether ``holds`` is true of its type; False for padding and MET.

    >>> [tag for tag, is_positive in enumerate(by_tag(lambda one: one.charge > 0)) if is_positive]
    [4, 6]
    """
    return tuple(tag in OBJECTS and holds(OBJECTS[tag]) for tag in range(TAG_LIMIT + 1))


IS_JET = by_tag(lambda one: one.family == "jet")
IS_B_JET = by_tag(lambda one: one.is_b_jet)

Unit = Literal["MeV", "GeV", "log-MeV", "log-GeV"]
UNITS: tuple[Unit, ...] = get_args(Unit)

# What a reconstructed LHC object can be. The energy limits also unmask wrong units: a value in GeV read as
# MeV falls below the first, a value in MeV read as GeV lies above the second.
MIN_PT_MEV = 1e3
MAX_ENERGY_MEV = 14e6
MAX_ABS_ETA = 10.0
#: phi is given on [-pi, pi]; files round it, so a little more is accepted.
MAX_ABS_PHI = math.pi + 1e-3
#: E / (pT cosh eta) is 1 for a massless object; far away, E and pT are not in the same unit.
ENERGY_OVER_MOMENTUM = (0.5, 100.0)
