"""Atomic writes, and folders of fitted things: a manifest and tensors.

A fitted thing is a folder: ``manifest.json`` (what it is, its settings, provenance, and the SHA-256 of every other
file), ``arrays.safetensors``, and a subfolder for each part that is itself a fitted thing. Nothing is ever pickled.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

import unmask
from unmask.errors import ArtifactError, UnmaskError, damage_named
from unmask.outputs import MANIFEST as MANIFEST
from unmask.outputs import MODEL_CARD, check_output

FORMAT_VERSION = 3
ARRAYS = "arrays.safetensors"

_SCRATCH, _LOCK, _OLD = ".scratch", "lock", ".old"
#: Seconds for which a process waits for another one that writes the same file.
_WAIT_SECONDS = 10
#: Errors of a write that do not name the file.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Json = Any  # what json.loads can give
Content = TypeVar("Content")


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Give a scratch path beside ``path`` that takes its place when the block succeeds and vanishes when it fails.

    Works for files and folders; an existing file is replaced, and so is a folder that unmask made. At every moment
    ``path`` holds the whole old content or the whole new one, and the new one is on disk when the block has ended. One
    process at a time writes ``path``; the next one removes what a killed one has left.
    """
    path = Path(path) if Path(path).name not in ("", "..") else Path(path).resolve()
    new_parents = [parent for parent in path.parents if not parent.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _scratch_folder(path) as scratch:
            yield scratch / path.name
            _replace(path, scratch / path.name)
    except OSError as error:
        if f".{path.name}{_SCRATCH}" in str(error.filename) or (error.filename is None and error.errno in _FULL):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise
    finally:
        for parent in new_parents:  # innermost first; those that hold something stay
            with suppress(OSError):
                parent.rmdir()


def recover(path: Path) -> None:
    """Remove what a killed process left beside ``path``, and put back a folder that it had moved aside.

    Nothing is done beside a process that is at work, or where this one may not write.
    """
    if path.with_name(f".{path.name}{_SCRATCH}").exists():
        with suppress(UnmaskError, OSError), _scratch_folder(path, wait_seconds=0):
            pass


@contextmanager
def lock(path: Path, busy: Callable[[], None], *, seconds: float = 0) -> Iterator[None]:
    """Hold a lock file; if another process has held it for so many ``seconds``, call ``busy`` and wait for it.

    The system frees the lock of a process that ends, however it ends. Raises OSError where files cannot be locked.
    """
    from filelock import FileLock, Timeout

    held = FileLock(path, fallback_to_soft=False)
    try:
        held.acquire(timeout=seconds)
    except Timeout:
        busy()
        held.acquire()
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        held.release()


@contextmanager
def making(path: Path) -> Iterator[None]:
    """Refuse to make ``path``, in work that takes long, beside another process that makes it."""
    with ExitStack() as stack:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # locks do not work here
            stack.enter_context(lock(path.with_name(f".{path.name}.{_LOCK}"), _refuse(path)))
        yield


def _refuse(path: Path) -> Callable[[], None]:
    def refuse() -> None:
        raise UnmaskError(f"{path}: another process is writing it; wait for it, or choose another name")

    return refuse


@contextmanager
def _scratch_folder(path: Path, wait_seconds: float | None = None) -> Iterator[Path]:
    """Give an empty folder beside ``path`` that no other process uses, and remove it after the block."""
    scratch = path.with_name(f".{path.name}{_SCRATCH}")
    wait = _WAIT_SECONDS if wait_seconds is None else wait_seconds
    with ExitStack() as stack:
        while True:
            scratch.mkdir(exist_ok=True)
            try:
                stack.enter_context(lock(scratch / _LOCK, _refuse(path), seconds=wait))
                break
            except FileNotFoundError:  # the process that held it has removed it
                continue
            except OSError:  # locks do not work here
                scratch = Path(tempfile.mkdtemp(prefix=f"{scratch.name}-", dir=path.parent))
                break
        try:
            old = scratch / f"{path.name}{_OLD}"
            if old.exists() and not path.exists():
                old.replace(path)
            for leftover in scratch.iterdir():
                if leftover.is_dir():
                    shutil.rmtree(leftover)
                elif leftover.name != _LOCK:
                    leftover.unlink()
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _replace(path: Path, written: Path) -> None:
    """Move what was written, once it is on disk, to its place."""
    for file in [*written.rglob("*"), written]:
        _sync(file)
    if not (written.is_dir() and path.is_dir()):
        written.replace(path)
    elif not _exchange(written, path):
        old = written.with_name(f"{path.name}{_OLD}")
        path.replace(old)  # a folder cannot replace one that is not empty
        try:
            written.replace(path)
        except OSError:
            old.replace(path)
            raise
    _sync(path.parent)


def _exchange(one: Path, two: Path) -> bool:
    """Let two paths change places at once; False where the system cannot."""
    import ctypes

    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return renameat2 is not None and renameat2(here, os.fsencode(one), here, os.fsencode(two), exchange) == 0


def _sync(path: Path) -> None:
    with suppress(OSError) if path.is_dir() else nullcontext():  # some file systems cannot for folders
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sha256_of_file(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stamp(path: Path) -> list[int]:
    """Numbers that are others after any write to a file, without reading it."""
    known = path.stat()
    return [known.st_size, known.st_mtime_ns, known.st_ctime_ns, known.st_ino]


def provenance(**facts: Json) -> dict[str, Json]:
    """When, with what and by which command something was made, and any further ``facts``."""
    program = Path(sys.argv[0]).name.replace("__main__.py", "unmask")  # as python -m unmask
    packages = {"unmask": unmask.__version__, "numpy": np.__version__}
    if "torch" in sys.modules:
        packages["torch"] = str(sys.modules["torch"].__version__)
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join([program, *sys.argv[1:]]),
        "python": platform.python_version(),
        "packages": packages,
        **facts,
    }


@dataclass(frozen=True)
class Artifact:
    """A fitted thing as it lies on disk."""

    kind: str
    settings: dict[str, Json]
    arrays: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    provenance: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class _Manifest:
    kind: str
    settings: dict[str, Json]
    provenance: dict[str, Json]
    files: dict[str, str]


def save_artifact(
    folder: str | Path,
    artifact: Artifact,
    *,
    parts: Mapping[str, Callable[[Path], None]] | None = None,
    replaces: Collection[str] = (),
    card: str = "",
) -> None:
    """Write ``artifact`` to ``folder``; each of ``parts`` is called with the subfolder to write itself to.

    A ``card`` describes it to people; it may be edited.

    Something of its own kind, or of those it ``replaces``, is replaced.
    """
    from safetensors.numpy import save

    folder = Path(folder)
    check_output(folder, replaces or [artifact.kind], overwrite=True)
    with atomic_path(folder) as scratch:
        scratch.mkdir()
        for name, save_part in (parts or {}).items():
            save_part(scratch / name)
        # Not by safetensors' own writer: a file of its making cannot be read by colleagues.
        content = save({name: np.ascontiguousarray(array) for name, array in artifact.arrays.items()})
        (scratch / ARRAYS).write_bytes(content)
        manifest: dict[str, Json] = {
            "format_version": FORMAT_VERSION,
            "kind": artifact.kind,
            "settings": artifact.settings,
            "provenance": artifact.provenance,
            "files": _hashes(scratch),
        }
        manifest["digest"] = _digest(manifest)
        (scratch / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
        if card:
            (scratch / MODEL_CARD).write_text(card, encoding="utf-8")


def load_artifact(folder: str | Path, kind: str | None = None) -> Artifact:
    """Read what :func:`save_artifact` wrote, after checking version and hashes."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    folder = Path(folder)
    recover(folder)
    try:
        content = json.loads((folder / MANIFEST).read_text())
    except FileNotFoundError:
        raise ArtifactError(f"no {MANIFEST} here; give the folder of something saved by unmask", path=folder) from None
    except (ValueError, RecursionError, OSError) as error:
        raise ArtifactError(f"cannot be read ({error})", path=folder / MANIFEST) from None
    if not isinstance(content, dict) or "format_version" not in content:
        raise ArtifactError("is not a manifest of unmask", path=folder / MANIFEST)
    if content["format_version"] != FORMAT_VERSION:
        raise ArtifactError(
            f"holds a {content.get('kind')} of format version {content['format_version']}; this unmask reads version "
            f"{FORMAT_VERSION}. Train it again, or use the version of unmask that wrote it",
            path=folder,
        )
    if content.get("digest") != _digest(content):
        raise ArtifactError("the manifest was changed after it was saved (digest mismatch)", path=folder / MANIFEST)
    manifest = checked(_Manifest, content, folder / MANIFEST)
    if kind is not None and manifest.kind != kind:
        raise ArtifactError(f"holds a {manifest.kind}, not a {kind}", path=folder)
    present = _hashes(folder)
    for name, digest in manifest.files.items():
        if present.get(name) != digest:
            state = "is missing" if name not in present else "was damaged or changed after it was saved (hash mismatch)"
            raise ArtifactError(state, path=folder / name)
    with damage_named(folder / ARRAYS, "cannot be read", (SafetensorError, OSError), ArtifactError):
        arrays = load_file(folder / ARRAYS)
    return Artifact(manifest.kind, manifest.settings, arrays, manifest.provenance)


def checked(kind: type[Content], content: Json, path: Path) -> Content:
    """Give what was read from a file as a dataclass, or raise an error that names what does not fit its fields."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_python(content)
    except (ValidationError, RecursionError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": "is nested too deeply"}
        place = ".".join(map(str, first["loc"]))
        raise ArtifactError(f"{place}: {first['msg']}".removeprefix(": "), path=path) from None


def _hashes(folder: Path) -> dict[str, str]:
    ours = (path for path in folder.rglob("*") if path.is_file() and path.name != MODEL_CARD)
    files = sorted(path for path in ours if path != folder / MANIFEST)
    return {path.relative_to(folder).as_posix(): sha256_of_file(path) for path in files}


def _digest(manifest: Mapping[str, Json]) -> str:
    content = {key: value for key, value in manifest.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
