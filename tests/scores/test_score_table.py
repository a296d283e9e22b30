"""Scores in memory and on disk: what is read back, shown, and given to pandas."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.evaluation.toy_scores import toy_observables, toy_scores
from unmask.errors import MissingExtraError
from unmask.events.columns import Names
from unmask.scores.score_table import COLUMNS, Scores, read_scores, write_scores

LABEL = (np.arange(60) % 2).astype(np.int8)


def some_scores() -> Scores:
    score = np.random.default_rng(1).normal(LABEL, 1)
    return toy_scores(score, LABEL, observables=toy_observables(LABEL), was_trained_on=np.arange(60) < 3)


def test_a_file_without_some_observables_keeps_the_others(tmp_path: Path) -> None:
    scores = some_scores()
    for missing in COLUMNS:
        known = {name: column for name, column in scores.observables.items() if name != missing}
        less = toy_scores(scores.score, LABEL, observables=known)
        write_scores(tmp_path / "less.parquet", [less])
        found = read_scores(tmp_path / "less.parquet").observables
        assert found.keys() == known.keys()
        for name, column in known.items():
            np.testing.assert_array_equal(found[name], column)


def test_selected_events_keep_all_columns() -> None:
    scores = some_scores()
    some = scores[np.array([5, 2])]
    assert some.row.tolist() == [5, 2]
    assert some.was_trained_on is not None
    assert some.was_trained_on.tolist() == [False, True]
    assert some.observables["met_mev"].tolist() == scores.observables["met_mev"][[5, 2]].tolist()


def test_scores_say_what_they_are() -> None:
    assert repr(toy_scores([1, 2, 2.5], [0, 1, 0])) == (
        "Scores(3 events: 2 background, 1 signal, 0 unlabeled; score 1 to 2.5)"
    )


def test_pandas_gets_the_columns_of_a_scores_file(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = some_scores()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match="pandas is not installed; run: pip install pandas"):
        scores.to_pandas()
    monkeypatch.undo()
    pytest.importorskip("pandas")
    frame = scores.to_pandas()
    assert list(frame.columns)[:7] == ["row", "event_id", "label", "weight", "score", "file", "process"]
    assert set(frame.columns) > set(COLUMNS)
    assert frame["met_mev"].tolist() == scores.observables["met_mev"].tolist()


def test_a_file_may_begin_without_events(tmp_path: Path) -> None:
    scores = toy_scores([1, 2, 3], [0, 1, 0])
    nothing = replace(scores[:0], file_names=Names.of([]), process_names=Names.of([]))
    write_scores(tmp_path / "scores.parquet", [nothing, scores])
    found = read_scores(tmp_path / "scores.parquet")
    assert found.process_names.array().tolist() == scores.process_names.array().tolist()
