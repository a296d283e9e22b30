"""Scores of events: in memory, and as the Parquet file that scoring writes and evaluation reads.

Scores from elsewhere are read too: a Parquet or CSV file with the columns ``score`` and ``label``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from unmask.artifacts import Json
from unmask.errors import ArtifactError, BadDataError, UnmaskError, UsageError
from unmask.events.columns import (
    IDENTITY_TYPES,
    Names,
    identity_from_arrow,
    identity_of,
    identity_to_arrow,
    words_from_arrow,
)
from unmask.events.event_set import LABEL_NAMES, EventSet
from unmask.events.fingerprints import TrainingFingerprints
from unmask.events.observables import OBSERVABLES
from unmask.tables import METADATA_KEY, TableKind, TableWriter, open_table, table_files

SCORES_TABLE = TableKind(
    "scores",
    version=1,
    columns=IDENTITY_TYPES | {"score": pa.float64()},
    dictionaries=("file", "process", "label", "weight"),
)
TOKEN_LOSS = "token_loss"
TRAINED_ON = "was_trained_on"
#: What anyone can compute in a minute, kept beside the score: a detector must be seen to beat it.
SCALARS: dict[str, pa.DataType] = {
    one.column: pa.int16() if one.is_count else pa.float64() for one in OBSERVABLES.values()
}
_ACCEPTED_LABELS = "-1 (unknown), 0 (background), 1 (signal)"
_NEEDED = ("score", "label")
#: What is read of a file that unmask did not write, where it is there.
_PLAIN_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys((*_NEEDED, "weight"), pa.float64()),
    **dict.fromkeys(("row", "event_id"), pa.int64()),
    **dict.fromkeys(("file", "process"), pa.string()),
    **SCALARS,
}


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores with the identity columns of the events, and what else is known of them.

    Attributes
    ----------
    token_loss : (n_events, sequence), where it was asked for.
    scalars : trivial scores by name, each (n_events,): those known of the registry of observables.
    was_trained_on : (n_events,), True for events that the detector is known to have learnt from. False is no promise:
        of very many training events a detector remembers some. None where nothing is known of its training.
    """

    score: npt.NDArray[np.float64]
    row: npt.NDArray[np.int64]
    event_id: npt.NDArray[np.int64]
    file_names: Names
    process_names: Names
    label: npt.NDArray[np.int8]
    weight: npt.NDArray[np.float64]
    token_loss: npt.NDArray[np.float32] | None = None
    scalars: dict[str, npt.NDArray[Any]] | None = None
    was_trained_on: npt.NDArray[np.bool_] | None = None

    @classmethod
    def of(
        cls,
        events: EventSet,
        score: npt.NDArray[np.float64],
        token_loss: npt.NDArray[np.float32] | None = None,
        seen: TrainingFingerprints | None = None,
    ) -> Scores:
        """Put scores beside the identity columns of their events."""
        return cls(
            score=score,
            token_loss=token_loss,
            scalars={one.column: one.function(events) for one in OBSERVABLES.values()},
            was_trained_on=None if seen is None else seen.contains(events),
            **identity_of(events),
        )

    def __len__(self) -> int:
        return len(self.score)

    @property
    def event_key(self) -> npt.NDArray[np.int64]:
        """A number (n_events,) that stands for file name and row: the same event has it in every scores file."""
        words = [blake2b(word.encode(), digest_size=8).digest() for word in self.file_names.words]
        files = np.frombuffer(b"".join(words), np.int64)
        return files[self.file_names.code] + self.row * np.int64(0x1E3779B97F4A7C15)

    @property
    def n_repeated(self) -> int:
        """How many events have the file name and row of an earlier one."""
        keys = np.sort(self.event_key)
        return int(np.count_nonzero(keys[1:] == keys[:-1]))


def write_scores(path: str | Path, parts: Iterable[Scores], *, provenance: dict[str, Json] | None = None) -> int:
    """Write a stream of scores to a Parquet file, in bounded memory, and return the number of events."""
    stream = iter(parts)
    first = next(stream, None)
    if first is None:
        raise UsageError(f"no scores to write to {path}")
    types: dict[str, pa.DataType] = {}
    if first.scalars is not None:
        types |= {name: SCALARS[name] for name in first.scalars}
    if first.was_trained_on is not None:
        types[TRAINED_ON] = pa.bool_()
    if first.token_loss is not None:
        types[TOKEN_LOSS] = pa.list_(pa.float32(), first.token_loss.shape[1])
    kind = TableKind(
        SCORES_TABLE.name, SCORES_TABLE.version, {**SCORES_TABLE.columns, **types}, SCORES_TABLE.dictionaries
    )
    with TableWriter(path, kind, {"provenance": provenance or {}}) as writer:
        for part in chain([first], stream):
            columns = identity_to_arrow(part) | {"score": pa.array(part.score)}
            for name, values in (part.scalars or {}).items():
                columns[name] = pa.array(values, SCALARS[name])
            if part.was_trained_on is not None:
                columns[TRAINED_ON] = pa.array(part.was_trained_on)
            if part.token_loss is not None:
                flat = pa.array(part.token_loss.ravel(), pa.float32())
                columns[TOKEN_LOSS] = pa.FixedSizeListArray.from_arrays(flat, type=types[TOKEN_LOSS])
            writer.write(columns)
    return writer.n_rows


def stream_scores(path: str | Path, *, chunk_events: int = 200_000) -> Iterator[Scores]:
    """Yield what :func:`write_scores` wrote, to a file or to the parts in a folder, in chunks.

    A Parquet file that unmask did not write, or a CSV file, needs the columns ``score`` and ``label``. Weights are 1
    if it has none; without the columns ``row`` and ``event_id`` an event is known by its place in the file.

    Raises
    ------
    BadDataError
        If a file is missing or damaged, or holds something else, or a label is none.
    """
    for part in table_files(path):
        if _is_plain(part):
            yield from _stream_plain(part, chunk_events)
            continue
        with open_table(part, SCORES_TABLE) as (file, _):
            for batch in file.iter_batches(chunk_events):
                scores = _from_arrow(batch)
                _check_labels(scores.label, part)
                yield scores


def origin_of_file(path: Path) -> dict[str, Json]:
    """Provenance of a scores file; empty for one that unmask did not write."""
    if _is_plain(path):
        return {}
    with open_table(path, SCORES_TABLE) as (_, facts):
        return dict(facts.get("provenance") or {})


def _check_labels(label: npt.NDArray[Any], path: Path) -> None:
    wrong = label[~np.isin(label, list(LABEL_NAMES))]
    if len(wrong):
        raise BadDataError(
            f"label {wrong[0]:g}, first of {len(wrong):,} that are not accepted; accepted: {_ACCEPTED_LABELS}",
            path=path,
        )


def _from_arrow(batch: pa.RecordBatch) -> Scores:
    there = set(batch.schema.names)
    token_loss = None
    if TOKEN_LOSS in there:
        column = batch[TOKEN_LOSS]
        token_loss = column.flatten().to_numpy().reshape(len(column), column.type.list_size)
    return Scores(
        score=batch["score"].to_numpy(),
        token_loss=token_loss,
        scalars={name: batch[name].to_numpy() for name in SCALARS if name in there} or None,
        was_trained_on=batch[TRAINED_ON].to_numpy(zero_copy_only=False) if TRAINED_ON in there else None,
        **identity_from_arrow(batch),
    )


def _is_plain(path: Path) -> bool:
    """Whether a file is one of scores that unmask did not write."""
    if path.suffix.lower() == ".csv":
        return True
    try:
        return METADATA_KEY not in (pq.read_schema(path).metadata or {})
    except (pa.ArrowException, OSError):
        return False  # reading it as a table says what is wrong


def _stream_plain(path: Path, chunk_events: int) -> Iterator[Scores]:
    n_read = 0
    try:
        for batch in _plain_batches(path, chunk_events):
            yield _from_plain(batch, n_read, path)
            n_read += len(batch)
    except UnmaskError:
        raise
    except FileNotFoundError:
        raise ArtifactError("no such file", path=path) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadDataError(f"cannot be read ({' '.join(str(error).split())})", path=path) from None


def _plain_batches(path: Path, chunk_events: int) -> Iterator[pa.RecordBatch]:
    if path.suffix.lower() != ".csv":
        with pq.ParquetFile(path, pre_buffer=False) as file:
            yield from file.iter_batches(chunk_events, columns=_plain_columns(file.schema_arrow.names, path))
        return
    with csv.open_csv(path) as reader:
        wanted = _plain_columns(reader.schema.names, path)
    # A number that must be whole may be written as 3.0.
    types = {name: pa.float64() if name in SCALARS else _PLAIN_TYPES[name] for name in wanted}
    with csv.open_csv(path, convert_options=csv.ConvertOptions(include_columns=wanted, column_types=types)) as reader:
        yield from reader


def _plain_columns(names: list[str], path: Path) -> list[str]:
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        raise BadDataError(
            f"no column {' and no column '.join(missing)} (found: {', '.join(names[:10])}): scores that unmask did not "
            f"write need the columns score and label; labels are {_ACCEPTED_LABELS}",
            path=path,
        )
    found = [name for name in _PLAIN_TYPES if name in names]
    twice = [name for name in found if names.count(name) > 1]
    if twice:
        raise BadDataError(f"has more than one column {twice[0]}", path=path)
    return found


def _from_plain(batch: pa.RecordBatch, first_row: int, path: Path) -> Scores:
    found: dict[str, Any] = {}
    for name in batch.schema.names:
        try:
            column = batch[name].cast(_PLAIN_TYPES[name])
        except pa.ArrowException as error:
            raise BadDataError(f"column {name}: {error}", path=path) from None
        n_missing = column.is_null(nan_is_null=True).sum().as_py() or 0
        if n_missing:
            raise BadDataError(f"column {name}: {n_missing:,} values are missing or NaN", path=path)
        is_text = pa.types.is_string(column.type)
        found[name] = words_from_arrow(column.dictionary_encode()) if is_text else column.to_numpy()
    n = len(batch)
    row = found.get("row", found.get("event_id", np.arange(first_row, first_row + n)))
    _check_labels(found["label"], path)
    label = found["label"].astype(np.int8)
    return Scores(
        score=found["score"],
        row=row,
        event_id=found.get("event_id", row),
        # Files of scores have other names than one another; the events in them need not.
        file_names=found.get("file", Names.constant("", n)),
        process_names=found.get("process", Names((label % 3).astype(np.int32), tuple(LABEL_NAMES.values()))),
        label=label,
        weight=found.get("weight", np.ones(n)),
        scalars={name: found[name] for name in SCALARS if name in found} or None,
    )


def read_scores(path: str | Path) -> Scores:
    """Read a whole scores file, or the parts in a folder."""
    parts = list(stream_scores(path))
    if not parts:
        raise UsageError(f"{path}: holds no scores")
    return concatenate_scores(parts)


def concatenate_scores(parts: Sequence[Scores]) -> Scores:
    """Put scores one after the other.

    Token losses, or a trivial score, that some of them lack, the whole lacks. What is known of the training of some is
    kept: of the events of the others it is not known that they were trained on.
    """
    losses = [part.token_loss for part in parts if part.token_loss is not None]
    scalars = [part.scalars or {} for part in parts]
    is_known = any(part.was_trained_on is not None for part in parts)
    trained_on = [np.zeros(len(part), np.bool_) if (of := part.was_trained_on) is None else of for part in parts]
    return Scores(
        score=np.concatenate([part.score for part in parts]),
        row=np.concatenate([part.row for part in parts]),
        event_id=np.concatenate([part.event_id for part in parts]),
        file_names=Names.concatenate([part.file_names for part in parts]),
        process_names=Names.concatenate([part.process_names for part in parts]),
        label=np.concatenate([part.label for part in parts]),
        weight=np.concatenate([part.weight for part in parts]),
        token_loss=np.concatenate(losses) if len(losses) == len(parts) else None,
        scalars={
            name: np.concatenate([each[name] for each in scalars])
            for name in SCALARS
            if all(name in each for each in scalars)
        }
        or None,
        was_trained_on=np.concatenate(trained_on) if is_known else None,
    )
