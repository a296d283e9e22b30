"""Columns of tables with one row per event: text columns, identity, selection, joining, equality."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unmask.errors import UsageError
from unmask.tables import WORDS

Selection = slice | npt.NDArray[np.bool_] | npt.NDArray[np.integer]
Table = TypeVar("Table", bound=Any)


@dataclass(frozen=True, slots=True)
class Names:
    """A text column: one small integer per event and the words it stands for.

    >>> Names.of(["ttH", "ttW", "ttH"]).words
    ('ttH', 'ttW')
    """

    code: npt.NDArray[np.int32]
    words: tuple[str, ...]

    @classmethod
    def of(cls, values: Iterable[str]) -> Self:
        known: dict[str, int] = {}
        code = np.fromiter((known.setdefault(str(value), len(known)) for value in values), dtype=np.int32)
        return cls(code, tuple(known))

    @classmethod
    def constant(cls, word: str, n: int) -> Self:
        return cls(np.zeros(n, np.int32), (word,))

    @classmethod
    def concatenate(cls, parts: Sequence[Names]) -> Self:
        known: dict[str, int] = {}
        codes = []
        for part in parts:
            new_code = np.array([known.setdefault(word, len(known)) for word in part.words], np.int32)
            codes.append(new_code[part.code] if len(part.code) else part.code)
        return cls(np.concatenate(codes), tuple(known))

    def __len__(self) -> int:
        return len(self.code)

    def __getitem__(self, selection: Selection) -> Names:
        return Names(self.code[selection], self.words)

    def array(self) -> npt.NDArray[np.str_]:
        return np.array(self.words, dtype=np.str_)[self.code] if len(self.code) else np.array([], np.str_)

    def counts(self) -> dict[str, int]:
        """Events per word, in the order of first appearance; words without events are left out."""
        n = np.bincount(self.code, minlength=len(self.words))
        return {word: int(k) for word, k in zip(self.words, n, strict=True) if k}


def columns_of(table: Any) -> dict[str, Any]:
    """The fields of a dataclass that are columns."""
    values = {field.name: getattr(table, field.name) for field in fields(table)}
    return {name: column for name, column in values.items() if isinstance(column, np.ndarray | Names)}


def make_read_only(table: Any) -> None:
    """Check that all columns of a frozen dataclass have one row per event, and replace them by read-only views."""
    columns = columns_of(table)
    n = len(next(iter(columns.values())))
    for name, column in columns.items():
        if len(column) != n:
            raise UsageError(f"column {name} has {len(column)} entries for {n} events")
        view = (column.code if isinstance(column, Names) else column).view()
        view.flags.writeable = False
        object.__setattr__(table, name, Names(view, column.words) if isinstance(column, Names) else view)


def join(tables: Sequence[Table]) -> Table:
    """Tables one after the other; whatever is no column is that of the first."""
    columns = {name: [getattr(table, name) for table in tables] for name in columns_of(tables[0])}
    joined = {
        name: Names.concatenate(parts) if isinstance(parts[0], Names) else np.concatenate(parts)
        for name, parts in columns.items()
    }
    return replace(tables[0], **joined)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class EventTable:
    """Identity columns, which events, tokens and scores begin with. The arrays are read-only.

    Attributes
    ----------
    row
        (n_events,) int64: number of the event in its file, from 0. Event ids repeat in real files; ``(file, row)`` does
        not.
    event_id
        (n_events,) int64.
    file_names, process_names
        Text columns; :attr:`file` and :attr:`process` give them as arrays of words.
    label
        (n_events,) int8: 0 background, 1 signal, -1 unknown.
    weight
        (n_events,) float64.
    """

    row: npt.NDArray[np.int64]
    event_id: npt.NDArray[np.int64]
    file_names: Names
    process_names: Names
    label: npt.NDArray[np.int8]
    weight: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def process(self) -> npt.NDArray[np.str_]:
        """(n_events,): process names."""
        return self.process_names.array()

    @property
    def file(self) -> npt.NDArray[np.str_]:
        """(n_events,): the file that each event came from."""
        return self.file_names.array()

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, selection: Selection | int) -> Self:
        if not isinstance(selection, slice) and np.ndim(selection) == 0:
            raise UsageError(f"{type(self).__name__} is sliced, not indexed: write events[i : i + 1]")
        return replace(self, **{name: column[selection] for name, column in columns_of(self).items()})

    def chunks(self, n_events: int) -> Iterator[Self]:
        """Yield consecutive slices of at most ``n_events``."""
        for start in range(0, len(self), n_events):
            yield self[start : start + n_events]

    def equals(self, other: Self) -> bool:
        """Whether every column holds the same values."""

        def values(column: Any) -> npt.NDArray[Any]:
            return column.array() if isinstance(column, Names) else column

        pairs = ((column, getattr(other, name)) for name, column in columns_of(self).items())
        return all(np.array_equal(values(one), values(two)) for one, two in pairs)


IDENTITY_TYPES: dict[str, pa.DataType] = {
    "row": pa.int64(),
    "event_id": pa.int64(),
    "file": WORDS,
    "process": WORDS,
    "label": pa.int8(),
    "weight": pa.float64(),
}
#: The identity columns as attributes.
IDENTITY_COLUMNS = tuple(field.name for field in fields(EventTable))


def identity_of(events: EventTable) -> dict[str, Any]:
    """The identity columns of events, tokens or scores, by attribute."""
    return {name: getattr(events, name) for name in IDENTITY_COLUMNS}


def identity_to_arrow(events: EventTable) -> dict[str, pa.Array]:
    """The identity columns as they are stored."""

    def stored(column: Any) -> pa.Array:
        is_text = isinstance(column, Names)
        return pa.DictionaryArray.from_arrays(column.code, list(column.words)) if is_text else pa.array(column)

    return dict(zip(IDENTITY_TYPES, map(stored, identity_of(events).values()), strict=True))


def identity_from_arrow(batch: pa.RecordBatch) -> dict[str, Any]:
    """The identity columns as they are in memory, by attribute."""
    return {
        attribute: words_from_arrow(batch[name]) if kind == WORDS else batch[name].to_numpy(zero_copy_only=False)
        for attribute, (name, kind) in zip(IDENTITY_COLUMNS, IDENTITY_TYPES.items(), strict=True)
    }


def words_from_arrow(column: pa.DictionaryArray) -> Names:
    """A text column as it is in memory."""
    return Names(column.indices.to_numpy(zero_copy_only=False), tuple(column.dictionary.to_pylist()))
