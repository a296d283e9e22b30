"""Background events made odd on purpose, in known ways: choices are made on these, never on signal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.events.event_set import EventSet
from unmask.events.flat import FLAT_COLUMNS, FlatEvents, to_event_set
from unmask.events.objects import MAX_ENERGY_MEV, MIN_PT_MEV, N_TAGS

Generator = np.random.Generator


def distort(events: EventSet, name: str, *, seed: int) -> EventSet:
    """Distort every event in the way ``name`` of :data:`DISTORTIONS`; labels and weights stay.

    >>> from unmask import load_sample
    >>> events = load_sample("gluino")[:100]
    >>> bool((distort(events, "add", seed=1).n_objects > events.n_objects).all())
    True
    """
    return DISTORTIONS[name](events, np.random.default_rng(seed))


def _smear(events: EventSet, rng: Generator) -> EventSet:
    """Multiply the momentum of each object by a random factor of its own."""
    factor = np.exp(rng.normal(0, 0.5, events.pt_mev.shape))
    return rebuilt(events, _scaled(events, factor))


def _harder(events: EventSet, _: Generator) -> EventSet:
    """Multiply all momenta and the MET by 1.5."""
    return rebuilt(events, _scaled(events, np.full(events.pt_mev.shape, 1.5)), met_mev=events.met_mev * 1.5)


def _more_met(events: EventSet, _: Generator) -> EventSet:
    """Double the MET."""
    return rebuilt(events, columns_of(events), met_mev=events.met_mev * 2)


def _add(events: EventSet, rng: Generator) -> EventSet:
    """Add one to three objects of another event."""
    n_added = rng.integers(1, 4, len(events))
    other = events[rng.permutation(len(events))]
    columns, theirs = columns_of(events), columns_of(_shuffled_objects(other, rng))
    is_added = (np.cumsum(other.is_object, axis=1) <= n_added[:, None]) & other.is_object
    theirs["tag"] = np.where(is_added, theirs["tag"], 0)
    return rebuilt(events, {name: np.concatenate([columns[name], theirs[name]], axis=1) for name in columns})


def _remove(events: EventSet, rng: Generator) -> EventSet:
    """Remove one to three objects, leaving at least one."""
    shuffled = _shuffled_objects(events, rng)
    n_kept = np.maximum(events.n_objects - rng.integers(1, 4, len(events)), np.minimum(events.n_objects, 1))
    columns = columns_of(shuffled)
    columns["tag"] = np.where(np.cumsum(shuffled.is_object, axis=1) <= n_kept[:, None], columns["tag"], 0)
    return rebuilt(events, columns)


def _retag(events: EventSet, rng: Generator) -> EventSet:
    """Give one object of each event another type."""
    columns = columns_of(_shuffled_objects(events, rng))
    first = columns["tag"][:, 0]
    other = (first + rng.integers(1, N_TAGS, len(events)) - 1) % N_TAGS + 1
    columns["tag"] = columns["tag"].copy()
    columns["tag"][:, 0] = np.where(first > 0, other, 0)
    return rebuilt(events, columns)


def _mix(events: EventSet, rng: Generator) -> EventSet:
    """Take half of the objects from another event, so that each object is likely but their company is not."""
    other = _shuffled_objects(events[rng.permutation(len(events))], rng)
    mine = _shuffled_objects(events, rng)
    n_mine = (events.n_objects + 1) // 2
    columns, theirs = columns_of(mine), columns_of(other)
    columns["tag"] = np.where(np.cumsum(mine.is_object, axis=1) <= n_mine[:, None], columns["tag"], 0)
    n_theirs = (events.n_objects - n_mine)[:, None]
    theirs["tag"] = np.where(np.cumsum(other.is_object, axis=1) <= n_theirs, theirs["tag"], 0)
    return rebuilt(events, {name: np.concatenate([columns[name], theirs[name]], axis=1) for name in columns})


#: Ways to distort; each is a function of the events and a random generator.
DISTORTIONS: dict[str, Callable[[EventSet, Generator], EventSet]] = {
    "smear": _smear,
    "harder": _harder,
    "more-met": _more_met,
    "add": _add,
    "remove": _remove,
    "retag": _retag,
    "mix": _mix,
}

Columns = dict[str, Any]


def columns_of(events: EventSet) -> Columns:
    """The columns of the objects by name, each (n_events, objects)."""
    return {name: getattr(events, name) for name in FLAT_COLUMNS}


def _scaled(events: EventSet, factor: npt.NDArray[np.float64]) -> Columns:
    """Momenta times ``factor``, kept within what an object can have."""
    most = MAX_ENERGY_MEV / np.maximum(events.energy_mev, 1)
    least = MIN_PT_MEV / np.maximum(events.pt_mev, MIN_PT_MEV)
    factor = np.clip(factor, least, most)
    return columns_of(events) | {"energy_mev": events.energy_mev * factor, "pt_mev": events.pt_mev * factor}


def _shuffled_objects(events: EventSet, rng: Generator) -> EventSet:
    """The same events with their objects in random order, padding last."""

    order = np.argsort(np.where(events.is_object, rng.random(events.tag.shape), 2.0), axis=1)
    shuffled: Columns = {name: np.take_along_axis(array, order, 1) for name, array in columns_of(events).items()}
    return replace(events, **shuffled)


def rebuilt(events: EventSet, columns: Columns, met_mev: npt.NDArray[np.floating] | None = None) -> EventSet:
    """Order, cut and pad the objects anew; tag 0 marks those that are gone."""
    is_object = columns["tag"] != 0
    flat = FlatEvents(
        row=events.row,
        event_id=events.event_id,
        process_names=events.process_names,
        weight=events.weight,
        met_mev=np.minimum(events.met_mev if met_mev is None else met_mev, MAX_ENERGY_MEV),
        met_phi=events.met_phi,
        n_objects=is_object.sum(axis=1),
        file_names=events.file_names,
        label=events.label,
        **{name: array[is_object] for name, array in columns.items()},
    )
    return to_event_set(flat, file="")
