"""The fixed-width layout of the four-top benchmark: 92 numbers per event, from CSV, HDF5 or NPZ.

Columns: 18 tags, MET, MET phi, then E, pT, eta, phi of each of the 18 slots. A slot is empty when its tag is 0,
whatever its other columns hold. Energies are in MeV unless declared otherwise (GeV, or natural logarithms of either).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unmask.events.build import FlatEvents
from unmask.events.columns import Names
from unmask.events.event_set import OBJECT_COLUMNS
from unmask.events.objects import KNOWN_TAGS, OBJECTS, PADDING_TAG
from unmask.io.array_files import HDF5_MAGIC, ZIP_MAGIC, read_rows
from unmask.io.source import Chunk, Source
from unmask.io.text import Lines, decode_line, parse_each, parse_number, read_table, stream_lines

#: Slots for objects of this layout.
MAX_OBJECTS = 18
_MET, _MET_PHI, _FIRST_OBJECT = MAX_OBJECTS, MAX_OBJECTS + 1, MAX_OBJECTS + 2
#: E, pT, eta, phi
_N_KINEMATICS = 4
N_COLUMNS = _FIRST_OBJECT + MAX_OBJECTS * _N_KINEMATICS
COLUMN_NAMES = (
    *(f"tag{i}" for i in range(1, MAX_OBJECTS + 1)),
    *("MET", "METphi"),
    *(f"{name}{i}" for i in range(1, MAX_OBJECTS + 1) for name in ("E", "pt", "eta", "phi")),
)
_BYTES_PER_EVENT = 700
_ACCEPTED = f"{N_COLUMNS} numbers separated by ',' or ';', one event per line"


def stream(source: Source) -> Iterator[Chunk]:
    """Yield the events of a file, some rows at a time."""
    with source.path.open("rb") as file:
        magic = file.read(4)
    if magic not in (HDF5_MAGIC, ZIP_MAGIC):
        yield from _stream_csv(source)
        return
    for rows in read_rows(source, N_COLUMNS):
        row = rows.first + np.arange(len(rows.values), dtype=np.int64)
        names = None if source.options.process else rows.process_names
        yield _to_chunk(rows.values, row, _place_of(row), names, source)


def _place_of(row: npt.NDArray[np.int64]) -> Callable[[int], str]:
    return lambda index: f"row {row[index]}"


def _stream_csv(source: Source) -> Iterator[Chunk]:
    separator, n_header_lines = "", 0
    for lines in stream_lines(source, source.options.chunk_events * _BYTES_PER_EVENT):
        if not separator:
            first_line = next(iter(lines))
            separator = max(",", ";", key=lambda mark: first_line.count(mark.encode()))
            if _is_header(first_line, separator):
                n_header_lines = 1
                lines = lines.keep(lines.row > 0)
        if not len(lines):
            continue
        values, good_lines = _parse_block(lines, separator), lines
        if values is None:
            rows, good_lines = parse_each(lines, partial(_parse_line, separator=separator), source)
            values = np.array(rows, np.float64).reshape(-1, N_COLUMNS)
        yield _to_chunk(values, good_lines.row - n_header_lines, good_lines.place, None, source)


def _is_header(line: bytes, separator: str) -> bool:
    """Whether a line holds names: several fields, and not a single number."""
    fields = line.decode("utf-8", "replace").split(separator)
    return len(fields) > 1 and any(field.strip() for field in fields) and not any(map(_is_number, fields))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parse_block(lines: Lines, separator: str) -> npt.NDArray[np.float64] | None:
    """Parse all lines at once; None if any of them needs a closer look."""
    if not lines.is_plain:
        return None
    data = np.frombuffer(lines.data, np.uint8)[lines.start[0] : lines.end[-1]]
    table = read_table(data, [pa.float64()] * N_COLUMNS, separator=separator, empty_is_nan=True)
    if table is None or len(table) != len(lines):
        return None
    return np.stack([column.to_numpy() for column in table.columns], axis=1)


def _parse_line(line: bytes, separator: str) -> list[float]:
    fields = decode_line(line, _ACCEPTED).split(separator)
    if len(fields) != N_COLUMNS:
        raise ValueError(f"{len(fields)} fields separated by {separator!r}; accepted: {_ACCEPTED}")
    # An empty field may stand in an empty slot; elsewhere the checks refuse what it becomes.
    return [
        parse_number(name, field) if field.strip() else np.nan for name, field in zip(COLUMN_NAMES, fields, strict=True)
    ]


def _to_chunk(
    values: npt.NDArray[np.float64],
    row: npt.NDArray[np.int64],
    place: Callable[[int], str],
    process_names: Names | None,
    source: Source,
) -> Chunk:
    """Turn a table of 92 columns into events; rows with a tag that is none go to ``source.bad``."""
    tag = values[:, :MAX_OBJECTS]
    is_tag = np.isin(tag, [PADDING_TAG, *OBJECTS])
    is_good = is_tag.all(axis=1)
    if not is_good.all():
        first = int(np.argmin(is_good))
        slot = int(np.argmin(is_tag[first]))
        message = f"{COLUMN_NAMES[slot]} is {tag[first, slot]:.6g}; accepted: 0 for an empty slot, {KNOWN_TAGS}"
        source.bad.add("bad tag", source.error(message, place(first)), int(np.count_nonzero(~is_good)))
    kept = np.flatnonzero(is_good)
    values, tag = values[kept], tag[kept]

    is_object = tag != PADDING_TAG
    kinematics = values[:, _FIRST_OBJECT:].reshape(-1, MAX_OBJECTS, _N_KINEMATICS)[is_object]  # (n_objects, 4)
    names = process_names or Names.constant(source.default_process, len(row))
    events = FlatEvents(
        row=row[kept],
        event_id=row[kept],
        process_names=names[kept],
        weight=np.ones(len(kept)),
        met_mev=values[:, _MET],
        met_phi=values[:, _MET_PHI],
        n_objects=np.count_nonzero(is_object, axis=1).astype(np.int64),
        tag=tag[is_object].astype(np.uint8),
        **dict(zip(OBJECT_COLUMNS[1:], kinematics.T, strict=True)),
    )
    return Chunk(events.in_mev(source.options.unit), lambda index: place(int(kept[index])))
