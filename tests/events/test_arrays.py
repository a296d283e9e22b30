"""Events from arrays and awkward arrays, checked like those of a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from unmask import load_sample
from unmask.errors import BadDataError, UsageError
from unmask.events.event_set import EventSet

ak = pytest.importorskip("awkward")

GOOD: dict[str, Any] = {
    "unit": "GeV",
    "types": [["muon", "b"], ["j", ""]],
    "energy": [[60.0, 80.0], [50.0, 0.0]],
    "pt": [[50.0, 70.0], [40.0, 0.0]],
    "eta": [[0.5, 0.2], [0.6, 0.0]],
    "phi": [[1.0, -1.0], [3.0, 0.0]],
    "met": [30.0, 90.0],
    "met_phi": [0.0, 1.0],
}


def test_padded_arrays_become_events() -> None:
    events = EventSet.from_arrays(**GOOD, label="background", process=["ttbar", "ttH"], weight=[1, 2])
    assert events.tag[:, :3].tolist() == [[2, 5, 0], [1, 0, 0]]
    assert events.pt_mev[:, :2].tolist() == [[70e3, 50e3], [40e3, 0]]
    assert events.met_mev.tolist() == [30e3, 90e3]
    assert events.label.tolist() == [0, 0]
    assert events.process.tolist() == ["ttbar", "ttH"]
    assert (events.row.tolist(), events.weight.tolist()) == ([0, 1], [1, 2])


def test_flat_arrays_give_the_same_events() -> None:
    flat = GOOD | {name: [*GOOD[name][0], GOOD[name][1][0]] for name in ("types", "energy", "pt", "eta", "phi")}
    flat |= {"types": [5, 2, 1], "n_objects": [2, 1]}
    assert EventSet.from_arrays(**flat).equals(EventSet.from_arrays(**GOOD))


@pytest.mark.parametrize("dtype", [object, np.dtypes.StringDType()])
def test_types_may_be_objects_or_strings_of_any_length(dtype: Any) -> None:
    types = np.array(GOOD["types"], dtype)
    assert EventSet.from_arrays(**GOOD | {"types": types}).equals(EventSet.from_arrays(**GOOD))


def test_columns_of_a_data_frame_become_events() -> None:
    pandas = pytest.importorskip("pandas")
    flat = {name: [*GOOD[name][0], GOOD[name][1][0]] for name in ("types", "energy", "pt", "eta", "phi")}
    frame = pandas.DataFrame(flat)
    for types in (frame["types"], frame["types"].astype(object), frame["types"].astype("category")):
        columns = {name: frame[name] for name in flat} | {"types": types, "n_objects": pandas.Series([2, 1])}
        assert EventSet.from_arrays(**GOOD | columns).equals(EventSet.from_arrays(**GOOD))


def test_more_objects_than_asked_for_are_cut_by_pt() -> None:
    events = EventSet.from_arrays(**GOOD, max_objects=1)
    assert events.tag.tolist() == [[2], [1]]
    assert events.n_dropped.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"unit": "gev"}, UsageError, "unit is 'gev'; choose from MeV, GeV"),
        ({"unit": "TeV"}, UsageError, "unit is 'TeV'; choose from MeV, GeV, log-MeV, log-GeV$"),
        ({"met": None}, UsageError, "met is None; expected an array"),
        ({"pt": [[50.0, 70.0], [40.0]]}, UsageError, "pt is ragged; expected rows of one length"),
        ({"max_objects": 0}, UsageError, "max_objects is 0; expected a whole number of 1 or more"),
        ({"max_objects": -1}, UsageError, "max_objects is -1; expected a whole number of 1 or more"),
        ({"max_objects": 2.5}, UsageError, "max_objects is 2.5; expected a whole number of 1 or more"),
        ({"event_id": [1, 2.5]}, UsageError, "event_id is 2.5; expected whole numbers"),
        ({"event_id": [1, np.nan]}, UsageError, "event_id is nan; expected whole numbers"),
        ({"types": np.array([["b", None], ["j", ""]], object)}, UsageError, "types: None of type NoneType; expected"),
        ({"pt": [[-50.0, 70.0], [40.0, 0.0]]}, BadDataError, "event 0: pt_mev is -50000; .* 14 TeV in MeV$"),
        ({"types": [["muon", "bjet"], ["j", ""]]}, UsageError, "types: unknown 'bjet'; did you mean 'b-jet'"),
        ({"types": [[5, 2], [99, 0]]}, BadDataError, "types: 99; expected 0 for an empty slot, 1 jet"),
        ({"pt": [50.0, 40.0]}, UsageError, r"pt has shape \(2,\); expected \(2, 2\), as types"),
        ({"pt": [["a", "b"], ["c", "d"]]}, UsageError, "pt is of type <U1; expected numbers"),
        ({"pt": [[50.0, np.nan], [40.0, 0.0]]}, BadDataError, "arrays, event 0: pt_mev is nan; accepted: 1 GeV to 14"),
        ({"unit": "MeV"}, BadDataError, "arrays, event 0: energy_mev is .*declare its unit|pt_mev is 50"),
        ({"phi": [[1.0, 4.0], [3.0, 0.0]]}, BadDataError, "arrays, event 0: phi is 4; accepted: -pi to pi"),
        ({"met": [30.0]}, UsageError, "met has shape .1,.; expected one value, or one of each of the 2 events"),
        ({"label": [0, 1, 1]}, UsageError, "label has shape .3,.; expected one value"),
        ({"label": "good"}, UsageError, "label is 'good'; expected background, signal or unknown"),
        ({"label": [0, 7]}, UsageError, "label is 7; expected background, signal or unknown"),
        ({"process": ["a"]}, UsageError, "process has shape .1,.; expected one value"),
        ({"n_objects": [2, 1]}, UsageError, "types has 2 dimensions and n_objects is given"),
        (
            {name: GOOD[name][0] for name in ("types", "energy", "pt", "eta", "phi")},
            UsageError,
            "n_objects is not given",
        ),
    ],
)
def test_mistakes_are_named(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        EventSet.from_arrays(**GOOD | changes)


def test_flat_objects_must_add_up() -> None:
    flat = {name: GOOD[name][0] for name in ("types", "energy", "pt", "eta", "phi")}
    with pytest.raises(UsageError, match=r"n_objects: 3 objects in \(2,\) events; the arrays have 2"):
        EventSet.from_arrays(**GOOD | flat, n_objects=[1, 2])


def test_awkward_arrays_and_back(make_events: Callable[..., EventSet]) -> None:
    events = make_events(30)
    events = replace(events, further={"run": np.arange(len(events))})
    array = events.to_awkward()
    assert array.fields[-1] == "objects"
    assert EventSet.from_awkward(array, unit="MeV").equals(events)
    in_gev = events.to_awkward(unit="GeV")
    np.testing.assert_allclose(in_gev.met, events.met_mev / 1e3, rtol=1e-6)
    again = EventSet.from_awkward(in_gev[["met", "met_phi", "objects"]], unit="GeV")
    np.testing.assert_array_equal(again.tag, events.tag)
    np.testing.assert_allclose(again.energy_mev, events.energy_mev, rtol=1e-6)
    with pytest.raises(UsageError, match=r"no met_phi, eta .fields: met, objects.; expected met, met_phi and objects"):
        EventSet.from_awkward(
            ak.zip({"met": in_gev.met, "objects": in_gev.objects[["types", "energy", "pt", "phi"]]}, depth_limit=1),
            unit="GeV",
        )


def test_awkward_objects_are_momenta(make_events: Callable[..., EventSet]) -> None:
    vector = pytest.importorskip("vector")
    vector.register_awkward()
    events = load_sample("gluino")[:5]
    objects = events.to_awkward(unit="GeV").objects
    assert ak.sum(objects.pt * np.cosh(objects.phi - objects.phi)) == pytest.approx(events.sum_pt_mev.sum() / 1e3)
    assert ak.all(objects.px**2 + objects.py**2 - objects.pt**2 < 1e-2 * objects.pt**2)


def test_event_sets_are_joined_in_order(make_events: Callable[..., EventSet]) -> None:
    events = make_events(10)
    assert EventSet.concatenate([events[:4], events[4:].with_max_objects(25)]).max_objects == 25
    assert EventSet.concatenate([events[:4], events[4:]]).equals(events)
