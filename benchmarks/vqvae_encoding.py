"""How many events a second the VQ-VAE tokenizer encodes, on one core.

The network has the published four-top sizes with 512 codes. It is not trained, which makes no difference to its speed,
but its codebook starts from the events as it does in training.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from benchmarks.timing import best_times
from unmask.events.event_set import SIGNAL
from unmask.io.sample import load_sample
from unmask.workflow.settings import load_settings

N_EVENTS = 20_000


def run() -> dict[str, float]:
    """Events a second, with torch held to one core."""
    torch.set_num_threads(1)
    sample = load_sample("four-top")
    background = sample[sample.label != SIGNAL]
    untrained = {"max_epochs": 1, "learning_rate": 0.0, "device": "cpu"}
    tokenizer = (
        load_settings("four-top-vq-512", {"tokenizer": {"training": untrained}}).new_tokenizer().fit(background[:1000])
    )
    events = background[np.resize(np.arange(len(background)), N_EVENTS)]
    (seconds,) = best_times(partial(tokenizer.encode, events))
    return {"events/s, 512 codes, one core (target at least 1e4)": N_EVENTS / seconds}
