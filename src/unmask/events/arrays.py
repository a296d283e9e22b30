"""Events from arrays and to awkward arrays: behind ``EventSet.from_arrays`` and its like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.errors import BadDataError, UsageError, nearest, require
from unmask.events.build import FlatEvents, to_event_set
from unmask.events.checks import BadEvents, check_events
from unmask.events.columns import Names
from unmask.events.event_set import OBJECT_COLUMNS, EventSet, label_code
from unmask.events.objects import KNOWN_TAGS, OBJECTS, PADDING_TAG, SYMBOL_TAGS, TAGS, UNITS, Unit

_OF_OBJECTS = ("types", "energy", "pt", "eta", "phi")
#: Types of numbers by awkward's names.
_NUMBERS = ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float32", "float64")
_PER_EVENT = {"event_id": np.int64, "row": np.int64, "weight": np.float64, "met": np.float64, "met_phi": np.float64}


def events_from_arrays(
    given: Mapping[str, npt.ArrayLike | None], further: Mapping[str, npt.ArrayLike], *, unit: Unit, max_objects: int
) -> EventSet:
    """Check what :meth:`EventSet.from_arrays` was given, and make the events."""
    if unit not in UNITS:
        raise UsageError(f"unit is {unit!r}; choose from {', '.join(UNITS)}")  # a wrong guess would scale all momenta
    if not isinstance(max_objects, int | np.integer) or max_objects < 1:
        raise UsageError(f"max_objects is {max_objects!r}; expected a whole number of 1 or more")
    for name in (*_OF_OBJECTS, "met", "met_phi"):
        if given[name] is None:
            raise UsageError(f"{name} is None; expected an array")
    objects = {name: _array(name, given) for name in _OF_OBJECTS}
    objects["types"] = _tags(objects["types"])
    shape = objects["types"].shape
    for name, values in objects.items():
        if values.shape != shape:
            raise UsageError(f"{name} has shape {values.shape}; expected {shape}, as types")
        if name != "types" and values.dtype.kind not in "fiu":
            raise UsageError(f"{name} is of type {values.dtype}; expected numbers")
    counts, objects = _flat(objects, given["n_objects"])
    n = len(counts)
    per_event: dict[str, Any] = {"event_id": np.arange(n), "row": np.arange(n), "weight": np.ones(n)}
    for name, dtype in _PER_EVENT.items():
        if given[name] is not None:
            values = _numbers(name, given, n)
            with np.errstate(invalid="ignore"):  # NaN as an integer
                per_event[name] = values.astype(dtype)
            if dtype is np.int64 and (wrong := values[per_event[name] != values]).size:
                raise UsageError(f"{name} is {wrong[0]!s}; expected whole numbers")
    labels, place = np.unique(_one_per_event("label", given, n), return_inverse=True)
    momenta = zip(OBJECT_COLUMNS[1:], _OF_OBJECTS[1:], strict=True)
    columns: dict[str, Any] = {column: objects[name].astype(np.float64) for column, name in momenta}
    flat = FlatEvents(
        **{name: per_event[name] for name in ("row", "event_id", "weight", "met_phi")},
        process_names=Names.of(_one_per_event("process", given, n)),
        file_names=Names.of(_one_per_event("file", given, n)),
        label=np.array([label_code(one) for one in labels.tolist()], np.int8)[place],
        met_mev=per_event["met"],
        n_objects=counts,
        further={name: _numbers(name, further, n) for name in further},
        tag=objects["types"].astype(np.uint8),
        **columns,
    )
    checked = check_events(flat.in_mev(unit), path="arrays", place=lambda index: f"event {index}", bad=BadEvents())
    return to_event_set(checked, file="arrays", max_objects=max_objects)


def events_from_awkward(array: Any, *, unit: Unit, max_objects: int) -> EventSet:
    """Take the columns out of an awkward array of records."""
    require("awkward", "root")
    import awkward as ak

    fields = array.fields
    missing = [name for name in ("objects", "met", "met_phi") if name not in fields]
    missing += [name for name in _OF_OBJECTS if "objects" in fields and name not in array.objects.fields]
    if missing:
        raise UsageError(
            f"the array has no {', '.join(missing)} (fields: {', '.join(fields)}); expected met, met_phi and objects "
            f"with {', '.join(_OF_OBJECTS)}"
        )

    given = {name: ak.flatten(array.objects[name]) for name in _OF_OBJECTS}
    own = [name for name in (*_PER_EVENT, "process", "file", "label") if name in fields]
    given |= {name: array[name] for name in own}
    given["n_objects"] = ak.num(array.objects.pt)
    columns = {name: np.asarray(ak.to_numpy(column)) for name, column in given.items()}
    others = {name: array[name] for name in fields if name not in (*own, "objects") and array[name].ndim == 1}
    numbers = {name: np.asarray(ak.to_numpy(one)) for name, one in others.items() if str(one.type.content) in _NUMBERS}
    return EventSet.from_arrays(**columns, further=numbers, unit=unit, max_objects=max_objects)


def events_to_awkward(events: EventSet, *, unit: Unit) -> Any:
    """Make an awkward array of records."""
    require("awkward", "root")
    import awkward as ak

    if unit not in ("MeV", "GeV"):
        raise UsageError(f"unit is {unit!r}; expected MeV or GeV")
    scale = np.float32(1 if unit == "MeV" else 1e-3)

    def of_objects(values: npt.NDArray[Any]) -> Any:
        return ak.unflatten(values[events.is_object], events.n_objects)

    names = np.array(["", *(OBJECTS[tag].name if tag in OBJECTS else "" for tag in range(1, max(OBJECTS) + 1))])
    columns = {"types": names[events.tag], "energy": events.energy_mev * scale, "pt": events.pt_mev * scale}
    objects = {name: of_objects(values) for name, values in (columns | {"eta": events.eta, "phi": events.phi}).items()}
    event = {name: getattr(events, name) for name in ("row", "event_id", "file", "process", "label", "weight")}
    event |= {"met": events.met_mev * scale, "met_phi": events.met_phi} | events.further
    # The name lets the package vector give the objects masses, sums and boosts.
    return ak.zip(event | {"objects": ak.zip(objects, with_name="Momentum4D")}, depth_limit=1)


def _array(name: str, given: Mapping[str, npt.ArrayLike | None]) -> npt.NDArray[Any]:
    try:
        return np.asarray(given[name])
    except ValueError:
        raise UsageError(
            f"{name} is ragged; expected rows of one length: pad them, or give all objects one after the other and "
            "n_objects"
        ) from None


def _tags(types: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Tags of types that are given as tags, names or symbols; an empty word is an empty slot."""
    if types.dtype.kind in "OT":
        kind = str if any(isinstance(one, str) for one in types.flat) else int
        for one in types.flat:
            if not isinstance(one, str if kind is str else int | np.integer):
                raise UsageError(f"types: {one!r} of type {type(one).__name__}; expected only names, or only tags")
        types = types.astype(object).astype(kind)
    if types.dtype.kind in "US":
        known = SYMBOL_TAGS | TAGS | {"": PADDING_TAG}
        words, place = np.unique(types, return_inverse=True)
        for word in words:
            if word not in known:
                raise UsageError(f"types: unknown {str(word)!r}; {nearest(str(word), [*TAGS, *SYMBOL_TAGS])}")
        return np.array([known[str(word)] for word in words], np.uint8)[place].reshape(types.shape)
    wrong = types[~np.isin(types, [PADDING_TAG, *OBJECTS])]
    if wrong.size:
        raise BadDataError(f"types: {wrong[0]!s}; expected 0 for an empty slot, {KNOWN_TAGS}, or names", path="arrays")
    return types


def _flat(
    objects: dict[str, npt.NDArray[Any]], n_objects: npt.ArrayLike | None
) -> tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[Any]]]:
    """Numbers of objects, and the columns of all objects, one after the other."""
    tag = objects["types"]
    if tag.ndim == 2 and n_objects is None:
        is_object = tag != PADDING_TAG
        return is_object.sum(axis=1), {name: values[is_object] for name, values in objects.items()}
    if tag.ndim != 1 or n_objects is None:
        raise UsageError(
            f"types has {tag.ndim} dimensions and n_objects is {'not ' if n_objects is None else ''}given; expected "
            "(n_events, slots), or all objects one after the other together with n_objects per event"
        )
    counts = _array("n_objects", {"n_objects": n_objects})
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts < 0).any() or counts.sum() != len(tag):
        raise UsageError(f"n_objects: {counts.sum()} objects in {counts.shape} events; the arrays have {len(tag)}")
    if (tag == PADDING_TAG).any():
        raise UsageError("types: an empty slot among flat objects; give (n_events, slots), or leave it out")
    return counts.astype(np.int64), objects


def _numbers(name: str, given: Mapping[str, npt.ArrayLike | None], n: int) -> npt.NDArray[Any]:
    values = _one_per_event(name, given, n)
    if values.dtype.kind not in "biuf":
        raise UsageError(f"{name} is of type {values.dtype}; expected numbers")
    return values


def _one_per_event(name: str, given: Mapping[str, npt.ArrayLike | None], n: int) -> npt.NDArray[Any]:
    values = _array(name, given)
    if values.shape not in ((), (n,)):
        raise UsageError(f"{name} has shape {values.shape}; expected one value, or one of each of the {n} events")
    return np.broadcast_to(values, (n,))
