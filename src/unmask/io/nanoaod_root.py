"""CMS NanoAOD, version 9 and earlier (MET) and version 12 and later (PuppiMET), energies in GeV."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from unmask.io.root_file import Entries
from unmask.io.root_objects import FloatArray, Layout, stream_root
from unmask.io.selections import SelectionTable
from unmask.io.source import Chunk, Source

#: Taggers that came with PUPPI jets; the MET that belongs to such jets is PUPPI's, though some files hold both.
_TAGGERS_OF_PUPPI_JETS = ("Jet_btagPNetB", "Jet_btagRobustParTAK4B", "Jet_btagUParTAK4B")


def stream(source: Source) -> Iterator[Chunk]:
    """Yield the events of a file, some entries at a time."""
    yield from stream_root(source, LAYOUT)


def _met(entries: Entries, _: SelectionTable) -> tuple[FloatArray, FloatArray]:
    has_puppi_jets = any(tagger in entries for tagger in _TAGGERS_OF_PUPPI_JETS)
    name = "PuppiMET" if has_puppi_jets or "MET_pt" not in entries else "MET"
    met, phi = entries.values(f"{name}_pt"), entries.values(f"{name}_phi")
    return met.astype(np.float64), phi.astype(np.float64)


LAYOUT = Layout(
    kind="nanoaod",
    unit="GeV",
    prefixes={"electron": "Electron_", "muon": "Muon_", "photon": "Photon_", "jet": "Jet_"},
    columns={"pt": "pt", "eta": "eta", "phi": "phi", "mass": "mass", "charge": "charge"},
    event_id="event",
    weight="genWeight",
    met=_met,
    min_b_score=0.0,
)
