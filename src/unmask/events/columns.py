"""The columns that say which event a row is about, the same in every table."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unmask.events.event_set import Names
from unmask.tables import WORDS

IDENTITY_TYPES: dict[str, pa.DataType] = {
    "row": pa.int64(),
    "event_id": pa.int64(),
    "file": WORDS,
    "process": WORDS,
    "label": pa.int8(),
    "weight": pa.float64(),
}


class HasIdentity(Protocol):
    """Anything with one entry an event: events, tokens, scores."""

    @property
    def row(self) -> npt.NDArray[np.int64]: ...
    @property
    def event_id(self) -> npt.NDArray[np.int64]: ...
    @property
    def file_names(self) -> Names: ...
    @property
    def process_names(self) -> Names: ...
    @property
    def label(self) -> npt.NDArray[np.int8]: ...
    @property
    def weight(self) -> npt.NDArray[np.float64]: ...


def identity_to_arrow(events: HasIdentity) -> dict[str, pa.Array]:
    """The identity columns as they are stored."""
    words = {"file": events.file_names, "process": events.process_names}
    return {
        name: pa.DictionaryArray.from_arrays(words[name].code, pa.array(words[name].words, pa.string()))
        if name in words
        else pa.array(getattr(events, name))
        for name in IDENTITY_TYPES
    }


def identity_from_arrow(batch: pa.RecordBatch) -> dict[str, Any]:
    """The identity columns as they are in memory, by attribute."""
    return {
        f"{name}_names" if kind == WORDS else name: words_from_arrow(batch[name])
        if kind == WORDS
        else batch[name].to_numpy(zero_copy_only=False)
        for name, kind in IDENTITY_TYPES.items()
    }


def words_from_arrow(column: pa.DictionaryArray) -> Names:
    """A text column."""
    return Names(column.indices.to_numpy(zero_copy_only=False), tuple(column.dictionary.to_pylist()))
