"""Scores that unmask did not write: Parquet and CSV files with the columns score and label."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from tests.cli.running import failing, running
from tests.evaluation.toy_scores import toy_observables, toy_scores
from unmask.errors import ArtifactError, BadDataError
from unmask.evaluation.evaluate import evaluate
from unmask.scores.score_table import align, read_scores, stream_scores, write_scores

LABEL = (np.arange(300) % 2).astype(np.int8)
SCORE = np.random.default_rng(1).normal(LABEL, 1)


def write(path: Path, **columns: object) -> Path:
    table = pa.table(columns)
    csv.write_csv(table, path) if path.suffix == ".csv" else pq.write_table(table, path)
    return path


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_score_and_label_are_enough(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"plain.{suffix}", note=["x"] * 300, label=LABEL, score=SCORE)
    scores = read_scores(path)
    np.testing.assert_array_equal(scores.score, SCORE)
    np.testing.assert_array_equal(scores.label, LABEL)
    np.testing.assert_array_equal(scores.row, np.arange(300))
    assert np.all(scores.weight == 1)
    assert scores.process_names.counts() == {"background": 150, "signal": 150}
    found = evaluate({"plain": scores}, n_replicas=20)
    assert [row.name for row in found.rows] == ["plain"]
    assert found.notes[0].startswith("no untrained scores: no scores file has the column")
    assert "plain" in running("evaluate", path)[0]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_all_columns_are_those_of_a_scores_file(tmp_path: Path, suffix: str) -> None:
    ours = toy_scores(SCORE, LABEL, observables=toy_observables(LABEL), weight=np.arange(300) + 1.0)
    write_scores(tmp_path / "ours.parquet", [ours])
    table = pq.read_table(tmp_path / "ours.parquet").replace_schema_metadata(None)
    columns = {name: table[name].cast(pa.string()) if name in ("file", "process") else table[name] for name in
               table.column_names}  # fmt: skip
    elsewhere = read_scores(write(tmp_path / f"elsewhere.{suffix}", **columns))
    assert elsewhere.further["run"].tolist() == [-1] * 300
    assert elsewhere.process_names.words == ours.process_names.words
    np.testing.assert_array_equal(align(elsewhere, ours, name="elsewhere", reference_name="ours").score, SCORE)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_observables_that_are_there_are_read(tmp_path: Path, suffix: str) -> None:
    some = {name: column for name, column in toy_observables(LABEL).items() if name != "met_mev"}
    scores = read_scores(write(tmp_path / f"elsewhere.{suffix}", score=SCORE, label=LABEL, **some))
    write_scores(tmp_path / "ours.parquet", [scores])
    for found in (scores, read_scores(tmp_path / "ours.parquet")):
        assert found.observables.keys() == some.keys()
        np.testing.assert_array_equal(found.observables["n_b_jets"], some["n_b_jets"])


def test_rows_are_counted_over_chunks(tmp_path: Path) -> None:
    path = write(tmp_path / "plain.parquet", score=SCORE, label=LABEL)
    chunks = list(stream_scores(path, chunk_events=70))
    assert len(chunks) == 5
    np.testing.assert_array_equal(np.concatenate([chunk.row for chunk in chunks]), np.arange(300))


def test_two_files_are_paired_by_event_id_or_by_place(tmp_path: Path) -> None:
    order = np.random.default_rng(2).permutation(300)
    one = write(tmp_path / "one.csv", score=SCORE, label=LABEL, event_id=np.arange(300) * 7)
    other = write(tmp_path / "other.csv", score=SCORE[order], label=LABEL[order], event_id=order * 7)
    (pair,) = evaluate({"one": read_scores(one), "other": read_scores(other)}, n_replicas=20).comparisons
    assert (pair.difference.value, pair.difference.p_value) == (0, 1)
    one = write(tmp_path / "one.csv", score=SCORE, label=LABEL)
    other = write(tmp_path / "other.csv", score=SCORE, label=LABEL[::-1])
    with pytest.raises(BadDataError, match="other and one: the label of 300 events is not the same"):
        evaluate({"one": read_scores(one), "other": read_scores(other)})


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_what_cannot_be_used_is_one_message(tmp_path: Path, suffix: str) -> None:
    for name, columns, message in (
        ("no-label", {"score": SCORE, "y": LABEL}, "no column label (found: score, y)"),
        ("neither", {"x": SCORE}, "no column score and no column label"),
        ("label-5", {"score": SCORE, "label": LABEL * 5}, "label 5, first of 150"),
        ("label-half", {"score": SCORE, "label": LABEL / 2}, "label 0.5, first of 150"),
        ("gap", {"score": [None, *SCORE[1:]], "label": LABEL}, "column score: 1 values are missing or NaN"),
        ("nan", {"score": [np.nan, *SCORE[1:]], "label": LABEL}, "column score: 1 values are missing or NaN"),
        ("half", {"score": SCORE, "label": LABEL, "n_objects": SCORE}, "column n_objects: Float value"),
        ("text", {"score": ["high"] * 300, "label": LABEL}, "high"),
    ):
        path = write(tmp_path / f"{name}.{suffix}", **columns)
        with pytest.raises(BadDataError) as error:
            read_scores(path)
        assert f"{path}: " in str(error.value)
        assert message in str(error.value)
    assert failing("evaluate", tmp_path / f"no-label.{suffix}")[0] == 3
    with pytest.raises(ArtifactError, match="no such file"):
        read_scores(tmp_path / f"missing.{suffix}")


def test_files_that_hold_no_scores(tmp_path: Path) -> None:
    (tmp_path / "twice.csv").write_text("score,label,score\n1,0,1\n")
    (tmp_path / "header.csv").write_text("score,label\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "ragged.csv").write_text("score,label\n1,0\n1\n")
    for name, message in (
        ("twice", "multiple columns named score"),
        ("header", "holds no scores"),
        ("empty", "Empty CSV file"),
        ("ragged", "CSV parse error: Row #3"),
    ):
        code, said = failing("evaluate", tmp_path / f"{name}.csv")
        assert code in (2, 3)
        assert message in said
        assert f"{name}.csv" in said
