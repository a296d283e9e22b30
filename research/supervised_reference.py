"""Supervised reference: a network like that of the default, trained with labels of the signal that it is tested on.

No detector of the unknown: it shows how much there is to find. Labelled events, signal too, are split 80/10/10 for
training, for the choice of the epoch, and for the scores that are written:

python research/supervised_reference.py events.parquet scores.parquet
unmask evaluate scores.parquet
"""

import argparse
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask import read_events
from unmask.events.splits import Splitter
from unmask.networks.event_network import make_event_network
from unmask.networks.event_tensors import event_tensors
from unmask.scores.score_table import Scores, write_scores

parser = argparse.ArgumentParser(description="Write scores of a classifier trained with labels.")
parser.add_argument("events")
parser.add_argument("out")
parser.add_argument("--size", default="light")
parser.add_argument("--epochs", type=int, default=10)
options = parser.parse_args()

torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
events = read_events(options.events)
split = Splitter(seed=1).assign(events.with_label(0))
parts = [events[split == i] for i in range(3)]
train, validation, test = (event_tensors(part).to(device) for part in parts)
is_signal, is_validation_signal = (torch.tensor(part.label == 1, device=device) for part in parts[:2])
shape = {"n_out": 1}
network = make_event_network("part-pairs", options.size, dropout=0.1, **shape).to(device)
network.measure(*train)


def loss(logit: Tensor, is_signal: Tensor) -> Tensor:
    """Cross-entropy with both classes of the same weight."""
    return (F.softplus(-logit[is_signal]).mean() + F.softplus(logit[~is_signal]).mean()) / 2


optimizer = torch.optim.Adam(network.parameters(), lr=5e-4)
best, kept = float("inf"), deepcopy(network)
for epoch in range(options.epochs):
    network.train()
    for index in torch.randperm(len(is_signal), device=device).split(512):
        optimizer.zero_grad()
        loss(network(*train.at(index))[:, 0], is_signal[index]).backward()
        optimizer.step()
    with torch.no_grad():
        found = float(loss(network.eval()(*validation)[:, 0], is_validation_signal))
    print(f"epoch {epoch + 1}: validation loss {found:.4f}")
    if found < best:
        best, kept = found, deepcopy(network)
with torch.inference_mode():
    score = torch.cat([kept.eval()(*test.at(index))[:, 0] for index in torch.arange(len(parts[2])).split(1000)])
write_scores(options.out, [Scores.of(parts[2], score.double().cpu().numpy())])
