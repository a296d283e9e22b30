"""Object selections of ROOT files: one table per format, open to changes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from unmask.errors import UsageError, nearest
from unmask.io import RootFormat

ObjectKind = Literal["electron", "muon", "photon", "tau", "large-R-jet", "jet"]
#: In order of trust: an object near a selected one of an earlier kind is the same particle, seen twice.
OBJECT_KINDS: tuple[ObjectKind, ...] = get_args(ObjectKind)
#: Read unless others are asked for.
DEFAULT_KINDS: tuple[ObjectKind, ...] = ("electron", "muon", "photon", "jet")
#: Made of what jets are made of; it is their distance that jets keep from them.
JET_LIKE_KINDS: tuple[ObjectKind, ...] = ("tau", "large-R-jet")


@dataclass(frozen=True, slots=True)
class ObjectSelection:
    """Selection of one kind of object.

    The three mappings go from a branch of the object (``{"btagDeepFlavB": 0.2783}``) to its limit. Where several
    branches are named the first one that the file has is used; an empty mapping asks for nothing.

    Attributes
    ----------
    min_pt_gev
        The transverse momentum is above this.
    max_abs_eta
        The absolute pseudorapidity is below this.
    isolation
        At most this; relative to the object's pT, also where the file stores it in MeV.
    identification
        At least this.
    b_tag
        Jets above this are b-jets; a tagger that was not run on a jet leaves it to the next one. Delphes stores one bit
        for each working point of its card: there it is the bits of which at least one must be set.
    min_delta_r
        Distance in (eta, phi) to selected objects of earlier kinds; the order is electron, muon, photon, tau, large-R
        jet, jet. From taus and large-R jets, jets keep the distance of these.
    """

    min_pt_gev: float
    max_abs_eta: float
    isolation: Mapping[str, float] = field(default_factory=dict)
    identification: Mapping[str, float] = field(default_factory=dict)
    b_tag: Mapping[str, float] = field(default_factory=dict)
    min_delta_r: float = 0.0


SelectionTable = dict[ObjectKind, ObjectSelection]

#: Thresholds in pT and |eta| are those of the benchmark data in all formats; the rest is each experiment's medium
#: working point (Delphes: its card has isolated the objects and removed overlaps already). Taus are hadronic.
DEFAULT_SELECTIONS: dict[RootFormat, SelectionTable] = {
    "delphes": {
        "electron": ObjectSelection(15, 2.47),
        "muon": ObjectSelection(15, 2.7),
        "photon": ObjectSelection(20, 2.37),
        "tau": ObjectSelection(20, 2.5, identification={"TauTag": 1}, min_delta_r=0.4),
        "large-R-jet": ObjectSelection(200, 2.4, min_delta_r=0.8),
        "jet": ObjectSelection(20, 2.8, b_tag={"BTag": 1}),
    },
    "nanoaod": {
        # The cut-based identifications of electrons and photons contain an isolation.
        "electron": ObjectSelection(15, 2.47, identification={"cutBased": 3}),
        "muon": ObjectSelection(15, 2.7, isolation={"pfRelIso04_all": 0.25}, identification={"mediumId": 1}),
        "photon": ObjectSelection(20, 2.37, identification={"cutBased": 2, "cutBasedBitmap": 2}, min_delta_r=0.4),
        # The first counts working points from 1, the others have a bit for each, also those below.
        "tau": ObjectSelection(
            20,
            2.3,
            identification={"idDeepTau2018v2p5VSjet": 5, "idDeepTau2017v2p1VSjet": 16, "idMVAoldDM": 4},
            min_delta_r=0.4,
        ),
        "large-R-jet": ObjectSelection(200, 2.4, min_delta_r=0.8),
        # Values for 2024, 2022, 2018 and 2015; other years differ a little. jetId is not asked for: files since
        # version 15 lack it.
        "jet": ObjectSelection(
            20,
            2.8,
            b_tag={"btagUParTAK4B": 0.1272, "btagRobustParTAK4B": 0.4319, "btagDeepFlavB": 0.2783, "btagCSVV2": 0.8},
            min_delta_r=0.4,
        ),
    },
    "physlite": {
        "electron": ObjectSelection(
            15,
            2.47,
            isolation={"ptvarcone30_Nonprompt_All_MaxWeightTTVALooseCone_pt1000": 0.15},
            identification={"DFCommonElectronsLHMedium": 1},
        ),
        "muon": ObjectSelection(
            15,
            2.7,
            isolation={"ptvarcone30_Nonprompt_All_MaxWeightTTVA_pt1000": 0.15},
            identification={"quality_level": 2},
        ),
        "photon": ObjectSelection(
            20,
            2.37,
            isolation={"topoetcone20": 0.065},
            identification={"DFCommonPhotonsIsEMTight": 1},
            min_delta_r=0.4,
        ),
        "tau": ObjectSelection(20, 2.5, identification={"GNTauM_v0prune": 1, "JetDeepSetMedium": 1}, min_delta_r=0.4),
        "large-R-jet": ObjectSelection(200, 2.0, min_delta_r=1.0),
        # Discriminants at 77% b-jet efficiency.
        "jet": ObjectSelection(
            20,
            2.8,
            identification={"NNJvtPass": 1, "Jvt": 0.5},
            b_tag={"GN2v01": 0.844, "DL1dv01": 2.456},
            min_delta_r=0.4,
        ),
    },
}


def selection_table(kind: RootFormat, overrides: Mapping[str, Mapping[str, Any]]) -> SelectionTable:
    """Return the default table of a format with the user's changes.

    >>> selection_table("delphes", {"jet": {"min_pt_gev": 30}})["jet"].min_pt_gev
    30.0
    """
    table = dict(DEFAULT_SELECTIONS[kind])
    for name, changes in overrides.items():
        if name not in table:
            raise UsageError(f"selection: unknown object {name!r}; {nearest(name, OBJECT_KINDS)}")
        if not isinstance(changes, Mapping):
            raise UsageError(f"selection of {name}: {changes!r}; accepted: a table such as {{'min_pt_gev': 30}}")
        keys = [field.name for field in fields(ObjectSelection) if field.name != "b_tag" or name == "jet"]
        values: dict[str, Any] = {}
        for key, value in changes.items():
            where = f"selection of {name}: {key}"
            if key not in keys:
                raise UsageError(f"selection of {name}: unknown key {key!r}; {nearest(key, keys)}")
            if key not in ("isolation", "identification", "b_tag"):
                values[key] = _number(where, value)
                continue
            if not isinstance(value, Mapping):
                raise UsageError(f"{where} is {value!r}; accepted: branch and limit, such as {{'btagDeepFlavB': 0.28}}")
            values[key] = {str(branch): _number(f"{where}, {branch}", limit) for branch, limit in value.items()}
        table[name] = replace(table[name], **values)
    b_tag = dict(table["jet"].b_tag)
    if kind == "delphes" and any(bits < 1 or bits != int(bits) for bits in b_tag.values()):
        raise UsageError(f"selection of jet: b_tag is {b_tag}; accepted: bits, such as {{'BTag': 1}}")
    return table


def _number(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UsageError(f"{where} is {value!r}; accepted: a number")
    return float(value)
