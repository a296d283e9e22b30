"""Delphes trees: Jet, Electron, Muon, Photon and MissingET as written by Delphes 3, energies in GeV."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from unmask.io.root_file import Entries
from unmask.io.root_objects import FloatArray, Layout, stream_root
from unmask.io.selections import SelectionTable
from unmask.io.source import Chunk, Source


def stream(source: Source) -> Iterator[Chunk]:
    """Yield the events of a file, some entries at a time."""
    yield from stream_root(source, LAYOUT)


def _met(entries: Entries, _: SelectionTable) -> tuple[FloatArray, FloatArray]:
    met, phi = entries.values("MissingET.MET"), entries.values("MissingET.Phi")
    return met.astype(np.float64), phi.astype(np.float64)


LAYOUT = Layout(
    kind="delphes",
    unit="GeV",
    prefixes={"electron": "Electron.", "muon": "Muon.", "photon": "Photon.", "jet": "Jet."},
    columns={"pt": "PT", "eta": "Eta", "phi": "Phi", "mass": "Mass", "charge": "Charge"},
    event_id="Event.Number",
    weight="Event.Weight",
    met=_met,
    b_tag_is_bits=True,
)
