"""The split: exact, seeded, and blind to chunking and to other files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import UsageError
from unmask.events.columns import Names
from unmask.events.event_set import EventSet
from unmask.events.splits import Splitter, split_background

MakeEvents = Callable[..., EventSet]


def assign_split(events: EventSet, **options: Any) -> npt.NDArray[np.int8]:
    return Splitter(**options).assign(events)


def test_proportions_are_exact_for_every_process(make_events: MakeEvents) -> None:
    events = make_events(3000, processes=["a", "b", "b", "b"], max_objects=1)
    for part, share in zip(split_background(events, seed=3), (0.8, 0.1, 0.1), strict=True):
        counts = part.process_names.counts()
        assert counts["a"] == pytest.approx(750 * share, abs=1)
        assert counts["b"] == pytest.approx(2250 * share, abs=1)


def test_parts_are_disjoint_and_complete_and_in_order(make_events: MakeEvents) -> None:
    events = make_events(200)
    parts = split_background(events, seed=1)
    rows = np.concatenate([part.row for part in parts])
    assert sorted(rows) == list(range(200))
    for part in parts:
        assert (np.diff(part.row) > 0).all()
        assert part.equals(events[part.row])


def test_the_seed_decides(make_events: MakeEvents) -> None:
    events = make_events(1000, max_objects=1)
    assert np.array_equal(assign_split(events, seed=5), assign_split(events, seed=5))
    agreement = np.mean(assign_split(events, seed=5) == assign_split(events, seed=6))
    # Two unrelated 80/10/10 splits agree on 0.8^2 + 2 * 0.1^2 = 66 % of the events.
    assert agreement == pytest.approx(0.66, abs=0.06)


def test_the_split_of_a_seed_never_changes(make_events: MakeEvents) -> None:
    # Stored studies rely on it: these values may only change with the format of everything derived from them.
    split = assign_split(make_events(30, processes=["ttH"], max_objects=1), seed=1)
    assert "".join(map(str, split)) == "020000010020000000012100000000"


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    percent=st.sampled_from([(80, 10, 10), (33, 33, 34), (100, 0, 0)]),
)
def test_chunking_does_not_matter(make_events: MakeEvents, sizes: list[int], percent: tuple[int, int, int]) -> None:
    fractions = (percent[0] / 100, percent[1] / 100, percent[2] / 100)
    events = make_events(sum(sizes), processes=["a", "b", "a"], max_objects=1)
    splitter = Splitter(seed=2, fractions=fractions)
    bounds = np.cumsum([0, *sizes])
    pieces = [splitter.assign(events[a:b]) for a, b in pairwise(bounds)]
    assert np.array_equal(np.concatenate(pieces), assign_split(events, seed=2, fractions=fractions))


def test_other_files_and_processes_do_not_matter(make_events: MakeEvents) -> None:
    mine = make_events(100, processes=["a", "b"], file="mine.csv")
    other = make_events(33, processes=["c", "a"], file="other.csv")
    both = EventSet.concatenate([other, mine])
    assert np.array_equal(assign_split(both, seed=4)[33:], assign_split(mine, seed=4))
    only_b = mine[mine.process == "b"]
    assert np.array_equal(assign_split(mine, seed=4)[mine.process == "b"], assign_split(only_b, seed=4))


def test_every_place_in_a_block_goes_everywhere(make_events: MakeEvents) -> None:
    split = assign_split(make_events(20_000, processes=["a"], max_objects=1), seed=0).reshape(-1, 10)
    assert (np.sort(split, axis=1) == [0] * 8 + [1, 2]).all()
    for code in (1, 2):
        # 2000 blocks: each place is taken 200 times, give or take 5 standard deviations.
        assert np.count_nonzero(split == code, axis=0) == pytest.approx(np.full(10, 200), abs=67)


def test_processes_are_split_independently(make_events: MakeEvents) -> None:
    a, b = (assign_split(make_events(1000, processes=[name], max_objects=1)) for name in "ab")
    assert np.mean(a == b) == pytest.approx(0.66, abs=0.06)


@pytest.mark.parametrize(
    "fractions", [(0.5, 0.25, 0.25), (0.6, 0.2, 0.2), (0.98, 0.01, 0.01), (0.9, 0.0, 0.1), (1, 0, 0)]
)
def test_other_fractions(make_events: MakeEvents, fractions: tuple[float, float, float]) -> None:
    events = make_events(400, processes=["a"], max_objects=1)
    parts = split_background(events, fractions=fractions)
    assert [len(part) for part in parts] == [round(400 * fraction) for fraction in fractions]


@pytest.mark.parametrize(
    "fractions",
    [
        (0.8, 0.1, 0.2),
        (0.8, 0.1, 0.05),
        (1.1, -0.1, 0.0),
        (0.125, 0.125, 0.75),
        (0.5, 0.5),
        (np.nan, 0.5, 0.5),
        (np.inf, 0, 0),
    ],
)
def test_unusable_fractions(make_events: MakeEvents, fractions: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="whole percent"):
        split_background(make_events(10), fractions=fractions)  # type: ignore[arg-type]


def test_signal_is_never_split(make_events: MakeEvents) -> None:
    events = replace(make_events(10), label=np.array([0, -1] * 4 + [1, 1], np.int8))
    with pytest.raises(UsageError, match=r"2 of 10 events are labeled signal; .*all signal events are test events"):
        split_background(events)
    split = Splitter().assign(events)
    assert split[8:].tolist() == [2, 2]
    assert np.array_equal(split[:8], assign_split(events[:8]))
    assert sum(map(len, split_background(events[:8]))) == 8


def test_signal_among_background_does_not_matter(make_events: MakeEvents) -> None:
    events = make_events(300, processes=["a"], max_objects=1)
    is_signal = np.random.default_rng(0).random(300) < 0.3
    mixed = replace(events, label=is_signal.astype(np.int8))
    assert set(assign_split(mixed)[is_signal]) == {2}
    assert np.array_equal(assign_split(mixed)[~is_signal], assign_split(events[~is_signal]))


def test_no_events() -> None:
    assert [len(part) for part in split_background(EventSet.empty())] == [0, 0, 0]


def test_many_processes_are_fast(make_events: MakeEvents) -> None:
    events = make_events(20_000, processes=["a"], max_objects=1)
    events = replace(events, process_names=Names.of(str(i % 500) for i in range(20_000)))
    split = assign_split(events)
    assert np.bincount(split).tolist() == [16_000, 2000, 2000]


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8), keep=st.booleans())
def test_equal_events_share_a_split_whatever_the_chunking(
    make_events: MakeEvents, sizes: list[int], keep: bool
) -> None:
    n = sum(sizes)
    source = np.random.default_rng(n).integers(0, max(n // 2, 1), n)  # each event about twice
    events = make_events(n, max_objects=1)[source]
    events = replace(events, row=np.arange(n), label=(source % 5 == 0).astype(np.int8))
    splitter = Splitter(seed=2, keep_duplicates=keep)
    bounds = np.cumsum([0, *sizes])
    split = np.concatenate([splitter.assign(events[a:b]) for a, b in pairwise(bounds)])
    distinct, first = np.unique(source, return_index=True)
    once = np.sort(first)
    assert np.array_equal(split[once], assign_split(events[once], seed=2))
    if keep:
        assert all(len(set(split[source == one])) == 1 for one in distinct)
    else:
        assert np.array_equal(np.flatnonzero(split >= 0), once)
    n_repeated = n - len(once)
    assert [f"{n_repeated:,} of {n:,} events repeat earlier ones" in text for text in splitter.notes()] == [
        True
    ] * bool(n_repeated)


def test_in_python_repeated_events_give_a_warning(make_events: MakeEvents) -> None:
    events = make_events(100)
    twice = EventSet.concatenate([events, events[:30]])
    with pytest.warns(UserWarning, match="30 of 130 events repeat earlier ones"):
        parts = split_background(twice, seed=1)
    assert all(part.equals(other) for part, other in zip(parts, split_background(events, seed=1), strict=True))
