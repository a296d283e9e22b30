"""Discriminatory detection of distortions: a classifier of background against the same background distorted."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.detectors.distorter import Distorter, Strengths
from unmask.detectors.event_network import BackgroundTask, EventNetworkDetector
from unmask.detectors.inputs import EventTensors
from unmask.events.event_set import EventSet
from unmask.networks.backbones import BackboneName, EventNetwork, SizeName
from unmask.training import Task, TrainingSettings

# Events that are distorted at a time.
_PART = 1 << 16

TRAINING = TrainingSettings(learning_rate=5e-4, schedule="plateau", gradient_clip=1.0)


class DDDDetector(EventNetworkDetector):
    """Anomaly score from a classifier of background events against the same events distorted.

    The score is the logit of the probability that an event is distorted.

    Parameters
    ----------
    backbone, size, dropout : see :func:`~unmask.networks.backbones.make_event_network`.
    smear, add, remove, retag, recoil : see :class:`~unmask.detectors.distorter.Strengths`.
    training : how the network is trained.
    seed : shorthand for the seed in ``training``.
    """

    kind = "ddd"

    def __init__(
        self,
        *,
        backbone: BackboneName = "part-sm",
        size: SizeName = "light",
        dropout: float = 0.1,
        smear: float = 0.3,
        add: float = 0.3,
        remove: float = 0.2,
        retag: float = 0.2,
        recoil: bool = True,
        training: TrainingSettings = TRAINING,
        seed: int | None = None,
    ) -> None:
        self.smear, self.add, self.remove, self.retag, self.recoil = smear, add, remove, retag, recoil
        super().__init__(backbone, size, dropout, training, seed)

    def _new_task(self, network: EventNetwork, train: EventSet, validation: EventSet) -> Task:
        return _DDDTask(network, train, validation, self)


class _DDDTask(BackgroundTask):
    """Every event is seen once as it is and once distorted, anew in every epoch."""

    def __init__(self, network: EventNetwork, train: EventSet, validation: EventSet, detector: DDDDetector) -> None:
        super().__init__(network, train, validation, detector)
        strengths = Strengths(detector.smear, detector.add, detector.remove, detector.retag, detector.recoil)
        self.distorter = Distorter(strengths, self.train)
        self.distorted = EventTensors(*(torch.zeros_like(tensor) for tensor in self.train))

    def to(self, device: torch.device) -> None:
        super().to(device)
        self.distorter.to(device)
        self.distorted = self.distorted.to(device)

    def start_epoch(self) -> None:
        for i in range(0, self.n_train, _PART):
            some = slice(i, i + _PART)
            for mine, new in zip(self.distorted, self.distorter(self.train.at(some)), strict=True):
                mine[some] = new

    def training_loss(self, index: Tensor) -> Tensor:
        return self._cross_entropy(self.train.at(index), self.distorted.at(index))

    def loss(self, events: EventTensors) -> Tensor:
        return self._cross_entropy(events, self.distorter(events))

    def _cross_entropy(self, events: EventTensors, distorted: EventTensors) -> Tensor:
        both = (torch.cat(pair) for pair in zip(events, distorted, strict=True))
        of_events, of_distorted = self.network(*both)[:, 0].float().chunk(2)
        return (F.softplus(of_events).mean() + F.softplus(-of_distorted).mean()) / 2
