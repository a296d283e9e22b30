"""Scores of events: in memory, and as the Parquet file that scoring writes and evaluation reads."""

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

from unmask.artifacts import Json
from unmask.errors import UsageError
from unmask.events.event_set import EventSet, Names
from unmask.events.fingerprints import SeenEvents
from unmask.events.identity import IDENTITY_TYPES, identity_from_arrow, identity_to_arrow
from unmask.tables import TableKind, TableWriter, open_table, table_files

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
    "n_objects": pa.int16(),
    "ht_mev": pa.float64(),
    "met_mev": pa.float64(),
    "n_b_jets": pa.int16(),
}


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores with the identity columns of the events, and what else is known of them.

    Attributes
    ----------
    token_loss : (n_events, sequence), where it was asked for.
    scalars : trivial scores by name, each (n_events,): number of objects, HT, MET, number of b-jets.
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
        seen: SeenEvents | None = None,
    ) -> Scores:
        """Put scores beside the identity columns of their events."""
        return cls(
            score=score,
            token_loss=token_loss,
            scalars={
                "n_objects": events.n_objects,
                "ht_mev": events.ht_mev,
                "met_mev": events.met_mev,
                "n_b_jets": events.n_b_jets,
            },
            was_trained_on=None if seen is None else seen.contains(events),
            row=events.row,
            event_id=events.event_id,
            file_names=events.file_names,
            process_names=events.process_names,
            label=events.label,
            weight=events.weight,
        )

    def __len__(self) -> int:
        return len(self.score)

    @property
    def event_key(self) -> npt.NDArray[np.int64]:
        """A number (n_events,) that stands for file name and row: the same event has it in every scores file."""
        words = [blake2b(word.encode(), digest_size=8).digest() for word in self.file_names.words]
        files = np.frombuffer(b"".join(words), np.int64)
        return files[self.file_names.code] + self.row * np.int64(0x1E3779B97F4A7C15)


def write_scores(path: str | Path, parts: Iterable[Scores], *, provenance: dict[str, Json] | None = None) -> int:
    """Write a stream of scores to a Parquet file, in bounded memory, and return the number of events."""
    stream = iter(parts)
    first = next(stream, None)
    if first is None:
        raise UsageError(f"no scores to write to {path}")
    types: dict[str, pa.DataType] = {}
    if first.scalars is not None:
        types |= SCALARS
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
    """Yield what :func:`write_scores` wrote, to a file or to the parts in a folder, in chunks."""
    for part in table_files(path):
        with open_table(part, SCORES_TABLE) as (file, _):
            for batch in file.iter_batches(chunk_events):
                yield _from_arrow(batch)


def _from_arrow(batch: pa.RecordBatch) -> Scores:
    there = set(batch.schema.names)
    token_loss = None
    if TOKEN_LOSS in there:
        column = batch[TOKEN_LOSS]
        token_loss = column.flatten().to_numpy().reshape(len(column), column.type.list_size)
    return Scores(
        score=batch["score"].to_numpy(),
        token_loss=token_loss,
        scalars={name: batch[name].to_numpy() for name in SCALARS} if there.issuperset(SCALARS) else None,
        was_trained_on=batch[TRAINED_ON].to_numpy(zero_copy_only=False) if TRAINED_ON in there else None,
        **identity_from_arrow(batch),
    )


def read_scores(path: str | Path) -> Scores:
    """Read a whole scores file, or the parts in a folder."""
    parts = list(stream_scores(path))
    if not parts:
        raise UsageError(f"{path}: holds no scores")
    return concatenate_scores(parts)


def concatenate_scores(parts: Sequence[Scores]) -> Scores:
    """Put scores one after the other.

    Token losses and trivial scores that some of them lack, the whole lacks. What is known of the training of some is
    kept: of the events of the others it is not known that they were trained on.
    """
    losses = [part.token_loss for part in parts if part.token_loss is not None]
    scalars = [part.scalars for part in parts if part.scalars is not None]
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
        scalars={name: np.concatenate([some[name] for some in scalars]) for name in SCALARS}
        if len(scalars) == len(parts)
        else None,
        was_trained_on=np.concatenate(trained_on) if is_known else None,
    )
