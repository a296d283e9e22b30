"""What the detectors share that put a network on whole events: its choice, its data, its scores."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unmask.artifacts import Json
from unmask.detectors.network import NetworkDetector
from unmask.events.event_set import EventSet
from unmask.events.fingerprints import fingerprint_of
from unmask.events.schema import EventSchema
from unmask.networks.event_network import BackboneName, EventNetwork, SizeName, make_event_network
from unmask.networks.event_tensors import EventTensors, event_tensors
from unmask.training import Reporter, Task, TrainingSettings, pick_device

#: Events that pass through a network at a time: pair features are 171 rows for each.
BATCH_EVENTS = 1 << 14


class EventNetworkDetector(NetworkDetector[EventNetwork]):
    """A detector with one of the networks of :mod:`unmask.networks.event_network`."""

    #: Events that the network was made for.
    schema_: EventSchema = EventSchema()
    #: Numbers that the network gives for an event, and whether it has biases.
    n_out: ClassVar[int] = 1
    biases: ClassVar[bool] = True

    def __init__(
        self, backbone: BackboneName, size: SizeName, dropout: float, training: TrainingSettings, seed: int | None
    ) -> None:
        self.backbone: BackboneName = backbone
        self.size: SizeName = size
        self.dropout = dropout
        super().__init__(training, seed)

    def _fit(self, train: EventSet, validation: EventSet, run_folder: Path | None, reporter: Reporter | None) -> None:
        self.schema_ = EventSchema.of(train, validation)
        train, validation = (self.schema_.admit(events, self.kind) for events in (train, validation))
        super()._fit(train, validation, run_folder, reporter)

    def _facts(self) -> dict[str, Json]:
        return super()._facts() | {"events": asdict(self.schema_)}

    def _restore(self, arrays: dict[str, npt.NDArray[Any]], facts: dict[str, Json]) -> None:
        self.schema_ = EventSchema.from_json(facts["events"])
        super()._restore(arrays, facts)

    def _new_network(self) -> EventNetwork:
        return make_event_network(
            self.backbone,
            self.size,
            n_out=self.n_out,
            schema=self.schema_,
            dropout=self.dropout,
            biases=self.biases,
        )

    def score_events(self, events: EventSet, *, device: str = "auto") -> npt.NDArray[np.float64]:
        self._check_fitted()
        return as_numbers(self._outputs(events, device))

    def _outputs(self, events: EventSet, device: str) -> Tensor:
        """Scores (n_events,) of the network, on its device, which may still be at work on them."""
        events = self.schema_.admit(events, f"{self.kind} detector")
        where = pick_device(device)
        network = self.network_.to(where)
        parts = [self._scores(network, *event_tensors(part).to(where)) for part in events.chunks(BATCH_EVENTS)]
        return torch.cat([torch.zeros(0, device=where), *parts])

    @staticmethod
    @torch.inference_mode()
    def _scores(network: EventNetwork, kinematics: Tensor, types: Tensor) -> Tensor:
        """Scores (batch,): here the one number that the network gives."""
        scores: Tensor = network(kinematics, types)[:, 0]
        return scores


def as_numbers(scores: Tensor) -> npt.NDArray[np.float64]:
    """Scores in memory; waits for the device."""
    return scores.cpu().double().numpy()


class EventTask(Task):
    """The network of a detector on events: their tensors, and what a run that is continued must share."""

    network: EventNetwork

    def __init__(
        self, network: EventNetwork, train: EventSet, validation: EventSet, detector: EventNetworkDetector
    ) -> None:
        self.network, self.train, self.validation = network, event_tensors(train), event_tensors(validation)
        self.n_train = len(train)
        network.measure(*self.train)
        # The loop compares the settings of the training itself.
        settings = {name: value for name, value in detector.settings().items() if name != "training"}
        self.identity = f"{json.dumps(settings)} {fingerprint_of(train, validation)} {network}"
        # The divergence rule compares losses on samples of equal size.
        drawn = np.random.default_rng(detector.training.seed).permutation(len(train))[: len(validation)]
        self.sample_index = torch.from_numpy(np.sort(drawn))

    def to(self, device: torch.device) -> None:
        self.network.to(device)
        self.train, self.validation = self.train.to(device), self.validation.to(device)
        self.sample_index = self.sample_index.to(device)


class BackgroundTask(EventTask):
    """A subclass says what the loss of some background events is."""

    @abstractmethod
    def loss(self, events: EventTensors) -> Tensor:
        """Mean loss of some events."""

    def training_loss(self, index: Tensor) -> Tensor:
        return self.loss(self.train.at(index))

    def evaluate(self) -> dict[str, float]:
        return {
            "training_loss": self._mean_loss(self.train.at(self.sample_index)),
            "validation_loss": self._mean_loss(self.validation),
        }

    def _mean_loss(self, events: EventTensors) -> float:
        n = len(events.types)
        parts = [self.loss(part).double() * len(part.types) for part in map(events.at, batches(n))]
        return float(torch.stack(parts).sum()) / n


def batches(n_events: int) -> Iterator[slice]:
    """Slices of so many events as pass through a network at a time."""
    for start in range(0, n_events, BATCH_EVENTS):
        yield slice(start, start + BATCH_EVENTS)
