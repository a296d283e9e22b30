"""Input and output of readers: options, source, chunks."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unmask.errors import BadDataError
from unmask.events.build import FlatEvents
from unmask.events.checks import BadEvents
from unmask.events.cuts import Cut
from unmask.events.objects import Unit, tags_of
from unmask.io.golden_json import Certified
from unmask.io.record import FileRecord

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
    keep
        Further columns of numbers to carry along, by their names in the file, of Parquet and ROOT files; run and
        luminosity block are always kept.
    weight
        Branch of a ROOT file, or column of a Parquet file, with the weights; None takes the format's own.
    scale
        Multiplies the weights.
    objects
        Names of the object types to read, or of their families; by default all of a text or Parquet file, and the
        electrons, muons, photons and jets of a ROOT file.
    cut
        Events to keep, such as ``n_leptons >= 2 and met > 50``: a condition (:class:`unmask.events.cuts.Cut`) on
        observables, momenta in GeV, and on columns of Parquet and ROOT files, carried along like those of ``keep``.
    golden_json
        Certified luminosity blocks, from :func:`unmask.io.golden_json.read_golden_json`; others are left out.
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
    keep: tuple[str, ...] = ()
    weight: str | None = None
    scale: float = 1.0
    objects: tuple[str, ...] = ()
    cut: str | None = None
    golden_json: Certified = field(default_factory=dict)
    entries: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.cut is not None:
            Cut(self.cut)
        tags_of(self.objects)


@dataclass(frozen=True)
class Source:
    """One file to read, and where problems and progress go."""

    path: Path
    options: ReadOptions
    bad: BadEvents
    record: FileRecord
    #: Called with the fraction of the file that has been read.
    progress: Callable[[float], None] = lambda _fraction: None

    @property
    def default_process(self) -> str:
        """The file's name without its endings: ``ttbar.csv.gz`` holds ttbar."""
        return self.options.process or self.path.name.split(".")[0]

    def further(self, is_known: Callable[[str], bool], names: Iterable[str]) -> list[str]:
        """Columns that the options name, to keep or in a cut, where one that is not known is an error."""
        cut = Cut(self.options.cut) if self.options.cut else None
        columns = cut.columns if cut else ()
        for name in columns:
            if cut and not is_known(name):
                raise self.error(str(cut.unknown(name, names)))
        return list(dict.fromkeys((*self.options.keep, *columns)))

    def error(self, message: str, where: str | None = None) -> BadDataError:
        return BadDataError(message, path=self.path, where=where)


@dataclass(frozen=True)
class Chunk:
    """Some events of a file."""

    events: FlatEvents
    #: "line", "row" or "entry", and its number (n_events,) for each event.
    where: str
    number: npt.NDArray[np.int64]
    #: That of a file whose events were cut before, unless the options name another.
    max_objects: int | None = None

    def place(self, index: int) -> str:
        return f"{self.where} {self.number[index]}"


Reader = Callable[[Source], Iterator[Chunk]]


def decompressed(file: io.BufferedReader) -> IO[bytes]:
    """The content of a plain, gzip or zstd file, told by its first bytes."""
    magic = file.peek(4)
    if magic.startswith(GZIP_MAGIC):
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    if magic.startswith(ZSTD_MAGIC):
        stream: IO[bytes] = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
        return stream
    return file


def read_blocks(source: Source, block_bytes: int) -> Iterator[bytes]:
    """Yield a text file in blocks of whole lines, about ``block_bytes`` each."""
    rest = b""
    with source.path.open("rb") as file:
        stream, size = decompressed(file), source.path.stat().st_size
        try:
            while block := stream.read(block_bytes):
                source.progress(min(file.tell() / size, 1.0))
                end = block.rfind(b"\n") + 1
                if end:
                    yield rest + block[:end]
                    rest = b""
                rest += block[end:]
                if len(rest) > MAX_LINE_BYTES:
                    raise source.error(f"no line ends within {len(rest):,} bytes; accepted: text, one event per line")
        except (EOFError, OSError, zlib.error) as error:
            raise damaged(source, error) from None
    if rest:
        yield rest


def damaged(source: Source, error: Exception) -> BadDataError:
    return source.error(f"the compressed data is damaged or truncated ({error}); fetch the file again")
