"""Tables of numbers in HDF5 and NPZ files, a slice of rows at a time."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
import numpy.typing as npt

from unmask.errors import UnmaskError, UsageError, nearest
from unmask.events.columns import Names
from unmask.io.source import Source

HDF5_MAGIC = b"\x89HDF"
ZIP_MAGIC = b"PK\x03\x04"
#: A one-dimensional array of this name beside the table gives the process of each row.
PROCESS_ARRAY = "process"
#: Stands for an array of Python objects, which could only be unpickled.
_OBJECTS = np.empty(0, object)


@dataclass(frozen=True)
class Rows:
    """Some consecutive rows of a table, and their processes if the file names them."""

    first: int
    values: npt.NDArray[np.float64]
    process_names: Names | None


def read_rows(source: Source, n_columns: int) -> Iterator[Rows]:
    """Yield the table with ``n_columns`` columns of an HDF5 or NPZ file, ``chunk_events`` rows at a time."""
    with source.path.open("rb") as file:
        is_hdf5 = file.read(4) == HDF5_MAGIC
    with _errors_named(source, "HDF5" if is_hdf5 else "NPZ"), (_hdf5 if is_hdf5 else _npz)(source.path) as arrays:
        name = _choose(source, arrays, n_columns)
        table, process = arrays[name], arrays.get(name[: name.rfind("/") + 1] + PROCESS_ARRAY)
        if process is _OBJECTS:
            raise source.error(f"array {PROCESS_ARRAY!r} holds Python objects; save text as fixed-width strings")
        if process is not None and process.shape != (len(table),):
            raise source.error(
                f"array {PROCESS_ARRAY!r} has shape {process.shape}; accepted: ({len(table)},), one entry per event"
            )
        for first in range(0, len(table), source.options.chunk_events):
            part = slice(first, first + source.options.chunk_events)
            words = None if process is None else _words(process[part], first, source)
            yield Rows(first, table[part].astype(np.float64), words)
            source.progress(min(part.stop / len(table), 1.0))


@contextmanager
def _hdf5(path: Path) -> Iterator[dict[str, Any]]:
    import h5py

    arrays: dict[str, Any] = {}
    with h5py.File(path, "r") as file:
        # Links are not followed: a file must not lead the reader to other files.
        file.visititems(lambda name, item: arrays.update({name: item}) if isinstance(item, h5py.Dataset) else None)
        yield {name: item for name, item in arrays.items() if item.shape is not None}


@contextmanager
def _npz(path: Path) -> Iterator[dict[str, Any]]:
    """Arrays of an NPZ file, unpacked to disk so that memory holds a slice; nothing is ever unpickled."""
    arrays: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".npy"):
                try:
                    arrays[name.removesuffix(".npy")] = np.load(archive.extract(name, folder), mmap_mode="r")
                except ValueError as error:
                    if "Python objects" not in str(error):
                        raise
                    arrays[name.removesuffix(".npy")] = _OBJECTS
        yield arrays


@contextmanager
def _errors_named(source: Source, kind: str) -> Iterator[None]:
    """Turn whatever a damaged file makes the libraries raise into an error that names the file."""
    try:
        yield
    except UnmaskError:
        raise
    except (OSError, EOFError, ValueError, LookupError, RuntimeError, TypeError, zlib.error, BadZipFile) as error:
        raise source.error(f"cannot be read as {kind}: damaged, truncated or of another kind ({error})") from None


def _choose(source: Source, arrays: dict[str, Any], n_columns: int) -> str:
    """Name of the table to read: the one asked for, or the only one that fits."""
    asked = source.options.dataset
    if asked is not None and asked not in arrays:
        raise UsageError(f"{source.path}: no array {asked!r}; {nearest(asked, arrays)}")
    fitting = [
        name
        for name, array in arrays.items()
        if len(array.shape) == 2 and array.shape[1] == n_columns and array.dtype.kind in "fiu" and asked in (None, name)
    ]
    if len(fitting) > 1:
        names = ", ".join(fitting)
        raise UsageError(f"{source.path}: several arrays have {n_columns} columns: {names}; name the dataset to read")
    if not fitting:
        listed = ", ".join(f"{name} {array.shape} {array.dtype}" for name, array in arrays.items()) or "no arrays"
        raise source.error(f"holds {listed}; accepted: a table of numbers with {n_columns} columns", where=asked)
    return fitting[0]


def _words(values: npt.NDArray[Any], first_row: int, source: Source) -> Names:
    """Process numbers or names as words; 1 and 1.0 are the process "1"."""
    return Names.of(_word(value, first_row + i, source) for i, value in enumerate(values.tolist()))


def _word(value: object, row: int, source: Source) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = value.decode("utf-8", "replace").strip() if isinstance(value, bytes) else str(value).strip()
    if not text or not text.isprintable() or value != value:
        raise source.error(f"process is {value!r}; accepted: a name or a number", where=f"row {row}")
    return text
