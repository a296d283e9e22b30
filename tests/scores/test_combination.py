"""Several scores as one: p-values of background that is neither trained on nor tested."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.evaluation.toy_scores import toy_scores
from unmask.errors import BadDataError, UsageError
from unmask.events.columns import Names
from unmask.scores.calibration import calibrate
from unmask.scores.combination import combine, gives_terms
from unmask.scores.p_values import COMBINE, Rule, p_values
from unmask.scores.score_table import Scores


def normal(seed: int, n: int, *, first_row: int = 0, label: int = 0, shift: float = 0, **columns: Any) -> Scores:
    score = np.random.default_rng(seed).normal(shift, size=n)
    return toy_scores(score, np.full(n, label), row=np.arange(n) + first_row, **columns)


TESTED = {"a": normal(1, 500), "b": normal(2, 500)}
BACKGROUND = {"c": normal(3, 3000, first_row=1000), "d": normal(4, 2000, first_row=1000)}


@pytest.mark.parametrize("rule", COMBINE)
def test_a_combination_is_what_it_says(rule: Rule) -> None:
    pairs = [(one[gives_terms(one)], tested) for one, tested in zip(BACKGROUND.values(), TESTED.values(), strict=True)]
    assert [len(background) for background, _ in pairs] == pytest.approx([1500, 1000], rel=0.1)
    found = combine(TESTED, BACKGROUND, rule=rule)
    p = np.stack([p_values(background.score, tested.score) for background, tested in pairs])
    is_inside = np.all([tested.score < background.score.max() for background, tested in pairs], axis=0)
    # Between two background events a p-value is interpolated.
    np.testing.assert_allclose(found.score[is_inside], COMBINE[rule](-np.log(p))[is_inside], atol=0.7, rtol=0)
    assert np.corrcoef(found.score, COMBINE[rule](-np.log(p)))[0, 1] > 0.999
    np.testing.assert_array_equal(found.row, TESTED["a"].row)
    assert found.was_trained_on is None


def test_order_and_what_is_known_of_the_training_are_kept() -> None:
    order = np.random.default_rng(5).permutation(500)
    trained_on = np.arange(500) < 20
    shuffled = {"a": TESTED["a"], "b": replace(TESTED["b"], was_trained_on=trained_on)[order]}
    found = combine(shuffled, BACKGROUND)
    np.testing.assert_array_equal(found.score, combine(TESTED, BACKGROUND).score)
    np.testing.assert_array_equal(found.was_trained_on, trained_on)


def test_half_of_the_background_calibrates_where_no_other_is_given() -> None:
    label = np.repeat([0, 1, -1], [4000, 500, 500])
    rngs = {"a": np.random.default_rng(1), "b": np.random.default_rng(2)}
    scores = {name: toy_scores(rng.normal(2.0 * (label == 1)), label) for name, rng in rngs.items()}
    found = combine(scores)
    assert (found.label == 1).sum() == (found.label == -1).sum() == 500
    is_background = found.label == 0
    assert 1900 < is_background.sum() < 2100
    # By hand: those left out are the calibration.
    left_out = ~np.isin(scores["a"].row, found.row)
    background = {name: one[left_out] for name, one in scores.items()}
    tested = {name: one[~left_out] for name, one in scores.items()}
    assert all(gives_terms(one).all() for one in background.values())
    np.testing.assert_array_equal(found.score, combine(tested, background).score)
    # The sum of two logarithms of p-values, of background whose scores are independent.
    from scipy.stats import gamma, kstest

    assert kstest(found.score[is_background], gamma(2).cdf).statistic < 0.04
    assert np.median(found.score[found.label == 1]) > 5


@pytest.mark.parametrize("rule", ["product", "or"])
def test_p_values_of_combinations_are_valid_for_few_calibration_events(rule: Rule) -> None:
    """One sample of validation background gives the terms and calibrates them, without an event doing both."""
    passed = np.zeros(2)
    for seed in range(120):
        rng = np.random.default_rng(seed)

        def background(n: int, file: str, rng: np.random.Generator = rng) -> dict[str, Scores]:
            both = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], n).T
            files = Names.constant(file, n)
            return {name: toy_scores(s, np.zeros(n), file_names=files) for name, s in zip("ab", both, strict=True)}

        validation, new = background(220, f"validation{seed}.csv"), background(3000, "new.csv")
        calibration = calibrate(combine(validation, rule=rule), background_efficiency=0.2)
        p, _, _ = calibration.p_values(combine(new, validation, rule=rule))
        passed += [np.mean(p <= 1.01 / (1 + calibration.survival.n_effective)), np.mean(p <= 0.05)]
    # The smallest p-value is 1 in 111 or so; the spread over 120 calibrations is 0.0008 and 0.002.
    np.testing.assert_array_less(passed / 120, [0.0091 + 0.002, 0.05 + 0.004])


@pytest.mark.parametrize(
    ("scores", "background", "message"),
    [
        ({"a": TESTED["a"]}, None, "1 scores and 0 background scores; expected two or more"),
        (TESTED, {"c": BACKGROUND["c"]}, "2 scores and 1 background scores"),
        (TESTED, {"c": BACKGROUND["c"], "a": TESTED["a"]}, "a: \\d+ of \\d+ background events are also scored"),
        (
            TESTED,
            {"c": BACKGROUND["c"], "d": replace(BACKGROUND["d"], was_trained_on=np.arange(2000) < 90)},
            "d: \\d+ of [\\d,]+ background events are training events",
        ),
        (TESTED, {"c": BACKGROUND["c"], "s": normal(6, 50, first_row=900, label=1)}, "s: some .* labeled signal"),
        ({name: replace(one, label=one.label - 1) for name, one in TESTED.items()}, None, "a: no background events"),
    ],
)
def test_dishonest_p_values_are_refused(scores: Any, background: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        combine(scores, background)


def test_other_mistakes_are_told() -> None:
    with pytest.raises(UsageError, match="did you mean 'product'"):
        combine(TESTED, BACKGROUND, rule="produkt")  # type: ignore[arg-type]
    with pytest.raises(BadDataError, match="different events"):
        combine({"a": TESTED["a"], "b": normal(2, 500, first_row=3)}, BACKGROUND)
    with pytest.raises(BadDataError, match="c: some scores are NaN"):
        combine(TESTED, {**BACKGROUND, "c": replace(BACKGROUND["c"], score=np.full(3000, np.nan))})


def test_rows_without_a_file_say_nothing_of_the_events() -> None:
    nameless = {"c": normal(3, 3000, file_names=Names.constant("", 3000)), "d": BACKGROUND["d"]}
    tested = {name: replace(one, file_names=Names.constant("", 500)) for name, one in TESTED.items()}
    assert len(combine(tested, nameless)) == 500
