"""Each distortion does what it says, and nothing else."""

import numpy as np
import pytest

from unmask import load_sample
from unmask.events.distortions import DISTORTIONS, distort
from unmask.events.event_set import EventSet


@pytest.fixture(scope="module")
def events() -> EventSet:
    return load_sample("four-top")[:500]


@pytest.mark.parametrize("name", DISTORTIONS)
def test_events_stay_events(events: EventSet, name: str) -> None:
    odd = distort(events, name, seed=1)
    assert odd.equals(distort(events, name, seed=1))
    assert not odd.equals(events)
    np.testing.assert_array_equal(odd.row, events.row)
    np.testing.assert_array_equal(odd.label, events.label)
    assert (np.diff(np.where(odd.is_object, odd.tag, 8).astype(int), axis=1) >= 0).all()  # ordered by tag, padding last
    same_tag = (odd.tag[:, 1:] == odd.tag[:, :-1]) & odd.is_object[:, 1:]
    assert (odd.pt_mev[:, 1:] <= odd.pt_mev[:, :-1])[same_tag].all()


def test_what_each_changes(events: EventSet) -> None:
    n = events.n_objects
    added = np.minimum(distort(events, "add", seed=1).n_objects, 18) - n
    assert set(added[n < 15]) == {1, 2, 3}
    removed = n - distort(events, "remove", seed=1).n_objects
    assert set(removed) == {1, 2, 3}
    np.testing.assert_allclose(distort(events, "more-met", seed=1).met_mev, 2 * events.met_mev)
    np.testing.assert_array_equal(distort(events, "more-met", seed=1).pt_mev, events.pt_mev)
    np.testing.assert_allclose(distort(events, "harder", seed=1).pt_mev, 1.5 * events.pt_mev, rtol=1e-6)
    retagged = distort(events, "retag", seed=1)
    counts = [np.stack([(one.tag == tag).sum(1) for tag in range(1, 8)]) for one in (events, retagged)]
    np.testing.assert_array_equal(np.abs(counts[0] - counts[1]).sum(0), 2)
    np.testing.assert_array_equal(distort(events, "mix", seed=1).n_objects, n)
    assert not np.array_equal(distort(events, "smear", seed=1).pt_mev, events.pt_mev)
