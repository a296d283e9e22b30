"""Tables of events, tokens and scores as Parquet: streamed, checksummed, with their origin in the metadata.

A table says in its metadata of what kind and version it is, and where it came from. It appears only when complete.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unmask.artifacts import Json, atomic_path
from unmask.errors import ArtifactError, damage_named
from unmask.outputs import METADATA_KEY

_PART = re.compile(r"part-\d+-of-\d+\.parquet")
#: A text column.
WORDS = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True)
class TableKind:
    """A kind of table: its name, version, columns and how these are stored."""

    name: str
    version: int
    #: Name -> type; None for a type that differs between tables of the kind.
    columns: Mapping[str, pa.DataType | None]
    #: Columns that repeat few values.
    dictionaries: Sequence[str] = ()
    #: Columns of real numbers, which become smaller when cut into streams of bytes.
    byte_streams: Sequence[str] = ()


@contextmanager
def write_table(
    path: str | Path, kind: TableKind, facts: Mapping[str, Json], types: Mapping[str, pa.DataType] | None = None
) -> Iterator[Callable[[Mapping[str, pa.Array]], None]]:
    """Give a function that appends rows, one array per column, to a table with ``facts`` in its metadata.

    ``types`` are those that the kind leaves open. After a failure nothing is left behind.
    """
    content = {"kind": kind.name, "format_version": kind.version, **facts}
    columns = {**kind.columns, **(types or {})}
    schema = pa.schema(columns, metadata={METADATA_KEY: json.dumps(content)})
    storage: dict[str, Any] = {
        "use_dictionary": list(kind.dictionaries),
        "use_byte_stream_split": list(kind.byte_streams),
    }
    with (
        atomic_path(path) as scratch,
        pq.ParquetWriter(scratch, schema, compression="zstd", write_page_checksum=True, **storage) as writer,
    ):

        def write(rows: Mapping[str, pa.Array]) -> None:
            table = pa.table(dict(rows), schema=schema)
            writer.write_table(table, row_group_size=max(len(table), 1))

        yield write


@contextmanager
def open_table(path: str | Path, kind: TableKind) -> Iterator[tuple[pq.ParquetFile, dict[str, Json]]]:
    """Open a table of a kind and give it with the facts in its metadata."""
    path = Path(path)
    if not path.exists():
        raise ArtifactError("no such file", path=path)
    failures = (pa.ArrowException, OSError, ValueError)
    # With pre_buffer, pyarrow would hold the whole compressed file.
    with (
        damage_named(path, "cannot be read as Parquet", failures, ArtifactError),
        pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False) as file,
    ):
        yield file, _checked_facts(file.schema_arrow, kind, path)


def check_whole(batch: pa.RecordBatch, kind: TableKind, path: Path) -> None:
    """Refuse rows that lack a value in one of the columns of the kind."""
    for name in kind.columns:
        column = batch[name]
        n_missing = column.null_count + (column.dictionary.null_count if pa.types.is_dictionary(column.type) else 0)
        if n_missing:
            raise ArtifactError(f"column {name}: {n_missing:,} values are missing; write the file again", path=path)


def plain_text(text: str) -> str:
    """Text in a CSV file that no spreadsheet takes for a formula.

    >>> plain_text("=1+1"), plain_text("ttbar")
    ("'=1+1", 'ttbar')
    """
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def part_name(i: int, n: int) -> str:
    """Name of part ``i``, from 0, of ``n``.

    >>> part_name(6, 120)
    'part-007-of-120.parquet'
    """
    return f"part-{i + 1:0{len(str(n))}d}-of-{n}.parquet"


def parts_in(folder: Path) -> list[Path]:
    """The parts that are in a folder, in their order."""
    return sorted(path for path in folder.glob("part-*.parquet") if _PART.fullmatch(path.name))


def table_files(path: str | Path) -> list[Path]:
    """The files of a table: itself, or all parts of a folder of parts, in their order."""
    path = Path(path)
    if not path.is_dir():
        return [path]
    parts = parts_in(path)
    if not parts:
        raise ArtifactError(
            "a folder without part-1-of-N.parquet; give a file or a folder of parts (score again what an earlier "
            "version wrote)",
            path=path,
        )
    n = int(parts[0].stem.rpartition("-")[2])
    expected = [path / part_name(i, n) for i in range(n)]
    missing = sorted(set(expected) - set(parts))
    if missing:
        raise ArtifactError(
            f"{len(missing):,} of {n:,} parts are missing, first {missing[0].name}; run its shard again", path=path
        )
    if parts != expected:
        raise ArtifactError(f"holds parts of several numbers ({parts[0].name}, {parts[-1].name})", path=path)
    return parts


def _checked_facts(schema: pa.Schema, kind: TableKind, path: Path) -> dict[str, Json]:
    try:
        facts: dict[str, Json] = json.loads((schema.metadata or {})[METADATA_KEY])
        name, version = facts["kind"], facts["format_version"]
    except (KeyError, TypeError, ValueError):
        raise ArtifactError(
            f"a Parquet file that unmask did not write; accepted: a file of {kind.name}", path=path
        ) from None
    if name != kind.name:
        raise ArtifactError(f"holds {name}; accepted: {kind.name}", path=path)
    if version != kind.version:
        raise ArtifactError(
            f"format version {version}; this unmask reads version {kind.version}: "
            "use the version of unmask that wrote it, or write it again",
            path=path,
        )
    for column, expected in kind.columns.items():
        actual = schema.field(column).type if column in schema.names else "missing"
        if actual != expected and (actual == "missing" or expected is not None):
            raise ArtifactError(f"column {column} is {actual}; accepted: {expected or 'a column'}", path=path)
    return facts
