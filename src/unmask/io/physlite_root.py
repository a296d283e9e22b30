"""ATLAS PHYSLITE: the calibrated Analysis containers, energies in MeV.

The files hold no final missing transverse energy, only its soft term. As in the experiment's own recipe the MET is the
soft term from tracks minus all selected objects, where jets count out to |eta| 4.5. Hadronic taus count as jets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from unmask.errors import BadDataError
from unmask.io.root_file import Entries
from unmask.io.root_objects import Derived, FloatArray, Layout, select_objects, stream_root
from unmask.io.selections import SelectionTable
from unmask.io.source import Chunk, Source

_SOFT_TERM = "MET_Core_AnalysisMETAuxDyn."
#: Bit of the source word that marks a term made from tracks.
_TRACK_BIT = 0x4000
_MIN_JET_PT_GEV, _MAX_JET_ABS_ETA = 20.0, 4.5
_B_TAGGING = "BTagging_AntiKt4EMPFlowAuxDyn."


def stream(source: Source) -> Iterator[Chunk]:
    """Yield the events of a file, some entries at a time."""
    yield from stream_root(source, LAYOUT)


def _met(entries: Entries, table: SelectionTable) -> tuple[FloatArray, FloatArray]:
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
    for objects in select_objects(entries, LAYOUT, {**table, "jet": jets}).values():
        for sum_, project in ((x, np.cos), (y, np.sin)):
            sum_ -= np.bincount(objects.event, objects.pt_mev * project(objects.phi), minlength=len(entries))
    return np.hypot(x, y), np.arctan2(y, x)


def _discriminant(entries: Entries, tagger: str, fractions: dict[str, float]) -> FloatArray:
    """Log-likelihood ratio of b-jets to a mixture of other flavours, per jet; NaN for a jet without a link."""
    counts, _ = entries.lists("AnalysisJetsAuxDyn.pt")
    _, index = entries.lists("AnalysisJetsAuxDyn.btaggingLink.m_persIndex", like=counts)
    n_linked, b = entries.lists(f"{_B_TAGGING}{tagger}_pb")
    other = np.zeros(len(b))
    for name, fraction in fractions.items():
        other += fraction * entries.lists(f"{_B_TAGGING}{tagger}_p{name}", like=n_linked)[1]
    score = np.append(np.log(b / other), np.nan)
    is_linked = index < np.repeat(n_linked, counts)
    first = np.repeat(np.cumsum(n_linked) - n_linked, counts)
    return score[np.where(is_linked, first + index, -1).astype(np.int64)]


def _gn2(entries: Entries) -> FloatArray:
    return _discriminant(entries, "GN2v01", {"c": 0.2, "tau": 0.01, "u": 0.79})


def _dl1d(entries: Entries) -> FloatArray:
    return _discriminant(entries, "DL1dv01", {"c": 0.018, "u": 0.982})


def _quality_level(entries: Entries) -> npt.NDArray[np.int64]:
    """3 for a tight muon, 2 medium, 1 loose, 0 very loose; the file counts the other way, in the two lowest bits."""
    counts, _ = entries.lists("AnalysisMuonsAuxDyn.pt")
    return 3 - (entries.lists("AnalysisMuonsAuxDyn.quality", like=counts)[1].astype(np.int64) & 3)


LAYOUT = Layout(
    kind="physlite",
    unit="MeV",
    prefixes={
        "electron": "AnalysisElectronsAuxDyn.",
        "muon": "AnalysisMuonsAuxDyn.",
        "photon": "AnalysisPhotonsAuxDyn.",
        "jet": "AnalysisJetsAuxDyn.",
    },
    columns={"pt": "pt", "eta": "eta", "phi": "phi", "mass": "m", "charge": "charge"},
    event_id="EventInfoAuxDyn.eventNumber",
    weight="EventInfoAuxDyn.mcEventWeights",
    met=_met,
    derived={
        ("jet", "GN2v01"): Derived(f"{_B_TAGGING}GN2v01_pb", _gn2),
        ("jet", "DL1dv01"): Derived(f"{_B_TAGGING}DL1dv01_pb", _dl1d),
        ("muon", "quality_level"): Derived("AnalysisMuonsAuxDyn.quality", _quality_level),
    },
    isolation_is_absolute=True,
)
