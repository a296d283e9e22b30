"""Scores files that unmask did not write: the columns of a Parquet or CSV file, checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unmask.errors import ArtifactError, BadDataError, UnmaskError
from unmask.events.columns import RUN_TYPES, words_from_arrow
from unmask.outputs import METADATA_KEY

ACCEPTED_LABELS = "-1 (unknown), 0 (background), 1 (signal)"
_NEEDED = ("score", "label")
_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys((*_NEEDED, "weight"), pa.float64()),
    **dict.fromkeys(("row", "event_id"), pa.int64()),
    **dict.fromkeys(("file", "process"), pa.string()),
    **RUN_TYPES,
}


def is_plain(path: Path) -> bool:
    """Whether a file of scores is one that unmask did not write."""
    if path.suffix.lower() == ".csv":
        return True
    try:
        return METADATA_KEY not in (pq.read_schema(path).metadata or {})
    except (pa.ArrowException, OSError):
        return False  # reading it as a table says what is wrong


def stream_plain(path: Path, optional: Mapping[str, pa.DataType], chunk_events: int) -> Iterator[dict[str, Any]]:
    """Yield the columns of a file in chunks, by name; it must have the columns ``score`` and ``label``.

    Further columns are read if they identify events or are among the ``optional``.
    """
    from pyarrow import csv, dataset

    types = _TYPES | dict(optional)
    # A name may look like a number, and a count may be written as 3.0.
    read_as = {name: kind if name in _TYPES else pa.float64() for name, kind in types.items()}
    as_csv = dataset.CsvFileFormat(convert_options=csv.ConvertOptions(column_types=read_as))
    try:
        file = dataset.dataset(path, format=as_csv if path.suffix.lower() == ".csv" else "parquet")
        found = file.schema.names
        missing = [name for name in _NEEDED if name not in found]
        if missing:
            raise BadDataError(
                f"no column {' and no column '.join(missing)} (found: {', '.join(found[:10])}): scores that unmask did "
                f"not write need the columns score and label; labels are {ACCEPTED_LABELS}",
                path=path,
            )
        names = [name for name in types if name in found]
        for batch in file.to_batches(columns=names, batch_size=chunk_events):
            yield {name: _column(batch, name, types[name], path) for name in names}
    except UnmaskError:
        raise
    except FileNotFoundError:
        raise ArtifactError("no such file", path=path) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadDataError(f"cannot be read ({' '.join(str(error).split())})", path=path) from None


def _column(batch: pa.RecordBatch, name: str, kind: pa.DataType, path: Path) -> Any:
    try:
        column = batch[name].cast(kind)
    except pa.ArrowException as error:
        raise BadDataError(f"column {name}: {error}", path=path) from None
    column = column.fill_null(-1) if name in RUN_TYPES else column
    n_missing = column.is_null(nan_is_null=True).sum().as_py() or 0
    if n_missing:
        raise BadDataError(f"column {name}: {n_missing:,} values are missing or NaN", path=path)
    return words_from_arrow(column.dictionary_encode()) if pa.types.is_string(kind) else column.to_numpy()
