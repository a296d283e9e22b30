"""Knowing an event again by its content, whatever the file it comes from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from unmask.events.event_set import OBJECT_COLUMNS, EventSet
from unmask.events.objects import MAX_OBJECTS

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
    columns += [np.where(events.is_object, column, 0) for column in (events.pt_mev, events.eta, events.phi)]
    columns += [np.where(events.is_object, events.energy_mev, 0), np.where(events.is_object, events.tag, 0)]
    bits = np.concatenate([column.astype(np.float32) + np.float32(0) for column in columns], axis=1).view(np.uint32)
    mixed = (bits * _factors(events.max_objects)).sum(axis=1, dtype=np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(mixed ^ (mixed >> np.uint64(29)))


def fingerprint_of(*samples: EventSet) -> str:
    """Changes when an event changes; the same on all machines, as nothing computed from the events would be."""
    digest = hashlib.sha256()
    for events in samples:
        for name in ("met_mev", "met_phi", *OBJECT_COLUMNS):
            digest.update(getattr(events, name).tobytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class SeenEvents:
    """The events that something has learnt from: all of them, or of very many those with the smallest fingerprints.

    >>> from unmask import load_sample
    >>> events = load_sample("gluino")[:100]
    >>> int(SeenEvents.of(events[:60]).contains(events).sum())
    60
    """

    fingerprint: npt.NDArray[np.uint64]  # rising

    @classmethod
    def of(cls, events: EventSet) -> SeenEvents:
        """Remember events."""
        return cls(np.unique(fingerprints(events))[:MAX_REMEMBERED])

    def contains(self, events: EventSet) -> npt.NDArray[np.bool_]:
        """Which events (n_events,) are known to be among them."""
        wanted = fingerprints(events)
        found = np.minimum(np.searchsorted(self.fingerprint, wanted), len(self.fingerprint) - 1)
        return np.asarray(self.fingerprint[found] == wanted) if len(self.fingerprint) else np.zeros(len(events), bool)
