"""TokenSet: events as rows of whole numbers, in memory and written as Parquet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unmask.artifacts import Json
from unmask.errors import UsageError
from unmask.events.columns import (
    IDENTITY_TYPES,
    EventTable,
    further_to_arrow,
    further_types,
    identity_of,
    identity_to_arrow,
    without_empty,
)
from unmask.events.event_set import EventSet
from unmask.tables import TableKind, write_table

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

    def __repr__(self) -> str:
        return f"TokenSet: {len(self):,} events of {self.sequence_length} tokens, {self.n_codes:,} codes"


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
            flat = pa.array(part.tokens.ravel(), pa.int32())
            tokens_column = pa.FixedSizeListArray.from_arrays(flat, type=token_list)
            write(identity_to_arrow(part) | {"tokens": tokens_column} | further_to_arrow(part, further))
            n_events += len(part)
    return n_events
