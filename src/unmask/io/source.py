"""Input and output of readers: options, source, chunks."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from unmask.errors import BadDataError
from unmask.events.build import FlatEvents
from unmask.events.checks import BadEvents
from unmask.events.objects import Unit

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
#: No event is as long as this; without a limit, a file without line ends would fill the memory.
MAX_LINE_BYTES = 1 << 26


@dataclass(frozen=True)
class ReadOptions:
    """Options of reading, for all file formats; a reader uses those that concern it.

    Attributes
    ----------
    unit
        Unit of energies, pT and MET in the file; None means the format's own (MeV in text and array files).
    process
        Process name for all events; None takes the file's own, or the file's name.
    label
        0 background, 1 signal, -1 unknown; None keeps the label of a Parquet file, else unknown.
    chunk_events
        About how many events are held in memory at a time.
    max_objects
        Most objects kept of an event, those of largest pT; None keeps as many as an events file of unmask has room for,
        else 18.
    tree
        Name of the TTree or RNTuple, where a ROOT file has several.
    dataset
        Name of the array, where an HDF5 or NPZ file has several.
    selection
        Changes to the table of object selections of the ROOT readers, ``{"jet": {"min_pt_gev": 30}}``.
    entries
        First and one past the last entry to read, of a Parquet or ROOT file; None reads all.
    """

    unit: Unit | None = None
    process: str | None = None
    label: int | None = None
    chunk_events: int = 50_000
    max_objects: int | None = None
    tree: str | None = None
    dataset: str | None = None
    selection: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    entries: tuple[int, int] | None = None


@dataclass(frozen=True)
class Source:
    """One file to read, and where problems and progress go."""

    path: Path
    options: ReadOptions
    bad: BadEvents
    #: Called with the fraction of the file that has been read.
    progress: Callable[[float], None] = lambda _fraction: None

    @property
    def default_process(self) -> str:
        """The file's name without its endings: ``ttbar.csv.gz`` holds ttbar."""
        return self.options.process or self.path.name.split(".")[0]

    def error(self, message: str, where: str | None = None) -> BadDataError:
        return BadDataError(message, path=self.path, where=where)


@dataclass(frozen=True)
class Chunk:
    """Some events of a file; ``place`` gives the line, row or entry of the i-th.

    ``max_objects`` is that of a file whose events were cut before, unless the options name another.
    """

    events: FlatEvents
    place: Callable[[int], str]
    max_objects: int | None = None


Reader = Callable[[Source], Iterator[Chunk]]


class _CountingFile(io.RawIOBase):
    """A file that reports how far it has been read, below any decompression."""

    def __init__(self, path: Path, progress: Callable[[float], None]) -> None:
        self._file = path.open("rb")
        self._size = max(path.stat().st_size, 1)
        self._progress = progress

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        n = self._file.readinto(buffer)
        self._progress(min(self._file.tell() / self._size, 1.0))
        return n

    def close(self) -> None:
        self._file.close()
        super().close()


def open_text(source: Source) -> IO[bytes]:
    """Open a plain, gzip or zstd file, detected from its content, for reading bytes."""
    with source.path.open("rb") as file:
        magic = file.read(4)
    counting = io.BufferedReader(_CountingFile(source.path, source.progress), buffer_size=1 << 20)
    if magic[:2] == GZIP_MAGIC:
        return gzip.GzipFile(fileobj=counting)  # type: ignore[return-value]
    if magic == ZSTD_MAGIC:
        stream: IO[bytes] = pa.CompressedInputStream(pa.PythonFile(counting, mode="r"), "zstd")
        return stream
    return counting


def read_blocks(source: Source, block_bytes: int) -> Iterator[bytes]:
    """Yield a text file in blocks of whole lines, about ``block_bytes`` each.

    Raises
    ------
    BadDataError
        If the compressed stream is damaged or ends early.
    """
    rest = b""
    with open_text(source) as stream:
        while True:
            try:
                block = stream.read(block_bytes)
            except (EOFError, OSError, zlib.error) as error:
                raise damaged(source, error) from None
            if not block:
                break
            end = block.rfind(b"\n") + 1
            if end:
                yield rest + block[:end]
                rest = block[end:]
            else:
                rest += block
                if len(rest) > MAX_LINE_BYTES:
                    raise source.error(f"no line ends within {len(rest):,} bytes; accepted: text, one event per line")
    if rest:
        yield rest


def damaged(source: Source, error: Exception) -> BadDataError:
    return source.error(f"the compressed data is damaged or truncated ({error}); fetch the file again")
