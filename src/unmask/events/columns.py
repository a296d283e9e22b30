"""Columns of tables with one row per event: text columns, identity, selection, joining, equality."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unmask.errors import BadDataError, UsageError
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
    """The fields of a dataclass that are columns, or columns by name."""
    values = {field.name: getattr(table, field.name) for field in fields(table)}
    return {name: column for name, column in values.items() if isinstance(column, np.ndarray | Names | dict)}


def selected(column: Any, selection: Selection | int) -> Any:
    """Some rows of a column, or of all columns of a group."""
    return {name: one[selection] for name, one in column.items()} if isinstance(column, dict) else column[selection]


def make_read_only(table: Any) -> None:
    """Check that all columns of a frozen dataclass have one row per event, and replace them by read-only views."""
    columns = columns_of(table)
    n = len(next(iter(columns.values())))

    def view(name: str, column: Any) -> Any:
        if isinstance(column, dict):
            return {key: view(key, one) for key, one in column.items()}
        if len(column) != n:
            raise UsageError(f"column {name} has {len(column)} entries for {n} events")
        array = (column.code if isinstance(column, Names) else column).view()
        array.flags.writeable = False
        return Names(array, column.words) if isinstance(column, Names) else array

    for name, column in columns.items():
        object.__setattr__(table, name, view(name, column))


def join(tables: Sequence[Table]) -> Table:
    """Tables one after the other; whatever is no column is that of the first.

    Where a table lacks a further column of another, its values are -1 or NaN.
    """
    columns = {name: [getattr(table, name) for table in tables] for name in columns_of(tables[0])}
    n_rows = [len(table) for table in tables]

    def joined(parts: list[Any]) -> Any:
        if isinstance(parts[0], dict):
            keys = dict.fromkeys(key for part in parts for key in part)
            return {key: _filled([part.get(key) for part in parts], n_rows) for key in keys}
        return Names.concatenate(parts) if isinstance(parts[0], Names) else np.concatenate(parts)

    return replace(tables[0], **{name: joined(parts) for name, parts in columns.items()})


def _filled(parts: Sequence[npt.NDArray[Any] | None], n_rows: Sequence[int]) -> npt.NDArray[Any]:
    unknown = np.nan if any(part is not None and part.dtype.kind == "f" for part in parts) else -1
    filled = [np.full(n, unknown) if part is None else part for part, n in zip(parts, n_rows, strict=True)]
    return np.concatenate(filled)


def without_empty(tables: Iterable[Table]) -> tuple[Table | None, Iterator[Table]]:
    """The first table that holds events, or an empty one if none does, and all from there on; None of no tables."""
    first, stream = None, iter(tables)
    for first in stream:
        if len(first):
            break
    return first, chain([] if first is None else [first], (table for table in stream if len(table)))


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
    further
        Further columns (n_events,) by name, int64 or float64: ``run`` and ``luminosity_block`` where a file has them,
        and what reading was told to keep.
    """

    row: npt.NDArray[np.int64]
    event_id: npt.NDArray[np.int64]
    file_names: Names
    process_names: Names
    label: npt.NDArray[np.int8]
    weight: npt.NDArray[np.float64]
    further: dict[str, npt.NDArray[Any]] = field(default_factory=dict, kw_only=True)

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
        return replace(self, **{name: selected(column, selection) for name, column in columns_of(self).items()})

    def chunks(self, n_events: int) -> Iterator[Self]:
        """Yield consecutive slices of at most ``n_events``."""
        for start in range(0, len(self), n_events):
            yield self[start : start + n_events]

    def equals(self, other: Self) -> bool:
        """Whether every column holds the same values."""

        def is_same(one: Any, two: Any) -> bool:
            if isinstance(one, dict):
                return one.keys() == two.keys() and all(is_same(one[key], two[key]) for key in one)
            one, two = (column.array() if isinstance(column, Names) else column for column in (one, two))
            return np.array_equal(one, two, equal_nan=one.dtype.kind == "f")

        return all(is_same(column, getattr(other, name)) for name, column in columns_of(self).items())


IDENTITY_TYPES: dict[str, pa.DataType] = {
    "row": pa.int64(),
    "event_id": pa.int64(),
    "file": WORDS,
    "process": WORDS,
    "label": pa.int8(),
    "weight": pa.float64(),
}
#: Further columns that files of unmask always have, null where they are unknown.
RUN_TYPES: dict[str, pa.DataType] = {"run": pa.int64(), "luminosity_block": pa.int64()}
#: The identity columns as attributes.
_ATTRIBUTES = ("row", "event_id", "file_names", "process_names", "label", "weight")


def identity_of(events: EventTable) -> dict[str, Any]:
    """The identity columns of events, tokens or scores, and the further ones, by attribute."""
    return {name: getattr(events, name) for name in (*_ATTRIBUTES, "further")}


def as_further(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A column of numbers as int64 or float64, so that it has one type in all files."""
    return values.astype(np.float64 if values.dtype.kind == "f" else np.int64)


def further_types(events: EventTable, own: Collection[str]) -> dict[str, pa.DataType]:
    """The types of further columns in a file that has columns of its ``own``, from the first events written to it."""
    for name in own:
        if name in events.further:
            raise UsageError(f"column {name} cannot be kept: files of unmask have a column of this name")
    return RUN_TYPES | {name: pa.from_numpy_dtype(column.dtype) for name, column in events.further.items()}


def further_to_arrow(events: EventTable, types: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
    """Further columns as they are stored, null where they are unknown; those that ``types`` lack are left out."""
    known = events.further
    try:
        return {
            name: pa.array(known[name]).cast(kind) if name in known else pa.nulls(len(events), kind)
            for name, kind in types.items()
        }
    except pa.ArrowInvalid as error:
        raise BadDataError(f"a further column holds whole numbers in one file, others in another: {error}") from None


def further_from_arrow(batch: pa.RecordBatch, own: Collection[str]) -> dict[str, npt.NDArray[Any]]:
    """The columns of numbers of a file beyond its ``own``; those without any value are left out."""
    further = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        if name not in own and is_number and column.null_count < len(column):
            unknown = np.nan if pa.types.is_floating(column.type) else -1
            column = column if pa.types.is_floating(column.type) else column.cast(pa.int64())
            further[name] = as_further(column.fill_null(unknown).to_numpy(zero_copy_only=False))
    return further


def identity_to_arrow(events: EventTable) -> dict[str, pa.Array]:
    """The identity columns as they are stored."""

    def stored(column: Any) -> pa.Array:
        is_text = isinstance(column, Names)
        return pa.DictionaryArray.from_arrays(column.code, list(column.words)) if is_text else pa.array(column)

    return dict(zip(IDENTITY_TYPES, (stored(getattr(events, name)) for name in _ATTRIBUTES), strict=True))


def identity_from_arrow(batch: pa.RecordBatch) -> dict[str, Any]:
    """The identity columns as they are in memory, by attribute."""
    return {
        attribute: words_from_arrow(batch[name]) if kind == WORDS else batch[name].to_numpy(zero_copy_only=False)
        for attribute, (name, kind) in zip(_ATTRIBUTES, IDENTITY_TYPES.items(), strict=True)
    }


def words_from_arrow(column: pa.DictionaryArray) -> Names:
    """A text column as it is in memory."""
    return Names(column.indices.to_numpy(zero_copy_only=False), tuple(column.dictionary.to_pylist()))
