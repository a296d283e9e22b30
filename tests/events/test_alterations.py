"""Background changed at random."""

import numpy as np
import pytest

from unmask import load_sample
from unmask.events.alterations import alter
from unmask.events.distortions import rebuilt, scaled
from unmask.events.event_set import EventSet
from unmask.events.insertions import LEAST_PT_MEV, insert


@pytest.fixture(scope="module")
def events() -> EventSet:
    events = load_sample("gluino")
    return events[(events.label == 0) & (events.n_objects <= 10)][:4000]


def test_every_event_is_changed_in_one_way_or_several(events: EventSet) -> None:
    odd = alter(events, seed=1)
    is_more = odd.n_objects > events.n_objects
    has_other_types = (odd.tag != events.tag).any(axis=1) & ~is_more
    has_other_met = ~np.isclose(odd.met_mev, events.met_mev, rtol=1e-6)
    has_other_momenta = ~np.isclose(odd.ht_mev, events.ht_mev, rtol=1e-6)
    # What became what it was, or a jet in the place of a jet as hard, is rare.
    assert (is_more | has_other_types | has_other_met | has_other_momenta).mean() > 0.98
    # More objects: in half of the events some are added, in half of these in the place of jets, of which there are few.
    assert 0.3 < is_more.mean() < 0.5
    assert 0.7 < has_other_met.mean() < 0.8  # by invisible particles, or by the factor of all momenta
    assert (odd.n_objects >= events.n_objects).all()
    np.testing.assert_array_equal(odd.label, events.label)
    np.testing.assert_array_equal(odd.row, events.row)


def test_each_type_comes_in_and_is_as_hard_as_it_has_to_be(events: EventSet) -> None:
    odd = alter(events, seed=1)
    for tag in range(1, 8):
        assert (odd.tag == tag).sum() > (events.tag == tag).sum()
    assert (odd.pt_mev >= LEAST_PT_MEV[odd.tag] * (1 - 1e-6)).all()
    assert (odd.energy_mev >= odd.pt_mev * (1 - 1e-6)).all()
    charge = np.where((odd.tag >= 3) & (odd.tag <= 6), np.where(odd.tag % 2 == 0, 1, -1), 0).sum(axis=1)
    assert (np.abs(charge) >= 2).mean() > 0.1  # like charges, too


def test_what_cannot_become_harder_keeps_its_direction(events: EventSet) -> None:
    hardest = rebuilt(events, scaled(events, np.full(events.pt_mev.shape, 1e9)))
    odd = alter(hardest, seed=1)
    assert (odd.energy_mev >= 0.999 * odd.pt_mev * np.cosh(odd.eta)).all()


def test_the_seed_decides_and_full_events_stay_full() -> None:
    events = load_sample("four-top")[:500]
    one, same, other = (alter(events, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.pt_mev, same.pt_mev)
    assert not np.array_equal(one.pt_mev, other.pt_mev)
    full = events
    for _ in range(3):
        full = insert(full, "of everything", seed=1)
    assert (full.n_objects == 18).all()
    assert (alter(full, seed=1).n_objects == 18).all()
    assert len(alter(events[:0], seed=1)) == 0
