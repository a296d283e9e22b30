"""Stages of work that are done once: again only if settings, inputs or outputs have changed.

A stage's key is the hash of its settings, of the contents of its inputs and, where it has one, of the version of its
code. When it is done, key and hashes of the outputs are recorded (``stages/NAME.json``). Several processes may work in
one folder: each stage is made by one of them, and the others wait for it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import unmask
from unmask.artifacts import Json, atomic_path, lock, sha256_of_file, stamp
from unmask.errors import BadDataError, UnmaskError
from unmask.fitted import Reporter
from unmask.workflow.fit import unwatched
from unmask.workflow.sources import no_bar

RECORDS = "stages"
_HASHES = "hashes.json"
_RUN_KEY = "stage.json"
_OTHER_INPUT = "an input has changed"


@dataclass(frozen=True)
class Stage:
    """A step of a study.

    Attributes
    ----------
    make
        Makes all outputs, each of which appears only when complete.
    outputs, inputs
        Files or folders; ``make`` may omit an output that would be empty.
    run_folder
        Folder of a training, which continues from its last epoch while the stage's key is the same.
    version
        Version of the code that makes it; another one makes it again.
    reads, scores
        Event files of the user that are read, and events that are scored.
    stops_all
        Whether a failure stops the study, as what is wrong in the user's files must be corrected first.
    """

    name: str
    make: Callable[[], None]
    outputs: Sequence[Path]
    inputs: Sequence[Path] = ()
    settings: Mapping[str, Json] = field(default_factory=dict)
    run_folder: Path | None = None
    version: str | int | None = None
    reads: Sequence[Path] = ()
    scores: Sequence[Path] = ()
    stops_all: bool = False


class StudyReporter:
    """Receives the progress of a study; this one shows nothing."""

    def stage_started(self, stage: Stage) -> None: ...

    def note(self, text: str) -> None: ...

    def bar(self, text: str) -> AbstractContextManager[Callable[[float], None]]:
        """Show a text while a block runs, and receive the fraction done."""
        return no_bar(text)

    def training(self, title: str, max_epochs: int) -> AbstractContextManager[Reporter | None]:
        """Show a training."""
        return unwatched(title, max_epochs)


class Ledger:
    """Record of the stages that are done in a folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / RECORDS
        # file -> its stamp and SHA-256: files that look the same need not be read again
        self._hashes: dict[str, list[Json]] = _read_json(self.folder / _HASHES) or {}

    def digest(self, path: Path) -> str | None:
        """Hash the content of a file, or of all files in a folder; None if it is not there."""
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file())
            content = [[file.relative_to(path).as_posix(), self.digest(file)] for file in files]
            return hashlib.sha256(json.dumps(content).encode()).hexdigest()
        if not path.is_file():
            return None
        name, seen = str(path.resolve()), stamp(path)
        if self._hashes.get(name, [])[:-1] != seen:
            self._hashes[name] = [*seen, sha256_of_file(path)]
        return str(self._hashes[name][-1])

    def key(self, stage: Stage) -> str:
        """Hash all that a stage's outputs depend on."""
        code = [] if stage.version is None else [stage.version]
        content = [stage.settings, self._digests(stage.inputs), *code]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def record(self, stage: Stage) -> dict[str, Json] | None:
        """The record of when the stage was last done."""
        return _read_json(self._place(stage))

    def why_not_done(self, stage: Stage) -> str | None:
        """Reason for which a stage must be done; None if it need not be."""
        record = self.record(stage)
        if record is None:
            return "new"
        if record["outputs"] != self._digests(stage.outputs):
            return "an output is missing or changed"
        if record["key"] == self.key(stage):
            return None
        if record["settings"] != json.loads(json.dumps(stage.settings)):
            return "a setting has changed"
        return _OTHER_INPUT if record.get("version") == stage.version else "made by another version of unmask"

    def can_continue(self, stage: Stage) -> bool:
        """Whether a training of this stage was begun, with the same settings and inputs."""
        return stage.run_folder is not None and _read_json(stage.run_folder / _RUN_KEY) == {"key": self.key(stage)}

    @contextmanager
    def doing(self, stage: Stage) -> Iterator[None]:
        """Record, if the block succeeds, that a stage is done; the remains of another training are removed."""
        key, started = self.key(stage), time.perf_counter()
        if stage.run_folder is not None and not self.can_continue(stage):
            shutil.rmtree(stage.run_folder, ignore_errors=True)
            _write_json(stage.run_folder / _RUN_KEY, {"key": key})
        yield
        for path, (_, digest) in zip(stage.reads, stage.settings.get("files", ()), strict=False):
            if self.digest(path) != digest:
                raise BadDataError("changed while the study ran; run it again when nothing writes to it", path=path)
        record = {
            "stage": stage.name,
            "key": key,
            "version": stage.version,
            "unmask": unmask.__version__,
            "settings": dict(stage.settings),
            "inputs": self._digests(stage.inputs),
            "outputs": self._digests(stage.outputs),
            "seconds": round(time.perf_counter() - started, 2),
        }
        _write_json(self._place(stage), record)
        _write_json(self.folder / _HASHES, self._hashes)

    @contextmanager
    def lock(self, stage: Stage, note: Callable[[str], None]) -> Iterator[None]:
        """Keep other processes from making the same stage."""
        path = self._place(stage).with_suffix(".lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                busy = f"{stage.name}: waiting for another process that makes this"
                stack.enter_context(lock(path, lambda: note(busy)))
            except OSError as error:
                note(f"{stage.name}: no lock ({error.strerror}): nothing keeps another process from doing the same")
            yield

    def _digests(self, paths: Sequence[Path]) -> dict[str, str | None]:
        return {path.relative_to(self.root).as_posix(): self.digest(path) for path in paths}

    def _place(self, stage: Stage) -> Path:
        return self.folder / f"{stage.name.replace(' ', '-')}.json"


def plan(stages: Sequence[Stage], ledger: Ledger) -> list[tuple[Stage, str | None]]:
    """List stages, and why they must be done or None; what depends on one of them must be done too."""
    planned, coming = [], set[Path]()
    for stage in stages:
        why = ledger.why_not_done(stage)
        if why in (None, _OTHER_INPUT) and coming.intersection(stage.inputs):
            why = "an input is made again"
        if why is not None:
            coming.update(stage.outputs)
        planned.append((stage, why))
    return planned


def run_stages(stages: Sequence[Stage], ledger: Ledger, reporter: StudyReporter) -> list[Stage]:
    """Do what is missing or has changed, in the order of the stages, and return what was done.

    After a failure all stages are done that do not depend on it, unless it concerns the user's files; then its error
    is raised, or one that names all stages that failed.
    """
    done, failed, lost = [], dict[str, UnmaskError](), set[Path]()
    made_by = {path: stage for stage in stages for path in stage.outputs}
    for stage in stages:
        if lost.intersection(stage.inputs):
            lost.update(stage.outputs)
            continue
        if ledger.why_not_done(stage) is None:
            continue
        try:
            with ledger.lock(stage, reporter.note):
                if ledger.why_not_done(stage) is None:  # another process has made it meanwhile
                    continue
                reporter.stage_started(stage)
                with ledger.doing(stage):
                    stage.make()
                    _check_still_done([made_by[path] for path in stage.inputs if path in made_by], ledger)
        except UnmaskError as error:
            if stage.stops_all:
                raise
            reporter.note(f"{stage.name} failed: {error}")
            failed[stage.name] = error
            lost.update(stage.outputs)
        else:
            done.append(stage)
    if len(failed) == 1:
        raise next(iter(failed.values()))
    if failed:
        raise UnmaskError(f"these stages failed: {'; '.join(f'{name} ({error})' for name, error in failed.items())}")
    return done


def _check_still_done(stages: Sequence[Stage], ledger: Ledger) -> None:
    """Refuse what was made from inputs that another process has changed meanwhile."""
    for stage in stages:
        why = ledger.why_not_done(stage)
        if why is not None:
            raise UnmaskError(
                f"{stage.name} was not left as it was while this ran ({why}): another process works in {ledger.root} "
                "with other settings or files; give it a folder of its own"
            )


def _read_json(path: Path) -> dict[str, Json] | None:
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, ValueError, RecursionError):  # what cannot be read is made again
        return None
    return content if isinstance(content, dict) else None


def _write_json(path: Path, content: Mapping[str, Json]) -> None:
    with atomic_path(path) as scratch:
        scratch.write_text(json.dumps(content, indent=1) + "\n")
