"""Two-sample comparisons of the variables of events."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask import load_sample
from unmask.events.distributions import (
    add,
    count,
    differences,
    from_arrays,
    measure,
    to_arrays,
    variables_of,
)
from unmask.events.schema import EventSchema


def test_p_values_of_equal_distributions_are_not_too_small() -> None:
    """Also with weights of 10 to 1, with discrete variables, and with few events."""
    rng = np.random.default_rng(1)
    for n, heavy in ((40, 1), (500, 1), (40, 10), (500, 10)):
        smallest = []
        for _ in range(120):
            first, second = ({"x": rng.exponential(size=m), "n": rng.poisson(1.5, m)} for m in (3000, n))
            weights = [np.where(rng.random(m) < 0.5, heavy, 1.0) for m in (3000, n)]
            background = measure(first, weights[0])
            (compared,) = differences(background, count(background, second, weights[1]))
            smallest.append(min(one.p_value for one in compared))
        # Binomial: 0.05 of 120 is 6 with a standard deviation of 2.4.
        assert np.count_nonzero(np.array(smallest) < 0.05) < 14
        assert np.count_nonzero(np.array(smallest) < 0.001) <= 1


def test_the_variable_that_differs_is_found_and_no_other() -> None:
    rng = np.random.default_rng(2)
    background = measure({"x": rng.normal(size=5000), "y": rng.normal(size=5000)}, np.ones(5000))
    sample = count(background, {"x": rng.normal(1, size=400), "y": rng.normal(size=400)}, np.ones(400))
    ((x, y),) = differences(background, sample)
    assert x.p_value < 1e-20
    assert y.p_value > 0.01
    assert 0.3 < x.distance < 0.5  # 0.38 for two normal distributions one standard deviation apart
    assert x.mean == pytest.approx(1, abs=0.2)
    assert y.p_text.startswith("p = ")


def test_fewer_than_ten_events_and_none_tell_nothing() -> None:
    background = measure({"x": np.arange(1000.0)}, np.ones(1000))
    for n in (0, 9):
        ((one,),) = differences(background, count(background, {"x": np.full(n, 1e6)}, np.ones(n)))
        assert one.p_value == 1
    ((one,),) = differences(background, count(background, {"x": np.full(10, 1e6)}, np.ones(10)))
    assert one.p_value < 0.01


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.integers(0, 50))
def test_histograms_of_parts_add_up_and_can_be_saved(values: list[float], cut: int) -> None:
    every, weight = np.array(values), np.linspace(0.5, 2, len(values))
    whole = measure({"x": every}, weight)
    first, second = (count(whole, {"x": every[part]}, weight[part]) for part in (slice(cut), slice(cut, None)))
    restored = from_arrays(["x"], to_arrays(add(first, second), "name"), "name")["x"]
    np.testing.assert_allclose(restored.content, whole["x"].content)
    np.testing.assert_allclose(restored.square, whole["x"].square)
    assert restored.mean == pytest.approx(whole["x"].mean)
    assert add({}, first) is first


def test_variables_are_observables_and_objects_of_each_type() -> None:
    events = load_sample("gluino")[:500]
    values = variables_of(events, EventSchema.of(events).types)
    assert values["MET [GeV]"] == pytest.approx(events.met_mev / 1e3)
    of_type = np.where(events.tag == 5, events.pt_mev, 0)
    assert values["leading muon pT [GeV]"] == pytest.approx(of_type.max(axis=1) / 1e3)
    assert values["number of muons"].tolist() == (of_type > 0).sum(axis=1).tolist()
    in_other_unit = replace(events, met_mev=events.met_mev * np.float32(1e-3))
    assert (variables_of(in_other_unit, [])["MET [GeV]"] < 10).all()
