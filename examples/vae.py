"""Bring your own detector: a variational autoencoder in plain torch on 15 numbers per event.

unmask data split sample:gluino --out events --seed 1
python examples/vae.py events/train.parquet events/test.parquet scores.parquet
unmask evaluate scores.parquet
"""

import sys

import numpy as np
import torch
from torch import Tensor, nn

from unmask import EventSet, read_events
from unmask.scores.score_table import Scores, write_scores


def features(events: EventSet) -> Tensor:
    """Numbers of objects by type; log of MET, HT and the pT of six leading objects: (n_events, 15)."""
    counts = [(events.tag == tag).sum(axis=1) for tag in range(1, 8)]
    pt = np.where(events.is_object, events.pt_mev, 0)  # padding may hold anything
    leading = -np.sort(-pt, axis=1)[:, :6]
    momenta = np.column_stack([events.met_mev, events.ht_mev, leading])
    return torch.tensor(np.column_stack([*counts, np.log1p(momenta / 10_000)]), dtype=torch.float32)


def loss(encoder: nn.Module, decoder: nn.Module, x: Tensor, noise: float) -> Tensor:
    """Squared error of the reconstruction plus Kullback-Leibler divergence of the latent numbers: (n_events,)."""
    mean, log_variance = encoder(x).chunk(2, dim=1)
    latent = mean + noise * torch.exp(log_variance / 2) * torch.randn_like(mean)
    divergence = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(1)
    return ((decoder(latent) - x) ** 2).sum(1) + divergence


def main(train_file: str, test_file: str, out: str, n_epochs: str = "20") -> None:
    """Learn from background events in one file, and score the events of another by the loss without noise."""
    torch.manual_seed(1)
    train, test = read_events(train_file), read_events(test_file)
    x = features(train)
    mean, std = x.mean(0), x.std(0).clamp_min(0.5)  # less would let rare types outweigh all else
    encoder = nn.Sequential(nn.Linear(15, 64), nn.SiLU(), nn.Linear(64, 2 * 6))
    decoder = nn.Sequential(nn.Linear(6, 64), nn.SiLU(), nn.Linear(64, 15))
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=2e-3)
    for _ in range(int(n_epochs)):
        for batch in ((x - mean) / std)[torch.randperm(len(x))].split(256):
            optimizer.zero_grad()
            loss(encoder, decoder, batch, noise=1.0).mean().backward()
            optimizer.step()
    with torch.inference_mode():
        score = loss(encoder, decoder, (features(test) - mean) / std, noise=0.0)
    write_scores(out, [Scores.of(test, score.double().numpy())])


if __name__ == "__main__":
    main(*sys.argv[1:])
