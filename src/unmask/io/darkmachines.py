"""Dark Machines CSV: ``event ID; process ID; event weight; MET; METphi; obj,E,pt,eta,phi; ...``, energies in MeV.

A block of lines is cut at the fifth semicolon of each line into a table of event headers and one of objects, both of
which pyarrow parses as plain CSV. The lines of a block that does not fit go one by one through ``_check_line``, which
names the mistakes and writes the others in plain form; then they are parsed as a block.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from unmask.artifacts import atomic_path
from unmask.errors import UsageError, nearest
from unmask.events.build import FlatEvents
from unmask.events.columns import Names
from unmask.events.event_set import OBJECT_COLUMNS, EventSet
from unmask.events.objects import OBJECTS, SYMBOL_TAGS, TAG_LIMIT
from unmask.io.source import Chunk, Source
from unmask.io.text import Lines, checked_lines, decode_line, parse_number, read_table, stream_lines
from unmask.tables import WORDS

#: Header and object have five fields each.
N_FIELDS = 5
_BYTES_PER_EVENT = 200
#: Small enough for a core's cache.
_MAX_BLOCK_BYTES = 1 << 20
_MAX_THREADS = 4
_HEADER_TYPES = [pa.int64(), WORDS, *[pa.float64()] * 3]
#: Between the fields of a header; no name of a process holds it.
_HEADER_SEPARATOR = "\x1f"
_OBJECT_TYPES = [WORDS, *[pa.float64()] * 4]


def stream(source: Source) -> Iterator[Chunk]:
    """Yield the events of a file, a block of lines at a time."""
    block_bytes = min(source.options.chunk_events * _BYTES_PER_EVENT, _MAX_BLOCK_BYTES)
    for lines, parsed in _parse_ahead(stream_lines(source, block_bytes)):
        if parsed is None:
            lines = checked_lines(lines, _check_line, source)
            if not len(lines):
                continue
            parsed = _parse_block(lines)
            assert parsed is not None, lines.data  # plain lines fit
        if source.options.process:
            parsed = replace(parsed, process_names=Names.constant(source.options.process, len(parsed)))
        yield Chunk(parsed.in_mev(source.options.unit), "line", lines.number)


def write_csv(path: str | Path, parts: Iterable[EventSet]) -> int:
    """Write a stream of events in MeV, compressed where the path ends in .gz, and return how many there were.

    The format has no place for labels, files, run numbers and further columns.
    """
    n_events = 0
    with atomic_path(path) as scratch:
        is_compressed = str(path).endswith(".gz")
        sink = pa.CompressedOutputStream(str(scratch), "gzip") if is_compressed else pa.OSFile(str(scratch), "wb")
        with sink:
            for events in parts:
                sink.write(_to_lines(events))
                n_events += len(events)
    return n_events


def _to_lines(events: EventSet) -> bytes:
    for name in events.process_names.counts():
        if ";" in name or not name.isprintable() or name != name.strip() or not name:
            raise UsageError(f"process {name!r} cannot be written as Dark Machines CSV; name it with --process")

    def joined(columns: Iterable[Any], separator: str) -> pa.Array:
        return pc.binary_join_element_wise(*(pc.cast(pa.array(one), pa.string()) for one in columns), separator)

    is_object = events.is_object
    symbol = np.array([OBJECTS[tag].symbols[0] if tag in OBJECTS else "" for tag in range(TAG_LIMIT)])
    numbers = [getattr(events, name)[is_object] for name in OBJECT_COLUMNS[1:]]
    objects = joined([symbol[events.tag[is_object]], *numbers], ",")
    offsets = np.concatenate([[0], np.cumsum(events.n_objects)]).astype(np.int32)
    head = [events.event_id, events.process, events.weight, events.met_mev, events.met_phi]
    lines = joined([*head, pc.binary_join(pa.ListArray.from_arrays(offsets, objects), ";")], ";")
    return "".join(f"{line}\n" for line in lines.to_pylist()).encode()


def _parse_ahead(blocks: Iterator[Lines]) -> Iterator[tuple[Lines, FlatEvents | None]]:
    """Parse a few blocks at a time, since numpy and pyarrow let threads run, and give them in their order."""
    n_threads = min(os.cpu_count() or 1, _MAX_THREADS)
    with ThreadPoolExecutor(n_threads) as pool:
        waiting: deque[tuple[Lines, Future[FlatEvents | None]]] = deque()
        for lines in blocks:
            waiting.append((lines, pool.submit(_parse_block, lines)))
            if len(waiting) > n_threads:
                first, parsed = waiting.popleft()
                yield first, parsed.result()
        for lines, parsed in waiting:
            yield lines, parsed.result()


def _parse_block(lines: Lines) -> FlatEvents | None:
    """Parse all lines at once; None if any of them needs a closer look."""
    if not lines.is_plain:
        return None
    data = np.frombuffer(lines.data, np.uint8)
    is_semicolon = data == ord(";")
    semicolon = np.flatnonzero(is_semicolon)
    if not len(semicolon):
        return None
    first = np.searchsorted(semicolon, lines.start)
    n_semicolons = np.searchsorted(semicolon, lines.end) - first
    if n_semicolons.min() < N_FIELDS - 1:
        return None
    has_objects = n_semicolons >= N_FIELDS
    fifth = semicolon[np.minimum(first + N_FIELDS - 1, len(semicolon) - 1)]
    header_end = np.where(has_objects, fifth, lines.end)
    n_objects = np.where(has_objects, n_semicolons - N_FIELDS + (data[lines.end - 1] != ord(";")), 0)

    # Headers and objects become lines in a table of their own each.
    as_lines = data.copy()
    as_lines[semicolon] = ord("\n")
    header_semicolons = (first[:, None] + np.arange(N_FIELDS - 1)).ravel()
    as_lines[semicolon[header_semicolons]] = ord(_HEADER_SEPARATOR)
    # The separator after a header ends its line. Before the first header stands nothing, then they alternate with rest.
    after_header = np.minimum(header_end + 1, len(data))
    bounds = np.concatenate([[0], np.stack([lines.start, after_header], axis=1).ravel(), [len(data)]])
    in_header = np.repeat(np.arange(len(bounds) - 1) % 2 == 1, np.diff(bounds))
    header = read_table(as_lines[in_header], _HEADER_TYPES, separator=_HEADER_SEPARATOR)
    objects = read_table(as_lines[~in_header], _OBJECT_TYPES)
    if header is None or objects is None or len(header) != len(lines) or len(objects) != n_objects.sum():
        return None
    tag = _tags(objects.column(0))
    process = _processes(header.column(1))
    if tag is None or process is None:
        return None
    weight, met, met_phi = (header.column(i).to_numpy() for i in (2, 3, 4))
    return FlatEvents(
        row=lines.row,
        event_id=header.column(0).to_numpy(),
        process_names=process,
        weight=weight,
        met_mev=met,
        met_phi=met_phi,
        n_objects=n_objects,
        tag=tag,
        **{name: objects.column(i).to_numpy() for i, name in enumerate(OBJECT_COLUMNS) if name != "tag"},
    )


def _tags(symbols: pa.ChunkedArray) -> npt.NDArray[np.uint8] | None:
    coded = symbols.combine_chunks()
    tags = [SYMBOL_TAGS.get(str(symbol).strip()) for symbol in coded.dictionary]
    if None in tags:
        return None
    tag: npt.NDArray[np.uint8] = np.array([*tags, 0], np.uint8)[coded.indices.to_numpy()]
    return tag


def _processes(names: pa.ChunkedArray) -> Names | None:
    coded = names.combine_chunks()
    words = [str(word).strip() for word in coded.dictionary]
    if not all(word and word.isprintable() for word in words):
        return None
    # Words that differ only in the spaces around them are one.
    code_of = Names.of(words)
    return Names(code_of.code[coded.indices.to_numpy()], code_of.words)


def _check_line(line: bytes) -> str:
    """A line as the block parser takes it; raises a ValueError that names a mistake."""
    text = decode_line(line, "Dark Machines CSV, one event per line")
    fields = text.split(";")
    if len(fields) < N_FIELDS:
        raise ValueError(
            f"{len(fields)} fields separated by ';' in {text[:60]!r}; accepted: event ID; process ID; event weight; "
            "MET; METphi; then objects"
        )
    name = fields[1].strip()
    if not name:
        raise ValueError("the process ID is empty")
    event_id = _whole(fields[0])
    numbers = map(parse_number, ("event weight", "MET", "METphi"), fields[2:N_FIELDS])
    header = [str(event_id), name, *map(repr, numbers)]
    while len(fields) > N_FIELDS and not fields[-1].strip():
        fields.pop()
    return ";".join([*header, *map(_check_object, fields[N_FIELDS:])])


def _check_object(field: str) -> str:
    parts = field.split(",")
    if len(parts) != N_FIELDS:
        raise ValueError(f"object {field.strip()!r} has {len(parts)} fields; accepted: obj,E,pt,eta,phi")
    symbol = parts[0].strip()
    if symbol not in SYMBOL_TAGS:
        raise ValueError(f"unknown object symbol {symbol!r}; {nearest(symbol, SYMBOL_TAGS)}")
    return ",".join([symbol, *map(repr, map(parse_number, ("E", "pt", "eta", "phi"), parts[1:]))])


def _whole(text: str) -> int:
    """An event ID; exact also beyond 2^53, where a double is not, and accepted also as ``1e+06``."""
    number = parse_number("event ID", text)
    try:
        whole = int(text)
    except ValueError:
        whole = int(number) if number.is_integer() else 2**63
    if not -(2**63) <= whole < 2**63:
        raise ValueError(f"event ID is {text.strip()!r}; accepted: a whole number of 64 bits")
    return whole
