"""Names and numbers in files that mean something to a terminal, a spreadsheet, a browser or a sum."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unmask
from tests.cli.running import failing, running
from unmask import EventSet, load_sample, write_events
from unmask.events.columns import Names
from unmask.scores.score_table import read_scores, write_scores

FORMULA, HTML, ESCAPE = "=cmd|' /C calc'!A0", "<img src=x onerror=alert(1)>", "\x1b]0;owned\x07\x1b[31m"


@pytest.fixture(scope="module")
def events() -> EventSet:
    """Background of two processes with odd names, and signal of one."""
    sample = load_sample("gluino")
    some = EventSet.concatenate([sample[sample.label == 0][:800], sample[sample.label == 1][:200]])
    code = np.where(some.label == 1, 2, np.arange(len(some)) % 2).astype(np.int32)
    return replace(some, process_names=Names(code, (ESCAPE, HTML, FORMULA)))


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory, events: EventSet) -> Path:
    path = tmp_path_factory.mktemp("scores") / f"{HTML.replace('/', '')}.parquet"
    write_scores(path, [unmask.load("sample:gluino-model").scores(events)])
    return path


def test_a_terminal_shows_escapes_instead_of_obeying_them(tmp_path: Path, events: EventSet) -> None:
    write_events(tmp_path / "events.parquet", events)
    shown, _ = running("data", "inspect", tmp_path / "events.parquet")
    assert "\x1b]0" not in shown
    assert "\\x1b]0;owned\\x07" in "".join(shown.split())
    _, message = failing("data", "inspect", tmp_path / f"{ESCAPE}.parquet")
    assert "\x1b]0" not in message


def test_spreadsheets_and_browsers_take_no_name_for_a_command(tmp_path: Path, scores: Path) -> None:
    running("evaluate", scores, "--out", tmp_path / "results")
    with (tmp_path / "results" / "leaderboard.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["Signal"] for row in rows} == {f"'{FORMULA}"}
    text = (tmp_path / "results" / "table.md").read_text()
    assert "## Notes" in text
    assert "<img" not in text
    background = tmp_path / "background.parquet"
    read = read_scores(scores)
    write_scores(background, [read[read.label == 0]])
    running("calibrate", background, "--background-efficiency", "0.1", "--out", tmp_path / "calibration")
    running("flag", tmp_path / "calibration", scores, "--csv", "--out", tmp_path / "flagged.parquet")
    with (tmp_path / "flagged.csv").open() as file:
        processes = {row["process"] for row in csv.DictReader(file)}
    assert f"'{FORMULA}" in processes
    assert FORMULA not in processes


@pytest.mark.parametrize("column", ["row", "event_id", "file", "process", "label", "weight", "score"])
def test_a_missing_value_is_named(tmp_path: Path, scores: Path, column: str) -> None:
    table = pq.read_table(scores)
    values = table[column].to_pylist()
    values[3] = None
    table = table.set_column(table.schema.names.index(column), column, pa.array(values, table[column].type))
    pq.write_table(table, tmp_path / "scores.parquet")
    code, message = failing("evaluate", tmp_path / "scores.parquet")
    assert code == 3
    assert f"column {column}: 1 values are missing" in message


@pytest.mark.parametrize("factor", [np.nan, 1e300, 1e-300])
def test_weights_that_cannot_be_added_up_are_refused(tmp_path: Path, scores: Path, factor: float) -> None:
    read: Any = read_scores(scores)
    write_scores(tmp_path / "scores.parquet", [replace(read, weight=read.weight * factor)])
    for command in ("evaluate", "calibrate"):
        code, message = failing(command, tmp_path / "scores.parquet")
        assert code == 3
        assert "accepted: 0, or a number of size 1e-100 to 1e100" in message
