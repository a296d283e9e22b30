"""The fixed-width layout of the four-top benchmark: 92 numbers per event, from CSV, HDF5 or NPZ.

Columns: 18 tags, MET, MET phi, then E, pT, eta, phi of each of the 18 slots. A slot is empty when its tag is 0,
whatever its other columns hold. Energies are in MeV unless declared otherwise (GeV, or natural logarithms of either).
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unmask.errors import BadDataError, UsageError, damage_named, nearest
from unmask.events.build import FlatEvents
from unmask.events.columns import Names
from unmask.events.event_set import OBJECT_COLUMNS
from unmask.events.objects import KNOWN_TAGS, OBJECTS, PADDING_TAG
from unmask.io.source import Chunk, Source
from unmask.io.text import Lines, checked_lines, decode_line, parse_number, read_table, stream_lines

HDF5_MAGIC = b"\x89HDF"
ZIP_MAGIC = b"PK\x03\x04"
#: A one-dimensional array of this name beside the table gives the process of each row.
PROCESS_ARRAY = "process"
#: Stands for an array of Python objects, which could only be unpickled.
_OBJECTS = np.empty(0, object)
#: Errors that h5py, zipfile and NumPy raise on damaged files.
_DAMAGE = (OSError, EOFError, ValueError, LookupError, RuntimeError, TypeError, zlib.error, BadZipFile)
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
    if magic == HDF5_MAGIC:
        yield from _stream_arrays(source, "HDF5", _hdf5)
    elif magic == ZIP_MAGIC:
        yield from _stream_arrays(source, "NPZ", _npz)
    else:
        yield from _stream_csv(source)


def _stream_arrays(
    source: Source, kind: str, open_arrays: Callable[[Path], AbstractContextManager[dict[str, Any]]]
) -> Iterator[Chunk]:
    with damage_named(source.path, f"cannot be read as {kind}", _DAMAGE), open_arrays(source.path) as arrays:
        name = _choose(source, arrays)
        table, process = arrays[name], arrays.get(name[: name.rfind("/") + 1] + PROCESS_ARRAY)
        if process is _OBJECTS:
            raise source.error(f"array {PROCESS_ARRAY!r} holds Python objects; save text as fixed-width strings")
        if process is not None and process.shape != (len(table),):
            raise source.error(
                f"array {PROCESS_ARRAY!r} has shape {process.shape}; accepted: ({len(table)},), one entry per event"
            )
        for first in range(0, len(table), source.options.chunk_events):
            part = slice(first, first + source.options.chunk_events)
            values = table[part].astype(np.float64)
            row = first + np.arange(len(values))
            names = None if process is None else _process_names(process[part].tolist(), row, source)
            yield _to_chunk(values, row, "row", row, names, source)
            source.progress(min(part.stop / len(table), 1.0))


@contextmanager
def _hdf5(path: Path) -> Iterator[dict[str, Any]]:
    import h5py

    arrays: dict[str, Any] = {}
    with h5py.File(path, "r") as file:
        # Links are not followed: a file must not lead the reader to other files.
        file.visititems(lambda name, item: arrays.update({name: item}) if isinstance(item, h5py.Dataset) else None)
        for name, item in arrays.items():
            if item.is_virtual or item.external:
                raise BadDataError(
                    f"array {name!r} keeps its values in other files; copy them into this one", path=path
                )
        yield {name: item for name, item in arrays.items() if item.shape is not None}


class _Unpacked:
    """An array in a file, mapped anew for every slice, so that memory holds one slice whatever the order."""

    def __init__(self, path: str) -> None:
        self._path = path
        array = np.load(path, mmap_mode="r")
        self.shape, self.dtype = array.shape, array.dtype

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        return np.array(np.load(self._path, mmap_mode="r")[part])


@contextmanager
def _npz(path: Path) -> Iterator[dict[str, Any]]:
    """Arrays of an NPZ file, unpacked to disk so that memory holds a slice; nothing is ever unpickled."""
    arrays: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".npy"):
                try:
                    arrays[name.removesuffix(".npy")] = _Unpacked(archive.extract(name, folder))
                except ValueError as error:
                    if "Python objects" not in str(error):
                        raise
                    arrays[name.removesuffix(".npy")] = _OBJECTS
        yield arrays


def _choose(source: Source, arrays: dict[str, Any]) -> str:
    """Name of the table to read: the one asked for, or the only one that fits."""
    asked = source.options.dataset
    if asked is not None:
        if asked not in arrays:
            raise UsageError(f"{source.path}: no array {asked!r}; {nearest(asked, arrays)}")
        arrays = {asked: arrays[asked]}
    fitting = [
        name
        for name, array in arrays.items()
        if len(array.shape) == 2 and array.shape[1] == N_COLUMNS and array.dtype.kind in "fiu"
    ]
    if len(fitting) > 1:
        names = ", ".join(fitting)
        raise UsageError(f"{source.path}: several arrays have {N_COLUMNS} columns: {names}; name the dataset to read")
    if not fitting:
        listed = ", ".join(f"{name} {array.shape} {array.dtype}" for name, array in arrays.items()) or "no arrays"
        raise source.error(f"holds {listed}; accepted: a table of numbers with {N_COLUMNS} columns", where=asked)
    return fitting[0]


def _process_names(values: list[Any], row: npt.NDArray[np.int64], source: Source) -> Names:
    """Process numbers or names as words; 1 and 1.0 are the process "1"."""
    words = []
    for value, place in zip(values, row, strict=True):
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        word = (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)).strip()
        if not word or not word.isprintable() or value != value:
            raise source.error(f"process is {value!r}; accepted: a name or a number", where=f"row {place}")
        words.append(word)
    return Names.of(words)


def _stream_csv(source: Source) -> Iterator[Chunk]:
    separator, n_header_lines = "", 0
    for lines in stream_lines(source, source.options.chunk_events * _BYTES_PER_EVENT):
        if not separator:
            first_line = next(iter(lines))
            separator = max(",", ";", key=lambda mark: first_line.count(mark.encode()))
            if _is_header(first_line, separator):
                n_header_lines = 1
                lines = lines.keep(lines.row > 0)
        if (values := _parse_block(lines, separator)) is None:
            lines = checked_lines(lines, partial(_check_line, separator=separator), source)
            values = _parse_block(lines, separator)
        if len(lines):
            assert values is not None, lines.data  # plain lines fit
            yield _to_chunk(values, lines.row - n_header_lines, "line", lines.number, None, source)


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
    """Parse all lines at once; None if any of them needs a closer look, or there are none."""
    if not len(lines) or not lines.is_plain:
        return None
    data = np.frombuffer(lines.data, np.uint8)[lines.start[0] : lines.end[-1]]
    table = read_table(data, [pa.float64()] * N_COLUMNS, separator=separator, empty_is_nan=True)
    if table is None or len(table) != len(lines):
        return None
    return np.stack([column.to_numpy() for column in table.columns], axis=1)


def _check_line(line: bytes, separator: str) -> str:
    """A line as the block parser takes it; raises a ValueError that names a mistake."""
    fields = decode_line(line, _ACCEPTED).split(separator)
    if len(fields) != N_COLUMNS:
        raise ValueError(f"{len(fields)} fields separated by {separator!r}; accepted: {_ACCEPTED}")
    # An empty field may stand in an empty slot; elsewhere the checks refuse what it becomes.
    pairs = zip(COLUMN_NAMES, fields, strict=True)
    return separator.join(repr(parse_number(name, field)) if field.strip() else "" for name, field in pairs)


def _to_chunk(
    values: npt.NDArray[np.float64],
    row: npt.NDArray[np.int64],
    where: str,
    number: npt.NDArray[np.int64],
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
        source.bad.add("bad tag", source.error(message, f"{where} {number[first]}"), int(np.count_nonzero(~is_good)))
    kept = np.flatnonzero(is_good)
    values, tag = values[kept], tag[kept]

    is_object = tag != PADDING_TAG
    kinematics = values[:, _FIRST_OBJECT:].reshape(-1, MAX_OBJECTS, _N_KINEMATICS)[is_object]  # (n_objects, 4)
    if process_names is None or source.options.process:
        process_names = Names.constant(source.default_process, len(row))
    events = FlatEvents(
        row=row[kept],
        event_id=row[kept],
        process_names=process_names[kept],
        weight=np.ones(len(kept)),
        met_mev=values[:, _MET],
        met_phi=values[:, _MET_PHI],
        n_objects=np.count_nonzero(is_object, axis=1).astype(np.int64),
        tag=tag[is_object].astype(np.uint8),
        **dict(zip(OBJECT_COLUMNS[1:], kinematics.T, strict=True)),
    )
    return Chunk(events.in_mev(source.options.unit), where, number[kept])
