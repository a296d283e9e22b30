"""What is written is whole, or not there; what is read is what was written."""

from __future__ import annotations

import errno
import importlib.metadata
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

import unmask
from unmask import artifacts
from unmask.artifacts import Artifact, atomic_path, load_artifact, making, provenance, save_artifact
from unmask.errors import UnmaskError


def test_a_tree_without_installed_metadata_can_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    save_artifact(tmp_path / "model", Artifact("thing", {}, {"x": np.zeros(1)}, provenance()))
    assert load_artifact(tmp_path / "model").provenance["packages"]["unmask"] == unmask.__version__


def _save(folder: Path, value: float) -> None:
    save_artifact(folder, Artifact("thing", {}, {"x": np.full(1, value)}, provenance()))


#: Where a process is killed that replaces a folder.
_BEFORE = "artifacts._replace = die"
_BETWEEN = """
artifacts._exchange = lambda *_: False  # as on a file system that cannot
replace = Path.replace
Path.replace = lambda path, new: die() if path.parent.name.endswith("scratch") else replace(path, new)
"""
_AFTER = "artifacts.shutil.rmtree = die"


def _killed(folder: Path, where: str) -> None:
    """Save another artifact to a folder in a process that is killed meanwhile."""
    code = f"""
import os, signal
from pathlib import Path
import numpy as np
from unmask import artifacts

def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)

{where}
artifacts.save_artifact({str(folder)!r}, artifacts.Artifact("thing", {{}}, {{"x": np.full(1, 2.0)}}))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL


@pytest.mark.parametrize(("where", "expected"), [(_BEFORE, 1.0), (_BETWEEN, 1.0), (_AFTER, 2.0)])
def test_a_kill_leaves_the_old_or_the_new_folder_and_nothing_after_the_next_write(
    tmp_path: Path, where: str, expected: float
) -> None:
    folder = tmp_path / "model"
    _save(folder, 1.0)
    _killed(folder, where)
    assert [path.name for path in tmp_path.iterdir()] != ["model"]  # something was left
    assert load_artifact(folder).arrays["x"] == expected
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    _save(folder, 3.0)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert load_artifact(folder).arrays["x"] == 3.0


def test_one_process_at_a_time_writes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "_WAIT_SECONDS", 0.1)
    path, failures = tmp_path / "file", []

    def write(text: str) -> None:
        try:
            with atomic_path(path) as scratch:
                scratch.write_text(text)
        except UnmaskError as error:
            failures.append(str(error))

    with atomic_path(path) as scratch:
        scratch.write_text("first")
        other = Thread(target=write, args=["second"])
        other.start()
        other.join()
    assert failures == [f"{path}: another process is writing it; wait for it, or choose another name"]
    assert path.read_text() == "first"
    write("third")
    assert path.read_text() == "third"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_writers_that_take_turns_all_succeed(tmp_path: Path) -> None:
    def write(i: int) -> None:
        with atomic_path(tmp_path / "new" / "file") as scratch:
            scratch.write_text(str(i))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(24)))
    assert [one.name for one in (tmp_path / "new").iterdir()] == ["file"]


def test_files_are_written_where_locks_do_not_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    with atomic_path(tmp_path / "file") as scratch:
        scratch.write_text("content")
    assert [one.name for one in tmp_path.iterdir() if not one.name.endswith(".scratch")] == ["file"]


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(OSError, match="No space left") as failure, atomic_path(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert failure.value.filename == str(path)
    assert not [*tmp_path.iterdir()]


def test_what_another_process_makes_is_not_made_again(tmp_path: Path) -> None:
    model = tmp_path / "model"
    with making(model), pytest.raises(UnmaskError, match="another process is writing it"), making(model):
        pass
    assert not [*tmp_path.iterdir()]
