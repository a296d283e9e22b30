"""Something heavy added to background."""

import numpy as np
import pytest

from unmask import load_sample
from unmask.events.insertions import HEAVY, INSERTIONS, LIGHT, insert


@pytest.mark.parametrize("name", INSERTIONS)
def test_what_is_said_is_added(name: str) -> None:
    events = load_sample("gluino")
    events = events[events.label == 0][:400]
    what, odd = INSERTIONS[name], insert(events, name, seed=3)
    added = {1: what.n_jets, 2: what.n_b_jets, 7: what.n_photons}
    is_whole = events.n_objects + len(what.tags) <= 18  # no more fit into an event
    assert is_whole.mean() > 0.9
    for tag, n in added.items():
        assert ((odd.tag == tag).sum(1) - (events.tag == tag).sum(1))[is_whole].tolist() == [n] * is_whole.sum()
    leptons = [((e.tag >= 3) & (e.tag <= 6)).sum(1) for e in (events, odd)]
    assert (leptons[1] - leptons[0])[is_whole].tolist() == [what.n_leptons] * is_whole.sum()
    before, after = (e.met_mev * np.exp(1j * e.met_phi) for e in (events, odd))
    assert np.abs(after - before).mean() / 1e3 == pytest.approx(what.met_gev, rel=0.15, abs=0.01)
    np.testing.assert_array_equal(odd.label, events.label)
    assert (odd.energy_mev >= odd.pt_mev).all()


def test_instead_of_the_softest_jets() -> None:
    events = load_sample("gluino")
    events = events[events.label == 0][:400]
    odd = insert(events, "two b-jets", seed=3, instead=True)
    n_jets = (events.tag == 1).sum(axis=1)
    n_gone = np.minimum(n_jets, 2)
    assert (n_gone < 2).any()  # few jets, few to make way
    assert ((odd.tag == 1).sum(axis=1) == n_jets - n_gone).all()
    assert (odd.n_objects == events.n_objects + 2 - n_gone).all()
    assert (odd.n_b_jets == events.n_b_jets + 2).all()
    before, after = (np.sort(np.where(e.tag == 1, e.pt_mev, 0), axis=1)[:, ::-1] for e in (events, odd))
    stays = np.arange(18) < (n_jets - n_gone)[:, None]
    np.testing.assert_array_equal(after, np.where(stays, before, 0))  # the hardest


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
    assert (electron + muon).tolist() == (positron + antimuon).tolist() == [1] * len(events)
    for one, other in ((electron, positron), (electron, antimuon), (muon, positron), (muon, antimuon)):
        assert (one & other).mean() == pytest.approx(0.25, abs=0.08)
