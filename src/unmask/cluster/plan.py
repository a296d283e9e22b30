"""What is to be done: one task a part, the same list wherever and whenever it is made.

A part's name comes from its file's path and its entries, so every machine agrees on it; its digest says from what and
how it was made, so a part that is there is either the wanted one or done again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal, Self, TypeVar

from unmask.artifacts import Json, atomic_path
from unmask.errors import ArtifactError, BadDataError, UnmaskError, UsageError
from unmask.events.kinds import Kind
from unmask.events.readers import ReadOptions, count_entries
from unmask.tables import PLAN

WorkKind = Literal["convert", "encode", "score"]
_T = TypeVar("_T")
_FORMAT_VERSION = 1
#: Options of reading that change how the work is done, but not its result.
_NOT_IN_RESULT = ("chunk_events", "entries")


@dataclass(frozen=True)
class Work:
    """What is done with the events of every part.

    Attributes
    ----------
    kind : convert to Parquet, encode as tokens, or score.
    model : SHA-256 of the manifest of the tokenizer or detector; None to convert.
    file_kind, options, signal_process, skip_bad : how files are read.
    how, token_losses : what a score is made of, and whether the loss of every token is written with it.
    device : where the network runs; not part of the result's identity.
    command : what the user typed, for the provenance.
    """

    kind: WorkKind
    model: str | None = None
    file_kind: Kind | None = None
    options: ReadOptions = field(default_factory=ReadOptions)
    signal_process: tuple[str, ...] = ()
    skip_bad: bool = False
    how: str | None = None
    token_losses: bool = False
    device: str = "auto"
    command: str = ""

    def identity(self) -> dict[str, Json]:
        """All that the result depends on, but the events."""
        facts = asdict(self)
        for name in ("device", "command"):
            del facts[name]
        for name in _NOT_IN_RESULT:
            del facts["options"][name]
        plain: dict[str, Json] = json.loads(json.dumps(facts))
        return plain


@dataclass(frozen=True)
class Task:
    """One part: some entries of a file (None: all of it), and the file to write."""

    work: Work
    path: Path
    size: int
    #: Whole seconds, since file systems differ in what they keep of the rest.
    mtime_s: int
    entries: tuple[int, int] | None
    out: Path

    @property
    def digest(self) -> str:
        """Of all that the part depends on; a file that has changed gives another one."""
        facts = [self.work.identity(), self.path.name, self.size, self.mtime_s, self.entries]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Shard:
    """Number ``index`` of ``count`` shares of a plan, from 1.

    >>> Shard.parse("2/3").of(["a", "b", "c", "d", "e"])
    ['b', 'e']
    """

    index: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``i/n``.

        Raises
        ------
        UsageError
            If it is not two whole numbers with 1 <= i <= n.
        """
        index, slash, count = text.partition("/")
        if not (slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
            raise UsageError(f"shard {text!r}: write i/n with i from 1 to n, such as 1/100")
        return cls(int(index), int(count))

    def of(self, items: Sequence[_T]) -> list[_T]:
        """This share: neighbours go to different shards, so a large file is shared out too."""
        return list(items[self.index - 1 :: self.count])


def make_tasks(work: Work, files: Iterable[Path], out: Path, *, part_events: int) -> list[Task]:
    """Cut files into parts of at most ``part_events`` entries.

    Parquet and ROOT files are cut into ranges of entries of equal size; a text or array file is one part, since it
    cannot be read from the middle. A file that cannot be opened is one part too, which fails when its turn comes.

    Raises
    ------
    BadDataError
        If a file is not there.
    """
    tasks = []
    for path in dict.fromkeys(file.absolute() for file in files):
        if not path.exists():
            raise BadDataError("no such file", path=path)
        stat = path.stat()
        tasks += [
            Task(work, path, stat.st_size, int(stat.st_mtime), entries, out.absolute() / part_name(path, entries))
            for entries in _ranges(path, work, part_events)
        ]
    return tasks


def part_name(path: Path, entries: tuple[int, int] | None) -> str:
    """Name of a part: readable, and different for files of one name in different folders.

    >>> part_name(Path("/data/ttH.csv.gz"), None), part_name(Path("/data/ttH.root"), (0, 1000))
    ('ttH.csv-780e61e4.parquet', 'ttH-aefe7a46-000000000000.parquet')
    """
    short = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    place = "" if entries is None else f"-{entries[0]:012d}"
    return f"{path.stem}-{short}{place}.parquet"


def _ranges(path: Path, work: Work, part_events: int) -> list[tuple[int, int] | None]:
    try:
        n = count_entries(path, kind=work.file_kind, options=work.options)
    except UnmaskError:
        return [None]
    if not n:
        return [None]
    n_parts = -(-n // part_events)
    bounds = [i * n // n_parts for i in range(n_parts + 1)]
    return list(pairwise(bounds))


def open_folder(out: Path, tasks: Sequence[Task], *, part_events: int) -> None:
    """Make the folder of parts, or check that it is one of the same work, and write its plan.

    The plan and the parts always agree: a part whose file is now cut otherwise is removed.

    Raises
    ------
    UsageError
        If the folder holds other work, or parts of files that are not among those of ``tasks``.
    """
    work = tasks[0].work.identity() | {"part_events": part_events}
    files: dict[str, dict[str, Json]] = {}
    for task in tasks:
        facts = {"file": str(task.path), "size": task.size, "mtime_s": task.mtime_s, "parts": []}
        files.setdefault(str(task.path), facts)["parts"].append(task.out.name)
    wanted = {task.out.name for task in tasks}
    # In this order: others may be starting in the same folder, and they write the plan before any part.
    is_in_use = out.is_dir() and any(not path.name.startswith(".") for path in out.iterdir())
    plan = _read_plan(out)
    if plan is not None:
        different = sorted(name for name in work if plan["work"].get(name) != work[name])
        if different:
            was, now = ({name: facts.get(name) for name in different} for facts in (plan["work"], work))
            raise UsageError(f"{out} holds parts made with {_words(was)}, not {_words(now)}; choose another folder")
        for old in plan["files"]:
            kept = [name for name in old["parts"] if name not in wanted and (out / name).exists()]
            if kept and old["file"] not in files:
                raise UsageError(
                    f"{out} holds parts of {old['file']}, which is not among the files; "
                    f"give that file too, choose another folder, or remove {', '.join(kept[:3])}"
                )
            for name in kept:
                (out / name).unlink(missing_ok=True)
    elif is_in_use:
        raise UsageError(f"{out} is not empty and has no {PLAN}; choose another folder")
    new = {"format_version": _FORMAT_VERSION, "work": work, "files": list(files.values())}
    if new != plan:
        with atomic_path(out / PLAN) as scratch:
            scratch.write_text(json.dumps(new, indent=1) + "\n")


def _read_plan(out: Path) -> dict[str, Json] | None:
    try:
        plan = json.loads((out / PLAN).read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ArtifactError(f"cannot be read ({error})", path=out / PLAN) from None
    if not isinstance(plan, dict) or plan.get("format_version") != _FORMAT_VERSION:
        raise ArtifactError(f"is not a plan of format version {_FORMAT_VERSION}", path=out / PLAN)
    return plan


def _words(facts: dict[str, Json]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())
