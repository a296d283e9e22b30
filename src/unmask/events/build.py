"""FlatEvents, which every reader produces, and their conversion to an EventSet."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.events.columns import Names, as_further, columns_of, selected
from unmask.events.event_set import OBJECT_COLUMNS, OBJECT_DTYPES, UNKNOWN, EventSet
from unmask.events.objects import MAX_OBJECTS, TAG_LIMIT, Unit

FloatArray = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class FlatEvents:
    """Events as read, in MeV: one entry per event, and all objects of all events one after the other, in any order."""

    row: npt.NDArray[np.int64]
    event_id: npt.NDArray[np.int64]
    process_names: Names
    weight: FloatArray
    met_mev: FloatArray
    met_phi: FloatArray
    n_objects: npt.NDArray[np.int64]
    tag: npt.NDArray[np.uint8]
    energy_mev: FloatArray
    pt_mev: FloatArray
    eta: FloatArray
    phi: FloatArray
    # Known only when the file is one of ours.
    file_names: Names | None = None
    label: npt.NDArray[np.int8] | None = None
    n_dropped: npt.NDArray[np.int16] | None = None
    #: Further columns of numbers, one per event: ``run``, ``luminosity_block`` and what the options keep.
    further: dict[str, npt.NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.row)

    @property
    def event_of_object(self) -> npt.NDArray[np.int64]:
        """Index of the event that each object belongs to."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.n_objects)

    def in_mev(self, unit: Unit | None) -> FlatEvents:
        """The same events in MeV, of momenta that were read in ``unit``."""
        if unit in (None, "MeV"):
            return self
        momenta: dict[str, Any] = {
            name: to_mev(getattr(self, name), unit) for name in ("met_mev", "energy_mev", "pt_mev")
        }
        return replace(self, **momenta)

    def keep(self, is_kept: npt.NDArray[np.bool_]) -> FlatEvents:
        """Return the events where ``is_kept``."""
        is_kept_object = np.repeat(is_kept, self.n_objects)
        kept = {
            name: selected(column, is_kept_object if name in OBJECT_COLUMNS else is_kept)
            for name, column in columns_of(self).items()
        }
        return FlatEvents(**kept)

    def keep_objects(self, is_kept: npt.NDArray[np.bool_]) -> FlatEvents:
        """Return the same events with the objects where ``is_kept``."""
        n_objects = np.bincount(self.event_of_object[is_kept], minlength=len(self)).astype(np.int64)
        kept: dict[str, Any] = {name: getattr(self, name)[is_kept] for name in OBJECT_COLUMNS}
        return replace(self, n_objects=n_objects, **kept)


def to_mev(values: npt.NDArray[Any], unit: Unit | None) -> npt.NDArray[Any]:
    """Turn energies in a declared unit into MeV."""
    if unit in ("log-MeV", "log-GeV"):
        with np.errstate(over="ignore"):  # an absurd logarithm becomes inf, which the checks refuse
            values = np.exp(values)
    return values * 1e3 if unit in ("GeV", "log-GeV") else values


# Of the key that objects are ordered by.
_PT_BITS, _TAG_BITS, _EVENT_BITS = 32, 5, 27


def to_event_set(flat: FlatEvents, *, file: str, max_objects: int = MAX_OBJECTS) -> EventSet:
    """Keep the ``max_objects`` objects of largest pT (counting what is cut), order them by tag and falling pT, and pad.

    ``file`` is used where the events do not bring their own; then they have no label either.
    """
    n = len(flat)
    event = flat.event_of_object
    source = _order(event, flat.tag, flat.pt_mev)
    if (flat.n_objects > max_objects).any():
        by_pt = _order(event, np.zeros_like(flat.tag), flat.pt_mev)
        is_kept = np.zeros(len(event), np.bool_)
        is_kept[by_pt[_place(flat.n_objects) < max_objects]] = True
        source = source[is_kept[source]]
    slot = event[source] * max_objects + _place(np.minimum(flat.n_objects, max_objects))

    columns: dict[str, npt.NDArray[Any]] = {}
    for name, dtype in OBJECT_DTYPES.items():
        table = np.zeros(n * max_objects, dtype)
        table[slot] = getattr(flat, name)[source]
        columns[name] = table.reshape(n, max_objects)
    n_dropped = np.maximum(flat.n_objects - max_objects, 0)
    if flat.n_dropped is not None:
        n_dropped = n_dropped + flat.n_dropped
    return EventSet(
        row=flat.row,
        event_id=flat.event_id,
        file_names=flat.file_names or Names.constant(file, n),
        process_names=flat.process_names,
        label=np.full(n, UNKNOWN, np.int8) if flat.label is None else flat.label,
        weight=flat.weight.astype(np.float64),
        met_mev=flat.met_mev.astype(np.float32),
        met_phi=flat.met_phi.astype(np.float32),
        n_dropped=np.minimum(n_dropped, np.iinfo(np.int16).max).astype(np.int16),  # a larger count must not wrap
        further={name: as_further(values) for name, values in flat.further.items()},
        **columns,
    )


def _place(n_objects: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Number of each object within its event, from 0, of objects that are ordered by event."""
    first = np.cumsum(n_objects) - n_objects
    return np.arange(n_objects.sum(), dtype=np.int64) - np.repeat(first, n_objects)


def _order(event: npt.NDArray[np.int64], tag: npt.NDArray[np.uint8], pt_mev: FloatArray) -> npt.NDArray[np.int64]:
    """Stable order by event, tag, falling pT.

    One 64-bit key per object: event (27 bits), tag (5), complement of the pT's bits (32; the bit pattern of a
    positive float rises with its value). Much faster than a lexical sort over three arrays.
    """
    assert TAG_LIMIT <= 1 << _TAG_BITS
    assert not len(event) or event[-1] < 1 << _EVENT_BITS
    pt_bits = np.ascontiguousarray(pt_mev, np.float32).view(np.uint32).astype(np.uint64)
    key = (event.astype(np.uint64) << np.uint64(_TAG_BITS + _PT_BITS)) | (tag.astype(np.uint64) << np.uint64(_PT_BITS))
    key |= np.uint64(0xFFFFFFFF) - pt_bits
    if np.all(key[1:] >= key[:-1]):
        return np.arange(len(key), dtype=np.int64)
    return np.argsort(key, kind="stable")
