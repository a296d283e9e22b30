"""Events on which ONNX Runtime and torch must agree: random ones, and those at the edges of what there can be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from unmask.detectors import Detector
from unmask.events.event_set import EventSet
from unmask.events.objects import MAX_ENERGY_MEV

N_RANDOM = 300


def probe_events(detector: Detector, *, seed: int = 0) -> EventSet:
    """Events of the types and the size that a detector knows; pT, eta and MET are also at the edges of its tokens."""
    rng, n_slots = np.random.default_rng(seed), detector.schema_.max_objects
    tags = [one.tag for one in detector.schema_.types]
    edges = _edges(detector)
    n_objects = np.concatenate([rng.integers(0, n_slots, N_RANDOM, endpoint=True), [0, 0, n_slots, n_slots, n_slots]])
    n_objects = np.concatenate([n_objects, np.ones(len(tags), int), np.full(len(edges), n_slots)])
    n = len(n_objects)
    types = np.where(np.arange(n_slots) < n_objects[:, None], rng.choice(tags, (n, n_slots)), 0)
    pt, met = 2e4 * rng.pareto(2, (n, n_slots)) + 2e4, rng.exponential(1e5, n)
    eta, phi = rng.normal(0, 1.3, (n, n_slots)).clip(-5, 5), rng.uniform(-np.pi, np.pi, (n, n_slots))
    special = iter(range(N_RANDOM, n))
    met[next(special)] = 0
    met[next(special)] = 999.0
    phi[next(special)] = np.float32(np.pi)
    phi[next(special)] = -np.float32(np.pi)
    at = next(special)  # all in one place
    eta[at], phi[at], pt[at] = 1, 1, 5e4
    for tag, at in zip(tags, special, strict=False):
        types[at, 0] = tag
    for at, (pt_edge, eta_edge, met_edge) in zip(special, edges, strict=False):
        pt[at], eta[at], met[at] = pt_edge, eta_edge * np.where(np.arange(n_slots) % 2, 1, -1), met_edge
        phi[at] = np.pi * rng.integers(-12, 12, n_slots, endpoint=True) / 12
    pt, eta, phi = (
        values.astype(np.float32).astype(np.float64)
        for values in (pt.clip(1e3, MAX_ENERGY_MEV / 2 / np.cosh(eta)), eta, phi)
    )
    return EventSet.from_arrays(
        unit="MeV",
        types=types,
        energy=np.where(types, pt * np.cosh(eta) * rng.uniform(1, 1.1, (n, n_slots)), 0),
        pt=np.where(types, pt, 0),
        eta=np.where(types, eta, 0),
        phi=np.where(types, phi.clip(-np.pi, np.pi), 0),
        met=met,
        met_phi=phi[:, 0].clip(-np.pi, np.pi),
        max_objects=n_slots,
    )


def _edges(detector: Detector) -> Sequence[tuple[float, float, float]]:
    """pT, \\|eta\\| and MET at the edges of bins, and the next numbers on both sides."""
    edges: dict[str, npt.NDArray[np.float32]] = getattr(detector.tokenizer, "edges_", {})
    if not edges:
        return []
    columns = []
    for names, ordinary in ((("pt_mev",), 5e4), (("abs_eta", "eta"), 1.0), (("met_mev",), 1e5)):
        values = next((edges[name] for name in names if name in edges), np.array([ordinary], np.float32))
        columns.append(np.concatenate([values, *(np.nextafter(values, np.float32(to)) for to in (-1e9, 1e9))]))
    n = max(map(len, columns))
    return list(zip(*(np.resize(column, n).tolist() for column in columns), strict=True))
