"""How many objects a second the look-up table turns into tokens, on one core."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.timing import best_times
from unmask.events.columns import Names
from unmask.events.event_set import EventSet
from unmask.events.objects import MAX_OBJECTS
from unmask.tokenizers.lookup_table import LookupTableTokenizer

N_EVENTS = 100_000


def make_events(n_events: int = N_EVENTS, seed: int = 1) -> EventSet:
    """Events with about nine objects each, of the size and spread of top-quark events."""
    rng = np.random.default_rng(seed)
    shape = (n_events, MAX_OBJECTS)
    is_object = np.arange(MAX_OBJECTS) < np.clip(rng.poisson(9, n_events), 1, MAX_OBJECTS)[:, None]
    pt_mev, eta, phi = (
        np.exp(rng.normal(11.1, 0.7, shape)),
        rng.normal(0, 1.3, shape),
        rng.uniform(-np.pi, np.pi, shape),
    )
    return EventSet(
        row=np.arange(n_events),
        event_id=np.arange(n_events),
        file_names=Names.constant("generated", n_events),
        process_names=Names.constant("generated", n_events),
        label=np.zeros(n_events, np.int8),
        weight=np.ones(n_events),
        met_mev=np.exp(rng.normal(11.3, 0.7, n_events)).astype(np.float32),
        met_phi=rng.uniform(-np.pi, np.pi, n_events).astype(np.float32),
        tag=np.where(is_object, np.sort(rng.integers(1, 8, shape), axis=1), 0).astype(np.uint8),
        energy_mev=np.where(is_object, pt_mev * np.cosh(eta), 0).astype(np.float32),
        pt_mev=np.where(is_object, pt_mev, 0).astype(np.float32),
        eta=np.where(is_object, eta, 0).astype(np.float32),
        phi=np.where(is_object, phi, 0).astype(np.float32),
        n_dropped=np.zeros(n_events, np.int16),
    )


def run() -> dict[str, float]:
    """Objects a second for 4, 5 and 6 bins; NumPy uses one core here."""
    events = make_events()
    n_objects = int(events.n_objects.sum())
    tokenizers = [LookupTableTokenizer(n_bins).fit(events) for n_bins in (4, 5, 6)]
    seconds = best_times(*(partial(tokenizer.encode, events) for tokenizer in tokenizers))
    return {
        f"objects/s, {tokenizer.n_codes} codes (target at least 5e6)": n_objects / best
        for tokenizer, best in zip(tokenizers, seconds, strict=True)
    }
