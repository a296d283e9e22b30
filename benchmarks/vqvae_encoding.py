"""How many events a second the VQ-VAE tokenizer encodes on one core.

The network has the published four-top sizes with 512 codes. It is not trained, which makes no difference to its speed,
but its codebook starts from the events as it does in training.

    python benchmarks/vqvae_encoding.py
"""

from __future__ import annotations

import time

import numpy as np
import torch

from unmask.events.sample import load_sample
from unmask.tokenizers.vqvae import PUBLISHED_VQVAE, VQVAETokenizer
from unmask.training import TrainingSettings

N_EVENTS = 20_000
N_REPEATS = 5


def main() -> None:
    torch.set_num_threads(1)
    sample = load_sample("four-top")
    events = sample[sample.label != 1]
    untrained = TrainingSettings(max_epochs=1, learning_rate=0.0, optimizer="radam", device="cpu")
    tokenizer = VQVAETokenizer(**PUBLISHED_VQVAE["four-top", 512], training=untrained).fit(events[:1000])
    events = events[np.resize(np.arange(len(events)), N_EVENTS)]
    tokenizer.encode(events[:1000])
    seconds = []
    for _ in range(N_REPEATS):
        started = time.perf_counter()
        tokenizer.encode(events)
        seconds.append(time.perf_counter() - started)
    print(f"VQ-VAE encoding, 512 codes, one core: {N_EVENTS / min(seconds):,.0f} events/s (best of {N_REPEATS})")


if __name__ == "__main__":
    main()
