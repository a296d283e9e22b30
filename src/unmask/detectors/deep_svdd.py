"""Deep support vector data description (Ruff et al., ICML 2018): how far an event is mapped from a fixed centre."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from unmask.detectors.event_detector import BackgroundTask, EventNetworkDetector, batches
from unmask.errors import TrainingError
from unmask.events.event_set import EventSet
from unmask.networks.event_network import BackboneName, EventNetwork, SizeName
from unmask.networks.event_tensors import EventTensors, event_tensors
from unmask.training import Reporter, Task, TrainingSettings

#: A coordinate of the centre at 0 could be met by weights of 0.
_LEAST_COORDINATE = 0.1
#: Scores are constant if the squared distances of events vary by less than this share of the centre's squared length.
_LEAST_SPREAD = 1e-6
_LEAST_SQUARED_DISTANCE = 1e-30

# Distances have a long tail, so training and validation losses differ by chance. The loss can fall for ever.
TRAINING = TrainingSettings(learning_rate=1e-3, max_epochs=30, gradient_clip=1.0, patience=10, divergence=1.0)


class DeepSVDDDetector(EventNetworkDetector):
    """Anomaly score from the distance to a centre around which a network gathers the background.

    The centre is the mean of what the untrained network gives for the training events. The network has no constants
    that are learned, so that it cannot map everything to the centre whatever comes in. The score is the logarithm of
    the distance.

    Parameters
    ----------
    backbone, size, dropout : see :func:`~unmask.networks.event_network.make_event_network`.
    training : how the network is trained.
    seed : shorthand for the seed in ``training``.
    """

    kind = "deep-svdd"
    n_out = 10
    biases = False

    def __init__(
        self,
        *,
        backbone: BackboneName = "mlp",
        size: SizeName = "light",
        dropout: float = 0.0,
        training: TrainingSettings = TRAINING,
        seed: int | None = None,
    ) -> None:
        super().__init__(backbone, size, dropout, training, seed)

    def _new_network(self) -> EventNetwork:
        network = super()._new_network()
        # Part of the network, so that it is in every checkpoint.
        network.register_buffer("centre", torch.zeros(self.n_out))
        return network

    def _fit(self, train: EventSet, validation: EventSet, run_folder: Path | None, reporter: Reporter | None) -> None:
        super()._fit(train, validation, run_folder, reporter)
        self._check_not_collapsed(validation)

    def _check_not_collapsed(self, events: EventSet) -> None:
        """Refuse a network that gives all events the same score.

        Raises
        ------
        TrainingError
        """
        # The fit is not done, so score_events would refuse.
        tensors = event_tensors(events).to(next(self.network_.parameters()).device)
        parts = [self._scores(self.network_, *tensors.at(some)) for some in batches(len(events))]
        scores = torch.cat(parts).double()
        length_squared = self.network_.get_buffer("centre").double().square().sum()
        spread = float((2 * scores).exp().std(correction=0) / length_squared)
        if not spread > _LEAST_SPREAD:
            raise TrainingError(
                f"the network has collapsed: it maps all {len(events):,} validation events to the same distance from "
                f"the centre (relative spread {spread:.1e}); lower the learning rate, train for fewer epochs "
                "(max_epochs), or choose another backbone"
            )

    @staticmethod
    @torch.inference_mode()
    def _scores(network: EventNetwork, kinematics: Tensor, types: Tensor) -> Tensor:
        return _squared_distances(network, kinematics, types).clamp_min(_LEAST_SQUARED_DISTANCE).log() / 2

    def _new_task(self, network: EventNetwork, train: EventSet, validation: EventSet) -> Task:
        return _DeepSVDDTask(network, train, validation, self)


class _DeepSVDDTask(BackgroundTask):
    """The loss of an event is its squared distance from the centre."""

    def start_training(self) -> None:
        self.network.eval()
        sums = [self.network(*self.train.at(some)).double().sum(0) for some in batches(self.n_train)]
        centre = torch.stack(sums).sum(0) / self.n_train
        is_small = centre.abs() < _LEAST_COORDINATE
        sign = torch.where(centre < 0, -1.0, 1.0)
        self.network.get_buffer("centre").copy_(torch.where(is_small, sign * _LEAST_COORDINATE, centre))

    def loss(self, events: EventTensors) -> Tensor:
        return _squared_distances(self.network, *events).mean()


def _squared_distances(network: EventNetwork, kinematics: Tensor, types: Tensor) -> Tensor:
    centre = network.get_buffer("centre")
    outputs: Tensor = network(kinematics, types).float()
    return (outputs - centre).square().sum(-1)
