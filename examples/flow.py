"""Bring your own detector: a normalizing flow of zuko on 15 numbers per event.

unmask data split sample:gluino --out events --seed 1
python examples/flow.py events/train.parquet events/test.parquet scores.parquet
unmask evaluate scores.parquet
"""

import sys

import numpy as np
import torch
import zuko
from torch import Tensor

from unmask import EventSet, read_events
from unmask.scores.score_table import Scores, write_scores


def features(events: EventSet) -> Tensor:
    """Numbers of objects by type; log of MET, HT and the pT of six leading objects: (n_events, 15)."""
    counts = [(events.tag == tag).sum(axis=1) for tag in range(1, 8)]
    pt = np.where(events.is_object, events.pt_mev, 0)  # padding may hold anything
    leading = -np.sort(-pt, axis=1)[:, :6]
    momenta = np.column_stack([events.met_mev, events.ht_mev, leading])
    return torch.tensor(np.column_stack([*counts, np.log1p(momenta / 10_000)]), dtype=torch.float32)


def main(train_file: str, test_file: str, out: str, n_epochs: str = "20") -> None:
    """Learn the density of background events in one file, and score the events of another by minus its logarithm."""
    torch.manual_seed(1)
    train, test = read_events(train_file), read_events(test_file)
    x = features(train)
    mean, std = x.mean(0), x.std(0).clamp_min(0.5)  # less would let rare types outweigh all else
    flow = zuko.flows.NSF(x.shape[1], transforms=3, hidden_features=(64, 64))
    optimizer = torch.optim.Adam(flow.parameters(), lr=2e-3)
    for _ in range(int(n_epochs)):
        for batch in ((x - mean) / std)[torch.randperm(len(x))].split(256):
            # Counts have no width, so that a density could grow without limit there: noise gives them one.
            loss = -flow().log_prob(batch + 0.3 * torch.randn_like(batch)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.inference_mode():
        score = -flow().log_prob((features(test) - mean) / std)
    write_scores(out, [Scores.of(test, score.double().numpy())])


if __name__ == "__main__":
    main(*sys.argv[1:])
