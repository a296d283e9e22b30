"""Scores of events: in memory, and as the Parquet file that scoring writes and evaluation reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unmask.artifacts import Json
from unmask.errors import UsageError
from unmask.events.event_set import EventSet, Names
from unmask.events.identity import IDENTITY_TYPES, identity_from_arrow, identity_to_arrow
from unmask.tables import TableKind, TableWriter, open_table, table_files

SCORES_TABLE = TableKind(
    "scores",
    version=1,
    columns=IDENTITY_TYPES | {"score": pa.float64()},
    dictionaries=("file", "process", "label", "weight"),
)
TOKEN_LOSS = "token_loss"


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores with the identity columns of the events; ``token_loss`` (n_events, sequence) where it was asked for."""

    score: npt.NDArray[np.float64]
    row: npt.NDArray[np.int64]
    event_id: npt.NDArray[np.int64]
    file_names: Names
    process_names: Names
    label: npt.NDArray[np.int8]
    weight: npt.NDArray[np.float64]
    token_loss: npt.NDArray[np.float32] | None = None

    @classmethod
    def of(
        cls, events: EventSet, score: npt.NDArray[np.float64], token_loss: npt.NDArray[np.float32] | None = None
    ) -> Scores:
        """Put scores beside the identity columns of their events."""
        return cls(
            score=score,
            token_loss=token_loss,
            row=events.row,
            event_id=events.event_id,
            file_names=events.file_names,
            process_names=events.process_names,
            label=events.label,
            weight=events.weight,
        )

    def __len__(self) -> int:
        return len(self.score)


def write_scores(path: str | Path, parts: Iterable[Scores], *, provenance: dict[str, Json] | None = None) -> int:
    """Write a stream of scores to a Parquet file, in bounded memory, and return the number of events."""
    stream = iter(parts)
    first = next(stream, None)
    if first is None:
        raise UsageError(f"no scores to write to {path}")
    types = {}
    kind = SCORES_TABLE
    if first.token_loss is not None:
        types[TOKEN_LOSS] = pa.list_(pa.float32(), first.token_loss.shape[1])
        kind = TableKind(kind.name, kind.version, {**kind.columns, TOKEN_LOSS: None}, kind.dictionaries)
    with TableWriter(path, kind, {"provenance": provenance or {}}, types) as writer:
        for part in chain([first], stream):
            columns = identity_to_arrow(part) | {"score": pa.array(part.score)}
            if part.token_loss is not None:
                flat = pa.array(part.token_loss.ravel(), pa.float32())
                columns[TOKEN_LOSS] = pa.FixedSizeListArray.from_arrays(flat, type=types[TOKEN_LOSS])
            writer.write(columns)
    return writer.n_rows


def stream_scores(path: str | Path, *, chunk_events: int = 200_000) -> Iterator[Scores]:
    """Yield what :func:`write_scores` wrote, to a file or to the parts in a folder, in chunks."""
    for part in table_files(path):
        with open_table(part, SCORES_TABLE) as (file, _):
            for batch in file.iter_batches(chunk_events):
                token_loss = None
                if TOKEN_LOSS in batch.schema.names:
                    column = batch[TOKEN_LOSS]
                    token_loss = column.flatten().to_numpy().reshape(len(column), column.type.list_size)
                yield Scores(score=batch["score"].to_numpy(), token_loss=token_loss, **identity_from_arrow(batch))


def read_scores(path: str | Path) -> Scores:
    """Read a whole scores file."""
    parts = list(stream_scores(path))
    if not parts:
        raise UsageError(f"{path}: holds no scores")
    losses = [part.token_loss for part in parts if part.token_loss is not None]
    return Scores(
        score=np.concatenate([part.score for part in parts]),
        row=np.concatenate([part.row for part in parts]),
        event_id=np.concatenate([part.event_id for part in parts]),
        file_names=Names.concatenate([part.file_names for part in parts]),
        process_names=Names.concatenate([part.process_names for part in parts]),
        label=np.concatenate([part.label for part in parts]),
        weight=np.concatenate([part.weight for part in parts]),
        token_loss=np.concatenate(losses) if losses else None,
    )
