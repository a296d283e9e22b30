"""Deep support vector data description (Ruff et al., ICML 2018): distance of an event's image from a fixed center."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unmask.detectors.event_detector import EventDetector, as_numbers
from unmask.errors import TrainingError
from unmask.events.event_set import EventSet
from unmask.networks.event_network import BackboneName, EventNetwork
from unmask.networks.event_tensors import EventTensors
from unmask.training import Task, TrainingSettings, batches

#: A coordinate of the center at 0 could be met by parameters of 0.
_MIN_COORDINATE = 0.1
#: Scores are constant if the standard deviation of squared distances is less than this part of the center's squared
#: length.
_MIN_SPREAD = 1e-6
_MIN_SQUARED_DISTANCE = 1e-30

# Distances have a long tail, so training and validation losses differ by chance. The loss can fall for ever.
TRAINING = TrainingSettings(learning_rate=1e-3, max_epochs=30, gradient_clip=1.0, patience=10, divergence=1.0)


@dataclass(eq=False, repr=False, kw_only=True)
class DeepSVDDDetector(EventDetector):
    """Anomaly score from the distance to a center around which a network gathers the background.

    The center is the mean output of the untrained network for the training events. The network has no constants that
    are learned, so that it cannot map every input to the center. The score is the logarithm of the distance.
    """

    kind = "deep-svdd"
    n_out = 10
    biases = False

    backbone: BackboneName = "mlp"
    training: TrainingSettings = TRAINING

    def new_network(self) -> EventNetwork:
        network = super().new_network()
        # Part of the network, so that it is in every checkpoint.
        network.register_buffer("center", torch.zeros(self.n_out))
        return network

    def new_task(self, network: EventNetwork, train: EventTensors, validation: EventTensors, **options: Any) -> Task:
        return _DeepSVDDTask(network, train, validation, **options)

    def _fit(self, train: EventSet, validation: EventSet, **options: Any) -> None:
        super()._fit(train, validation, **options)
        squared_distance = (2 * torch.from_numpy(as_numbers(self._outputs(validation, self.training.device)))).exp()
        length_squared = self.network_.get_buffer("center").double().square().sum()
        spread = float(squared_distance.std(correction=0) / length_squared)
        if not spread > _MIN_SPREAD:
            raise TrainingError(
                f"the network has collapsed: it maps all {len(validation):,} validation events to the same distance "
                f"from the center (relative spread {spread:.1e}); lower the learning rate, train for fewer epochs "
                "(max_epochs), or choose another backbone"
            )

    @staticmethod
    @torch.inference_mode()
    def score_tensors(network: EventNetwork, kinematics: Tensor, types: Tensor) -> Tensor:
        return _squared_distances(network, kinematics, types).clamp_min(_MIN_SQUARED_DISTANCE).log() / 2


class _DeepSVDDTask(Task):
    """Mean squared distance of events from the center."""

    def start_training(self) -> None:
        self.network.eval()
        sums = [self.network(*part).double().sum(0) for part in batches(self.train, self.batch_events)]
        center = torch.stack(sums).sum(0) / self.n_train
        is_small = center.abs() < _MIN_COORDINATE
        sign = torch.where(center < 0, -1.0, 1.0)
        self.network.get_buffer("center").copy_(torch.where(is_small, sign * _MIN_COORDINATE, center))

    def loss(self, *data: Tensor) -> Tensor:
        return _squared_distances(self.network, *data).mean()


def _squared_distances(network: EventNetwork, kinematics: Tensor, types: Tensor) -> Tensor:
    outputs: Tensor = network(kinematics, types).float()
    return (outputs - network.get_buffer("center")).square().sum(-1)
