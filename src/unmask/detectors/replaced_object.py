"""Replaced-object detection: a classifier of background against background with objects added, replaced, renamed."""

from __future__ import annotations

import torch

from unmask.detectors.copies import CopiesTask, in_order
from unmask.detectors.event_network import EventNetworkDetector
from unmask.detectors.explanations import Explanation
from unmask.detectors.inputs import event_tensors
from unmask.detectors.momenta import pushed, transverse
from unmask.detectors.replacer import Replacer
from unmask.events.event_set import EventSet
from unmask.networks.backbones import BackboneName, EventNetwork, SizeName
from unmask.training import Task, TrainingSettings

TRAINING = TrainingSettings(
    max_epochs=20, learning_rate=1e-3, schedule="cosine", gradient_clip=1.0, min_improvement=0, patience=20
)


class ReplacedObjectDetector(EventNetworkDetector):
    """Tells background events from copies of them in which tokens were replaced, as ELECTRA does with words.

    What is replaced are objects: some are added, alone or in the place of others, some renamed, all made harder, or MET
    added (:class:`~unmask.detectors.replacer.Replacer`). The score is the logit of the probability that an event is
    such a copy.

    Parameters
    ----------
    backbone, size, dropout : see :func:`~unmask.networks.backbones.make_event_network`.
    training : how the network is trained.
    seed : shorthand for the seed in ``training``.
    """

    kind = "replaced-object"

    def __init__(
        self,
        *,
        backbone: BackboneName = "part-pairs",
        size: SizeName = "light",
        dropout: float = 0.1,
        training: TrainingSettings = TRAINING,
        seed: int | None = None,
    ) -> None:
        super().__init__(backbone, size, dropout, training, seed)

    def _new_task(self, network: EventNetwork, train: EventSet, validation: EventSet) -> Task:
        return CopiesTask(network, train, validation, self, Replacer)

    def explain(self, events: EventSet, *, device: str = "auto") -> list[Explanation]:
        """Of each object, by how much the score would fall without it, its momentum taken over by the rest."""
        scores = self.score_events(events, device=device)
        found = event_tensors(events)
        which, place = torch.nonzero(found.types[:, 1:], as_tuple=True)
        copies, place = found.at(which), place + 1
        rows = torch.arange(len(which))
        gone = transverse(copies.kinematics[rows, place])
        copies.types[rows, place] = 0
        moved, types = pushed(*copies, gone), copies.types[:, 1:].long()
        without = self._scores_of(in_order(moved[:, :1], moved[:, 1:], types), device)
        fall = torch.from_numpy(scores)[which] - torch.from_numpy(without)
        return [Explanation(part.tolist()) for part in torch.split(fall, events.n_objects.tolist())]
