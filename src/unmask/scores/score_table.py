"""Scores of events: in memory, and as the Parquet file that scoring writes and evaluation reads.

Scores from elsewhere are read too: a Parquet or CSV file with the columns ``score`` and ``label``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unmask.artifacts import Json
from unmask.errors import BadDataError, MissingExtraError, UsageError
from unmask.events.checks import WEIGHTS, is_weight
from unmask.events.columns import (
    IDENTITY_TYPES,
    RUN_TYPES,
    EventTable,
    Names,
    further_from_arrow,
    further_to_arrow,
    further_types,
    identity_from_arrow,
    identity_of,
    identity_to_arrow,
    join,
    without_empty,
)
from unmask.events.event_set import LABEL_NAMES, EventSet
from unmask.events.fingerprints import TrainingFingerprints
from unmask.events.observables import OBSERVABLES
from unmask.scores.plain_files import ACCEPTED_LABELS, is_plain, stream_plain
from unmask.tables import TableKind, check_whole, open_table, table_files, write_table

SCORES_TABLE = TableKind(
    "scores",
    version=1,
    columns=IDENTITY_TYPES | {"score": pa.float64()},
    dictionaries=("file", "process", "label", "weight"),
)
TOKEN_LOSS = "token_loss"
TRAINED_ON = "was_trained_on"
LEADING = "leading_objects"
#: Objects of largest pT that scores know.
N_LEADING = 3
#: Observables by their columns of a scores file.
COLUMNS = {one.column: one for one in OBSERVABLES.values()}
#: Columns of a scores file that are not those of the events' own file.
_OWN = (*SCORES_TABLE.columns, *COLUMNS, TOKEN_LOSS, TRAINED_ON, LEADING)
_TYPES: dict[str, pa.DataType] = {name: pa.int16() if one.is_count else pa.float64() for name, one in COLUMNS.items()}


@dataclass(frozen=True, eq=False)
class Scores(EventTable):
    """Scores with the identity columns of the events, and what else is known of them.

    Attributes
    ----------
    token_loss
        Losses of the tokens (n_events, sequence), where they were asked for.
    observables
        Global observables (n_events,) by their columns (``met_mev``), those that are known.
    was_trained_on
        True for events (n_events,) that the detector is known to have learned from. False is no promise: of very many
        training events a detector remembers some. None where nothing is known of its training.
    leading_objects
        Tag and pT in GeV (n_events, 3, 2) uint16 of the objects of largest pT, where they are known; 0 for none.
    """

    score: npt.NDArray[np.float64]
    token_loss: npt.NDArray[np.float32] | None = None
    observables: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    was_trained_on: npt.NDArray[np.bool_] | None = None
    leading_objects: npt.NDArray[np.uint16] | None = None

    @classmethod
    def of(
        cls,
        events: EventSet,
        score: npt.NDArray[np.float64],
        token_loss: npt.NDArray[np.float32] | None = None,
        seen: TrainingFingerprints | None = None,
    ) -> Scores:
        """Put scores beside the identity columns and observables of their events."""
        return cls(
            score=score,
            token_loss=token_loss,
            observables={name: observable.function(events) for name, observable in COLUMNS.items()},
            was_trained_on=None if seen is None else seen.contains(events),
            leading_objects=_leading_objects(events),
            **identity_of(events),
        )

    def __repr__(self) -> str:
        labels = ", ".join(f"{np.count_nonzero(self.label == at):,} {name}" for at, name in LABEL_NAMES.items())
        values = f"; score {self.score.min():.4g} to {self.score.max():.4g}" if len(self) else ""
        return f"Scores({len(self):,} events: {labels}{values})"

    @property
    def event_key(self) -> npt.NDArray[np.int64]:
        """A number (n_events,) that stands for file and row: the same event has it in every scores file."""
        return self.key_with(self.file_names.words)

    def key_with(self, files: Sequence[str]) -> npt.NDArray[np.int64]:
        """The key (n_events,) if the files had other names."""
        digests = [blake2b(name.encode(), digest_size=8).digest() for name in files]
        of_file = np.frombuffer(b"".join(digests), np.int64)
        return of_file[self.file_names.code] + self.row * np.int64(0x1E3779B97F4A7C15)

    @property
    def n_repeated(self) -> int:
        """Number of events with the file name and row of an earlier one."""
        return len(self) - len(np.unique(self.event_key))

    @property
    def n_trained_on(self) -> int:
        """Number of events that the detector is known to have learned from."""
        return 0 if self.was_trained_on is None else int(np.count_nonzero(self.was_trained_on))

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` with the columns of a scores file, without token losses."""
        try:
            from pandas import DataFrame
        except ImportError:
            raise MissingExtraError("pandas is not installed; run: pip install pandas") from None
        columns = {name: getattr(self, name) for name in ("row", "event_id", "label", "weight", "score")}
        texts = {"file": self.file_names.array(), "process": self.process_names.array()}
        trained_on = {} if self.was_trained_on is None else {TRAINED_ON: self.was_trained_on}
        return DataFrame(columns | texts | self.observables | trained_on | self.further)


def align(scores: Scores, reference: Scores, *, name: str, reference_name: str) -> Scores:
    """Give ``scores`` in the order of ``reference``; events are known by file and row.

    The folders of files do not matter, unless two files have the same name.

    Raises
    ------
    BadDataError
        If they hold other events, known by their observables too, or other labels or weights of them.
    """
    both, fix = f"{name} and {reference_name}", "score the same files with both, or evaluate them one by one"
    bare = [[PurePath(file).name for file in one.file_names.words] for one in (scores, reference)]
    if all(len(set(names)) == len(names) for names in bare):
        keys, reference_keys = (one.key_with(names) for one, names in zip((scores, reference), bare, strict=True))
    else:
        keys, reference_keys = scores.event_key, reference.event_key
    order, reference_order = (np.argsort(each, kind="stable") for each in (keys, reference_keys))
    if not np.array_equal(keys[order], reference_keys[reference_order]):
        n_missing = np.count_nonzero(~np.isin(reference_keys, keys))
        raise BadDataError(
            f"{both} hold scores of different events ({len(scores):,} and {len(reference):,}; {n_missing:,} of "
            f"{reference_name} are not in {name}): {fix}"
        )
    place = np.empty_like(order)
    place[reference_order] = order
    aligned = scores[place]
    for column in ("event_id", "label", "weight"):
        n_other = np.count_nonzero(getattr(aligned, column) != getattr(reference, column))
        if n_other:
            raise BadDataError(f"{both}: the {column} of {n_other:,} events is not the same in both")
    columns, others = aligned.observables, reference.observables
    for column in columns.keys() & others.keys():
        n_other = np.count_nonzero(~np.isclose(columns[column], others[column], rtol=0, atol=0, equal_nan=True))
        if n_other:
            raise BadDataError(
                f"{both} hold scores of different events ({n_other:,} of {len(reference):,} have the same file name "
                f"and row but another {COLUMNS[column].label}): {fix}"
            )
    return aligned


def _leading_objects(events: EventSet) -> npt.NDArray[np.uint16]:
    order = np.argsort(-events.pt_mev, axis=1, kind="stable")[:, :N_LEADING]
    leading = np.zeros((len(events), N_LEADING, 2), np.uint16)  # 14 TeV, the most that is accepted, fits
    leading[:, : order.shape[1], 0] = np.take_along_axis(events.tag, order, axis=1)
    leading[:, : order.shape[1], 1] = np.rint(np.take_along_axis(events.pt_mev, order, axis=1) / 1e3)
    return leading


def write_scores(path: str | Path, parts: Iterable[Scores], *, provenance: dict[str, Json] | None = None) -> int:
    """Write a stream of scores to a Parquet file, in bounded memory, and return the number of events."""
    first, stream = without_empty(parts)
    if first is None:
        raise UsageError(f"no scores to write to {path}")
    types = {name: column.type for name, column in _to_arrow(first).items() if name not in SCORES_TABLE.columns}
    further = further_types(first, _OWN)
    n_events = 0
    with write_table(path, SCORES_TABLE, {"provenance": provenance or {}}, types | further) as write:
        for part in stream:
            write(_to_arrow(part) | further_to_arrow(part, further))
            n_events += len(part)
    return n_events


def _to_arrow(scores: Scores) -> dict[str, pa.Array]:
    columns = identity_to_arrow(scores) | {"score": pa.array(scores.score)}
    columns |= {name: pa.array(values, _TYPES[name]) for name, values in scores.observables.items()}
    if scores.was_trained_on is not None:
        columns[TRAINED_ON] = pa.array(scores.was_trained_on)
    if scores.token_loss is not None:
        flat = pa.array(scores.token_loss.ravel(), pa.float32())
        columns[TOKEN_LOSS] = pa.FixedSizeListArray.from_arrays(flat, scores.token_loss.shape[1])
    if scores.leading_objects is not None:
        columns[LEADING] = pa.FixedSizeListArray.from_arrays(pa.array(scores.leading_objects.ravel()), 2 * N_LEADING)
    return columns


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
        if is_plain(part):
            n_read = 0
            for columns in stream_plain(part, _TYPES, chunk_events):
                yield _from_plain(columns, n_read, part)
                n_read += len(columns["score"])
            continue
        with open_table(part, SCORES_TABLE) as (file, _):
            for batch in file.iter_batches(chunk_events):
                check_whole(batch, SCORES_TABLE, part)
                scores = _from_arrow(batch)
                _check_numbers(scores.label, scores.weight, part)
                yield scores


def origin_of_file(path: Path) -> dict[str, Json]:
    """Provenance of a scores file; empty for one that unmask did not write."""
    if is_plain(path):
        return {}
    with open_table(path, SCORES_TABLE) as (_, metadata):
        return dict(metadata.get("provenance") or {})


def _check_numbers(label: npt.NDArray[Any], weight: npt.NDArray[np.float64], path: Path) -> None:
    wrong = label[~np.isin(label, list(LABEL_NAMES))]
    if len(wrong):
        raise BadDataError(
            f"label {wrong[0]:g}, first of {len(wrong):,} that are not accepted; accepted: {ACCEPTED_LABELS}",
            path=path,
        )
    if not (is_good := is_weight(weight)).all():
        n, first = np.count_nonzero(~is_good), weight[~is_good][0]
        raise BadDataError(f"{n:,} of {len(weight):,} weights, first {first:g}; accepted: {WEIGHTS}", path=path)


def _from_arrow(batch: pa.RecordBatch) -> Scores:
    there = set(batch.schema.names)

    def lists(name: str, *shape: int) -> Any:
        return batch[name].flatten().to_numpy().reshape(len(batch), *shape) if name in there else None

    return Scores(
        score=batch["score"].to_numpy(),
        token_loss=lists(TOKEN_LOSS, batch[TOKEN_LOSS].type.list_size if TOKEN_LOSS in there else 0),
        leading_objects=lists(LEADING, N_LEADING, 2),
        observables={name: batch[name].to_numpy() for name in COLUMNS if name in there},
        was_trained_on=batch[TRAINED_ON].to_numpy(zero_copy_only=False) if TRAINED_ON in there else None,
        further=further_from_arrow(batch, _OWN),
        **identity_from_arrow(batch),
    )


def _from_plain(columns: dict[str, Any], first_row: int, path: Path) -> Scores:
    n = len(columns["score"])
    row = columns.get("row", columns.get("event_id", np.arange(first_row, first_row + n)))
    weight = columns.get("weight", np.ones(n))
    _check_numbers(columns["label"], weight, path)
    label = columns["label"].astype(np.int8)
    return Scores(
        score=columns["score"],
        row=row,
        event_id=columns.get("event_id", row),
        # Files of scores have other names than one another; the events in them need not.
        file_names=columns.get("file", Names.constant("", n)),
        process_names=columns.get("process", Names((label % 3).astype(np.int32), tuple(LABEL_NAMES.values()))),
        label=label,
        weight=weight,
        observables={name: columns[name] for name in COLUMNS if name in columns},
        further={name: columns[name] for name in RUN_TYPES if name in columns},
    )


def read_scores(path: str | Path) -> Scores:
    """Read a whole scores file, or the parts in a folder."""
    parts = [part for part in stream_scores(path) if len(part)]
    if not parts:
        raise UsageError(f"{path}: holds no scores")
    whole = concatenate_scores(parts)
    del parts
    pa.default_memory_pool().release_unused()  # as much again as the scores
    return whole


def concatenate_scores(parts: Sequence[Scores]) -> Scores:
    """Put scores one after the other.

    Token losses, leading objects, or an observable, that some of them lack, the whole lacks. What is known of the
    training of some is kept: of the events of the others it is not known that they were trained on.
    """
    common = [name for name in COLUMNS if all(name in part.observables for part in parts)]
    parts = [replace(part, observables={name: part.observables[name] for name in common}) for part in parts]
    if any(part.token_loss is None for part in parts):
        parts = [replace(part, token_loss=None) for part in parts]
    if any(part.leading_objects is None for part in parts):
        parts = [replace(part, leading_objects=None) for part in parts]
    if any(part.was_trained_on is not None for part in parts):
        parts = [
            replace(part, was_trained_on=np.zeros(len(part), np.bool_)) if part.was_trained_on is None else part
            for part in parts
        ]
    return join(parts)
