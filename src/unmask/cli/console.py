"""Output of the command line: results on stdout, progress and notes on stderr, bars only on a terminal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from unmask.workflow.sources import Sources

#: Of several processes that torchrun has started to train together only the first prints and saves.
IS_ALONE = os.environ.get("WORLD_SIZE", "1") in ("0", "1")
IS_FIRST_PROCESS = IS_ALONE or os.environ.get("RANK", "0") == "0"
out = Console(quiet=not IS_FIRST_PROCESS)
err = Console(stderr=True, quiet=not IS_FIRST_PROCESS)


def printable(text: str) -> str:
    r"""Text without what would control a terminal.

    >>> print(printable("\x1b[31mred\x9b"))
    \x1b[31mred\x9b
    """
    return "".join(char if char in "\n\t" or char.isprintable() else repr(char)[1:-1] for char in text)


def show(text: str) -> None:
    """Print a result as it is."""
    out.print(printable(text), highlight=False, markup=False, soft_wrap=True)


def note(text: str) -> None:
    """Print what is not a result."""
    err.print(printable(text), highlight=False, markup=False, soft_wrap=True)


def note_problems(sources: Sources) -> None:
    """Print which events were skipped or cut."""
    for text in sources.problems():
        note(text)


def show_json(value: Any) -> None:
    """Print a result for a program to read."""
    out.file.write(json.dumps(value, indent=1) + "\n")


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a result as a table: numbers to the right, words to the left."""
    table = Table(title=escape(printable(title)), title_justify="left", header_style="bold")
    cells = [*map(tuple, rows)]
    for i, column in enumerate(columns):
        is_words = i == 0 or any(row[i][:1].isalpha() for row in cells)
        table.add_column(escape(column), justify="left" if is_words else "right", overflow="fold")
    for row in cells:
        table.add_row(*(escape(printable(cell)) for cell in row))  # names of processes may look like markup
    out.print(table)


@contextmanager
def progress_bar(text: str) -> Iterator[Callable[[float], None]]:
    """Show a bar on stderr while the block runs; call what it gives with the fraction done."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(escape(printable(text)), total=1.0)
        yield lambda fraction: bar.update(task, completed=fraction)


@contextmanager
def working(text: str) -> Iterator[Callable[[float], None]]:
    """Show a bar as :func:`progress_bar`; off a terminal a line with what is being done."""
    if not err.is_terminal:
        note(f"{text} ...")
    with progress_bar(text) as progress:
        yield progress
