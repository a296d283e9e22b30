"""`unmask calibrate` and `unmask flag` as a user runs them."""

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.cli.running import failing, running, unmask
from tests.evaluation.toy_scores import toy_scores
from unmask.events.columns import Names
from unmask.scores.score_table import Scores, concatenate_scores, read_scores, write_scores

MODEL = {"model": "a" * 64, "score": "mean"}


def normal_scores(n: int, file: str, *, label: int = 0, shift: float = 0.0, **columns: object) -> Scores:
    score = np.random.default_rng(len(file)).normal(shift, 1, n)
    return toy_scores(score, np.full(n, label), file_names=Names.constant(file, n), **columns)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("calibration")
    write_scores(out / "control.parquet", [normal_scores(4000, "control.csv")], provenance=MODEL)
    write_scores(out / "data.parquet", [normal_scores(3000, "data.csv", label=-1, shift=0.5)], provenance=MODEL)
    result = unmask("calibrate", out / "control.parquet", "--background-efficiency", "0.02", "--out", out / "cal")
    assert result.returncode == 0, result.stderr
    assert "threshold 2." in result.stdout
    assert not result.stderr
    return out


def test_flagged_events_are_written_with_p_values(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "flagged.parquet"
    result = unmask("flag", folder / "cal", folder / "data.parquet", "--out", out, "--csv", "--json")
    assert result.returncode == 0, result.stderr
    assert "warning" not in result.stderr
    facts = json.loads(result.stdout)
    assert facts["n_events"] == 3000
    assert facts["weight_expected_of_background"] == pytest.approx(60, abs=2)
    assert facts["n_flagged"] > 120  # the data are shifted
    table = pq.read_table(out)
    p_value = table["p_value"].to_numpy()
    assert len(p_value) == facts["n_flagged"]
    assert (np.diff(p_value) >= 0).all()
    assert p_value.max() <= 0.02
    rows = list(csv.DictReader(out.with_suffix(".csv").read_text().splitlines()))
    assert [int(row["row"]) for row in rows] == table["row"].to_pylist()
    assert {row["file"] for row in rows} == {"data.csv"}


def test_calibration_events_that_are_flagged_again_are_noticed(folder: Path, tmp_path: Path) -> None:
    result = unmask("flag", folder / "cal", folder / "control.parquet", "--out", tmp_path / "flagged.parquet")
    assert result.returncode == 0
    assert "warning: 4,000 of 4,000 events are those of the calibration" in result.stderr


def test_training_events_and_repeated_events_are_noticed(tmp_path: Path) -> None:
    seen = normal_scores(2000, "train.csv", was_trained_on=np.arange(2000) < 1500)
    write_scores(tmp_path / "seen.parquet", [seen])
    result = unmask("calibrate", tmp_path / "seen.parquet", "--out", tmp_path / "cal")
    assert "trained on 1,500 of these 2,000 events" in result.stderr
    _, notes = running("calibrate", *[tmp_path / "seen.parquet"] * 2, "--out", tmp_path / "twice")
    assert "warning: 2,000 events are given more than once" in notes
    write_scores(tmp_path / "unknown.parquet", [normal_scores(2000, "elsewhere.csv")])
    for files in (("seen", "unknown"), ("unknown", "seen")):
        paths = [tmp_path / f"{name}.parquet" for name in files]
        _, notes = running("calibrate", *paths, "--out", tmp_path / "-".join(files))
        assert "trained on 1,500 of these 4,000 events" in notes
    unknown = read_scores(tmp_path / "unknown.parquet")
    assert concatenate_scores([unknown, unknown]).was_trained_on is None
    _, notes = running("flag", tmp_path / "cal", tmp_path / "seen.parquet", "--out", tmp_path / "flagged.parquet")
    assert "warning: 1,500 of 2,000 events were in the training of the detector" in notes


def test_what_does_not_fit_is_one_message(folder: Path, tmp_path: Path) -> None:
    write_scores(tmp_path / "signal.parquet", [normal_scores(500, "s.csv", label=1)], provenance=MODEL)
    write_scores(tmp_path / "other.parquet", [normal_scores(500, "o.csv")], provenance=MODEL | {"model": "b" * 64})
    control, flagged = folder / "control.parquet", tmp_path / "flagged.parquet"
    for arguments, code, message in (
        (("calibrate", tmp_path / "signal.parquet"), 2, "500 of 500 events are labeled signal"),
        (("calibrate", control, "--background-efficiency", "0.0001"), 3, "at least 10 are needed"),
        (("calibrate", control, tmp_path / "other.parquet"), 2, "scores of different models"),
        (("flag", folder / "cal", tmp_path / "other.parquet"), 2, "another model (model bbbbbbbbbbbb, score mean)"),
        (("flag", folder, control), 3, "no manifest.json here"),
    ):
        out = flagged if arguments[0] == "flag" else tmp_path / "cal"
        found = failing(*arguments, "--out", out)
        assert found[0] == code
        assert message in found[1]
        assert not out.exists()
    assert "must end in .parquet" in failing("flag", folder / "cal", control, "--out", "x.csv")[1]
    weight = np.where(np.arange(500) == 3, np.nan, 1.0)
    write_scores(tmp_path / "nan.parquet", [normal_scores(500, "n.csv", weight=weight)])
    for command in (("calibrate",), ("flag", folder / "cal")):
        assert "1 of 500 weights, first nan" in failing(*command, tmp_path / "nan.parquet")[1]
    assert "a scores file is given twice" in failing("flag", folder / "cal", control, control)[1]
    assert "which is read; choose another name" in failing("flag", folder / "cal", control, "--out", control)[1]
