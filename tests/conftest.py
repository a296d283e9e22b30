"""Events to test with: physical, varied, and the same every time."""

from __future__ import annotations

import os

# Before torch is imported, here and in the processes that tests start: one thread each, since tests run side by side,
# and the same number everywhere, since sums over another number of threads round differently.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from unmask.events.build import FlatEvents, to_event_set
from unmask.events.columns import Names
from unmask.events.event_set import EventSet


def _make_events(
    n_events: int = 50,
    *,
    seed: int = 0,
    processes: Sequence[str] = ("ttH", "ttW"),
    label: int = 0,
    file: str = "events.csv",
    max_objects: int = 12,
) -> EventSet:
    """Events with 0 to ``max_objects`` objects each; the processes take turns."""
    rng = np.random.default_rng(seed)
    n_objects = rng.integers(0, max_objects, n_events, endpoint=True)
    n = int(n_objects.sum())
    pt_mev = rng.uniform(2e4, 4e5, n)
    eta = rng.uniform(-2.5, 2.5, n)
    flat = FlatEvents(
        row=np.arange(n_events),
        event_id=rng.integers(0, 2**40, n_events),
        process_names=Names.of(processes[i % len(processes)] for i in range(n_events)),
        weight=rng.uniform(0.5, 2, n_events),
        met_mev=rng.uniform(1e4, 3e5, n_events),
        met_phi=rng.uniform(-np.pi, np.pi, n_events),
        n_objects=n_objects,
        tag=rng.integers(1, 8, n).astype(np.uint8),
        energy_mev=pt_mev * np.cosh(eta) * 1.01,
        pt_mev=pt_mev,
        eta=eta,
        phi=rng.uniform(-np.pi, np.pi, n),
    )
    return to_event_set(flat, file=file).with_label(label)


@pytest.fixture(scope="session")
def make_events() -> Callable[..., EventSet]:
    """``make_events(n_events, seed=, processes=, label=, file=, max_objects=)`` gives an EventSet."""
    return _make_events
