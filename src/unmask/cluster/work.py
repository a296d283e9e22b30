"""Doing a task: read some events, convert, encode or score them, and write one Parquet file that appears when complete.

A task can be done twice, or half and then again, by anyone: the result is the same.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import cast

from unmask.artifacts import MANIFEST, Json, provenance, sha256_of_file
from unmask.cluster.plan import Task, Work, WorkKind
from unmask.detectors import Detector, load_detector
from unmask.detectors.scores import SCORES_TABLE, write_scores
from unmask.errors import ArtifactError, BadDataError, UnmaskError
from unmask.events.event_set import EventSet
from unmask.events.readers import BadEvents, stream_events
from unmask.events.readers.parquet import EVENTS_TABLE, write_events
from unmask.tables import TableKind, open_table
from unmask.tokenizers import Tokenizer, load_tokenizer, write_tokens
from unmask.tokenizers.token_set import TOKENS_TABLE

_TABLES: dict[WorkKind, TableKind] = {"convert": EVENTS_TABLE, "encode": TOKENS_TABLE, "score": SCORES_TABLE}


@dataclass(frozen=True)
class Model:
    """The files of a saved tokenizer or detector, to be sent to other machines.

    Attributes
    ----------
    digest : SHA-256 of the manifest, which holds the hashes of all other files.
    """

    digest: str
    files: dict[str, bytes]

    @classmethod
    def of(cls, folder: Path) -> Model:
        """Take a saved thing as it is.

        Raises
        ------
        ArtifactError
            If there is none.
        """
        if not (folder / MANIFEST).is_file():
            raise ArtifactError(f"no {MANIFEST} here; give the folder of something saved by unmask", path=folder)
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        return cls(
            sha256_of_file(folder / MANIFEST),
            {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths},
        )


#: What was given to this process, by digest.
_models: dict[str, Model] = {}


def provide_model(model: Model) -> None:
    """Give this process a model that its tasks will name."""
    _models[model.digest] = model


@lru_cache(maxsize=4)
def _load(kind: WorkKind, digest: str) -> Detector | Tokenizer:
    """Load a model once for all tasks of this process."""
    with tempfile.TemporaryDirectory(prefix="unmask-") as scratch:
        for name, content in _models[digest].files.items():
            path = Path(scratch) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        if kind == "encode":
            return load_tokenizer(Path(scratch))
        return load_detector(scratch)


@dataclass(frozen=True)
class Outcome:
    """What became of a task; ``failure`` says why there is no part."""

    task: Task
    n_events: int = 0
    seconds: float = 0.0
    #: The part was there already.
    is_kept: bool = False
    failure: str | None = None
    bad: BadEvents = field(default_factory=BadEvents)
    processes: tuple[str, ...] = ()


def part_length(task: Task) -> int | None:
    """Number of events in the part of a task; None if it is not there or was made of or by something else."""
    if not task.out.exists():
        return None
    try:
        with open_table(task.out, _TABLES[task.work.kind]) as (file, facts):
            is_same = facts.get("provenance", {}).get("part", {}).get("digest") == task.digest
            return int(file.metadata.num_rows) if is_same else None
    except ArtifactError:
        return None


def run_part(task: Task) -> Outcome:
    """Do a task, unless it is done. Bad data is an outcome; a file system that fails is an error, worth another try."""
    n_events = part_length(task)
    if n_events is not None:
        return Outcome(task, n_events, is_kept=True)
    # What a killed worker has left of this part; see `atomic_path`.
    for leftover in task.out.parent.glob(f".{task.out.name}.*"):
        shutil.rmtree(leftover, ignore_errors=True)
    started = time.perf_counter()
    bad = BadEvents(skip=task.work.skip_bad)
    processes: dict[str, None] = {}
    try:
        stat = task.path.stat()
        if (stat.st_size, int(stat.st_mtime)) != (task.size, task.mtime_s):
            raise BadDataError("has changed since the work was planned; run the command again", path=task.path)
        n_events = _WRITERS[task.work.kind](task, _events(task, bad, processes), _facts(task))
    except UnmaskError as error:
        return Outcome(task, failure=str(error), bad=bad)
    return Outcome(task, n_events, time.perf_counter() - started, bad=bad, processes=tuple(processes))


def _events(task: Task, bad: BadEvents, processes: dict[str, None]) -> Iterator[EventSet]:
    work = task.work
    options = replace(work.options, entries=task.entries)
    for events in stream_events(task.path, kind=work.file_kind, options=options, bad=bad):
        processes.update(dict.fromkeys(events.process_names.words))
        yield events.with_signal(work.signal_process) if work.signal_process else events


def _facts(task: Task) -> dict[str, Json]:
    work = task.work
    made_by = {"command": work.command} if work.command else {}
    return provenance(
        inputs=[{"file": task.path.name, "size": task.size, "mtime_s": task.mtime_s}],
        work=work.identity(),
        part={"digest": task.digest, "entries": task.entries},
        **made_by,
    )


def _write_encoded(task: Task, events: Iterator[EventSet], facts: dict[str, Json]) -> int:
    tokenizer = cast("Tokenizer", load_model(task.work))
    return write_tokens(task.out, tokenizer.encode_stream(events), provenance=facts)


def _write_scored(task: Task, events: Iterator[EventSet], facts: dict[str, Json]) -> int:
    work, detector = task.work, cast("Detector", load_model(task.work))
    parts = (
        detector.scores(some, how=work.how, with_token_losses=work.token_losses, device=work.device) for some in events
    )
    return write_scores(task.out, parts, provenance=facts | detector.origin_of_scores(str(work.model), work.how))


def _write_converted(task: Task, events: Iterator[EventSet], facts: dict[str, Json]) -> int:
    return write_events(task.out, events, provenance=facts)


_WRITERS: dict[WorkKind, Callable[[Task, Iterator[EventSet], dict[str, Json]], int]] = {
    "convert": _write_converted,
    "encode": _write_encoded,
    "score": _write_scored,
}


def load_model(work: Work) -> Detector | Tokenizer:
    """The tokenizer or detector of some work, which must have been provided.

    Raises
    ------
    ArtifactError
        If it is of another kind, damaged or changed by hand.
    """
    assert work.model is not None
    return _load(work.kind, work.model)
