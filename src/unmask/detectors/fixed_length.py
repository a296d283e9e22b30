"""What detectors share that train a network on the fixed-length features of an event."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unmask.artifacts import Json
from unmask.detectors.event_features import EventFeatures, FeatureKind
from unmask.detectors.network import NetworkDetector
from unmask.events.event_set import EventSet
from unmask.events.fingerprints import fingerprint_of
from unmask.networks.fixed_length import FixedLengthNetwork
from unmask.training import Reporter, Task

Network = TypeVar("Network", bound=FixedLengthNetwork)

#: Events that pass through a network at a time: a flow makes a thousand numbers of each, several times.
_BATCH_EVENTS = 8192


class FixedLengthDetector(NetworkDetector[Network]):
    """A network on :class:`~unmask.detectors.event_features.EventFeatures`; a subclass says which network."""

    features: FeatureKind
    features_: EventFeatures

    def _fit(self, train: EventSet, validation: EventSet, run_folder: Path | None, reporter: Reporter | None) -> None:
        self.features_ = EventFeatures.fit(train, self.features)
        super()._fit(train, validation, run_folder, reporter)

    def _new_task(self, network: Network, train: EventSet, validation: EventSet) -> Task:
        identity = f"{self.features} {fingerprint_of(train, validation)} {network}"
        of = self.features_.of
        return FixedLengthTask(network, of(train), of(validation), self.training.seed, identity)

    def score_events(self, events: EventSet, *, device: str = "auto") -> npt.NDArray[np.float64]:
        self._check_fitted()
        if not len(events):
            return np.zeros(0)  # zuko cannot
        return self._in_batches((self.features_.of(events),), _score, device, _BATCH_EVENTS).astype(np.float64)

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        return super()._arrays() | self.features_.arrays()

    def _restore(self, arrays: dict[str, npt.NDArray[Any]], facts: dict[str, Json]) -> None:
        self.features_ = EventFeatures.take_from(arrays, self.features)
        super()._restore(arrays, facts)


@torch.inference_mode()
def _score(network: FixedLengthNetwork, features: Tensor) -> Tensor:
    return network.score(features)


class FixedLengthTask(Task):
    """Standardised features (n_events, n_features) of training and validation events, and the network's loss."""

    network: FixedLengthNetwork

    def __init__(
        self,
        network: FixedLengthNetwork,
        train: npt.NDArray[np.float32],
        validation: npt.NDArray[np.float32],
        seed: int,
        identity: str,
    ) -> None:
        self.network, self.identity = network, identity
        self.n_train = len(train)
        self.train, self.validation = torch.from_numpy(train), torch.from_numpy(validation)
        # The divergence rule compares losses on samples of equal size.
        drawn = np.random.default_rng(seed).permutation(len(train))[: len(validation)]
        self.training_sample = self.train[torch.from_numpy(np.sort(drawn))]
        self.noise = torch.zeros(len(train), network.n_noise)

    def to(self, device: torch.device) -> None:
        self.network.to(device)
        self.train, self.validation, self.training_sample, self.noise = (
            tensor.to(device) for tensor in (self.train, self.validation, self.training_sample, self.noise)
        )

    def start_epoch(self) -> None:
        self.noise.normal_()

    def training_loss(self, index: Tensor) -> Tensor:
        return self.network.loss(self.train[index], self.noise[index]).mean()

    def evaluate(self) -> dict[str, float]:
        return {
            "training_loss": self._mean_loss(self.training_sample),
            "validation_loss": self._mean_loss(self.validation),
        }

    def _mean_loss(self, features: Tensor) -> float:
        total = torch.zeros((), device=features.device, dtype=torch.float64)
        for part in torch.split(features, _BATCH_EVENTS):
            noise = torch.randn(len(part), self.network.n_noise, device=part.device)
            total += self.network.loss(part, noise).double().sum()
        return float(total) / len(features)
