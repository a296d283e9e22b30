"""What all detectors with a network share: training, saving, loading, counting weights."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from unmask.artifacts import Json
from unmask.detectors.base import Detector
from unmask.events.event_set import EventSet
from unmask.training import EpochRecord, Reporter, Task, TrainingSettings, derive_seed, pick_device
from unmask.training import train as run_training

#: Events that are evaluated or scored at a time on the device.
BATCH_EVENTS = 1 << 16

Network = TypeVar("Network", bound=nn.Module)


class NetworkDetector(Detector, Generic[Network]):
    """A detector that trains one network on one :class:`~unmask.training.Task`."""

    network_: Network
    history_: list[EpochRecord]

    def __init__(self, training: TrainingSettings, seed: int | None) -> None:
        self.training = training if seed is None else replace(training, seed=seed)

    @abstractmethod
    def _new_network(self) -> Network:
        """Make the network; the random numbers of its weights have been seeded."""

    @abstractmethod
    def _new_task(self, network: Network, train: EventSet, validation: EventSet) -> Task:
        """Say what is trained on which events."""

    def _seeded_network(self) -> Network:
        torch.manual_seed(derive_seed(self.training.seed, "weights"))
        return self._new_network()

    def _fit(self, train: EventSet, validation: EventSet, run_folder: Path | None, reporter: Reporter | None) -> None:
        network = self._seeded_network()
        task = self._new_task(network, train, validation)
        self.history_ = run_training(task, self.training, run_folder=run_folder, reporter=reporter)
        self.network_ = network

    @property
    def n_parameters(self) -> int:
        """Weights of the network."""
        self._check_fitted()
        return sum(parameter.numel() for parameter in self.network_.parameters())

    def _in_batches(
        self,
        arrays: tuple[npt.NDArray[Any], ...],
        function: Callable[..., Tensor],
        device: str,
        batch_events: int = BATCH_EVENTS,
    ) -> npt.NDArray[np.float32]:
        """Apply ``function(network, *tensors)`` to a batch of the arrays' rows at a time, on the device."""
        where = pick_device(device)
        network = self.network_.to(where)
        n_parts = max(1, -(-len(arrays[0]) // batch_events))
        parts = zip(*(np.array_split(array, n_parts) for array in arrays), strict=True)
        return np.concatenate(
            [function(network, *(torch.tensor(part, device=where) for part in some)).cpu().numpy() for some in parts]
        )

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {name: value.cpu().numpy() for name, value in self.network_.state_dict().items()}

    def _facts(self) -> dict[str, Json]:
        return {"history": [asdict(record) for record in self.history_]}

    @classmethod
    def _make(cls, settings: dict[str, Json], folder: Path) -> Any:
        return super()._make(settings | {"training": TrainingSettings(**settings["training"])}, folder)

    def _restore(self, arrays: dict[str, npt.NDArray[Any]], facts: dict[str, Json]) -> None:
        self.network_ = self._seeded_network()
        self.network_.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})
        self.network_.eval()
        self.history_ = [EpochRecord(**record) for record in facts["history"]]
