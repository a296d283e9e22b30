"""Dark Machines CSV: ``event ID; process ID; event weight; MET; METphi; obj,E,pt,eta,phi; ...``, energies in MeV.

Fast path: a block of lines is cut at the fifth semicolon of each line into a table of event headers and one of
objects, both of which pyarrow parses as plain CSV. Whatever does not fit goes line by line through ``_parse_line``,
which finds the faulty line and says what is wrong with it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from unmask.errors import BadDataError, nearest
from unmask.events.event_set import Names
from unmask.events.flat import FlatEvents
from unmask.events.objects import SYMBOL_TAGS
from unmask.events.readers.base import Chunk, Source, read_blocks, to_mev

#: Header and object have five fields each.
N_FIELDS = 5
_BYTES_PER_EVENT = 200
_PARSE = pa.csv.ParseOptions(delimiter=",", quote_char=False, escape_char=False, newlines_in_values=False)
_HEADER_TYPES = [pa.int64(), pa.string(), pa.float64(), pa.float64(), pa.float64()]
_OBJECT_TYPES = [pa.string(), pa.float64(), pa.float64(), pa.float64(), pa.float64()]
_SPACE_AT_LINE_END = re.compile(rb"[ \t]+(?=\n)|[ \t]+\Z")


def stream(source: Source) -> Iterator[Chunk]:
    """Yield the events of a file, a block of lines at a time."""
    next_row, next_line = 0, 1
    for block in read_blocks(source, source.options.chunk_events * _BYTES_PER_EVENT):
        lines = _Lines.of(block, next_row, next_line)
        next_row += len(lines.number)
        next_line += block.count(b"\n")
        if not len(lines.number):
            continue
        parsed = _parse_block(lines)
        if parsed is None:
            parsed, lines = _parse_line_by_line(lines, source)
        yield Chunk(_finish(parsed, source), lines.place)


@dataclass(frozen=True)
class _Lines:
    """The lines of a block that are not empty: normalised bytes, bounds, row and line numbers."""

    data: bytes
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    row: npt.NDArray[np.int64]
    number: npt.NDArray[np.int64]

    @classmethod
    def of(cls, block: bytes, first_row: int, first_line: int) -> _Lines:
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        if b" " in block or b"\t" in block:
            block = _SPACE_AT_LINE_END.sub(b"", block)
        end = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
        if not block.endswith(b"\n"):
            end = np.append(end, len(block))
        start = np.concatenate([[0], end[:-1] + 1]) if len(end) else end
        is_filled = end > start
        number = first_line + np.flatnonzero(is_filled)
        row = first_row + np.arange(len(number))
        return cls(block, start[is_filled], end[is_filled], row, number)

    def place(self, index: int) -> str:
        return f"line {self.number[index]}"

    def keep(self, is_kept: npt.NDArray[np.bool_]) -> _Lines:
        return _Lines(self.data, self.start[is_kept], self.end[is_kept], self.row[is_kept], self.number[is_kept])


def _parse_block(lines: _Lines) -> FlatEvents | None:
    """Parse all lines at once; None if any of them needs a closer look."""
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

    # Fields of headers and of objects become comma-separated lines in a table of their own each.
    is_header = np.zeros(len(data) + 1, np.int8)
    is_header[lines.start] = 1
    is_header[header_end] = -1
    is_header = np.cumsum(is_header[:-1], dtype=np.int8)
    as_lines = data.copy()
    as_lines[is_semicolon] = ord("\n")
    header_semicolons = (first[:, None] + np.arange(N_FIELDS - 1)).ravel()
    as_lines[semicolon[header_semicolons]] = ord(",")
    is_header[header_end[header_end < len(data)]] = 1  # the separator after a header ends its line
    as_lines[header_end[header_end < len(data)]] = ord("\n")
    in_header = is_header.view(np.bool_)
    header = _read_table(as_lines[in_header], _HEADER_TYPES)
    objects = _read_table(as_lines[~in_header], _OBJECT_TYPES)
    if header is None or objects is None or len(header) != len(lines.row) or len(objects) != n_objects.sum():
        return None
    tag = _tags(objects.column(0))
    process = _processes(header.column(1))
    if tag is None or process is None:
        return None
    weight, met, met_phi = (header.column(i).to_numpy() for i in (2, 3, 4))
    energy, pt, eta, phi = (objects.column(i).to_numpy() for i in (1, 2, 3, 4))
    return FlatEvents(
        row=lines.row,
        event_id=header.column(0).to_numpy(),
        process_names=process,
        weight=weight,
        met_mev=met,
        met_phi=met_phi,
        n_objects=n_objects,
        tag=tag,
        energy_mev=energy,
        pt_mev=pt,
        eta=eta,
        phi=phi,
    )


def _read_table(data: npt.NDArray[np.uint8], types: list[pa.DataType]) -> pa.Table | None:
    names = [str(i) for i in range(N_FIELDS)]
    if not np.any(data != ord("\n")):
        return pa.table({name: pa.array([], kind) for name, kind in zip(names, types, strict=True)})
    try:
        return pa.csv.read_csv(
            pa.BufferReader(pa.py_buffer(data)),
            read_options=pa.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
            parse_options=_PARSE,
            convert_options=pa.csv.ConvertOptions(
                column_types=dict(zip(names, types, strict=True)), null_values=[], strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid:
        return None


def _tags(symbols: pa.ChunkedArray) -> npt.NDArray[np.uint8] | None:
    coded = symbols.combine_chunks().dictionary_encode()
    tags = [SYMBOL_TAGS.get(str(symbol).strip()) for symbol in coded.dictionary]
    if None in tags:
        return None
    table = np.array([*tags, 0], np.uint8)
    return table[coded.indices.to_numpy()]


def _processes(names: pa.ChunkedArray) -> Names | None:
    coded = pc.utf8_trim_whitespace(names).combine_chunks().dictionary_encode()
    words = tuple(coded.dictionary.to_pylist())
    return None if "" in words else Names(coded.indices.to_numpy().astype(np.int32), words)


def _parse_line_by_line(lines: _Lines, source: Source) -> tuple[FlatEvents, _Lines]:
    """Parse what the fast path could not; bad lines raise or are skipped and counted."""
    headers: list[tuple[int, str, float, float, float]] = []
    objects: list[list[tuple[int, float, float, float, float]]] = []
    is_good = np.ones(len(lines.row), np.bool_)
    for i, (start, end) in enumerate(zip(lines.start, lines.end, strict=True)):
        try:
            header, its_objects = _parse_line(lines.data[start:end])
        except ValueError as error:
            where = lines.place(i)
            source.bad.add("malformed line", BadDataError(str(error), path=source.path, where=where))
            is_good[i] = False
            continue
        headers.append(header)
        objects.append(its_objects)
    lines = lines.keep(is_good)
    event_id, process, weight, met, met_phi = zip(*headers, strict=True) if headers else [()] * N_FIELDS
    flat = np.array([one for event in objects for one in event], np.float64).reshape(-1, N_FIELDS)
    events = FlatEvents(
        row=lines.row,
        event_id=np.array(event_id, np.int64),
        process_names=Names.of(process),
        weight=np.array(weight, np.float64),
        met_mev=np.array(met, np.float64),
        met_phi=np.array(met_phi, np.float64),
        n_objects=np.array([len(event) for event in objects], np.int64),
        tag=flat[:, 0].astype(np.uint8),
        energy_mev=flat[:, 1],
        pt_mev=flat[:, 2],
        eta=flat[:, 3],
        phi=flat[:, 4],
    )
    return events, lines


def _parse_line(
    line: bytes,
) -> tuple[tuple[int, str, float, float, float], list[tuple[int, float, float, float, float]]]:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if not text.isprintable() and not text.replace("\t", "").isprintable():
        raise ValueError(f"not text: {line[:20]!r}; accepted: Dark Machines CSV, one event a line")
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
    weight, met, met_phi = map(_number, ("event weight", "MET", "METphi"), fields[2:N_FIELDS])
    while len(fields) > N_FIELDS and not fields[-1].strip():
        fields.pop()
    objects = [_parse_object(field) for field in fields[N_FIELDS:]]
    return (event_id, name, weight, met, met_phi), objects


def _parse_object(field: str) -> tuple[int, float, float, float, float]:
    parts = field.split(",")
    if len(parts) != N_FIELDS:
        raise ValueError(f"object {field.strip()!r} has {len(parts)} fields; accepted: obj,E,pt,eta,phi")
    symbol = parts[0].strip()
    if symbol not in SYMBOL_TAGS:
        raise ValueError(f"unknown object symbol {symbol!r}; {nearest(symbol, SYMBOL_TAGS)}")
    energy, pt, eta, phi = map(_number, ("E", "pt", "eta", "phi"), parts[1:])
    return SYMBOL_TAGS[symbol], energy, pt, eta, phi


def _number(name: str, text: str) -> float:
    try:
        if "_" in text:
            raise ValueError
        return float(text)
    except ValueError:
        raise ValueError(f"{name} is {text.strip()!r}; accepted: a number") from None


def _whole(text: str) -> int:
    """An event ID; exact also beyond 2^53, where a double is not, and accepted also as ``1e+06``."""
    number = _number("event ID", text)
    if not math.isfinite(number) or number != int(number) or not -(2**63) <= number < 2**63:
        raise ValueError(f"event ID is {text.strip()!r}; accepted: a whole number of 64 bits")
    try:
        return int(text)
    except ValueError:
        return int(number)


def _finish(events: FlatEvents, source: Source) -> FlatEvents:
    """Apply the declared unit and process name."""
    unit, process = source.options.unit, source.options.process
    if unit not in (None, "MeV"):
        events = replace(
            events,
            met_mev=to_mev(events.met_mev, unit),
            energy_mev=to_mev(events.energy_mev, unit),
            pt_mev=to_mev(events.pt_mev, unit),
        )
    return replace(events, process_names=Names.constant(process, len(events))) if process else events
