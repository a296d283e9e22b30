"""Atomic writes, and folders of fitted things: a manifest and tensors.

A fitted thing is a folder: ``manifest.json`` (what it is, its settings, provenance, and the SHA-256 of every other
file), ``arrays.safetensors``, and a subfolder for each part that is itself a fitted thing. Nothing is ever pickled.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import unmask
from unmask.errors import ArtifactError, UsageError, damage_named

FORMAT_VERSION = 2
MANIFEST = "manifest.json"
ARRAYS = "arrays.safetensors"

Json = Any  # what json.loads can give


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Give a scratch path beside ``path`` that takes its place when the block succeeds and vanishes when it fails.

    Works for files and folders; an existing file is replaced, and so is a folder that unmask made.
    """
    path = Path(path)
    new_parents = [parent for parent in path.parents if not parent.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        written, old = scratch / path.name, scratch / f"{path.name}.old"
        yield written
        if written.is_dir() and path.is_dir():
            path.replace(old)  # a folder cannot replace one that is not empty
        try:
            written.replace(path)
        except OSError:
            if old.exists():
                old.replace(path)
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        for parent in new_parents:  # innermost first; those that hold something stay
            with suppress(OSError):
                parent.rmdir()


def sha256_of_file(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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


def check_can_save(folder: Path) -> None:
    """Refuse a folder that holds something else; worth asking before long work."""
    if folder.exists() and not (folder / MANIFEST).is_file():
        raise UsageError(f"{folder} exists and is not something that unmask saved; choose another name")


def save_artifact(
    folder: str | Path, artifact: Artifact, *, parts: Mapping[str, Callable[[Path], None]] | None = None
) -> None:
    """Write ``artifact`` to ``folder``; each of ``parts`` is called with the subfolder to write itself to."""
    from safetensors.numpy import save

    folder = Path(folder)
    check_can_save(folder)
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


def load_artifact(folder: str | Path, kind: str | None = None) -> Artifact:
    """Read what :func:`save_artifact` wrote, after checking version and hashes."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    folder = Path(folder)
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except FileNotFoundError:
        raise ArtifactError(f"no {MANIFEST} here; give the folder of something saved by unmask", path=folder) from None
    except (ValueError, OSError) as error:
        raise ArtifactError(f"cannot be read ({error})", path=folder / MANIFEST) from None
    if not isinstance(manifest, dict) or "format_version" not in manifest:
        raise ArtifactError("is not a manifest of unmask", path=folder / MANIFEST)
    if manifest["format_version"] != FORMAT_VERSION:
        raise ArtifactError(
            f"holds a {manifest.get('kind')} of format version {manifest['format_version']}; this unmask reads version "
            f"{FORMAT_VERSION}. Train it again, or use the version of unmask that wrote it",
            path=folder,
        )
    if manifest.get("digest") != _digest(manifest):
        raise ArtifactError("the manifest was changed after it was saved (digest mismatch)", path=folder / MANIFEST)
    if kind is not None and manifest["kind"] != kind:
        raise ArtifactError(f"holds a {manifest['kind']}, not a {kind}", path=folder)
    present = _hashes(folder)
    for name, digest in manifest["files"].items():
        if present.get(name) != digest:
            state = "is missing" if name not in present else "was damaged or changed after it was saved (hash mismatch)"
            raise ArtifactError(state, path=folder / name)
    with damage_named(folder / ARRAYS, "cannot be read", (SafetensorError, OSError), ArtifactError):
        arrays = load_file(folder / ARRAYS)
    return Artifact(manifest["kind"], manifest["settings"], arrays, manifest["provenance"])


def _hashes(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST)
    return {path.relative_to(folder).as_posix(): sha256_of_file(path) for path in files}


def _digest(manifest: Mapping[str, Json]) -> str:
    content = {key: value for key, value in manifest.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
