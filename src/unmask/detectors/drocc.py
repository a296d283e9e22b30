"""Deep robust one-class classification (arXiv:2002.12718): background against its worst neighbors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.detectors.event_detector import EventDetector
from unmask.errors import TrainingError
from unmask.events.event_set import EventSet
from unmask.networks.event_network import BackboneName, EventNetwork
from unmask.networks.event_tensors import EventTensors
from unmask.parameters import Positive, at_least
from unmask.training import Task, TrainingSettings

#: Nothing was learned if the loss stays above this part of the best loss of a constant score.
_MAX_RELATIVE_LOSS = 0.99
#: A training of fewer steps, for a try, need not have learned anything.
_STEPS_TO_LEARN = 500

# At first events and their neighbors cannot be told apart and the loss hardly moves: that is no reason to stop.
TRAINING = TrainingSettings(learning_rate=5e-4, max_epochs=50, gradient_clip=1.0, patience=10, divergence=1.0)


@dataclass(eq=False, repr=False, kw_only=True)
class DROCCDetector(EventDetector):
    """Anomaly score from a classifier of background events against points near them that it takes for background.

    Gradient ascent seeks a point around every training event that the network calls background and that lies in the
    shell between ``radius`` and ``gamma`` times ``radius``; the network learns to tell such points from events. They
    differ from events in the inputs of the network: for "mlp" in all columns, for the others in the standardized
    kinematics of MET and objects, while types and the number of objects stay. The score is the logit of the probability
    of such a point.

    Parameters
    ----------
    radius
        Inner radius of the shell, as the root mean square change of an input in standard deviations: the distance is
        ``radius`` times the square root of the number of inputs that can change.
    gamma
        Outer over inner radius.
    n_ascent_steps, ascent_step
        Number and length, in inner radii, of the steps of the ascent.
    negative_weight
        Weight of these points in the loss, relative to events.
    """

    kind = "drocc"

    backbone: BackboneName = "part-sm"
    radius: Positive = 1.0
    gamma: Annotated[float, at_least(1)] = 2.0
    n_ascent_steps: Annotated[int, at_least(0)] = 5
    ascent_step: Positive = 0.3
    negative_weight: Positive = 1.0
    training: TrainingSettings = TRAINING

    def new_task(self, network: EventNetwork, train: EventTensors, validation: EventTensors, **options: Any) -> Task:
        return DROCCTask(self, network, train, validation, **options)

    def _fit(self, train: EventSet, validation: EventSet, **options: Any) -> None:
        super()._fit(train, validation, **options)
        history, weight = self.history_ or [], self.negative_weight
        of_constant = math.log1p(weight) + weight * math.log1p(1 / weight)
        loss = min(record.validation_loss for record in history)
        # Otherwise the network takes the points for background as much as the events, and its scores mean nothing.
        if history[-1].step >= _STEPS_TO_LEARN and not loss < _MAX_RELATIVE_LOSS * of_constant:
            raise TrainingError(
                f"events and the points sought around them are not told apart: after {len(history)} epochs the "
                f"validation loss is {loss:.4g}, and {of_constant:.4g} with a constant score; widen the radius (it is "
                f"{self.radius:g}), train for more epochs (max_epochs), or take fewer ascent steps"
            )


class DROCCTask(Task):
    """Cross-entropy of events and of the points that are sought around them."""

    def __init__(self, detector: DROCCDetector, *data: Any, **options: Any) -> None:
        super().__init__(*data, **options)
        self.detector = detector

    def loss(self, *data: Tensor) -> Tensor:
        inputs, types = self.network.standardize(*data), data[1]
        both = torch.cat([inputs, self.negatives(inputs, types)])
        logits = self.network.of_inputs(both, torch.cat([types, types]))[:, 0].float()
        of_events, of_negatives = logits.chunk(2)
        return F.softplus(of_events).mean() + self.detector.negative_weight * F.softplus(-of_negatives).mean()

    def negatives(self, inputs: Tensor, types: Tensor) -> Tensor:
        """Points in the shell around ``inputs`` that the network takes for background."""
        detector = self.detector
        is_free = self.network.is_free(types).flatten(1)
        radius = detector.radius * is_free.sum(1, keepdim=True).to(inputs.dtype).sqrt()
        shift = self._in_shell(torch.randn_like(inputs).flatten(1) * is_free, radius)
        for _ in range(detector.n_ascent_steps):
            with torch.enable_grad():
                shift = shift.detach().requires_grad_()
                logits = self.network.of_inputs(inputs + shift.view_as(inputs), types)
                (gradient,) = torch.autograd.grad(-logits.sum(), shift)
            gradient = gradient * is_free
            step = gradient / gradient.norm(dim=1, keepdim=True).clamp_min(1e-12)
            shift = self._in_shell(shift.detach() + detector.ascent_step * radius * step, radius)
        return inputs + shift.view_as(inputs)

    def _in_shell(self, shift: Tensor, radius: Tensor) -> Tensor:
        length = shift.norm(dim=1, keepdim=True).clamp_min(1e-12)
        projected: Tensor = shift * (length.clamp(radius, self.detector.gamma * radius) / length)
        return projected
