"""Background events changed at random, in many ways at once: what a classifier can learn to tell from background."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from unmask.events.distortions import scaled
from unmask.events.event_set import EventSet
from unmask.events.insertions import LEAST_PT_MEV, LEPTON, TAGS, is_softest_jet, new_objects, put_together

#: At most so many objects are added to an event, or renamed.
_MAX_ADDED, _MAX_RENAMED = 8, 3
#: How events differ in what they get: Dirichlet's parameters of jets, b-jets, leptons and photons.
_CONCENTRATION = (0.7, 0.5, 0.5, 0.15)
#: Limits of what the mean pT of added objects above threshold, and the mean of added MET, are drawn from.
_PT_MEV, _MET_MEV = (20e3, 300e3), (30e3, 400e3)
#: Width of the logarithm of what momenta are multiplied by.
_SCALE = 0.6
#: Of each change.
_PROBABILITY = 0.5


def alter(events: EventSet, *, seed: int) -> EventSet:
    """Change every event at random; labels and weights stay.

    Each of four changes is made with a probability of one half, and at least one of them: one to eight objects are
    added, in half of the events in the place of as many of the softest jets without b-tag; one to three objects become
    others; all momenta are multiplied by a number larger than 1; an invisible particle is added to the MET. How hard
    the new is, and of which types it is rather than of others, is drawn anew for each event.

    >>> from unmask import load_sample
    >>> events = load_sample("gluino")[:100]
    >>> changed = alter(events, seed=1)
    >>> bool((changed.ht_mev != events.ht_mev).mean() > 0.5), bool((changed.n_objects < events.n_objects).any())
    (True, False)
    """
    rng, n = np.random.default_rng(seed), len(events)
    is_made = rng.random((n, 4)) < _PROBABILITY
    is_made[np.arange(n), rng.integers(4, size=n)] |= ~is_made.any(axis=1)
    adds, renames, scales, hides = is_made.T
    preference = rng.dirichlet(_CONCENTRATION, n)

    n_added = np.where(adds, rng.integers(1, _MAX_ADDED + 1, n), 0)
    is_added = np.arange(_MAX_ADDED) < n_added[:, None]
    added = new_objects(_types(preference, _MAX_ADDED, rng), _log_uniform(*_PT_MEV, n, rng)[:, None], rng)
    added["tag"] = np.where(is_added, added["tag"], 0)

    n_gone = np.where(rng.random(n) < 0.5, n_added, 0)
    tag = np.where(is_softest_jet(events, n_gone), 0, events.tag)
    n_renamed = np.where(renames, rng.integers(1, _MAX_RENAMED + 1, n), 0)
    rank = np.where(tag > 0, rng.random(tag.shape), 2.0).argsort(axis=1).argsort(axis=1)
    other = _types(preference, tag.shape[1], rng)
    other = np.where(other == LEPTON, rng.integers(3, 7, tag.shape), other)
    new_tag = np.where((tag > 0) & (rank < n_renamed[:, None]), other, tag)
    factor = np.where(scales, np.exp(np.abs(rng.normal(0, _SCALE, n))), 1.0)
    # What becomes another type is at least as hard as one of that type would have to be.
    least = np.where(new_tag == tag, 0.0, LEAST_PT_MEV[new_tag] / np.maximum(events.pt_mev, 1))
    columns = scaled(events, np.maximum(factor[:, None], least)) | {"tag": new_tag}

    invisible = np.where(hides, rng.gamma(2, _log_uniform(*_MET_MEV, n, rng) / 2), 0.0)
    return put_together(events, columns, added, invisible, rng, met_mev=events.met_mev * factor)


def _types(preference: npt.NDArray[np.float64], n_objects: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Tags (n_events, n_objects), drawn by each event's preference of :data:`~unmask.events.insertions.TAGS`."""
    drawn = rng.random((len(preference), n_objects, 1)) > preference.cumsum(axis=1)[:, None, :-1]
    return np.asarray(np.array(list(TAGS.values()))[drawn.sum(axis=2)])


def _log_uniform(low: float, high: float, n: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    return np.exp(rng.uniform(np.log(low), np.log(high), n))
