"""EventSet: collision events as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from unmask.errors import UsageError
from unmask.events.columns import EventTable, columns_of, join, make_read_only
from unmask.events.objects import COMMON_TYPES, IS_B_JET, IS_JET, MAX_OBJECTS, OBJECTS, PADDING_TAG, Unit

BACKGROUND, SIGNAL, UNKNOWN = 0, 1, -1
LABEL_NAMES = {BACKGROUND: "background", SIGNAL: "signal", UNKNOWN: "unlabeled"}
Label = Literal["background", "signal", "unlabeled", "unknown"]


def label_code(label: Label | int | str) -> int:
    """0, 1 or -1 of a label that is given by name or number.

    >>> label_code("signal")
    1
    """
    codes: dict[Any, int] = {name: code for code, name in LABEL_NAMES.items()} | {"unknown": UNKNOWN}
    code = codes.get(label, label)
    if code not in LABEL_NAMES:
        raise UsageError(f"label is {label!r}; expected background, signal or unknown (0, 1 or -1)")
    return int(code)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class EventSet(EventTable):
    """Collision events, one row per event, objects padded to ``max_objects`` (18 unless read with more).

    Objects are ordered by tag, then by falling pT; an empty slot has tag 0 and zeros. Kinematics are single
    precision (as in Delphes and NanoAOD files), energies in MeV, angles in radians. The arrays are read-only.

    Attributes
    ----------
    met_mev, met_phi
        (n_events,) float32.
    tag
        (n_events, max_objects) uint8.
    energy_mev, pt_mev, eta, phi
        (n_events, max_objects) float32.
    n_dropped
        (n_events,) int16: objects beyond the ``max_objects`` of largest pT, which were cut.
    """

    met_mev: npt.NDArray[np.float32]
    met_phi: npt.NDArray[np.float32]
    tag: npt.NDArray[np.uint8]
    energy_mev: npt.NDArray[np.float32]
    pt_mev: npt.NDArray[np.float32]
    eta: npt.NDArray[np.float32]
    phi: npt.NDArray[np.float32]
    n_dropped: npt.NDArray[np.int16]

    def __post_init__(self) -> None:
        make_read_only(self)
        width = self.tag.shape[1] if self.tag.ndim == 2 else MAX_OBJECTS
        for name, column in columns_of(self).items():
            shape = (len(self), width) if name in OBJECT_DTYPES else (len(self),)
            if isinstance(column, np.ndarray) and column.shape != shape:
                raise UsageError(f"column {name} has shape {column.shape}, expected {shape}")

    @classmethod
    def empty(cls) -> EventSet:
        """No events."""
        objects: Any = dict.fromkeys(("types", "energy", "pt", "eta", "phi"), np.zeros((0, MAX_OBJECTS)))
        return cls.from_arrays(unit="MeV", met=(), met_phi=(), **objects)

    @classmethod
    def from_arrays(
        cls,
        *,
        unit: Unit,
        types: npt.ArrayLike,
        energy: npt.ArrayLike,
        pt: npt.ArrayLike,
        eta: npt.ArrayLike,
        phi: npt.ArrayLike,
        met: npt.ArrayLike,
        met_phi: npt.ArrayLike,
        n_objects: npt.ArrayLike | None = None,
        event_id: npt.ArrayLike | None = None,
        row: npt.ArrayLike | None = None,
        weight: npt.ArrayLike | None = None,
        process: npt.ArrayLike = "events",
        file: npt.ArrayLike = "arrays",
        label: npt.ArrayLike | Label = "unlabeled",
        further: Mapping[str, npt.ArrayLike] | None = None,
        max_objects: int = MAX_OBJECTS,
    ) -> EventSet:
        """Make events from arrays, checked like those of a file.

        Parameters
        ----------
        unit
            Unit of energy, pT and MET: "MeV", "GeV", "log-MeV" or "log-GeV".
        types, energy, pt, eta, phi
            Of the objects: (n_events, slots) with type 0 or "" for an empty slot, or all objects one after the other
            together with ``n_objects``. Types are tags, names ("b-jet") or symbols ("b").
        met, met_phi
            (n_events,), missing transverse momentum and its direction.
        n_objects
            (n_events,), for flat objects.
        event_id, row, weight
            (n_events,); by default 0, 1, 2, ... and weights of 1.
        process, file
            One text for all events, or one per event; an event is known by its file and row.
        label
            "background", "signal", or per event 0 background, 1 signal, -1 unknown.
        further
            Further columns of numbers (n_events,) by name, such as ``run`` and ``luminosity_block``.
        max_objects
            Objects kept per event, those of largest pT.

        Raises
        ------
        UsageError
            If an array has another shape or type than it should.
        BadDataError
            If a value is not physical.

        >>> EventSet.from_arrays(
        ...     unit="GeV", types=[["b", "muon"]], energy=[[60, 30]], pt=[[50, 30]], eta=[[0.5, 0]], phi=[[1, -1]],
        ...     met=[80], met_phi=[0], label="background"
        ... )
        EventSet: 1 events (1 background)
        ...
        """
        from unmask.events.arrays import events_from_arrays

        given: dict[str, Any] = {"types": types, "energy": energy, "pt": pt, "eta": eta, "phi": phi}
        given |= {"met": met, "met_phi": met_phi, "n_objects": n_objects, "event_id": event_id, "row": row}
        given |= {"weight": weight, "process": process, "file": file, "label": label}
        return events_from_arrays(given, further or {}, unit=unit, max_objects=max_objects)

    @classmethod
    def from_awkward(cls, array: Any, *, unit: Unit, max_objects: int = MAX_OBJECTS) -> EventSet:
        """Make events from an awkward array of records, checked like those of a file; :meth:`to_awkward` gives one.

        Parameters
        ----------
        array
            Fields ``met``, ``met_phi`` and ``objects``, with ``types``, ``energy``, ``pt``, ``eta`` and ``phi``; also
            ``event_id``, ``row``, ``file``, ``process``, ``label`` and ``weight``, if they are there, and further
            fields of one number per event.
        unit, max_objects
            As in :meth:`from_arrays`.
        """
        from unmask.events.arrays import events_from_awkward

        return events_from_awkward(array, unit=unit, max_objects=max_objects)

    def to_awkward(self, *, unit: Unit = "MeV") -> Any:
        """Awkward array with one record per event; its objects are ``Momentum4D`` of the package vector."""
        from unmask.events.arrays import events_to_awkward

        return events_to_awkward(self, unit=unit)

    @staticmethod
    def concatenate(parts: Sequence[EventSet]) -> EventSet:
        """Join event sets in the given order."""
        parts = [part for part in parts if len(part)]
        if len(parts) <= 1:
            return parts[0] if parts else EventSet.empty()
        width = max(part.max_objects for part in parts)
        return join([part.with_max_objects(width) for part in parts])

    @property
    def max_objects(self) -> int:
        """Slots for objects."""
        return int(self.tag.shape[1])

    @property
    def is_object(self) -> npt.NDArray[np.bool_]:
        """(n_events, max_objects): False where a slot is padding."""
        return np.asarray(self.tag != PADDING_TAG)

    @property
    def n_objects(self) -> npt.NDArray[np.int64]:
        """(n_events,): objects kept."""
        return np.asarray(np.count_nonzero(self.tag, axis=1), np.int64)

    @property
    def ht_mev(self) -> npt.NDArray[np.float64]:
        """(n_events,): scalar sum of the pT of jets and b-jets."""
        return np.asarray(np.where(np.array(IS_JET)[self.tag], self.pt_mev, 0).sum(axis=1, dtype=np.float64))

    @property
    def sum_pt_mev(self) -> npt.NDArray[np.float64]:
        """(n_events,): scalar sum of the pT of all objects."""
        return np.asarray(np.where(self.is_object, self.pt_mev, 0).sum(axis=1, dtype=np.float64))

    @property
    def n_jets(self) -> npt.NDArray[np.int64]:
        """(n_events,): number of jets, with and without b-tag."""
        return np.asarray(np.array(IS_JET)[self.tag].sum(axis=1))

    @property
    def n_b_jets(self) -> npt.NDArray[np.int64]:
        """(n_events,): number of b-tagged jets."""
        return np.asarray(np.array(IS_B_JET)[self.tag].sum(axis=1))

    @property
    def n_cut_events(self) -> int:
        """Events that had more than ``max_objects`` objects."""
        return int(np.count_nonzero(self.n_dropped))

    def cut(self, cut: str) -> EventSet:
        """Return the events that pass a cut on observables, momenta in GeV, and on ``further`` columns.

        >>> from unmask import load_sample
        >>> events = load_sample("gluino").cut("met > 200 and n_b_jets >= 2")
        >>> events.met_mev.min() > 200e3, events.n_b_jets.min() >= 2
        (np.True_, np.True_)
        """
        from unmask.events.cuts import Cut

        return self[Cut(cut).passes(self)]

    def with_max_objects(self, max_objects: int) -> EventSet:
        """Return the same events with another number of slots, at least as many as an event has objects."""
        n_more = max_objects - self.max_objects
        if not n_more:
            return self
        most = int(self.n_objects.max(initial=0))
        if most > max_objects:
            raise UsageError(f"max_objects is {max_objects}, and an event has {most} objects")
        columns = {name: getattr(self, name)[:, :max_objects] for name in OBJECT_COLUMNS}
        padded = {name: np.pad(values, ((0, 0), (0, max(n_more, 0)))) for name, values in columns.items()}
        return replace(self, **padded)  # type: ignore[arg-type]

    def with_label(self, label: Label | int) -> EventSet:
        """Return the same events, all labeled ``label``."""
        return replace(self, label=np.full(len(self), label_code(label), np.int8))

    def with_signal(self, processes: Iterable[str]) -> EventSet:
        """Return the same events, labeled signal if of one of ``processes`` and background otherwise."""
        signal = set(processes)
        is_signal = np.array([word in signal for word in self.process_names.words], np.int8)
        return replace(self, label=is_signal[self.process_names.code])

    def __repr__(self) -> str:
        if not len(self):
            return "EventSet: no events"
        processes = ", ".join(f"{word} {n:,}" for word, n in self.process_names.counts().items())
        labels = ", ".join(f"{int((self.label == k).sum()):,} {LABEL_NAMES[k]}" for k in np.unique(self.label)[::-1])
        in_gev = [np.median(column) / 1e3 for column in (self.met_mev, self.ht_mev)]
        shown = [(one, n) for tag, one in OBJECTS.items() if (n := (self.tag == tag).sum()) or one.name in COMMON_TYPES]
        objects = ", ".join(f"{one.name} {n / len(self):.2f}" for one, n in shown)
        return (
            f"EventSet: {len(self):,} events ({labels})\n"
            f"  processes: {processes}\n"
            f"  median: {np.median(self.n_objects):.0f} objects, MET {in_gev[0]:.0f} GeV, HT {in_gev[1]:.0f} GeV\n"
            f"  mean per event: {objects}\n"
            f"  events cut to {self.max_objects} objects: {self.n_cut_events:,}"
        )


OBJECT_DTYPES: dict[str, type[np.generic]] = {
    "tag": np.uint8,
    **dict.fromkeys(("energy_mev", "pt_mev", "eta", "phi"), np.float32),
}
OBJECT_COLUMNS = tuple(OBJECT_DTYPES)
