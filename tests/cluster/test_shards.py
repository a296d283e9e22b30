"""`--shard`: the shares of a batch system's jobs, together, are what one process writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.cluster.conftest import make_model
from tests.cluster.running import unmask
from unmask import read_events
from unmask.detectors.scores import Scores, read_scores
from unmask.evaluation.calibration import ScoredBy
from unmask.events.event_set import EventSet, concatenate_events
from unmask.tables import table_files
from unmask.tokenizers import concatenate_tokens, read_tokens


def assert_same_scores(one: Scores, other: Scores) -> None:
    for name in ("row", "event_id", "label", "weight"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    for name in ("file_names", "process_names"):
        assert np.array_equal(getattr(one, name).array(), getattr(other, name).array()), name
    np.testing.assert_allclose(one.score, other.score, rtol=0, atol=1e-6)


def run_shards(command: Sequence[str | Path], n_shards: int) -> None:
    for i in range(1, n_shards + 1):
        result = unmask(*command, "--part-events", "1000", "--shard", f"{i}/{n_shards}")
        assert result.returncode == 0, result.stderr


def test_scores_in_shards_are_those_of_one_process(model: Path, files: list[Path], tmp_path: Path) -> None:
    pattern = files[0].parent / "*"
    options = ("--signal-process", "ttH", "--device", "cpu")
    serial = unmask("score", model, pattern, "--out", tmp_path / "serial.parquet", *options)
    assert serial.returncode == 0, serial.stderr
    out = tmp_path / "scores"
    run_shards(["score", model, pattern, "--out", out, *options], 2)
    assert len(table_files(out)) == 5
    assert_same_scores(read_scores(out), read_scores(tmp_path / "serial.parquet"))
    scored_by = ScoredBy.of_files([out, tmp_path / "serial.parquet"])  # so that thresholds of one are for the other
    assert (len(scored_by.model or ""), scored_by.score) == (64, "mean")

    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    again = unmask("score", model, pattern, "--out", out, *options, "--part-events", "1000", "--shard", "1/1")
    assert "0 done now, 5 there before" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before


def test_tokens_and_events_in_shards_are_those_of_one_process(model: Path, files: list[Path], tmp_path: Path) -> None:
    tokenizer = model / "tokenizer"
    assert unmask("tokenizer", "encode", tokenizer, *files, "--out", tmp_path / "t.parquet").returncode == 0
    run_shards(["tokenizer", "encode", tokenizer, *files, "--out", tmp_path / "tokens"], 1)
    parts = concatenate_tokens([read_tokens(part) for part in table_files(tmp_path / "tokens")])
    assert parts.equals(read_tokens(tmp_path / "t.parquet"))
    run_shards(["data", "convert", *files, tmp_path / "events"], 1)
    events = concatenate_events([read_events(part) for part in table_files(tmp_path / "events")])
    assert events.equals(read_events(files))


def test_a_corrupt_file_is_reported_and_does_not_stop_the_rest(model: Path, files: list[Path], tmp_path: Path) -> None:
    corrupt = tmp_path / "corrupt.csv.gz"
    corrupt.write_bytes(files[1].read_bytes()[:-100])
    out = tmp_path / "scores"
    result = unmask("score", model, corrupt, files[2], "--out", out, "--shard", "1/1")
    assert result.returncode == 3
    assert "25 events in 1 parts" in result.stdout
    assert "1 parts of 1 files failed" in result.stderr
    assert "corrupt.csv.gz: the compressed data is damaged" in result.stderr
    assert len(list(out.glob("*.parquet"))) == 1

    corrupt.write_bytes(files[1].read_bytes())
    result = unmask("score", model, corrupt, files[2], "--out", out, "--shard", "1/1")
    assert result.returncode == 0
    assert "65 events in 2 parts (1 done now, 1 there before)" in result.stdout


def test_another_model_is_refused(
    model: Path, files: list[Path], tmp_path: Path, make_events: Callable[..., EventSet]
) -> None:
    command = (files[2], "--out", tmp_path / "scores", "--shard", "1/1")
    assert unmask("score", model, *command).returncode == 0
    other = unmask("score", make_model(tmp_path / "other", make_events, seed=5), *command)
    assert other.returncode == 2
    assert "holds parts made with model" in other.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shard", "3/2"), "1 to n"),
        (("--shard", "1/2", "--dask", "local:1"), "leave out --shard"),
        (("--dask", "local:x"), "local:N"),
        (("--shard", "1/1", "--out", "scores.parquet"), "cannot end in .parquet"),
    ],
)
def test_what_makes_no_sense_is_a_clear_error(
    model: Path, files: list[Path], tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    result = unmask("score", model, files[2], "--out", tmp_path / "scores", *options)
    assert result.returncode == 2
    assert message in result.stderr


def test_a_pattern_without_files_is_a_clear_error(model: Path, tmp_path: Path) -> None:
    result = unmask("score", model, tmp_path / "*.csv", "--out", tmp_path / "scores", "--shard", "1/1")
    assert result.returncode == 2
    assert "no file matches" in result.stderr
