"""The ROC in bounded memory is that of all scores at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.detectors.scores import Scores, write_scores
from unmask.errors import BadDataError, UsageError
from unmask.evaluation.metrics import roc_auc, signal_efficiency_at
from unmask.evaluation.streaming_roc import streaming_roc
from unmask.events.event_set import Names


def write(
    path: Path, score: npt.NDArray[np.float64], label: npt.NDArray[np.int8], weight: npt.NDArray[np.float64]
) -> Path:
    n = len(score)
    names = Names.constant("one", n)
    write_scores(path, [Scores(score, np.arange(n), np.arange(n), names, names, label, weight)])
    return path


def sample(n: int, *, seed: int, n_values: int) -> tuple[npt.NDArray[np.float64], ...]:
    """Scores that repeat ``n_values`` values, weights of a wide spread."""
    rng = np.random.default_rng(seed)
    label = (rng.random(n) < 0.3).astype(np.int8)
    score = rng.integers(0, n_values, n) / n_values + 0.2 * label
    return score, label, rng.lognormal(0, 1, n)


@settings(max_examples=40, deadline=None)
@given(
    n_values=st.sampled_from([1, 3, 50, 10**9]),
    piece_events=st.sampled_from([1, 7, 100, 10**6]),
    seed=st.integers(0, 99),
)
def test_it_agrees_with_all_at_once(
    tmp_path_factory: pytest.TempPathFactory, n_values: int, piece_events: int, seed: int
) -> None:
    score, label, weight = sample(400, seed=seed, n_values=n_values)
    folder = tmp_path_factory.mktemp("scores")
    files = [
        write(folder / f"{i}.parquet", score[part], label[part], weight[part])
        for i, part in enumerate((slice(0, 150), slice(150, 151), slice(151, 400)))
    ]
    result = streaming_roc(files, piece_events=piece_events, background_efficiency=[0.1, 0.5, 1.0])
    expected = roc_auc(score, label == 1, weight)
    assert result.auc.value == pytest.approx(expected.value, abs=1e-12)
    assert (result.auc.low, result.auc.high) == pytest.approx((expected.low, expected.high), abs=1e-10)
    assert (result.n_signal, result.n_background) == (np.sum(label == 1), np.sum(label == 0))
    for efficiency, found in zip(result.background_efficiency, result.signal_efficiency, strict=True):
        wanted = signal_efficiency_at(score, label == 1, weight, background_efficiency=float(efficiency), n_replicas=2)
        if wanted is not None:
            assert found == pytest.approx(wanted.value, abs=1e-12)


def test_a_larger_sample_in_many_pieces_agrees_too(tmp_path: Path) -> None:
    score, label, weight = sample(200_000, seed=1, n_values=5000)
    path = write(tmp_path / "scores.parquet", score, label, weight)
    result = streaming_roc(path, piece_events=3000)
    assert result.auc.value == pytest.approx(roc_auc(score, label == 1, weight).value, abs=1e-12)
    assert np.all(np.diff(result.signal_efficiency) >= 0)
    assert result.signal_efficiency[-1] == 1


def test_events_without_label_do_not_count(tmp_path: Path) -> None:
    score, label, weight = sample(300, seed=2, n_values=100)
    with_unknown = np.where(np.arange(300) % 3 == 0, -1, label).astype(np.int8)
    known = with_unknown != -1
    path = write(tmp_path / "scores.parquet", score, with_unknown, weight)
    expected = roc_auc(score[known], label[known] == 1, weight[known]).value
    assert streaming_roc(path).auc.value == pytest.approx(expected, abs=1e-12)


def test_negative_weights_give_the_area_and_no_curve(tmp_path: Path) -> None:
    score, label, weight = sample(500, seed=3, n_values=50)
    weight = np.where(np.arange(500) % 7 == 0, -0.3, weight)
    result = streaming_roc(write(tmp_path / "scores.parquet", score, label, weight), piece_events=60)
    assert result.auc.value == pytest.approx(roc_auc(score, label == 1, weight).value, abs=1e-12)
    assert len(result.signal_efficiency) == 0


def test_what_must_be_known_is_noted(tmp_path: Path) -> None:
    score, label, weight = sample(500, seed=5, n_values=50)
    assert not streaming_roc(write(tmp_path / "good.parquet", score, label, weight), piece_events=60).notes
    path = write(tmp_path / "constant.parquet", np.full(500, 0.5), label, weight)
    assert streaming_roc(path).notes == ("constant score: the detector gives all events the score 0.5",)
    path = write(tmp_path / "negative.parquet", score, label, np.where(np.arange(500) % 7 == 0, -0.3, weight))
    assert streaming_roc(path).notes == ("negative weights: only the AUC is measured",)
    few = write(tmp_path / "few.parquet", score[:20], (np.arange(20) < 3).astype(np.int8), np.ones(20))
    assert streaming_roc(few).notes == ("only 3 events of signal: their intervals cannot be trusted",)


@pytest.mark.parametrize("piece_events", [1, 60, 10**6])
def test_events_that_are_there_twice_are_counted(tmp_path: Path, piece_events: int) -> None:
    score, label, weight = sample(500, seed=6, n_values=50)
    one = write(tmp_path / "one.parquet", score, label, weight)
    other = write(tmp_path / "other.parquet", score[:70] + 1, label[:70], weight[:70])
    (note,) = streaming_roc([one, other], piece_events=piece_events).notes
    assert "70 of the 570 events are there more than once" in note


def test_files_without_events_or_labels_are_named(tmp_path: Path) -> None:
    score, label, weight = sample(50, seed=7, n_values=50)
    path = write(tmp_path / "unlabelled.parquet", score, np.full(50, -1, np.int8), weight)
    with pytest.raises(BadDataError, match=r"unlabelled\.parquet: none of the 50 events has a label; score files with"):
        streaming_roc(path)
    path = write(tmp_path / "empty.parquet", score[:0], label[:0], weight[:0])
    with pytest.raises(BadDataError, match=r"empty\.parquet: holds no events"):
        streaming_roc(path)
    path = write(tmp_path / "background.parquet", score, np.zeros(50, np.int8), weight)
    with pytest.raises(UsageError, match=r"background\.parquet: .* one class"):
        streaming_roc(path)


def test_what_has_no_roc_is_an_error_and_leaves_no_scratch(tmp_path: Path) -> None:
    ones = np.ones(4)
    background = np.zeros(4, np.int8)
    both = np.array([0, 1, 0, 1], np.int8)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for name, score, label, weight, error in (
        ("one-class", ones, background, ones, UsageError),
        ("nan", np.array([1, np.nan, 2, 3]), both, ones, BadDataError),
        ("no-weight", ones, both, np.array([0.0, 1, 0, 1]), BadDataError),
    ):
        with pytest.raises(error):
            streaming_roc(write(tmp_path / f"{name}.parquet", score, label, weight), scratch=scratch)
    assert not list(scratch.iterdir())
