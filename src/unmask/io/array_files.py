"""Tables of numbers in HDF5 and NPZ files, a slice of rows at a time."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from unmask.errors import UnmaskError, UsageError, nearest
from unmask.events.columns import Names
from unmask.io.source import Source

HDF5_MAGIC = b"\x89HDF"
ZIP_MAGIC = b"PK\x03\x04"
#: A one-dimensional array of this name beside the table gives the process of each row.
PROCESS_ARRAY = "process"


@dataclass(frozen=True)
class Rows:
    """Some consecutive rows of a table, and their processes if the file names them."""

    first: int
    values: npt.NDArray[np.float64]
    process_names: Names | None


def read_hdf5_rows(source: Source, n_columns: int) -> Iterator[Rows]:
    """Yield the table with ``n_columns`` columns of an HDF5 file, ``chunk_events`` rows at a time."""
    import h5py

    with _errors_named(source, "HDF5"), h5py.File(source.path, "r") as file:
        arrays: dict[str, Any] = {}
        # Links are not followed: a file must not lead the reader to other files.
        file.visititems(lambda name, item: arrays.update({name: item}) if isinstance(item, h5py.Dataset) else None)
        name = _choose(source, {key: (item.shape or (), item.dtype) for key, item in arrays.items()}, n_columns)
        table = arrays[name]
        process = arrays.get(name[: name.rfind("/") + 1] + PROCESS_ARRAY)
        _check_process_array(source, None if process is None else process.shape, len(table))
        for first in range(0, len(table), source.options.chunk_events):
            part = slice(first, first + source.options.chunk_events)
            words = None if process is None else _words(process[part], first, source)
            yield Rows(first, table[part].astype(np.float64), words)
            source.progress(min(part.stop / len(table), 1.0))


def read_npz_rows(source: Source, n_columns: int) -> Iterator[Rows]:
    """Yield the table with ``n_columns`` columns of an NPZ file, ``chunk_events`` rows at a time.

    An array in Fortran order lies column by column in the file and is read whole. Arrays of Python objects are
    refused: nothing is ever unpickled.
    """
    with _errors_named(source, "NPZ"), zipfile.ZipFile(source.path) as archive, ExitStack() as streams:
        arrays: dict[str, _NpyArray] = {}
        for member in archive.namelist():
            if member.endswith(".npy"):
                arrays[member.removesuffix(".npy")] = _NpyArray.of(streams.enter_context(archive.open(member)))
        table = arrays[_choose(source, {name: (array.shape, array.dtype) for name, array in arrays.items()}, n_columns)]
        n_rows = table.shape[0]
        process = arrays.get(PROCESS_ARRAY)
        _check_process_array(source, None if process is None else process.shape, n_rows)
        processes = None if process is None else process.slices(source.options.chunk_events)
        first = 0
        for values in table.slices(source.options.chunk_events):
            words = None if processes is None else _words(next(processes), first, source)
            yield Rows(first, values.astype(np.float64), words)
            first += len(values)
            source.progress(first / n_rows)


@dataclass(frozen=True)
class _NpyArray:
    """An array in NumPy's file format: its header, and the stream that continues with its content."""

    stream: IO[bytes]
    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, stream: IO[bytes]) -> _NpyArray:
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(np.lib.format.read_magic(stream))
        if read_header is None:
            raise ValueError("unknown version of the npy format")
        return cls(stream, *read_header(stream))

    def slices(self, n_rows: int) -> Iterator[npt.NDArray[Any]]:
        if self.dtype.hasobject:
            raise ValueError("an array of Python objects; save text as fixed-width strings")
        if self.is_fortran and len(self.shape) > 1:
            whole = self._take(self.shape[0]).reshape(self.shape[::-1]).T
            yield from (whole[first : first + n_rows] for first in range(0, len(whole), n_rows))
            return
        for first in range(0, self.shape[0], n_rows):
            n = min(n_rows, self.shape[0] - first)
            yield self._take(n).reshape(n, *self.shape[1:])

    def _take(self, n_rows: int) -> npt.NDArray[Any]:
        n_bytes = n_rows * math.prod(self.shape[1:]) * self.dtype.itemsize
        data = self.stream.read(n_bytes)
        if len(data) != n_bytes:
            raise EOFError("an array ends early")
        return np.frombuffer(data, self.dtype)


@contextmanager
def _errors_named(source: Source, kind: str) -> Iterator[None]:
    """Turn whatever a damaged file makes the libraries raise into an error that names the file."""
    try:
        yield
    except UnmaskError:
        raise
    except (
        OSError,
        EOFError,
        ValueError,
        LookupError,
        RuntimeError,
        TypeError,
        zlib.error,
        zipfile.BadZipFile,
    ) as error:
        raise source.error(f"cannot be read as {kind}: damaged, truncated or of another kind ({error})") from None


def _choose(source: Source, arrays: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]], n_columns: int) -> str:
    """Name of the table to read: the one asked for, or the only one that fits."""
    asked = source.options.dataset
    if asked is not None and asked not in arrays:
        raise UsageError(f"{source.path}: no array {asked!r}; {nearest(asked, arrays)}")
    fitting = [
        name
        for name, (shape, dtype) in arrays.items()
        if len(shape) == 2 and shape[1] == n_columns and dtype.kind in "fiu" and asked in (None, name)
    ]
    if len(fitting) > 1:
        names = ", ".join(fitting)
        raise UsageError(f"{source.path}: several arrays have {n_columns} columns: {names}; name the dataset to read")
    if not fitting:
        listed = ", ".join(f"{name} {shape} {dtype}" for name, (shape, dtype) in arrays.items()) or "no arrays"
        raise source.error(f"holds {listed}; accepted: a table of numbers with {n_columns} columns", where=asked)
    return fitting[0]


def _check_process_array(source: Source, shape: tuple[int, ...] | None, n_rows: int) -> None:
    if shape is not None and shape != (n_rows,):
        raise source.error(f"array {PROCESS_ARRAY!r} has shape {shape}; accepted: ({n_rows},), one entry per event")


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
