"""Background p-values and untrained scores."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from unmask import load_sample
from unmask.detectors.untrained import UntrainedDetector
from unmask.errors import UsageError
from unmask.events.event_set import EventSet
from unmask.scores.p_values import COMBINE, BackgroundTail, Rule, p_values


@pytest.fixture(scope="module")
def parts() -> tuple[EventSet, EventSet, EventSet, EventSet]:
    """Training, validation and test background, and signal."""
    events = load_sample("gluino")
    background = events[events.label == 0]
    background = background[np.random.default_rng(0).permutation(len(background))]
    return background[:3000], background[3000:6000], background[6000:9000], events[events.label == 1][:500]


def test_p_values_by_hand() -> None:
    background = np.array([3.0, 1.0, 2.0, 2.0])
    np.testing.assert_allclose(p_values(background, np.array([0.5, 1, 1.5, 2, 3, 4])), [1, 1, 0.8, 0.8, 0.4, 0.2])
    tail = BackgroundTail.of(background)
    np.testing.assert_allclose(np.exp(-tail.minus_log_p_of(np.array([0.5, 1, 2, 3]))), [1, 1, 0.8, 0.4])


def test_p_values_with_weights() -> None:
    score, n = np.array([1.0, 2.0, 3.0]), 16 / 10  # effective
    found = p_values(np.array([2.0, 1.0]), score, np.array([3.0, 1.0]))
    np.testing.assert_allclose(found, [1, (1 + n * 0.75) / (1 + n), 1 / (1 + n)])
    n = 4 / 10
    found = p_values(np.array([2.0, 1.0]), score, np.array([-1.0, 3.0]))  # less than nothing at 2 or more
    np.testing.assert_allclose(found, [1, 1 / (1 + n), 1 / (1 + n)])


@pytest.mark.parametrize(("share", "shift", "weight"), [(0.02, 2.0, 10.0), (0.05, 1.5, 10.0)])
def test_heavy_events_in_the_tail_do_not_make_small_p_values_come_too_often(
    share: float, shift: float, weight: float
) -> None:
    """Events of a process whose few events weigh more lie higher than the others: what counts is how few they are."""
    of_heavy, passed = share * weight / (share * weight + 1 - share), []
    scores = np.linspace(-3, 9, 2000)
    for seed in range(150):
        rng = np.random.default_rng(seed)
        is_heavy = rng.random(1000) < share
        p = p_values(rng.normal(shift * is_heavy), scores, np.where(is_heavy, weight, 1.0))
        assert (np.diff(p) <= 0).all()
        at = scores[np.argmax(p <= 0.005)] if p[-1] <= 0.005 else np.inf
        passed.append(of_heavy * norm.sf(at - shift) + (1 - of_heavy) * norm.sf(at))
    assert np.mean(passed) <= 0.005


def test_between_and_beyond_background_no_two_scores_are_tied() -> None:
    background = np.random.default_rng(1).exponential(2.0, 1000)
    tail = BackgroundTail.of(background)
    score = np.sort(np.random.default_rng(2).uniform(0.1, 60, 5000))
    found = tail.minus_log_p_of(score)
    assert (np.diff(found) > 0).all()
    is_inside = score <= background.max()
    assert is_inside.any()
    assert not is_inside.all()
    # Inside never smaller than the share of background, beyond as an exponential distribution falls.
    assert (np.exp(-found[is_inside]) >= p_values(background, score[is_inside]) - 1e-12).all()
    slope = np.diff(found[~is_inside]) / np.diff(score[~is_inside])
    np.testing.assert_allclose(slope, 1 / 2.0, rtol=0.3)


def test_a_score_that_never_varied_can_still_be_exceeded() -> None:
    found = BackgroundTail.of(np.zeros(9)).minus_log_p_of(np.array([-1.0, 0.0, 1.0, 2.0]))
    assert found[0] == found[1] == 0
    assert 0 < found[2] < found[3]


def test_a_count_that_background_never_has_is_rarer_than_any_that_it_has() -> None:
    tail = BackgroundTail.of(np.repeat([0, 1], [19_000, 1_000]))
    found = tail.minus_log_p_of(np.array([1.0, 2.0, 3.0]))
    assert found[0] == pytest.approx(np.log(20_001 / 1_001))
    assert found[1] >= np.log(20_001)  # no p-value of N events can be larger
    assert found[2] > found[1] + 0.9
    assert tail.text(found[0]) == "p = 0.05"
    assert tail.text(found[1]) == "beyond all background"


def test_a_bounded_slope_keeps_rounding_from_moving_a_p_value() -> None:
    background = np.append(np.linspace(0, 1, 50), [2.0, 2.0 + 1e-9, 2.0 + 2e-9, 3.0])
    scores = np.array([2.0, 2.0 + 2e-9])
    assert np.ptp(BackgroundTail.of(background).minus_log_p_of(scores)) > 0.3
    tail = BackgroundTail.of(background, max_slope=3.0)
    assert np.ptp(tail.minus_log_p_of(scores)) < 1e-8
    assert tail.minus_log_p_of(np.array([3.0])) == -np.log(2 / 55)


def test_combinations_by_hand() -> None:
    p = np.array([[0.1, 0.5], [0.4, 0.5]])
    expected: dict[Rule, list[float]] = {
        "average": [0.25, 0.5],
        "and": [0.4, 0.5],
        "or": [0.1, 0.5],
        "product": [0.04, 0.25],
    }
    assert set(expected) == set(COMBINE)
    for rule, values in expected.items():
        np.testing.assert_allclose(np.exp(-COMBINE[rule](-np.log(p))), values)


def test_mistakes_are_told(parts: tuple[EventSet, ...]) -> None:
    with pytest.raises(UsageError, match="did you mean 'met'"):
        UntrainedDetector("meet").fit(parts[0], parts[1])  # type: ignore[arg-type]


def test_untrained_scores_by_hand(parts: tuple[EventSet, ...]) -> None:
    train, validation, test, _ = parts
    found = {
        score: UntrainedDetector(score).fit(train, validation).score_events(test)
        for score in ("n-objects", "ht", "met", "n-b-jets", "product", "smallest")
    }
    np.testing.assert_array_equal(found["n-objects"], test.n_objects)
    np.testing.assert_array_equal(found["n-b-jets"], test.n_b_jets)
    np.testing.assert_array_equal(found["ht"], test.ht_mev)
    np.testing.assert_array_equal(found["met"], test.met_mev)
    # Of a training event all four values are among those of background: the p-values are plain shares.
    fisher, smallest = (
        UntrainedDetector(how).fit(train, validation).score_events(train[:1]) for how in ("product", "smallest")
    )
    columns = [(events.n_objects, events.ht_mev, events.met_mev, events.n_b_jets) for events in (train, train[:1])]
    shares = [(1 + np.sum(all_of >= one)) / 3001 for all_of, one in zip(*columns, strict=True)]
    np.testing.assert_allclose(fisher, -np.log(shares).sum(), rtol=1e-6)
    np.testing.assert_allclose(smallest, -np.log(min(shares)), rtol=1e-6)
    assert (found["smallest"] <= found["product"] + 1e-12).all()


def test_random_scores_know_nothing_but_the_event(parts: tuple[EventSet, ...]) -> None:
    from scipy.stats import kstest

    detector = UntrainedDetector("random", seed=4).fit(parts[0], parts[1])
    score = detector.score_events(parts[2])
    assert kstest(score, "uniform").pvalue > 1e-3
    renamed = replace(parts[2], row=parts[2].row + 5)
    np.testing.assert_array_equal(detector.score_events(renamed[100:200]), score[100:200])
    other = UntrainedDetector("random", seed=5).fit(parts[0], parts[1]).score_events(parts[2])
    assert abs(np.corrcoef(score, other)[0, 1]) < 0.08
