"""Layouts of Delphes, CMS NanoAOD and ATLAS PHYSLITE files.

Delphes trees and NanoAOD, version 9 and earlier (MET) and version 12 and later (PuppiMET), are in GeV. PHYSLITE is in
MeV and holds no final missing transverse energy, only its soft term: as in the experiment's own recipe the MET is the
soft term from tracks minus all selected objects, where jets count out to |eta| 4.5. Hadronic taus count as jets.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from unmask.errors import BadDataError
from unmask.io import RootFormat
from unmask.io.record import FileRecord
from unmask.io.root_file import Entries
from unmask.io.root_objects import AnyArray, FloatArray, Layout, select_objects
from unmask.io.selections import SelectionTable

#: Taggers that came with PUPPI jets; the MET that belongs to such jets is PUPPI's, though some files hold both.
_TAGGERS_OF_PUPPI_JETS = ("Jet_btagPNetB", "Jet_btagRobustParTAK4B", "Jet_btagUParTAK4B")
_SOFT_TERM = "MET_Core_AnalysisMETAuxDyn."
#: Bit of the source word that marks a term made from tracks.
_TRACK_BIT = 0x4000
_MIN_JET_PT_GEV, _MAX_JET_ABS_ETA = 20.0, 4.5
_B_TAGGING = "BTagging_AntiKt4EMPFlowAuxDyn."
#: The mixture that b-jets are told from, by tagger.
_FRACTIONS = {"GN2v01": {"c": 0.2, "tau": 0.01, "u": 0.79}, "DL1dv01": {"c": 0.018, "u": 0.982}}


def _delphes_met(entries: Entries, _: SelectionTable) -> tuple[str, AnyArray, AnyArray]:
    return "MissingET.MET", entries.values("MissingET.MET"), entries.values("MissingET.Phi")


def _nanoaod_met(entries: Entries, _: SelectionTable) -> tuple[str, AnyArray, AnyArray]:
    has_puppi_jets = any(tagger in entries for tagger in _TAGGERS_OF_PUPPI_JETS)
    name = "PuppiMET" if has_puppi_jets or "MET_pt" not in entries else "MET"
    return f"{name}_pt", entries.values(f"{name}_pt"), entries.values(f"{name}_phi")


def _physlite_met(entries: Entries, table: SelectionTable) -> tuple[str, FloatArray, FloatArray]:
    counts, term = entries.lists(_SOFT_TERM + "source")
    is_track = (term.astype(np.int64) & _TRACK_BIT) != 0
    event = np.repeat(np.arange(len(entries)), counts)[is_track]
    if not np.array_equal(event, np.arange(len(entries))):
        n_terms = np.bincount(event, minlength=len(entries))
        entry = int(np.flatnonzero(n_terms != 1)[0])
        message = f"{n_terms[entry]} soft MET terms from tracks; accepted: one"
        raise BadDataError(message, path=entries.tree.path, where=f"entry {entries.start + entry}")
    x, y = (entries.lists(_SOFT_TERM + name, like=counts)[1][is_track].astype(np.float64) for name in ("mpx", "mpy"))
    jets = replace(table["jet"], min_pt_gev=_MIN_JET_PT_GEV, max_abs_eta=_MAX_JET_ABS_ETA)
    for objects in select_objects(
        entries, LAYOUTS["physlite"], {**table, "jet": jets}, FileRecord(entries.tree.path)
    ).values():
        for sum_, project in ((x, np.cos), (y, np.sin)):
            sum_ -= np.bincount(objects.event, objects.pt_mev * project(objects.phi), minlength=len(entries))
    return f"{_SOFT_TERM[:-1]} minus objects", np.hypot(x, y), np.arctan2(y, x)


def _discriminant(entries: Entries, tagger: str) -> FloatArray:
    """Log-likelihood ratio of b-jets to a mixture of other flavours, per jet; NaN for a jet without a link."""
    counts, _ = entries.lists("AnalysisJetsAuxDyn.pt")
    _, index = entries.lists("AnalysisJetsAuxDyn.btaggingLink.m_persIndex", like=counts)
    n_linked, b = entries.lists(f"{_B_TAGGING}{tagger}_pb")
    other = np.zeros(len(b))
    for name, fraction in _FRACTIONS[tagger].items():
        other += fraction * entries.lists(f"{_B_TAGGING}{tagger}_p{name}", like=n_linked)[1]
    score = np.append(np.log(b / other), np.nan)
    is_linked = index < np.repeat(n_linked, counts)
    first = np.repeat(np.cumsum(n_linked) - n_linked, counts)
    return score[np.where(is_linked, first + index, -1).astype(np.int64)]


def _quality_level(entries: Entries) -> npt.NDArray[np.int64]:
    """3 for a tight muon, 2 medium, 1 loose, 0 very loose; the file counts the other way, in the two lowest bits."""
    counts, _ = entries.lists("AnalysisMuonsAuxDyn.pt")
    return 3 - (entries.lists("AnalysisMuonsAuxDyn.quality", like=counts)[1].astype(np.int64) & 3)


LAYOUTS: dict[RootFormat, Layout] = {
    "delphes": Layout(
        unit="GeV",
        prefixes={
            "electron": "Electron.",
            "muon": "Muon.",
            "photon": "Photon.",
            "jet": "Jet.",
            "tau": "Jet.",
            "large-R-jet": "FatJet.",
        },
        columns={"pt": "PT", "eta": "Eta", "phi": "Phi", "mass": "Mass", "charge": "Charge"},
        event_id="Event.Number[0]",
        weight="Event.Weight[0]",
        met=_delphes_met,
        b_tag_is_bits=True,
    ),
    "nanoaod": Layout(
        unit="GeV",
        prefixes={
            "electron": "Electron_",
            "muon": "Muon_",
            "photon": "Photon_",
            "jet": "Jet_",
            "tau": "Tau_",
            "large-R-jet": "FatJet_",
        },
        columns={"pt": "pt", "eta": "eta", "phi": "phi", "mass": "mass", "charge": "charge"},
        event_id="event",
        further={"run": "run", "luminosity_block": "luminosityBlock"},
        weight="genWeight",
        sums_of_weights=("genEventSumw", "genEventSumw_"),
        met=_nanoaod_met,
        min_b_score=0.0,
    ),
    "physlite": Layout(
        unit="MeV",
        prefixes={
            "electron": "AnalysisElectronsAuxDyn.",
            "muon": "AnalysisMuonsAuxDyn.",
            "photon": "AnalysisPhotonsAuxDyn.",
            "jet": "AnalysisJetsAuxDyn.",
            "tau": "AnalysisTauJetsAuxDyn.",
            "large-R-jet": "AnalysisLargeRJetsAuxDyn.",
        },
        columns={"pt": "pt", "eta": "eta", "phi": "phi", "mass": "m", "charge": "charge"},
        event_id="EventInfoAuxDyn.eventNumber",
        further={"run": "EventInfoAuxDyn.runNumber", "luminosity_block": "EventInfoAuxDyn.lumiBlock"},
        weight="EventInfoAuxDyn.mcEventWeights[0]",
        met=_physlite_met,
        derived={
            ("jet", "GN2v01"): (f"{_B_TAGGING}GN2v01_pb", partial(_discriminant, tagger="GN2v01")),
            ("jet", "DL1dv01"): (f"{_B_TAGGING}DL1dv01_pb", partial(_discriminant, tagger="DL1dv01")),
            ("muon", "quality_level"): ("AnalysisMuonsAuxDyn.quality", _quality_level),
        },
        isolation_is_absolute=True,
    ),
}
