"""TokenSet: events as rows of whole numbers, in memory and as Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unmask.artifacts import Json
from unmask.errors import ArtifactError, UsageError
from unmask.events.columns import (
    IDENTITY_TYPES,
    EventTable,
    further_from_arrow,
    further_to_arrow,
    further_types,
    identity_from_arrow,
    identity_of,
    identity_to_arrow,
    join,
    make_read_only,
    without_empty,
)
from unmask.events.event_set import EventSet
from unmask.tables import TableKind, open_table, write_table

#: Token of a position that holds no object; codes run from 1 to ``n_codes``.
PAD_ID = 0

TOKENS_TABLE = TableKind(
    "tokens",
    version=1,
    columns=IDENTITY_TYPES | {"tokens": None},
    dictionaries=("file", "process", "label", "weight", "tokens.list.token"),
)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TokenSet(EventTable):
    """Tokenized events, one row per event, with the identity columns of the events.

    Attributes
    ----------
    tokens
        (n_events, sequence) int32: 0 for padding, else 1 to ``n_codes``.
    n_codes
        Size of the vocabulary, padding not counted.
    """

    tokens: npt.NDArray[np.int32]
    n_codes: int

    def __post_init__(self) -> None:
        if self.tokens.ndim != 2:
            raise UsageError(f"tokens have shape {self.tokens.shape}, expected (n_events, sequence)")
        make_read_only(self)

    @classmethod
    def of(cls, events: EventSet, tokens: npt.NDArray[np.int32], n_codes: int) -> TokenSet:
        """Put ``tokens`` beside the identity columns of the ``events`` that they stand for."""
        return cls(tokens=tokens, n_codes=n_codes, **identity_of(events))

    @property
    def is_real(self) -> npt.NDArray[np.bool_]:
        """(n_events, sequence): False where a position is padding."""
        return np.asarray(self.tokens != PAD_ID)

    @property
    def sequence_length(self) -> int:
        """Positions in every event, padding included."""
        return int(self.tokens.shape[1])

    def equals(self, other: TokenSet) -> bool:
        """Whether vocabulary, tokens and every identity column are the same."""
        return self.n_codes == other.n_codes and EventTable.equals(self, other)

    def __repr__(self) -> str:
        return f"TokenSet: {len(self):,} events of {self.sequence_length} tokens, {self.n_codes:,} codes"


def concatenate_tokens(parts: Sequence[TokenSet]) -> TokenSet:
    """Join token sets of the same vocabulary in the given order."""
    if not parts:
        raise UsageError("no tokens to join")
    first = parts[0]
    for part in parts[1:]:
        _check_same_vocabulary(first, part)
    return join(parts)


def write_tokens(
    path: str | Path, tokens: TokenSet | Iterable[TokenSet], *, provenance: dict[str, Json] | None = None
) -> int:
    """Write one token set, or a stream of them in bounded memory, to a Parquet file and return the number of events.

    The file appears only when it is complete. Columns: ``row, event_id, file, process, label, weight, tokens``; the
    metadata keep the size of the vocabulary and the ``provenance``.
    """
    first, parts = without_empty([tokens] if isinstance(tokens, TokenSet) else tokens)
    if first is None:
        raise UsageError(f"no tokens to write to {path}")
    token_list = pa.list_(pa.field("token", pa.int32(), nullable=False), first.sequence_length)
    metadata = {"n_codes": first.n_codes, "provenance": provenance or {}}
    n_events, further = 0, further_types(first, TOKENS_TABLE.columns)
    with write_table(path, TOKENS_TABLE, metadata, {"tokens": token_list} | further) as write:
        for part in parts:
            _check_same_vocabulary(first, part)
            flat = pa.array(part.tokens.ravel(), pa.int32())
            tokens_column = pa.FixedSizeListArray.from_arrays(flat, type=token_list)
            write(identity_to_arrow(part) | {"tokens": tokens_column} | further_to_arrow(part, further))
            n_events += len(part)
    return n_events


def stream_tokens(path: str | Path, *, chunk_events: int = 50_000) -> Iterator[TokenSet]:
    """Stream a tokens file in chunks; a file without events gives one empty chunk.

    Raises
    ------
    ArtifactError
        If it is not there, not a tokens file, of another version, or damaged.
    """
    with open_table(path, TOKENS_TABLE) as (file, metadata):
        n_codes = int(metadata["n_codes"])
        if not file.metadata.num_rows:
            yield _from_batch(pa.RecordBatch.from_pylist([], file.schema_arrow), n_codes, path)
        for batch in file.iter_batches(chunk_events):
            yield _from_batch(batch, n_codes, path)


def read_tokens(path: str | Path) -> TokenSet:
    """Read a whole tokens file; see :func:`stream_tokens`."""
    return concatenate_tokens(list(stream_tokens(path)))


def _check_same_vocabulary(first: TokenSet, other: TokenSet) -> None:
    shapes = [(part.n_codes, part.sequence_length) for part in (first, other)]
    if shapes[0] != shapes[1]:
        text = " and ".join(f"{n_codes} codes in sequences of {length}" for n_codes, length in shapes)
        raise UsageError(f"tokens of different tokenizers do not go together: {text}")


def _from_batch(batch: pa.RecordBatch, n_codes: int, path: str | Path) -> TokenSet:
    column = batch["tokens"]
    if not pa.types.is_fixed_size_list(column.type):
        raise ArtifactError(f"column tokens is {column.type}; expected a list of fixed size", path=path)
    tokens = column.flatten().to_numpy().reshape(len(column), column.type.list_size)
    if tokens.size and not (tokens.min() >= PAD_ID and tokens.max() <= n_codes):
        raise ArtifactError(f"holds tokens outside 0 to {n_codes}", path=path)
    further = further_from_arrow(batch, TOKENS_TABLE.columns)
    return TokenSet(tokens=tokens, n_codes=n_codes, further=further, **identity_from_arrow(batch))
