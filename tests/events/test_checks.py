"""How bad events are told apart, reported and counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unmask.errors import BadDataError
from unmask.events.build import FlatEvents
from unmask.events.checks import BadEvents, check_events
from unmask.events.columns import Names


def good_events(n: int = 6) -> FlatEvents:
    """Events of two objects each."""
    return FlatEvents(
        row=np.arange(n),
        event_id=np.arange(n),
        process_names=Names.constant("x", n),
        weight=np.ones(n),
        met_mev=np.full(n, 1e5),
        met_phi=np.zeros(n),
        n_objects=np.full(n, 2),
        tag=np.ones(2 * n, np.uint8),
        energy_mev=np.full(2 * n, 1e5),
        pt_mev=np.full(2 * n, 9e4),
        eta=np.zeros(2 * n),
        phi=np.zeros(2 * n),
    )


def with_value(flat: FlatEvents, **values: tuple[int, float]) -> FlatEvents:
    changed = {}
    for name, (index, value) in values.items():
        changed[name] = getattr(flat, name).copy()
        changed[name][index] = value
    return replace(flat, **changed)


def check(flat: FlatEvents, bad: BadEvents) -> FlatEvents:
    return check_events(flat, path=Path("x.csv"), place=lambda i: f"line {i + 1}", bad=bad)


def test_good_events_pass_unchanged() -> None:
    flat = good_events()
    assert check(flat, BadEvents()) is flat


@pytest.mark.parametrize(
    ("name", "just_good", "just_bad"),
    [
        ("met_mev", 0.0, -1e-3),
        ("met_mev", 14e6, 14.1e6),
        ("met_phi", np.pi, 3.15),
        ("met_phi", -np.pi, -3.15),
        ("phi", 3.1416, 3.15),
        ("eta", 0.9, 10.1),
        ("pt_mev", 1e3, 999.0),
        ("energy_mev", 14e6 / 2, 14.1e6),
        ("energy_mev", 0.51 * 9e4, 0.49 * 9e4),
        ("energy_mev", 99 * 9e4, 101 * 9e4),
        ("weight", -1e9, np.inf),
        ("weight", 0.0, 1e300),
        ("weight", 1e-90, 1e-300),
    ],
)
def test_limits(name: str, just_good: float, just_bad: float) -> None:
    flat = good_events()
    assert len(check(with_value(flat, **{name: (3, just_good)}), BadEvents())) == 6
    with pytest.raises(BadDataError, match=f"{name} is"):
        check(with_value(flat, **{name: (3, just_bad)}), BadEvents())


def test_the_first_bad_event_of_the_file_is_the_one_reported() -> None:
    flat = with_value(good_events(), met_mev=(4, -1.0), phi=(3, 9.0))
    with pytest.raises(BadDataError, match=r"x\.csv, line 2: phi is 9; accepted: -pi to pi"):
        check(flat, BadEvents())


def test_an_event_with_two_faults_is_counted_once() -> None:
    flat = with_value(good_events(), met_mev=(2, np.nan), phi=(5, 9.0), eta=(4, 11.0), pt_mev=(11, -1.0))
    bad = BadEvents(skip=True)
    kept = check(flat, bad)
    assert kept.row.tolist() == [0, 1, 3, 4]
    assert len(kept.pt_mev) == 8
    assert bad.reasons == {"bad MET": 1, "bad pT": 1}
    assert bad.n_skipped == 2


def test_a_reason_is_summarised_with_its_count_and_first_example() -> None:
    bad = BadEvents(skip=True)
    flat = good_events()
    check(replace(flat, phi=np.where(np.arange(12) >= 6, 9.0, 0.0)), bad)
    check(with_value(flat, weight=(0, np.nan)), bad)
    assert bad.summary() == [
        "3 x bad phi (first: x.csv, line 4: phi is 9; accepted: -pi to pi)",
        "1 x bad weight (first: x.csv, line 1: weight is nan; accepted: 0, or a number of size 1e-100 to 1e100)",
    ]


def test_all_events_may_be_bad() -> None:
    bad = BadEvents(skip=True)
    assert len(check(replace(good_events(), met_mev=np.full(6, np.nan)), bad)) == 0
    assert bad.n_skipped == 6


def test_small_met_is_a_unit_fault_only_when_it_is_the_rule() -> None:
    flat = good_events(40)
    assert len(check(with_value(flat, met_mev=(0, 90.0)), BadEvents())) == 40
    assert len(check(replace(good_events(10), met_mev=np.full(10, 90.0)), BadEvents())) == 10
    assert len(check(replace(flat, met_mev=np.zeros(40)), BadEvents())) == 40
    with pytest.raises(BadDataError, match=r"40 of 40 events with MET .* \(median 90 MeV\), and 0 from 1 to 3"):
        check(replace(flat, met_mev=np.full(40, 90.0)), BadEvents())


def test_met_in_another_unit_in_part_of_the_events() -> None:
    rng = np.random.default_rng(1)
    met = np.hypot(*rng.normal(0, 2e4, (2, 20_000)))  # as resolution makes it: some 20 events below 1 GeV
    flat = replace(good_events(20_000), met_mev=met)
    assert len(check(flat, BadEvents())) == 20_000
    mixed = np.where(np.arange(20_000) % 20, met, met / 1e3)
    with pytest.raises(BadDataError, match="MET and pT must be in the same unit"):
        check(replace(flat, met_mev=mixed), BadEvents())


def test_nothing_warns_whatever_the_values() -> None:
    # Warnings are errors here: a NaN, an infinity or an overflow must break a rule, silently.
    for value in (np.nan, np.inf, -np.inf, 1e308, -1e308):
        for name in ("energy_mev", "pt_mev", "eta", "phi", "met_mev", "met_phi"):
            bad = BadEvents(skip=True)
            assert len(check(with_value(good_events(), **{name: (2, value)}), bad)) == 5
