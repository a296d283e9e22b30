"""What an EventSet promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import pytest

from unmask.errors import UsageError
from unmask.events.build import FlatEvents, to_event_set
from unmask.events.columns import Names
from unmask.events.event_set import EventSet

MakeEvents = Callable[..., EventSet]


def test_slices_and_selections(make_events: MakeEvents) -> None:
    events = make_events(20)
    assert len(events[5:8]) == 3
    assert events[5:8].row.tolist() == [5, 6, 7]
    assert events[np.array([3, 1])].row.tolist() == [3, 1]
    assert events[events.row % 2 == 0].process.tolist() == ["ttH"] * 10
    assert np.array_equal(events[5:8].pt_mev, events.pt_mev[5:8])
    with pytest.raises(UsageError, match="sliced, not indexed"):
        events[3]  # type: ignore[index]


def test_chunks_and_concatenation_are_inverse(make_events: MakeEvents) -> None:
    events = make_events(20)
    chunks = list(events.chunks(6))
    assert [len(chunk) for chunk in chunks] == [6, 6, 6, 2]
    assert EventSet.concatenate(chunks).equals(events)
    assert not EventSet.concatenate(chunks[::-1]).equals(events)


def test_concatenation_joins_names(make_events: MakeEvents) -> None:
    first, second = make_events(4, processes=["a", "b"], file="1"), make_events(4, processes=["b", "c"], file="2")
    joined = EventSet.concatenate([EventSet.empty(), first, second])
    assert joined.process.tolist() == ["a", "b", "a", "b", "b", "c", "b", "c"]
    assert joined.file.tolist() == ["1"] * 4 + ["2"] * 4
    assert joined.process_names.counts() == {"a": 2, "b": 4, "c": 2}
    assert len(EventSet.concatenate([])) == 0


def test_further_columns_go_where_their_events_go(make_events: MakeEvents) -> None:
    data = replace(make_events(4), further={"run": np.arange(4), "nSV": np.array([0.5, 1.5, np.nan, 2.5])})
    joined = EventSet.concatenate([make_events(2), data[::-1][:3]])
    assert joined.further["run"].tolist() == [-1, -1, 3, 2, 1]  # unknown in events that do not bring one
    np.testing.assert_array_equal(joined.further["nSV"], [np.nan, np.nan, 2.5, np.nan, 1.5])
    assert joined.equals(joined[:])
    for other in ({}, {"run": np.arange(4)}, data.further | {"run": np.arange(1, 5)}):
        assert not data.equals(replace(data, further=other))
    with pytest.raises(UsageError, match="column run has 2 entries for 4 events"):
        replace(data, further={"run": np.arange(2)})


def test_every_array_is_read_only(make_events: MakeEvents) -> None:
    events = replace(make_events(3), further={"run": np.arange(3)})
    for field in fields(events):
        column = getattr(events, field.name)
        column = column["run"] if isinstance(column, dict) else column
        with pytest.raises(ValueError, match="read-only"):
            (column.code if isinstance(column, Names) else column)[:1] = 0
    with pytest.raises(AttributeError):
        events.row = events.event_id  # type: ignore[misc]


def test_columns_have_the_documented_types_and_shapes(make_events: MakeEvents) -> None:
    for events in (make_events(3), EventSet.empty()):
        n = len(events)
        assert events.row.dtype == events.event_id.dtype == np.int64
        assert (events.label.dtype, events.weight.dtype, events.n_dropped.dtype) == (np.int8, np.float64, np.int16)
        assert events.tag.dtype == np.uint8
        for name in ("energy_mev", "pt_mev", "eta", "phi"):
            assert getattr(events, name).dtype == np.float32
            assert getattr(events, name).shape == (n, 18)
        assert events.is_object.shape == (n, 18)
        assert events.n_objects.tolist() == events.is_object.sum(axis=1).tolist()
        assert len(events.process) == len(events.file) == len(events) == n


def test_a_column_of_the_wrong_shape_is_refused(make_events: MakeEvents) -> None:
    with pytest.raises(UsageError, match="column met_mev has 2 entries for 3 events"):
        replace(make_events(3), met_mev=np.zeros(2, np.float32))


@pytest.mark.parametrize("name", ["row", "process_names", "label", "weight", "tag", "phi", "n_dropped"])
def test_equality_sees_every_kind_of_column(make_events: MakeEvents, name: str) -> None:
    events = make_events(3)
    column = getattr(events, name)
    changed = Names.constant("other", 3) if isinstance(column, Names) else column + np.ones_like(column)
    assert not events.equals(replace(events, **{name: changed}))
    assert events.equals(make_events(3))


def test_equality_is_about_words_not_codes(make_events: MakeEvents) -> None:
    events = make_events(2, processes=["a", "b"])
    assert events.equals(replace(events, process_names=Names(np.array([1, 0], np.int32), ("b", "a"))))


def test_labels(make_events: MakeEvents) -> None:
    assert set(make_events(3).with_label(1).label) == {1}
    with pytest.raises(UsageError, match="label is 2"):
        make_events(3).with_label(2)


def test_repr_summarises(make_events: MakeEvents) -> None:
    text = repr(EventSet.concatenate([make_events(3, label=1), make_events(2, label=-1, processes=["data"])]))
    assert "5 events (3 signal, 2 unlabeled)" in text
    assert "processes: ttH 2, ttW 1, data 2" in text
    assert "events cut to 18 objects: 0" in text
    assert repr(EventSet.empty()) == "EventSet: no events"


def _one_row_each(tags: list[list[int]], pt_mev: list[list[float]]) -> EventSet:
    """Events of objects with these tags and momenta."""
    n, pt = len(tags), np.concatenate([np.asarray(some, np.float64) for some in pt_mev])
    flat = FlatEvents(
        row=np.arange(n),
        event_id=np.arange(n),
        process_names=Names.constant("x", n),
        weight=np.ones(n),
        met_mev=np.full(n, 1e5),
        met_phi=np.zeros(n),
        n_objects=np.array([len(some) for some in tags]),
        tag=np.concatenate([np.asarray(some, np.uint8) for some in tags]),
        energy_mev=pt,
        pt_mev=pt,
        eta=np.zeros(len(pt)),
        phi=np.zeros(len(pt)),
    )
    return to_event_set(flat, file="x")


def test_ht_is_the_sum_over_jets_and_b_jets() -> None:
    events = _one_row_each([[7, 1, 2, 1], []], [[1e4, 2e4, 4e4, 8e4], []])
    assert events.ht_mev.tolist() == [14e4, 0]
    assert events.tag[0, :5].tolist() == [1, 1, 2, 7, 0]
    assert events.pt_mev[0, :5].tolist() == [8e4, 2e4, 4e4, 1e4, 0]


def test_the_softest_objects_are_cut_whatever_their_tag() -> None:
    soft = [3e4 + 1e3 * i for i in range(18)]
    events = _one_row_each([[1, 2], [1] * 18 + [6], [4]], [[5e4, 6e4], [*soft, 2e5], [7e4]])
    assert events.n_dropped.tolist() == [0, 1, 0]
    assert events.tag[1].tolist() == [1] * 17 + [6]
    assert events.pt_mev[1].tolist() == [*sorted(soft, reverse=True)[:17], 2e5]
    assert events.pt_mev[0, :2].tolist() == [5e4, 6e4]
    assert events.pt_mev[2, 0] == 7e4


def test_objects_stay_in_their_event_whatever_their_tags() -> None:
    events = _one_row_each([[31, 8, 1], [9, 16]], [[3e4, 2e4, 1e4], [5e4, 6e4]])
    assert events.tag[:, :3].tolist() == [[1, 8, 31], [9, 16, 0]]
    assert events.pt_mev[:, :3].tolist() == [[1e4, 2e4, 3e4], [5e4, 6e4, 0]]
