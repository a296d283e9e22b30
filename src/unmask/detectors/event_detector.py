"""Detectors with a network on whole events."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unmask.detectors.base import Detector
from unmask.events.event_set import EventSet
from unmask.networks.event_network import BackboneName, EventNetwork, make_event_network
from unmask.networks.event_tensors import EventTensors, event_tensors
from unmask.networks.particle_transformer import SizeName
from unmask.parameters import Dropout
from unmask.training import Task, Trained, TrainingSettings, in_batches, pick_device

#: Events that pass through a network at a time: pair features are 171 rows for each.
BATCH_EVENTS = Task.batch_events


@dataclass(eq=False, repr=False, kw_only=True)
class EventDetector(Trained[EventNetwork], Detector):
    """A detector with one of the networks of :mod:`unmask.networks.event_network`.

    Parameters
    ----------
    backbone, size, dropout
        See :func:`~unmask.networks.event_network.make_event_network`.
    training
        Settings of the training.
    seed
        Shorthand for the seed in ``training``.
    """

    #: Outputs of the network per event, and whether it has biases.
    n_out: ClassVar[int] = 1
    biases: ClassVar[bool] = True

    backbone: BackboneName
    size: SizeName = "light"
    dropout: Dropout = 0.0
    training: TrainingSettings
    seed: int | None = None

    def new_network(self) -> EventNetwork:
        return make_event_network(
            self.backbone, self.size, self.n_out, self.schema_, dropout=self.dropout, biases=self.biases
        )

    @abstractmethod
    def new_task(self, network: EventNetwork, train: EventTensors, validation: EventTensors, **options: Any) -> Task:
        """Make the task; ``options`` are those of :class:`~unmask.training.Task`."""

    def _fit(self, train: EventSet, validation: EventSet, *, prior: EventSet | None = None, **options: Any) -> None:
        given = [train, validation] if prior is None else [train, validation, prior]
        train, validation, *theories = (self.schema_.admit(events, self.kind) for events in given)
        network, tensors = self.seeded_network(), event_tensors(train)
        network.measure(*tensors)
        of_task: dict[str, Any] = {"prior": theories[0]} if theories else {}
        of_task |= {"seed": self.run_settings.seed, "identity": self.identity(train, validation, *theories)}
        self.run(self.new_task(network, tensors, event_tensors(validation), **of_task), **options)

    def score_events(self, events: EventSet, *, device: str = "auto") -> npt.NDArray[np.float64]:
        self.check_fitted()
        return as_numbers(self._outputs(events, device))

    def _outputs(self, events: EventSet, device: str) -> Tensor:
        """Scores (n_events,) of the network, on its device, which may still be at work on them."""
        events = self.schema_.admit(events, f"{self.kind} detector")
        where = pick_device(device)
        network = self.network_.to(where)

        def scored(part: EventSet) -> Tensor:
            return self.score_tensors(network, *event_tensors(part).to(where))

        return torch.cat([torch.zeros(0, device=where), *in_batches(scored, events, BATCH_EVENTS)])

    @staticmethod
    @torch.inference_mode()
    def score_tensors(network: EventNetwork, kinematics: Tensor, types: Tensor) -> Tensor:
        """Scores (batch,): here the only output of the network."""
        scores: Tensor = network(kinematics, types)[:, 0]
        return scores


def as_numbers(scores: Tensor) -> npt.NDArray[np.float64]:
    """Scores in memory; waits for the device."""
    return scores.cpu().double().numpy()
