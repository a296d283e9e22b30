"""P-values: exact by hand, uniform on background, covered by their intervals; thresholds that keep their word."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import kstest, norm

from tests.evaluation.toy_scores import toy_scores
from unmask import load_sample
from unmask.detectors import load_detector
from unmask.errors import ArtifactError, BadDataError, UsageError
from unmask.events.columns import Names
from unmask.io.sample import sample_path
from unmask.scores.calibration import Calibration, ScoredBy, calibrate
from unmask.scores.score_table import Scores, write_scores


def background(n: int, seed: int = 0, file: str = "control.csv") -> Scores:
    score = np.random.default_rng(seed).normal(size=n)
    return toy_scores(score, np.zeros(n), file_names=Names.constant(file, n))


def test_p_values_by_hand() -> None:
    events = toy_scores([1, 2, 2, *np.arange(3, 100)], np.zeros(100))
    found = calibrate(events, background_efficiency=0.2)
    value, low, high = found.p_values(np.array([0.0, 2.0, 2.5, 99.0, 1000.0]))
    np.testing.assert_allclose(value, np.array([1 + 100, 1 + 99, 1 + 97, 1 + 1, 1 + 0]) / 101)
    assert (low <= value).all()
    assert (value <= high + 1e-12).all()
    assert high[-1] == pytest.approx(1 - 0.025 ** (1 / 100))  # none of 100 seen
    # the 19 highest are 81 ... 99: (1 + 19) / 101 <= 0.2 < (1 + 20) / 101
    assert found.threshold == 81
    assert found.measured.value == pytest.approx(0.19)


def test_ties_at_the_threshold_are_not_let_through() -> None:
    score = np.repeat([1.0, 2, 3], [600, 350, 50])
    found = calibrate(toy_scores(score, np.zeros(1000)), background_efficiency=0.1)
    assert found.threshold == 3
    assert found.measured.value == pytest.approx(0.05)


def test_whole_weights_give_the_share_of_repeated_events() -> None:
    rng = np.random.default_rng(1)
    times = rng.integers(1, 4, 500)
    events = replace(background(500), weight=times.astype(np.float64))
    found = calibrate(events, background_efficiency=0.1)
    above = np.repeat(events.score, times) >= found.threshold
    assert found.measured.value == pytest.approx(above.mean())
    assert found.survival.n_effective == pytest.approx(times.sum() ** 2 / (times**2).sum())


@pytest.mark.parametrize("weighted", [False, True])
def test_p_values_are_uniform_and_intervals_cover(weighted: bool) -> None:
    rng = np.random.default_rng(2)
    p_values, hits = [], []
    tests = norm.isf([0.5, 0.1, 0.02])
    for seed in range(300):
        events = background(400, seed)
        if weighted:
            events = replace(events, weight=rng.uniform(0.2, 1.8, 400))
        found = calibrate(events, background_efficiency=0.1)
        p_values.append(found.p_values(rng.normal(size=1))[0][0])
        _, low, high = found.p_values(tests)
        hits.append((low <= norm.sf(tests)) & (norm.sf(tests) <= high))
    assert kstest(p_values, "uniform").pvalue > 0.01
    assert (np.mean(hits, axis=0) > 0.92).all()  # Clopper and Pearson never have less than 0.95


def test_the_threshold_keeps_its_word() -> None:
    """Averaged over calibrations no more than the target share of new background is flagged; the interval covers."""
    shares, hits = [], []
    for seed in range(300):
        found = calibrate(background(1000, seed), background_efficiency=0.05)
        truth = norm.sf(found.threshold)
        shares.append(truth)
        hits.append(found.measured.low <= truth <= found.measured.high)
    assert np.mean(shares) == pytest.approx(0.05, abs=0.0015)
    assert np.mean(hits) > 0.92


def test_with_negative_weights_p_values_fall_with_the_score_and_thresholds_keep_their_word() -> None:
    rng, shares, hits = np.random.default_rng(4), [], []
    tests = norm.isf([0.5, 0.1, 0.02])
    for seed in range(300):
        events = replace(background(1500, seed), weight=np.where(rng.random(1500) < 0.2, -1.0, 1.0))
        found = calibrate(events, background_efficiency=0.1)
        shares.append(norm.sf(found.threshold))
        _, low, high = found.p_values(tests)
        hits.append([*((low <= norm.sf(tests)) & (norm.sf(tests) <= high))])
        every, _, _ = found.p_values(np.sort(events.score))
        assert (np.diff(every) <= 0).all()
        assert every[0] == 1
        assert every[-1] > 0
    assert np.mean(shares) == pytest.approx(0.098, abs=0.002)  # rather too few than too many
    assert (np.mean(hits, axis=0) > 0.92).all()


def test_by_hand_the_larger_share_counts_where_weights_are_negative() -> None:
    events = toy_scores(np.arange(60), np.zeros(60), weight=np.where(np.arange(60) == 30, -5.0, 1.0))
    found = calibrate(events, background_efficiency=0.6)
    # 29 of 54 lie above 30, 24 from there on: 30 itself has no smaller p-value than 31
    n_effective = 54**2 / (59 + 25)
    value, _, _ = found.p_values(np.array([29.0, 30.0, 31.0, 32.0]))
    np.testing.assert_allclose(value, (1 + n_effective * np.array([29, 29, 29, 28]) / 54) / (1 + n_effective))


def test_p_values_of_the_shipped_detector_are_uniform_on_background() -> None:
    events = load_sample("gluino")
    events = events[events.label == 0]
    events = events[np.random.default_rng(3).permutation(len(events))[:3000]]
    detector = load_detector(sample_path("gluino-model"))
    scores = Scores.of(events, detector.score_events(events))
    first = np.arange(3000) < 1500
    found = calibrate(scores[first], background_efficiency=0.05)
    value, _, _ = found.p_values(scores.score[~first])
    weight = scores.weight[~first]
    assert weight.max() > 5 * weight.min()  # the sample is a mixture by weight: so are its p-values
    n_effective = weight.sum() ** 2 / (weight**2).sum()
    for target in (0.05, 0.1, 0.25, 0.5, 0.75, 0.9):
        error = np.sqrt(target * (1 - target) * (1 / n_effective + 1 / found.survival.n_effective))
        assert np.average(value <= target, weights=weight) == pytest.approx(target, abs=4 * error)


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    found = calibrate(background(500), background_efficiency=0.1, scored_by=ScoredBy("abc", "mean"))
    found.save(tmp_path / "calibration")
    loaded = Calibration.load(tmp_path / "calibration")
    for one, other in zip(found.p_values(np.arange(3.0)), loaded.p_values(np.arange(3.0)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (loaded.threshold, loaded.measured, loaded.scored_by) == (found.threshold, found.measured, found.scored_by)
    assert "Calibration(score >= 1." in repr(loaded)
    (tmp_path / "calibration" / "manifest.json").write_text("{}")
    with pytest.raises(ArtifactError):
        Calibration.load(tmp_path / "calibration")


def test_flagged_events_are_those_above_the_threshold_least_likely_first(tmp_path: Path) -> None:
    found = calibrate(background(500), background_efficiency=0.1, scored_by=ScoredBy("abc", "mean"))
    data = background(300, seed=9, file="data.csv")
    parts = [data[np.arange(0, 300, 2)], data[np.arange(1, 300, 2)]]
    files = [tmp_path / "even.parquet", tmp_path / "odd.parquet"]
    for path, part in zip(files, parts, strict=True):
        write_scores(path, [part], provenance={"model": "abc", "score": "mean"})
    flagged = found.flag(files)
    assert (flagged.n_events, flagged.n_known) == (300, 0)
    np.testing.assert_array_equal(flagged.scores.score, np.sort(data.score[data.score >= found.threshold])[::-1])
    assert (np.diff(flagged.p_value) >= 0).all()
    assert flagged.p_value.max() <= 0.1
    assert found.flag(data).p_value.tolist() == flagged.p_value.tolist()  # in memory too
    flagged.write(tmp_path / "flagged.parquet")
    table = pq.read_table(tmp_path / "flagged.parquet")
    np.testing.assert_array_equal(table["row"].to_numpy(), np.argsort(-data.score)[: len(flagged.p_value)])
    assert {"file", "event_id", "process", "p_value", "p_value_low", "p_value_high"} <= set(table.column_names)


def test_events_of_the_calibration_are_known_again(tmp_path: Path) -> None:
    events = background(500)
    found = calibrate(events[np.arange(400)], background_efficiency=0.1)
    write_scores(tmp_path / "again.parquet", [events[np.arange(350, 500)]])
    assert found.flag(tmp_path / "again.parquet").n_known == 50


def test_scores_of_another_model_are_refused(tmp_path: Path) -> None:
    found = calibrate(background(500), background_efficiency=0.1, scored_by=ScoredBy("abc", "mean"))
    for facts in ({"model": "xyz", "score": "mean"}, {"model": "abc", "score": "sum"}):
        write_scores(tmp_path / "other.parquet", [background(50)], provenance=facts)
        with pytest.raises(UsageError, match="another model"):
            found.flag([tmp_path / "other.parquet"])
    write_scores(tmp_path / "same.parquet", [background(50)], provenance={"model": "abc", "score": "mean"})
    with pytest.raises(UsageError, match="different models"):
        ScoredBy.of_files([tmp_path / "same.parquet", tmp_path / "other.parquet"])


def test_what_is_no_calibration_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="1 of 3 events are labeled signal"):
        calibrate(toy_scores([1, 2, 3], [0, 1, 0]), background_efficiency=0.1)
    with pytest.raises(UsageError, match="between 0 and 1"):
        calibrate(background(100), background_efficiency=1.5)
    with pytest.raises(BadDataError, match=r"only 9\.0 of 1,000\.0 background events"):
        calibrate(background(1000), background_efficiency=0.01)
    with pytest.raises(BadDataError, match=r"only 0\.0"):
        calibrate(toy_scores(np.ones(1000), np.zeros(1000)), background_efficiency=0.01)
    with pytest.raises(BadDataError, match="NaN"):
        calibrate(toy_scores([1, np.nan], [0, 0]), background_efficiency=0.1)
    with pytest.raises(BadDataError, match="do not add up to a positive number"):
        calibrate(replace(background(10), weight=-np.ones(10)), background_efficiency=0.1)
    write_scores(tmp_path / "nan.parquet", [toy_scores([np.nan], [0])])
    with pytest.raises(BadDataError, match="NaN"):
        calibrate(background(500), background_efficiency=0.1).flag([tmp_path / "nan.parquet"])
