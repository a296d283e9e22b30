"""A network on objects with and without the padding that events have, side by side on one core of a CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmarks.timing import best_times
from unmask.io.sample import load_sample
from unmask.networks.event_network import SetNetwork, make_event_network
from unmask.networks.event_tensors import EventTensors, event_tensors

_N_EVENTS = 1024


def run() -> dict[str, float]:
    """Events a second of training steps and of scores, and how many times as fast it is without padding."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        figures: dict[str, float] = {}
        for study in ("four-top", "gluino"):
            events = event_tensors(load_sample(study)[:_N_EVENTS])
            network = make_event_network("part-pairs", "light", n_out=1)
            assert isinstance(network, SetNetwork)
            network.measure(*events)
            for what, job in (("training", _train), ("scoring", torch.no_grad()(_score))):
                ours, padded = best_times(
                    partial(job, network.of_inputs, network, events),
                    partial(job, network.of_padded_inputs, network, events),
                    repeats=3,
                )
                figures[f"{study}, {what}: events/s"] = _N_EVENTS / ours
                figures[f"{study}, {what}: times with padding (target 1.5)"] = padded / ours
        return figures
    finally:
        torch.set_num_threads(n_threads)


def _score(outputs: Callable[[Tensor, Tensor], Tensor], network: SetNetwork, events: EventTensors) -> Tensor:
    return outputs(network.standardize(*events), events.types).mean()


def _train(outputs: Callable[[Tensor, Tensor], Tensor], network: SetNetwork, events: EventTensors) -> None:
    network.zero_grad()
    _score(outputs, network, events).backward()  # type: ignore[no-untyped-call]
