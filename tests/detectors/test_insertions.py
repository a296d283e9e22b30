"""Something heavy added to background."""

import numpy as np
import pytest

from unmask import load_sample
from unmask.detectors.insertions import HEAVY, INSERTIONS, LIGHT, insert


@pytest.mark.parametrize("name", INSERTIONS)
def test_what_is_said_is_added(name: str) -> None:
    events = load_sample("gluino")
    events = events[events.label == 0][:400]
    what, odd = INSERTIONS[name], insert(events, name, seed=3)
    assert (events.n_objects + len(what.tags) <= 18).mean() > 0.9  # no more fit into an event
    for tags, n in (((1,), what.n_jets), ((2,), what.n_b_jets), ((7,), what.n_photons), ((3, 4, 5, 6), what.n_leptons)):
        gained = np.isin(odd.tag, tags).sum(1) - np.isin(events.tag, tags).sum(1)
        # Where there is no place for all of them, some are lost.
        assert (gained == n).mean() > 0.85
    if what.met_gev:
        assert np.median(odd.met_mev) > np.median(events.met_mev) + 300 * what.met_gev
    np.testing.assert_array_equal(odd.label, events.label)
    assert (odd.energy_mev >= odd.pt_mev).all()


def test_instead_of_the_softest_jets() -> None:
    events = load_sample("gluino")
    events = events[events.label == 0][:400]
    odd = insert(events, "two b-jets", seed=3, instead=True)
    n_jets = (events.tag == 1).sum(axis=1)
    n_gone = np.minimum(n_jets, 2)
    assert (n_gone < 2).any()  # few jets, few to make way
    np.testing.assert_array_equal((odd.tag == 1).sum(axis=1), n_jets - n_gone)
    assert (odd.n_b_jets == events.n_b_jets + 2).mean() > 0.95


def test_heavy_is_harder_than_light_and_the_seed_decides() -> None:
    events = load_sample("four-top")[:300]
    added_ht = {
        name: (insert(events, name, seed=1).ht_mev - events.ht_mev).mean()
        for name in ("two jets and two b-jets", "heavy: jets and four b-jets")
    }
    assert added_ht["heavy: jets and four b-jets"] > 2 * added_ht["two jets and two b-jets"]
    assert not set(LIGHT) & set(HEAVY)
    one, same, other = (insert(events, "MET", seed=seed).met_mev for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("name", [name for name, what in INSERTIONS.items() if what.n_leptons == 2])
def test_a_pair_of_leptons_has_opposite_charges_of_any_flavours(name: str) -> None:
    events = load_sample("gluino")
    events = events[(events.label == 0) & (events.n_objects <= 10)][:400]
    odd = insert(events, name, seed=3)
    electron, positron, muon, antimuon = (
        (odd.tag == tag).sum(axis=1) - (events.tag == tag).sum(axis=1) for tag in (3, 4, 5, 6)
    )
    assert (((electron + muon) == 1) & ((positron + antimuon) == 1)).mean() > 0.95
    for one, other in ((electron, positron), (electron, antimuon), (muon, positron), (muon, antimuon)):
        assert (one & other).mean() == pytest.approx(0.25, abs=0.08)
