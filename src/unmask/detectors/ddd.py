"""Discriminatory detection of distortions: a classifier of background against the same background distorted."""

from __future__ import annotations

from functools import partial

from unmask.detectors.copies import CopiesTask
from unmask.detectors.distorter import Distorter, Strengths
from unmask.detectors.event_detector import EventNetworkDetector
from unmask.events.event_set import EventSet
from unmask.networks.event_network import BackboneName, EventNetwork, SizeName
from unmask.training import Task, TrainingSettings

TRAINING = TrainingSettings(learning_rate=5e-4, schedule="plateau", gradient_clip=1.0)


class DDDDetector(EventNetworkDetector):
    """Anomaly score from a classifier of background events against the same events distorted.

    The score is the logit of the probability that an event is distorted.

    Parameters
    ----------
    backbone, size, dropout : see :func:`~unmask.networks.event_network.make_event_network`.
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
        strengths = Strengths(self.smear, self.add, self.remove, self.retag, self.recoil)
        return CopiesTask(
            network,
            train,
            validation,
            self,
            partial(Distorter, strengths, tags=sorted(one.tag for one in self.schema_.types)),
        )
