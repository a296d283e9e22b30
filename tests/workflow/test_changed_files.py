"""Files that change while they are read, and files that look as they were but are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.running import failing
from unmask.errors import BadDataError
from unmask.io.source import ReadOptions
from unmask.study.stages import Ledger, Stage, StudyReporter, run_stages
from unmask.workflow.sources import Sources

LINES = "".join(f"{i};ttbar;1;{2e4 + 10 * i};0.1;j,60000,50000,0.2,1.0\n" for i in range(3000))


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write(LINES)


@pytest.mark.parametrize("is_hashed", [False, True])
def test_a_file_that_grows_while_it_is_read_is_an_error(tmp_path: Path, is_hashed: bool) -> None:
    path = tmp_path / "ttbar.csv"
    path.write_text(LINES)
    sources = Sources([path], options=ReadOptions(chunk_events=1000))
    if is_hashed:
        sources.origin()
        append(path)  # what is read is not what was hashed
    stream = sources.stream()
    next(stream)
    if not is_hashed:
        append(path)
    with pytest.raises(BadDataError, match=r"ttbar\.csv: changed while it was read"):
        list(stream)


def test_a_file_of_the_same_size_and_time_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "water"
    path.write_text("still")
    os.utime(path, (1e9, 1e9))
    before = Ledger(tmp_path)
    digest = before.digest(path)
    path.write_text("stilt")
    os.utime(path, (1e9, 1e9))
    assert before.digest(path) != digest


def test_a_stage_whose_file_of_the_user_changes_meanwhile_is_not_done(tmp_path: Path) -> None:
    path, out = tmp_path / "events.csv", tmp_path / "study" / "events"
    path.write_text("one")
    ledger = Ledger(tmp_path / "study")

    def make() -> None:
        out.write_text(path.read_text())
        path.write_text("two")

    settings = {"files": [[path.name, ledger.digest(path)]]}
    stage = Stage("background", make, [out], settings=settings, reads=[path], stops_all=True)
    with pytest.raises(BadDataError, match=r"events\.csv: changed while the study ran"):
        run_stages([stage], ledger, StudyReporter())
    assert ledger.why_not_done(stage) == "new"


def test_events_without_objects_are_named(tmp_path: Path) -> None:
    path = tmp_path / "ttbar.csv"
    path.write_text("".join(f"{i};ttbar;1;{2e4 + 10 * i};0.1;\n" for i in range(300)))
    code, message = failing("train", path, "--out", tmp_path / "model")
    assert code == 2
    assert "events of train holds an object; expected jets, leptons or photons" in " ".join(message.split())


def test_a_nul_byte_in_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ttbar.csv"
    path.write_text(LINES.replace("7;ttbar", "7;tt\0bar", 1))
    code, message = failing("data", "inspect", path)
    assert code == 3
    assert "has a NUL byte in line 8, so that it is no text" in message
