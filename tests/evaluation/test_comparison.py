"""Paired comparisons: differences by hand and by simulation, and events that do not belong together."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.metrics import roc_auc_score

from tests.evaluation.toy_scores import roc_auc, toy_observables, toy_scores
from unmask.errors import BadDataError
from unmask.evaluation.intervals import Difference
from unmask.evaluation.roc import RankedScores
from unmask.events.columns import Names
from unmask.scores.score_table import align


def auc_difference(
    score: npt.NDArray[Any],
    other: npt.NDArray[Any],
    is_signal: npt.NDArray[np.bool_],
    weight: npt.NDArray[Any] | None = None,
) -> Difference:
    one, two = (RankedScores.of(each, is_signal, weight).placements for each in (score, other))
    return one - two


def test_the_difference_is_that_of_two_areas() -> None:
    rng = np.random.default_rng(1)
    is_signal = np.arange(800) < 300
    one, other = np.round(rng.normal(is_signal, 1), 1), rng.normal(0.5 * is_signal, 1)
    weight = rng.exponential(size=800)
    found = auc_difference(one, other, is_signal, weight)
    areas = [roc_auc_score(is_signal, score, sample_weight=weight) for score in (one, other)]
    assert found.value == pytest.approx(areas[0] - areas[1], abs=1e-12)
    assert auc_difference(other, one, is_signal, weight).value == pytest.approx(-found.value)
    assert (found.low > 0) == (found.p_value < 0.05)


def test_variance_by_hand() -> None:
    """Two events of each class: DeLong's variance is half the spread of the placements, summed over classes."""
    is_signal = np.array([False, False, True, True])
    # first score: placements 1, 1 | 1, 1; second: signal 0.5, 1; background 0.5, 1
    found = auc_difference(np.array([1, 2, 3, 4]), np.array([1, 3, 2, 4]), is_signal)
    variance = 2 * ((0 - 0.25) ** 2 + (0.5 - 0.25) ** 2) / 2
    assert found.value == pytest.approx(0.25)
    assert found.high - found.value == pytest.approx(1.959964 * np.sqrt(variance))


def test_the_paired_interval_covers_the_truth_and_is_narrower_than_the_unpaired() -> None:
    rng = np.random.default_rng(2)
    is_signal = np.arange(600) < 200
    hits, p_values = [], []
    for _ in range(300):
        shared = rng.normal(1.0 * is_signal, 1)
        one, other = (shared + rng.normal(0, 0.5, 600) for _ in range(2))  # equally good: the truth is 0
        found = auc_difference(one, other, is_signal)
        hits.append(found.low <= 0 <= found.high)
        p_values.append(found.p_value)
    assert 0.915 < np.mean(hits) < 0.985
    assert np.mean(np.array(p_values) < 0.5) == pytest.approx(0.5, abs=0.09)
    one_area = roc_auc(one, is_signal)
    assert found.high - found.low < 0.8 * (one_area.high - one_area.low)


def test_a_score_and_itself() -> None:
    is_signal = np.arange(20) < 10
    found = auc_difference(np.arange(20.0), np.arange(20.0), is_signal)
    assert (found.value, found.low, found.high, found.p_value) == (0, 0, 0, 1)


def test_events_in_another_order_are_put_in_order() -> None:
    rng = np.random.default_rng(3)
    label = (np.arange(60) < 20).astype(np.int8)
    files = Names.of(f"{i % 3}.csv" for i in range(60))
    reference = toy_scores(rng.random(60), label, row=np.arange(60) // 3, file_names=files)
    order = rng.permutation(60)
    mixed = replace(reference, score=reference.score * 2)[order]
    mixed = replace(mixed, file_names=Names.of(mixed.file_names.array()))  # numbers files in another order too
    found = align(mixed, reference, name="b", reference_name="a")
    np.testing.assert_array_equal(found.score, reference.score * 2)
    np.testing.assert_array_equal(found.file_names.array(), files.array())


def test_folders_of_files_matter_where_names_repeat_alone() -> None:
    label = np.array([0, 0, 1, 1], np.int8)
    here, there, both = (Names.of(names) for names in (["a.root"] * 4, ["/data/a.root"] * 4, ["x/a", "y/a"] * 2))
    row = np.array([0, 0, 1, 1])
    one, other = (toy_scores([1, 2, 3, 4], label, file_names=files) for files in (here, there))
    assert align(one, other, name="b", reference_name="a").score.tolist() == [1, 2, 3, 4]
    reference = toy_scores([1, 2, 3, 4], label, row=row, file_names=both)
    assert align(reference[::-1], reference, name="b", reference_name="a").score.tolist() == [1, 2, 3, 4]


def test_other_events_are_refused() -> None:
    label = np.array([0, 1, 0, 1], np.int8)
    reference = toy_scores([1, 2, 3, 4], label)
    for other, message in (
        (toy_scores([1, 2, 3, 4], label, row=np.array([0, 1, 2, 9])), r"b and a .*\(4 and 4; 1 of a are not in b\)"),
        (toy_scores([1, 2, 3], label[:3]), r"\(3 and 4; 1 of a"),
        (toy_scores([1, 2, 3, 4], label, file_names=Names.constant("other.csv", 4)), "4 of a are not in b"),
        (toy_scores([1, 2, 3, 4], label[::-1]), "label of 4 events"),
        (toy_scores([1, 2, 3, 4], label, weight=np.array([1, 1, 1, 2.0])), "weight of 1 events"),
        (toy_scores([1, 2, 3, 4], label, event_id=np.arange(4) + 100), "event_id of 4 events"),
    ):
        with pytest.raises(BadDataError, match=message):
            align(other, reference, name="b", reference_name="a")


def test_events_of_the_same_name_with_other_content_are_refused() -> None:
    label = np.array([0, 1, 0, 1], np.int8)
    observables = toy_observables(label)
    met = np.array([np.nan, 2, 3, 4])
    reference = toy_scores([1, 2, 3, 4], label, observables=observables | {"met_mev": met})
    for column in observables:
        changed = reference.observables[column] + np.array([0, 0, 0, 1])
        other = replace(reference, observables={**reference.observables, column: changed})
        with pytest.raises(BadDataError, match=r"b and a hold .* different events \(1 of 4 have the same file name"):
            align(other, reference, name="b", reference_name="a")
    for same in (reference, replace(reference, observables={})):
        assert len(align(same[np.arange(4)[::-1]], reference, name="b", reference_name="a")) == 4


def test_event_ids_may_stand_for_rows_even_if_negative() -> None:
    label = np.array([0, 1, 0, 1], np.int8)
    files = Names.of(["a", "a", "b", "b"])
    reference = toy_scores([1, 2, 3, 4], label, row=np.array([0, 7, -8, 7]), file_names=files)
    mixed = reference[np.array([2, 3, 1, 0])]
    np.testing.assert_array_equal(align(mixed, reference, name="b", reference_name="a").score, [1, 2, 3, 4])
