"""Lines of a text file, with their numbers, and pyarrow's CSV parser held to what Python's ``float`` accepts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from unmask.io.source import Source, read_blocks

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: Bytes that pyarrow reads in a way of its own: a lone carriage return as a new line, a byte order mark before any
#: table as nothing, 0x10 as a whole number; each with a telling byte of it.
_PYARROW_EXTRAS = ((b"\r", b"\r"), (b"\xef", _BYTE_ORDER_MARK), (b"x", b"0x"), (b"X", b"0X"))
_SPACE_AT_LINE_END = re.compile(rb"[ \t\r]+(?=\n)|[ \t\r]+\Z")


@dataclass(frozen=True)
class Lines:
    """The lines of a block that are not empty: normalized bytes, bounds, row and line numbers."""

    data: bytes
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    row: npt.NDArray[np.int64]
    number: npt.NDArray[np.int64]
    n_line_ends: int
    #: Whether they are known to hold nothing that ``float`` would refuse and pyarrow would not.
    is_checked: bool = False

    @classmethod
    def of(cls, block: bytes, first_row: int, first_line: int) -> Lines:
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        if any(space in block for space in (b" ", b"\t", b"\r")):
            block = _SPACE_AT_LINE_END.sub(b"", block)
        end = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
        n_line_ends = len(end)
        if not block.endswith(b"\n"):
            end = np.append(end, len(block))
        start = np.concatenate([[0], end[:-1] + 1]) if len(end) else end
        is_filled = end > start
        number = first_line + np.flatnonzero(is_filled)
        row = first_row + np.arange(len(number))
        return cls(block, start[is_filled], end[is_filled], row, number, n_line_ends)

    def __len__(self) -> int:
        return len(self.row)

    def __iter__(self) -> Iterator[bytes]:
        for start, end in zip(self.start, self.end, strict=True):
            yield self.data[start:end]

    @property
    def is_plain(self) -> bool:
        """Whether pyarrow reads nothing in these lines that ``float`` would refuse."""
        # Single bytes are searched much faster, and mostly none is there.
        return self.is_checked or not any(mark in self.data and extra in self.data for mark, extra in _PYARROW_EXTRAS)

    def keep(self, is_kept: npt.NDArray[np.bool_]) -> Lines:
        start, end, row, number = (column[is_kept] for column in (self.start, self.end, self.row, self.number))
        return replace(self, start=start, end=end, row=row, number=number)


def stream_lines(source: Source, block_bytes: int) -> Iterator[Lines]:
    """Yield a text file in blocks of about ``block_bytes``, without empty lines."""
    next_row, next_line = 0, 1
    for block in read_blocks(source, block_bytes):
        if next_line == 1:
            block = block.removeprefix(_BYTE_ORDER_MARK)
        lines = Lines.of(block, next_row, next_line)
        next_row += len(lines)
        next_line += lines.n_line_ends
        if len(lines):
            yield lines


def read_table(
    data: npt.NDArray[np.uint8], types: list[pa.DataType], *, separator: str = ",", empty_is_nan: bool = False
) -> pa.Table | None:
    """Parse lines of ``len(types)`` fields; None if any does not fit."""
    names = [str(i) for i in range(len(types))]
    if not np.any(data != ord("\n")):
        return pa.table({name: pa.array([], kind) for name, kind in zip(names, types, strict=True)})
    try:
        return pa.csv.read_csv(
            pa.BufferReader(pa.py_buffer(data)),
            read_options=pa.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
            parse_options=pa.csv.ParseOptions(
                delimiter=separator, quote_char=False, escape_char=False, newlines_in_values=False
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict(zip(names, types, strict=True)),
                null_values=[""] if empty_is_nan else [],
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None


def checked_lines(lines: Lines, check_line: Callable[[bytes], str], source: Source) -> Lines:
    """Write lines that could not be parsed as a block again, in plain form; bad ones raise or are left out and counted.

    ``check_line`` gives the plain form of a line, or raises a ValueError that names the mistake.
    """
    plain: list[bytes] = []
    is_good = np.ones(len(lines), np.bool_)
    for i, line in enumerate(lines):
        try:
            plain.append(check_line(line).encode())
        except ValueError as error:
            source.bad.add("malformed line", source.error(str(error), f"line {lines.number[i]}"))
            is_good[i] = False
    again = Lines.of(b"\n".join(plain), 0, 0)
    return replace(again, row=lines.row[is_good], number=lines.number[is_good], is_checked=True)


def decode_line(line: bytes, accepted: str) -> str:
    """Give a line as text; ``accepted`` says what it should have been."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if not text.replace("\t", "").isprintable():
        raise ValueError(f"not text: {line[:20]!r}; accepted: {accepted}")
    return text


def parse_number(name: str, text: str) -> float:
    """Parse a decimal number, or name the field that is none."""
    try:
        if "_" in text:
            raise ValueError
        return float(text)
    except ValueError:
        raise ValueError(f"{name} is {text.strip()!r}; accepted: a number") from None
