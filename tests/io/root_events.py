"""Small ROOT files in the branch layouts of Delphes, CMS NanoAOD and ATLAS PHYSLITE, as TTree or RNTuple.

All three hold the same seven events (N_EVENTS), in the unit of their format.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import awkward as ak
import numpy as np
import uproot

Storage = Literal["ttree", "rntuple"]
#: Collection -> column -> values; columns of the collection "" stand alone.
Groups = dict[str, dict[str, Any]]

N_EVENTS = 7
EVENT_ID = np.array([101, 102, 103, 104, 105, 106, 107])
RUN = np.array([315257, 315257, 315257, 315258, 315258, 315258, 315259])
LUMINOSITY_BLOCK = np.array([1, 2, 90, 5, 5, 6, 1])
WEIGHT = np.array([0.5, 1.5, -1.0, 2.0, 1.0, 1.0, 1.0])
MET_GEV = np.array([55.0, 20.0, 130.0, 5.0, 80.0, 41.0, 33.0])
MET_PHI = np.array([0.1, -3.0, 1.5, 3.1, -1.0, 2.0, 0.0])

JET = {
    "pt": ak.Array([[120.0, 60.0, 25.0], [40.0], [], [200.0, 90.0], [35.0], [300.0, 50.0], [45.0]]),
    "eta": ak.Array([[0.5, -1.0, 2.0], [-2.2], [], [0.0, 1.0], [1.5], [-0.3, 0.3], [0.0]]),
    "phi": ak.Array([[0.0, 2.0, -2.0], [1.0], [], [3.0, -3.0], [0.5], [-1.5, 1.6], [0.7]]),
    "mass": ak.Array([[12.0, 8.0, 4.0], [5.0], [], [20.0, 9.0], [5.0], [40.0, 6.0], [7.0]]),
}
IS_B = ak.Array([[True, False, True], [False], [], [False, True], [False], [True, True], [False]])
ELECTRON = {
    "pt": ak.Array([[30.0], [], [22.0, 50.0], [], [], [], [18.0]]),
    "eta": ak.Array([[-1.0], [], [0.2, -0.4], [], [], [], [2.0]]),
    "phi": ak.Array([[1.0], [], [-0.5, 2.5], [], [], [], [-2.0]]),
    "charge": ak.Array([[-1], [], [1, -1], [], [], [], [1]]),
}
MUON = {
    "pt": ak.Array([[], [70.0], [], [16.0, 33.0], [], [], []]),
    "eta": ak.Array([[], [2.5], [], [-0.1, 1.1], [], [], []]),
    "phi": ak.Array([[], [-1.0], [], [1.0, -1.0], [], [], []]),
    "charge": ak.Array([[], [1], [], [-1, 1], [], [], []]),
}
PHOTON = {
    "pt": ak.Array([[], [], [], [], [66.0], [], []]),
    "eta": ak.Array([[], [], [], [], [-1.7], [], []]),
    "phi": ak.Array([[], [], [], [], [-2.5], [], []]),
}
#: Candidates for hadronic taus, each of which is a jet too; the first is identified.
TAU = {
    "pt": ak.Array([[60.0], [], [], [], [35.0], [], []]),
    "eta": ak.Array([[-1.0], [], [], [], [1.5], [], []]),
    "phi": ak.Array([[2.0], [], [], [], [0.5], [], []]),
    "mass": ak.Array([[8.0], [], [], [], [5.0], [], []]),
}
IS_TAU = ak.Array([[True], [], [], [], [False], [], []])
#: Near an electron, around the first jet, around the first jet, and soft.
LARGE_R_JET = {
    "pt": ak.Array([[], [], [220.0], [260.0], [], [310.0, 150.0], []]),
    "eta": ak.Array([[], [], [0.2], [-0.1], [], [-0.2, 0.3], []]),
    "phi": ak.Array([[], [], [0.0], [3.0], [], [-1.4, 1.6], []]),
    "mass": ak.Array([[], [], [70.0], [80.0], [], [120.0, 9.0], []]),
}
#: tag of each object, in the order of an event set.
TAGS = [[1, 2, 2, 3], [1, 6], [3, 4], [1, 2, 5, 6], [1, 7], [2, 2], [1, 4]]
#: The same where taus and large-R jets are read too, which take the place of jets.
TAGS_WITH_ALL = [[2, 2, 3, 8], [1, 6], [3, 4], [2, 5, 6, 9], [1, 7], [2, 9], [1, 4]]


def delphes() -> Groups:
    """Columns of a Delphes tree, energies in GeV."""
    one = np.ones(N_EVENTS, np.int64)
    names = {"pt": "PT", "eta": "Eta", "phi": "Phi", "mass": "Mass", "charge": "Charge"}

    def named(columns: dict[str, Any]) -> dict[str, Any]:
        return {names[name]: values for name, values in columns.items()}

    return {
        "Event": {"Number": ak.unflatten(EVENT_ID, one), "Weight": ak.unflatten(WEIGHT, one)},
        "Jet": named(JET)
        | {"BTag": ak.values_astype(IS_B, np.uint32), "TauTag": ak.values_astype(JET["pt"] == 60, np.uint32)},
        "FatJet": named(LARGE_R_JET),
        "Electron": named(ELECTRON) | {"IsolationVar": ELECTRON["pt"] * 0},
        "Muon": named(MUON) | {"IsolationVar": MUON["pt"] * 0},
        "Photon": named(PHOTON) | {"E": PHOTON["pt"] * np.cosh(PHOTON["eta"])},
        "MissingET": {"MET": ak.unflatten(MET_GEV, one), "Eta": ak.unflatten(one * 0.0, one)}
        | {"Phi": ak.unflatten(MET_PHI, one)},
    }


def nanoaod(version: Literal[9, 12, 15] = 9) -> Groups:
    """Columns of a NanoAOD tree, energies in GeV. Version 12 holds both MET and PuppiMET, later ones no MET."""
    score = ak.where(IS_B, 0.9, 0.01)
    jet = JET | {9: {"btagDeepFlavB": score}, 12: {"btagDeepFlavB": 1 - score, "btagRobustParTAK4B": score}}.get(
        version, {"btagPNetB": 1 - score, "btagUParTAK4B": score}
    )
    met = {"pt": MET_GEV, "phi": MET_PHI}
    wrong_met = {"pt": MET_GEV + 7, "phi": -MET_PHI}
    groups: Groups = {
        "": {"event": EVENT_ID.astype(np.uint64), "genWeight": WEIGHT}
        | {"run": RUN.astype(np.uint32), "luminosityBlock": LUMINOSITY_BLOCK.astype(np.uint32)},
        "Jet": jet,
        "Electron": ELECTRON | {"cutBased": ak.values_astype(ELECTRON["pt"] * 0 + 4, np.int32)},
        "Muon": MUON | {"mediumId": MUON["pt"] > 0, "pfRelIso04_all": MUON["pt"] * 0},
        "Photon": PHOTON | {"cutBased": ak.values_astype(PHOTON["pt"] * 0 + 3, np.int32)},
        "Tau": TAU | {"idDeepTau2017v2p1VSjet": ak.values_astype(ak.where(IS_TAU, 31, 15), np.uint8)},
        "FatJet": LARGE_R_JET,
        "PuppiMET": wrong_met if version == 9 else met,
    }
    if version <= 12:
        groups["MET"] = met if version == 9 else wrong_met
    return groups


def physlite() -> Groups:
    """Columns of a PHYSLITE tree, energies in MeV; the soft term makes up for the objects, so that MET is MET_GEV."""

    def in_mev(columns: dict[str, Any]) -> dict[str, Any]:
        names = {name: "m" if name == "mass" else name for name in columns}
        return {names[name]: values * 1e3 if name in ("pt", "mass") else values for name, values in columns.items()}

    def zeros(values: Any) -> Any:
        return values["pt"] * 0

    soft = {"mpx": MET_GEV * np.cos(MET_PHI), "mpy": MET_GEV * np.sin(MET_PHI)}
    for objects in (JET, ELECTRON, MUON, PHOTON):
        soft["mpx"] = soft["mpx"] + ak.to_numpy(ak.sum(objects["pt"] * np.cos(objects["phi"]), axis=1))
        soft["mpy"] = soft["mpy"] + ak.to_numpy(ak.sum(objects["pt"] * np.sin(objects["phi"]), axis=1))
    n_jets = ak.num(JET["pt"])
    probability = ak.where(IS_B, 0.98, 0.01)[:, ::-1]  # b-tagging results stand in another order than the jets
    return {
        "EventInfoAuxDyn": {
            "eventNumber": EVENT_ID.astype(np.uint64),
            "runNumber": RUN.astype(np.uint32),
            "lumiBlock": LUMINOSITY_BLOCK.astype(np.uint32),
            "mcEventWeights": ak.Array([[weight, 99.0] for weight in WEIGHT]),
        },
        "AnalysisJetsAuxDyn": in_mev(JET)
        | {
            "NNJvtPass": ak.values_astype(zeros(JET) + 1, np.int8),
            "btaggingLink.m_persIndex": ak.values_astype(n_jets - 1 - ak.local_index(JET["pt"]), np.uint32),
        },
        "BTagging_AntiKt4EMPFlowAuxDyn": {
            "DL1dv01_pb": probability,
            "DL1dv01_pc": (1 - probability) / 2,
            "DL1dv01_pu": (1 - probability) / 2,
        },
        "AnalysisElectronsAuxDyn": in_mev(ELECTRON)
        | {
            "DFCommonElectronsLHMedium": ak.values_astype(zeros(ELECTRON) + 1, np.int8),
            "ptvarcone30_Nonprompt_All_MaxWeightTTVALooseCone_pt1000": zeros(ELECTRON),
        },
        "AnalysisMuonsAuxDyn": in_mev(MUON)
        | {
            "quality": ak.values_astype(zeros(MUON) + 9, np.uint8),
            "ptvarcone30_Nonprompt_All_MaxWeightTTVA_pt1000": zeros(MUON),
        },
        "AnalysisPhotonsAuxDyn": in_mev(PHOTON)
        | {
            "DFCommonPhotonsIsEMTight": ak.values_astype(zeros(PHOTON) + 1, np.int8),
            "topoetcone20": zeros(PHOTON),
        },
        "AnalysisTauJetsAuxDyn": in_mev(TAU) | {"JetDeepSetMedium": ak.values_astype(IS_TAU, np.int8)},
        "AnalysisLargeRJetsAuxDyn": in_mev(LARGE_R_JET),
        "MET_Core_AnalysisMETAuxDyn": {
            "source": ak.Array([[0x11020, 0x14020]] * N_EVENTS),
            "mpx": ak.Array([[9e5, value * 1e3] for value in soft["mpx"]]),
            "mpy": ak.Array([[9e5, value * 1e3] for value in soft["mpy"]]),
        },
    }


TREE_NAMES = {"delphes": "Delphes", "nanoaod": "Events", "physlite": "CollectionTree"}
GROUPS = {"delphes": delphes, "nanoaod": nanoaod, "physlite": physlite}


def write(path: Path, kind: str, groups: Groups | None = None, storage: Storage = "ttree", tree: str = "") -> Path:
    """Write the columns as the format lays them out."""
    groups = GROUPS[kind]() if groups is None else groups
    tree = tree or TREE_NAMES[kind]
    with uproot.recreate(path) as file:
        add_tree(file, tree, kind, groups, storage)
    return path


def add_tree(file: Any, tree: str, kind: str, groups: Groups, storage: Storage) -> None:
    """Write one more tree into an open file."""
    # Delphes and NanoAOD share a counter among the columns of a collection, PHYSLITE has a vector for each column; in
    # an RNTuple Delphes collections are vectors of records, and a dot is not allowed in a name.
    is_zipped = {"ttree": ("delphes", "nanoaod"), "rntuple": ("delphes",)}[storage]
    separator = {"delphes": ".", "nanoaod": "_", "physlite": "." if storage == "ttree" else ":"}[kind]
    columns: dict[str, Any] = {}
    for group, values in groups.items():
        if kind in is_zipped and group and isinstance(next(iter(values.values())), ak.Array):
            columns[group] = ak.zip(values)
        else:
            columns |= {f"{group}{separator}{name}" if group else name: column for name, column in values.items()}
    if storage == "rntuple":
        index = columns.pop("AnalysisJetsAuxDyn:btaggingLink.m_persIndex", None)
        if index is not None:
            columns["AnalysisJetsAuxDyn:btaggingLink"] = ak.zip({"m_persKey": index * 0, "m_persIndex": index})
        file[tree] = columns
        return
    counter = {"delphes": "{}_size", "nanoaod": "n{}", "physlite": "n{}"}[kind]
    types = {
        name: values.type.content if isinstance(values, ak.Array) else values.dtype for name, values in columns.items()
    }
    file.mktree(
        tree,
        types,
        counter_name=counter.format,
        field_name=lambda outer, inner: f"{outer}{separator}{inner}" if inner else outer,
    )
    file[tree].extend(columns)
