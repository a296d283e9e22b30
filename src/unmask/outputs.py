"""The one rule of what a command may write over, and what it is that unmask wrote."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from unmask.errors import UsageError

#: File of a folder that holds something fitted.
MANIFEST = "manifest.json"
#: File of a folder that describes it to people.
MODEL_CARD = "MODEL_CARD.md"
#: In the metadata of a Parquet file: what it holds.
METADATA_KEY = b"unmask"
#: First characters of text files that hold something; without a name of its own, each is like any other of its kind.
_BEGINNINGS = {
    "report": rb"<!DOCTYPE html>.{,99}<meta name=\"generator\" content=\"unmask",
    "explanations": rb'\{"format_version": ',
    "events": rb"-?\d+;[^;\n]+(;[^;\n]+){3};",
    "flagged events": rb"\"row\",\"event_id\",",
    "tuned preset": rb'description = "[^\n]* with the (tokenizer|detector) of trial',
    "graph": rb"\x08.\x12\x06unmask",
    "reference": rb'\{"reference_of": ',
    "pick list": rb"\d+(:\d+:| )\d+\n",
}


def check_output(
    out: Path,
    kinds: Collection[str],
    inputs: Iterable[str | Path] = (),
    *,
    endings: tuple[str, ...] = (),
    overwrite: bool = False,
) -> None:
    """Refuse, before any work, an output that must not be written: the one rule of all commands.

    What exists is replaced only with ``overwrite``, only if it is of one of these ``kinds``, and never if it is, or
    holds, one of the ``inputs``. Files have one of the ``endings``, folders none.
    """
    if endings and (not out.name.endswith(endings) or out.is_dir()):
        found = "is a folder" if out.is_dir() else "cannot be the file to write"
        raise UsageError(f"{out}: {found}; the name of the file to write must end in {' or '.join(endings)}")
    real = out.resolve()
    for path in map(Path, inputs):
        if real in (path.resolve(), *path.resolve().parents) and out.exists():
            raise UsageError(f"{out}: would replace {path}, which is read; choose another name")
    if (there := next(parent for parent in (real, *real.parents) if parent.exists())) != real:
        if not there.is_dir() or not os.access(there, os.W_OK):
            code = errno.EACCES if there.is_dir() else errno.ENOTDIR
            raise OSError(code, os.strerror(code), str(there))
    elif not (real.is_dir() and not any(real.iterdir())):
        kind = kind_of(real)
        if kind not in kinds:
            holds = f"holds {kind}" if kind else "is not something that unmask wrote, or holds more"
            accepted = " or ".join(kinds) if len(kinds) < 3 else "its own kind"
            raise UsageError(f"{out}: {holds}; only {accepted} would be replaced. Choose another name")
        if not overwrite:
            raise UsageError(f"{out}: exists; give --overwrite to replace it, or choose another name")


def kind_of(path: Path) -> str | None:
    """Content of something that unmask wrote: "events", "scores", "calibration", ...; None for anything else."""
    try:
        if path.is_dir() and (path / MANIFEST).is_file():
            manifest = json.loads((path / MANIFEST).read_text())
            known = {MANIFEST, MODEL_CARD, *(name.split("/")[0] for name in manifest["files"])}
            return str(manifest["kind"]) if {entry.name for entry in path.glob("[!.]*")} <= known else None
        if path.is_dir():
            marks = {"metrics.json": "results", "search.json": "search", "monitor.json": "comparison with background"}
            return next((kind for name, kind in marks.items() if (path / name).is_file()), None)
        with path.open("rb") as file:
            head = file.read(1 << 10) if path.is_file() else b""
        if head.startswith(b"PAR1"):
            from pyarrow.parquet import read_schema

            return str(json.loads(read_schema(path).metadata[METADATA_KEY])["kind"])
        if head.startswith(b"\x1f\x8b"):
            with gzip.open(path) as file:
                head = file.read(1 << 10)
    except (ValueError, TypeError, LookupError, AttributeError, EOFError, OSError):
        return None
    return next((kind for kind, text in _BEGINNINGS.items() if re.match(text, head, re.DOTALL)), None)
