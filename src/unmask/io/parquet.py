"""unmask's own events file: Parquet with one row per event, objects as lists, and its provenance.

Lossless, compressed (zstd), checksummed, and written and read in bounded memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from unmask.artifacts import Json
from unmask.errors import ArtifactError, UsageError, nearest
from unmask.events.build import FlatEvents
from unmask.events.columns import (
    IDENTITY_TYPES,
    Names,
    further_from_arrow,
    further_to_arrow,
    further_types,
    identity_from_arrow,
    identity_to_arrow,
)
from unmask.events.event_set import LABEL_NAMES, OBJECT_COLUMNS, EventSet
from unmask.events.objects import KNOWN_TAGS, MAX_OBJECTS, OBJECTS
from unmask.io.source import Chunk, Source
from unmask.tables import TableKind, open_table, write_table

_ROW_GROUP_EVENTS = 50_000
_EVENT_TYPES: dict[str, pa.DataType] = {"met_mev": pa.float32(), "met_phi": pa.float32(), "n_dropped": pa.int16()}
_OBJECT_TYPES: dict[str, pa.DataType] = {
    name: pa.list_(pa.uint8() if name == "tag" else pa.float32()) for name in OBJECT_COLUMNS
}
EVENTS_TABLE = TableKind(
    name="events",
    version=1,
    columns=IDENTITY_TYPES | _EVENT_TYPES | _OBJECT_TYPES,
    # Kinematics hardly repeat: cut into streams of bytes they become smaller, with a dictionary they would not.
    dictionaries=("file", "process", "label", "weight", "n_dropped", "tag.list.element"),
    byte_streams=("met_mev", "met_phi", *(f"{name}.list.element" for name in OBJECT_COLUMNS if name != "tag")),
)


class EventsWriter:
    """Writes events to a Parquet file, part by part; use it as a context manager.

    The file appears only when it is complete. ``provenance`` is kept in it; see :func:`read_provenance`.
    """

    def __init__(self, path: str | Path, *, provenance: dict[str, Json] | None = None) -> None:
        self.n_events = 0
        self.path, self.provenance = path, provenance or {}
        self._stack = ExitStack()
        # The table is opened when the first events show how many objects they hold.
        self._append: Callable[[Mapping[str, pa.Array]], None] | None = None
        self._max_objects = MAX_OBJECTS
        self._further: dict[str, pa.DataType] = {}
        self._waiting: list[EventSet] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: Any) -> None:
        if failure[0] is not None:
            self._stack.__exit__(*failure)
            return
        with self._stack:
            self._write_waiting(is_last=True)

    def write(self, events: EventSet) -> None:
        """Append events; small parts are joined into row groups of a useful size."""
        if not len(events):
            return
        if not self.n_events:
            self._max_objects = events.max_objects
        elif events.max_objects > self._max_objects:
            raise UsageError(
                f"{self.path}: events with max_objects={events.max_objects} after others with {self._max_objects}; "
                "read all files with the same max_objects"
            )
        self.n_events += len(events)
        self._waiting.append(events)
        if sum(map(len, self._waiting)) >= _ROW_GROUP_EVENTS:
            self._write_waiting()

    def _write_waiting(self, is_last: bool = False) -> None:
        events = EventSet.concatenate(self._waiting)
        if self._append is None:
            facts = {"max_objects": self._max_objects, "provenance": self.provenance}
            self._further = further_types(events, EVENTS_TABLE.columns)
            self._append = self._stack.enter_context(write_table(self.path, EVENTS_TABLE, facts, self._further))
        n_now = len(events) if is_last else len(events) // _ROW_GROUP_EVENTS * _ROW_GROUP_EVENTS
        for part in events[:n_now].chunks(_ROW_GROUP_EVENTS):
            self._append(_to_arrow(part) | further_to_arrow(part, self._further))
        self._waiting = [events[n_now:]]


def write_events(
    path: str | Path, events: EventSet | Iterable[EventSet], *, provenance: dict[str, Json] | None = None
) -> int:
    """Write events, or a stream of them, to a Parquet file and return how many there were; see `EventsWriter`."""
    with EventsWriter(path, provenance=provenance) as writer:
        for part in [events] if isinstance(events, EventSet) else events:
            writer.write(part)
    return writer.n_events


def _to_arrow(events: EventSet) -> dict[str, pa.Array]:
    is_object = events.is_object
    offsets = np.concatenate([[0], np.cumsum(events.n_objects)]).astype(np.int32)
    columns = identity_to_arrow(events)
    columns |= {name: pa.array(getattr(events, name)) for name in _EVENT_TYPES}
    columns |= {name: pa.ListArray.from_arrays(offsets, getattr(events, name)[is_object]) for name in _OBJECT_TYPES}
    return columns


def read_provenance(path: str | Path) -> dict[str, Json]:
    """Provenance of the events, as written with them."""
    with open_table(path, EVENTS_TABLE) as (_, facts):
        provenance: dict[str, Json] = facts.get("provenance", {})
        return provenance


def stream(source: Source) -> Iterator[Chunk]:
    """Yield the events of a file that :class:`EventsWriter` made.

    File, row and label are those that the events had when they were written.
    """
    if source.options.unit not in (None, "MeV"):
        raise UsageError(f"{source.path}: an events file of unmask is in MeV; leave out the unit {source.options.unit}")
    with open_table(source.path, EVENTS_TABLE) as (file, facts):
        made_by = facts.get("provenance")
        made_with = made_by.get("options") if isinstance(made_by, dict) else None
        made_with = made_with if isinstance(made_with, dict) else {}
        for name in ("selection", "objects", "golden_json", "cut"):
            if value := made_with.get(name):
                source.record.used[f"{name} at writing"] = str(value)[:200]
        max_objects = source.options.max_objects or int(facts.get("max_objects", MAX_OBJECTS))
        first, last = source.options.entries or (0, file.metadata.num_rows)
        row_groups, position = _row_groups(file, first, last)
        further = [name for name in file.schema_arrow.names if name not in EVENTS_TABLE.columns]
        weight = source.options.weight
        for name in [*source.further(further.__contains__, further), *([weight] if weight else [])]:
            if name not in further:
                raise UsageError(f"{source.path}: no column {name!r} was kept in it; {nearest(name, further)}")
        for batch in file.iter_batches(source.options.chunk_events, row_groups=row_groups, use_threads=False):
            before, end = max(first - position, 0), min(last - position, len(batch))
            if before < end:
                yield _to_chunk(batch.slice(before, end - before), position + before, max_objects, source)
                source.progress((position + end - first) / (last - first))
            position += len(batch)


def _row_groups(file: pq.ParquetFile, first: int, last: int) -> tuple[list[int], int]:
    """The row groups that hold rows ``first`` to ``last``, and the first row in them."""
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    chosen = np.flatnonzero((start[:-1] < last) & (start[1:] > first))
    return chosen.tolist(), int(start[chosen[0]]) if len(chosen) else 0


def _to_chunk(batch: pa.RecordBatch, first: int, max_objects: int, source: Source) -> Chunk:
    """Turn a batch into events; rows that contradict themselves go to ``source.bad``."""
    position = first + np.arange(len(batch), dtype=np.int64)
    for reason, find_bad, accepted in _ROW_RULES:
        is_bad = find_bad(batch)
        if is_bad.any():
            message = f"{reason}; accepted: {accepted}"
            where = f"row {position[np.argmax(is_bad)]}"
            source.bad.add(reason, ArtifactError(message, path=source.path, where=where), int(np.count_nonzero(is_bad)))
            batch, position = batch.filter(pa.array(~is_bad)), position[~is_bad]
    identity = identity_from_arrow(batch)
    if source.options.weight:
        identity["weight"] = np.asarray(batch[source.options.weight], np.float64)
    if source.options.process:
        identity["process_names"] = Names.constant(source.options.process, len(batch))
    events = FlatEvents(
        n_objects=_list_lengths(batch["tag"]),
        further=further_from_arrow(batch, EVENTS_TABLE.columns),
        **identity,
        **{name: batch[name].to_numpy() for name in _EVENT_TYPES},
        **{name: batch[name].flatten().to_numpy() for name in _OBJECT_TYPES},
    )
    return Chunk(events, "row", position, max_objects)


def _list_lengths(column: pa.ListArray) -> npt.NDArray[np.int64]:
    return np.diff(np.asarray(column.offsets)).astype(np.int64)


def _has_gap(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Rows where a value, or an element of a list, is null."""
    has_gap = np.zeros(len(batch), np.bool_)
    for name in EVENTS_TABLE.columns:
        has_gap |= batch[name].is_null().to_numpy(zero_copy_only=False)
        if name in OBJECT_COLUMNS:
            has_gap |= _any_element(batch[name], batch[name].flatten().is_null().to_numpy(zero_copy_only=False))
    return has_gap


def _has_unequal_lists(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    lengths = np.stack([_list_lengths(batch[name]) for name in OBJECT_COLUMNS])
    return np.asarray((lengths != lengths[0]).any(axis=0))


def _any_element(column: pa.ListArray, is_set: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """For each list, whether ``is_set`` holds for any of its elements."""
    end = np.cumsum(_list_lengths(column))
    n_set = np.concatenate([[0], np.cumsum(is_set)])
    return np.diff(n_set[end], prepend=0) > 0


# A rule may rely on those before it.
_ROW_RULES: tuple[tuple[str, Callable[[pa.RecordBatch], npt.NDArray[np.bool_]], str], ...] = (
    ("a missing value", _has_gap, "a value in every column"),
    ("lists of unequal lengths", _has_unequal_lists, f"{', '.join(OBJECT_COLUMNS)} of one length"),
    (
        "an unknown tag",
        lambda batch: _any_element(batch["tag"], ~np.isin(batch["tag"].flatten(), list(OBJECTS))),
        KNOWN_TAGS,
    ),
    ("an unknown label", lambda batch: ~np.isin(batch["label"], list(LABEL_NAMES)), ", ".join(map(str, LABEL_NAMES))),
)
