"""Hashes of events by their content, and the rule on events that were trained on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from unmask.events.event_set import OBJECT_COLUMNS, EventSet
from unmask.events.objects import MAX_OBJECTS

#: Fraction of events that may be training events too: real files hold a few events twice, more is a mix-up of files.
MAX_SHARED = 0.01
#: Training events that a detector remembers; a megabyte.
MAX_REMEMBERED = 1 << 17
_EVENTS_IN_CACHE = 1 << 10


def _odd_numbers(seed: int, n: int) -> npt.NDArray[np.uint64]:
    numbers = np.random.default_rng(seed).integers(0, 1 << 63, n, dtype=np.uint64)
    return np.asarray(numbers * np.uint64(2) + np.uint64(1))


@cache
def _factors(max_objects: int) -> npt.NDArray[np.uint64]:
    """Of MET and its phi, and of five columns of each slot; those of a slot do not depend on how many there are."""
    of_event, first = np.split(_odd_numbers(7, 2 + 5 * MAX_OBJECTS), [2])
    further = _odd_numbers(8, 5 * max(max_objects - MAX_OBJECTS, 0)).reshape(-1, 5).T
    of_slots = np.concatenate([first.reshape(5, MAX_OBJECTS), further], axis=1)[:, :max_objects]
    return np.concatenate([of_event, of_slots.ravel()])


def fingerprints(events: EventSet) -> npt.NDArray[np.uint64]:
    """A number (n_events,) for the content of each event: MET and objects, not its name, label or weight."""
    parts = [_mixed(part) for part in events.chunks(_EVENTS_IN_CACHE)]
    return np.concatenate([np.zeros(0, np.uint64), *parts])


def _mixed(events: EventSet) -> npt.NDArray[np.uint64]:
    columns = [events.met_mev[:, None], events.met_phi[:, None]]
    columns += [getattr(events, name) * events.is_object for name in ("pt_mev", "eta", "phi", "energy_mev", "tag")]
    bits = np.concatenate([column.astype(np.float32) + np.float32(0) for column in columns], axis=1).view(np.uint32)
    mixed = (bits * _factors(events.max_objects)).sum(axis=1, dtype=np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(mixed ^ (mixed >> np.uint64(29)))


def is_leak(n_shared: int, n_events: int) -> bool:
    """Whether too many of these events were trained on, or are there twice: more than 1%.

    >>> is_leak(1, 100), is_leak(2, 100)
    (False, True)
    """
    return n_shared > MAX_SHARED * n_events


def random_numbers(key: npt.NDArray[np.integer], seed: int) -> npt.NDArray[np.float64]:
    """Numbers from 0 to 1, each made of a key of an event and the seed: the finalizer of SplitMix64."""
    mixed = key.astype(np.uint64) + np.random.default_rng(seed).integers(0, 1 << 63, dtype=np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray((mixed ^ (mixed >> np.uint64(31))) / 2.0**64, np.float64)


def fingerprint_of(*samples: EventSet) -> str:
    """Changes when an event changes; the same on all machines, as nothing computed from the events would be."""
    digest = hashlib.sha256()
    for events in samples:
        for name in ("met_mev", "met_phi", *OBJECT_COLUMNS):
            digest.update(getattr(events, name).tobytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class TrainingFingerprints:
    """Hashes of the events that a model was trained on: all, or of very many the smallest.

    >>> from unmask import load_sample
    >>> events = load_sample("gluino")[:100]
    >>> int(TrainingFingerprints.of(events[:60]).contains(events).sum())
    60
    """

    fingerprint: npt.NDArray[np.uint64]  # rising

    @classmethod
    def of(cls, events: EventSet) -> TrainingFingerprints:
        """Remember events."""
        return cls(np.unique(fingerprints(events))[:MAX_REMEMBERED])

    def contains(self, events: EventSet) -> npt.NDArray[np.bool_]:
        """Which events (n_events,) are known to be among them."""
        return _is_among(fingerprints(events), self.fingerprint)


class KnownEvents:
    """Hashes of the events of a stream, 8 bytes each.

    >>> from unmask import load_sample
    >>> events, known = load_sample("gluino"), KnownEvents()
    >>> len(known.new(events[[0, 1, 0]])), len(known.new(events[1:5]))
    (2, 3)
    """

    def __init__(self) -> None:
        self._sorted: list[npt.NDArray[np.uint64]] = []  # each less than half as long as the one before

    def contains(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Which hashes (n_events,) were added."""
        is_known = np.zeros(len(hashes), np.bool_)
        for part in self._sorted:
            is_known |= _is_among(hashes, part)
        return is_known

    def add(self, hashes: npt.NDArray[np.uint64]) -> None:
        """Remember hashes."""
        self._sorted.append(np.sort(hashes))
        while len(self._sorted) > 1 and len(self._sorted[-2]) < 2 * len(self._sorted[-1]):
            self._sorted[-2:] = [np.sort(np.concatenate(self._sorted[-2:]), kind="stable")]

    def new(self, events: EventSet) -> EventSet:
        """Return the events that repeat no earlier one, object by object, and remember them."""
        hashes, first = np.unique(fingerprints(events), return_index=True)
        is_new = ~self.contains(hashes)
        self.add(hashes[is_new])
        return events[np.sort(first[is_new])]


def repeated_text(n_repeated: int, n_events: int, are_kept: bool = False) -> list[str]:
    """Name the events that repeat earlier ones, in one line if there are any."""
    rest = "they stay in the split of the first" if are_kept else "left out (--keep-duplicates keeps them)"
    return (
        [f"{n_repeated:,} of {n_events:,} events repeat earlier ones, object by object: {rest}"] if n_repeated else []
    )


def _is_among(hashes: npt.NDArray[np.uint64], known: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Which hashes (n_events,) are among sorted ones."""
    place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    return np.asarray(known[place] == hashes) if len(known) else np.zeros(len(hashes), bool)
