"""What labels could reach: a classifier of signal against background, as an upper bound."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.detectors.event_network import EventNetworkDetector, EventTask, batches
from unmask.detectors.inputs import EventTensors
from unmask.errors import UsageError
from unmask.events.event_set import BACKGROUND, SIGNAL, EventSet
from unmask.networks.backbones import BackboneName, EventNetwork, SizeName
from unmask.training import Task, TrainingSettings

TRAINING = TrainingSettings(learning_rate=5e-4, schedule="plateau", gradient_clip=1.0)


class SupervisedBound(EventNetworkDetector):
    """Upper bound, not a competitor: a classifier that is trained with the labels of the very signal it is tested on.

    Training and validation events must be labelled, and both must hold signal and background; the two count the same in
    the loss. The score is the logit of the probability of signal.

    Parameters
    ----------
    backbone, size, dropout : see :func:`~unmask.networks.backbones.make_event_network`.
    training : how the network is trained.
    seed : shorthand for the seed in ``training``.
    """

    kind = "supervised-bound"
    sees_signal = True

    def __init__(
        self,
        *,
        backbone: BackboneName = "part-sm",
        size: SizeName = "light",
        dropout: float = 0.1,
        training: TrainingSettings = TRAINING,
        seed: int | None = None,
    ) -> None:
        super().__init__(backbone, size, dropout, training, seed)

    def _check_events(self, train: EventSet, validation: EventSet) -> None:
        for name, events in (("training", train), ("validation", validation)):
            n_signal, n_background = (int(np.count_nonzero(events.label == label)) for label in (SIGNAL, BACKGROUND))
            if not n_signal or not n_background or n_signal + n_background < len(events):
                raise UsageError(
                    f"the {name} events are {n_signal:,} signal, {n_background:,} background and "
                    f"{len(events) - n_signal - n_background:,} without a label; the supervised bound learns from "
                    "labels and needs signal and background alone, some of each"
                )

    def _new_task(self, network: EventNetwork, train: EventSet, validation: EventSet) -> Task:
        return _SupervisedTask(network, train, validation, self)


class _SupervisedTask(EventTask):
    """Cross-entropy of the labels, with both classes of the same weight."""

    def __init__(self, network: EventNetwork, train: EventSet, validation: EventSet, detector: SupervisedBound) -> None:
        super().__init__(network, train, validation, detector)
        self.is_signal, self.is_held_out_signal = (torch.tensor(e.label == SIGNAL) for e in (train, validation))
        self.identity += f" {hashlib.sha256(train.label.tobytes() + validation.label.tobytes()).hexdigest()}"
        signal_share = float(self.is_signal.double().mean())
        self.signal_weight, self.background_weight = 0.5 / signal_share, 0.5 / (1 - signal_share)

    def to(self, device: torch.device) -> None:
        super().to(device)
        self.is_signal, self.is_held_out_signal = self.is_signal.to(device), self.is_held_out_signal.to(device)

    def training_loss(self, index: Tensor) -> Tensor:
        return self._losses(self.train.at(index), self.is_signal[index]).mean()

    def evaluate(self) -> dict[str, float]:
        def mean_loss(events: EventTensors, is_signal: Tensor) -> float:
            parts = [self._losses(events.at(some), is_signal[some]) for some in batches(len(is_signal))]
            return float(torch.cat(parts).double().mean())

        return {
            "training_loss": mean_loss(self.train.at(self.sample_index), self.is_signal[self.sample_index]),
            "validation_loss": mean_loss(self.validation, self.is_held_out_signal),
        }

    def _losses(self, events: EventTensors, is_signal: Tensor) -> Tensor:
        logits = self.network(*events)[:, 0].float()
        return torch.where(
            is_signal, self.signal_weight * F.softplus(-logits), self.background_weight * F.softplus(logits)
        )
