"""The tokenizers that the contract suite runs over, and small events to run them on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from unmask.events.columns import Names
from unmask.events.event_set import EventSet
from unmask.events.objects import MAX_OBJECTS
from unmask.tokenizers.base import Tokenizer
from unmask.tokenizers.lookup_table import LookupTableTokenizer
from unmask.tokenizers.vqvae import VQVAE_TRAINING, VQVAETokenizer


def tiny_vqvae() -> VQVAETokenizer:
    """As small and as briefly trained as can be."""
    training = replace(VQVAE_TRAINING, max_epochs=2, batch_size=100, device="cpu")
    return VQVAETokenizer(16, latent=4, hidden=8, n_heads=2, n_blocks=1, training=training)


#: name -> makes a fresh, unfitted tokenizer; add a line to put another one through the suite.
TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "lookup table": LookupTableTokenizer,
    "lookup table, 7 bins of equal width": lambda: LookupTableTokenizer(7, edges="equal-width"),
    "lookup table, published": lambda: LookupTableTokenizer(6, edges="published:gluino"),
    "lookup table, explicit": lambda: LookupTableTokenizer(
        2, edges={"pt_mev": [5e4], "abs_eta": [0.9], "met_mev": [1e5]}
    ),
    "lookup table, few features": lambda: LookupTableTokenizer(features=("type", "pt"), met_phi=False),
    "lookup table, signed eta": lambda: LookupTableTokenizer(signed_eta=True),
    "VQ-VAE": tiny_vqvae,
}


def make_events(n_events: int, *, seed: int = 1, n_objects: int | None = None) -> EventSet:
    """Background events with 1 to 18 objects, in the order that readers give; zeros in the padding."""
    rng = np.random.default_rng(seed)
    shape = (n_events, MAX_OBJECTS)
    counts = rng.integers(1, MAX_OBJECTS + 1, n_events) if n_objects is None else np.full(n_events, n_objects)
    is_object = np.arange(MAX_OBJECTS) < counts[:, None]
    tag = np.where(is_object, np.sort(rng.integers(1, 8, shape), axis=1), 0).astype(np.uint8)
    pt = np.exp(rng.normal(11, 0.7, shape))
    eta = rng.normal(0, 1.3, shape)

    def padded(values: np.ndarray) -> np.ndarray:
        return np.where(is_object, values, 0).astype(np.float32)

    return EventSet(
        row=np.arange(n_events),
        event_id=rng.integers(0, 100, n_events),
        file_names=Names.of(f"{'ab'[i % 2]}.csv" for i in range(n_events)),
        process_names=Names.of(["ttH", "ttW", "ttZ"][i % 3] for i in range(n_events)),
        label=np.zeros(n_events, np.int8),
        weight=rng.exponential(1, n_events),
        met_mev=np.exp(rng.normal(11, 0.7, n_events)).astype(np.float32),
        met_phi=rng.uniform(-np.pi, np.pi, n_events).astype(np.float32),
        tag=tag,
        energy_mev=padded(pt * np.cosh(eta)),
        pt_mev=padded(pt),
        eta=padded(eta),
        phi=padded(rng.uniform(-np.pi, np.pi, shape)),
        n_dropped=np.zeros(n_events, np.int16),
    )


def with_junk_in_padding(events: EventSet) -> EventSet:
    """The same events, with values in the empty slots that no object can have."""
    junk = np.resize(np.array([np.nan, np.inf, -1e30, 7.5e4, 2.0], np.float32), events.tag.shape)
    columns = ("energy_mev", "pt_mev", "eta", "phi")
    return replace(events, **{name: np.where(events.is_object, getattr(events, name), junk) for name in columns})
