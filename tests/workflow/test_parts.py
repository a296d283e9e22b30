"""`--shard`: the parts that the jobs of a batch system write are, together, what one process writes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.io import root_events
from tests.workflow.conftest import make_model
from tests.workflow.running import unmask
from unmask import ReadOptions, read_events
from unmask.errors import ArtifactError, UsageError
from unmask.events.event_set import EventSet
from unmask.io.parquet import write_events
from unmask.scores.calibration import ScoredBy
from unmask.scores.score_table import Scores, read_scores
from unmask.tables import table_files
from unmask.workflow.score import parse_shard
from unmask.workflow.sources import Sources


def assert_same_scores(one: Scores, other: Scores) -> None:
    for name in ("row", "event_id", "label", "weight"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    for name in ("file_names", "process_names"):
        assert np.array_equal(getattr(one, name).array(), getattr(other, name).array()), name
    np.testing.assert_allclose(one.score, other.score, rtol=0, atol=1e-6)


def joined(sources: Sources, n: int) -> EventSet:
    return EventSet.concatenate([events for part in sources.parts(n) for events in part.stream()])


@pytest.mark.parametrize("n", [1, 3, 50])
def test_parts_hold_every_event_once_and_in_order(files: list[Path], tmp_path: Path, n: int) -> None:
    assert joined(Sources(files), n).equals(read_events(files))
    root = root_events.write(tmp_path / "ttbar.root", "delphes", storage="ttree")
    assert joined(Sources([root]), n).equals(read_events(root))
    cut = [files[0], tmp_path / "few.parquet"]
    write_events(cut[1], read_events(files[1]))
    parts = Sources(cut).parts(n)
    assert joined(Sources(cut), n).equals(read_events(cut))
    sizes = [sum(len(events) for events in part.stream()) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_parts_are_found_from_another_folder(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files[2].parent)
    (part,) = Sources([Path(files[2].name)]).parts(1)
    monkeypatch.chdir(tmp_path)
    assert sum(len(events) for events in part.stream()) == 25


def test_a_range_of_entries_is_that_slice_of_the_file(
    files: list[Path], tmp_path: Path, make_events: Callable[..., EventSet]
) -> None:
    path = tmp_path / "two-row-groups.parquet"
    whole = make_events(52_000)
    write_events(path, whole)
    for first, last in ((0, 1), (49_000, 51_003), (50_000, 50_001), (len(whole) - 5, len(whole) + 10)):
        some = read_events(path, options=ReadOptions(entries=(first, last), chunk_events=700))
        assert some.equals(whole[first:last])
    with pytest.raises(UsageError, match="not darkmachines"):
        read_events(files[2], options=ReadOptions(entries=(0, 1)))


def test_what_is_no_shard_is_refused() -> None:
    assert parse_shard("3/100") == (3, 100)
    for wrong in ("0/2", "3/2", "2", "a/b", "-1/2", "1/"):
        with pytest.raises(UsageError, match="1 to n"):
            parse_shard(wrong)


def test_scores_in_shards_are_those_of_one_process(model: Path, files: list[Path], tmp_path: Path) -> None:
    pattern = files[0].parent / "*"
    options = ("--signal-process", "ttH", "--device", "cpu")
    serial = unmask("score", model, pattern, "--out", tmp_path / "serial.parquet", *options)
    assert serial.returncode == 0, serial.stderr
    out = tmp_path / "scores"
    for i in (1, 2, 3, 4):  # three files stay whole, so one part is empty
        result = unmask("score", model, pattern, "--out", out, *options, "--shard", f"{i}/4")
        assert result.returncode == 0, result.stderr
        if i < 4:
            with pytest.raises(ArtifactError, match=f"{4 - i} of 4 parts are missing, first part-{i + 1}-of-4"):
                read_scores(out)
    assert len(table_files(out)) == 4
    assert_same_scores(read_scores(out), read_scores(tmp_path / "serial.parquet"))
    scored_by = ScoredBy.of_files([out, tmp_path / "serial.parquet"])  # so that thresholds of one are for the other
    assert (len(scored_by.model or ""), scored_by.score) == (64, "mean")
    assert "AUC" in unmask("evaluate", out).stdout

    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    again = unmask("score", model, pattern, "--out", out, *options, "--shard", "2/4")
    assert "1 parts (1 there before)" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before


def test_a_changed_file_or_other_options_are_scored_again(model: Path, files: list[Path], tmp_path: Path) -> None:
    source = tmp_path / "events.csv"
    source.write_bytes(files[2].read_bytes())
    command = ("score", model, source, "--out", tmp_path / "scores", "--shard", "1/1")
    assert "25 events in 1 parts (0 there before)" in unmask(*command).stdout
    source.write_text("".join(source.read_text().splitlines(keepends=True)[:10]))
    assert "10 events in 1 parts (0 there before)" in unmask(*command).stdout
    assert "10 events in 1 parts (1 there before)" in unmask(*command).stdout
    assert "10 events in 1 parts (0 there before)" in unmask(*command, "--label", "signal").stdout
    assert set(read_scores(tmp_path / "scores").label) == {1}


def test_bad_data_is_reported_with_exit_code_3(model: Path, files: list[Path], tmp_path: Path) -> None:
    source = tmp_path / "events.csv"
    source.write_text(files[2].read_text() + "nonsense\n")
    command = ("score", model, source, "--out", tmp_path / "scores", "--shard", "1/1")
    result = unmask(*command)
    assert result.returncode == 3
    assert "events.csv, line 26" in result.stderr
    assert not list((tmp_path / "scores").glob("*"))
    skipping = unmask(*command, "--skip-bad")
    assert "skipped 1 bad events" in skipping.stderr
    assert "25 events in 1 parts" in skipping.stdout


def test_another_detector_or_number_of_parts_is_refused(
    model: Path, files: list[Path], tmp_path: Path, make_events: Callable[..., EventSet]
) -> None:
    command = (files[2], "--out", tmp_path / "scores", "--shard")
    assert unmask("score", model, *command, "1/1").returncode == 0
    for other in (
        unmask("score", make_model(tmp_path / "other", make_events, seed=5), *command, "1/1"),
        unmask("score", model, *command, "1/2"),
        unmask("score", model, *command, "1/1", "--score", "max"),
    ):
        assert other.returncode == 2
        assert "choose another folder" in other.stderr
    assert os.listdir(tmp_path / "scores") == ["part-1-of-1.parquet"]  # noqa: PTH208


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shard", "3/2"), "1 to n"),
        (("--shard", "1/2", "--dask", "local:1"), "give only one"),
        (("--parts", "2"), "give only one"),
        (("--dask", "local:x"), "local:N"),
        (("--shard", "1/1", "--out", "scores.parquet"), "leave out .parquet"),
        (("--shard", "1/1", "--explain", "5"), "in one process"),
    ],
)
def test_what_makes_no_sense_is_a_clear_error(
    model: Path, files: list[Path], tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    result = unmask("score", model, files[2], "--out", tmp_path / "scores", *options)
    assert result.returncode == 2
    assert message in result.stderr


def test_a_folder_that_is_no_detector_is_a_clear_error(files: list[Path], tmp_path: Path) -> None:
    result = unmask("score", tmp_path, files[2], "--out", tmp_path / "scores.parquet")
    assert result.returncode == 3
    assert "give the folder of a trained detector" in result.stderr


def test_a_pattern_without_files_is_a_clear_error(model: Path, tmp_path: Path) -> None:
    result = unmask("score", model, tmp_path / "*.csv", "--out", tmp_path / "scores", "--shard", "1/1")
    assert result.returncode == 2
    assert "no file matches" in result.stderr
