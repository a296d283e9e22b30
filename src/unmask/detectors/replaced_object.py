"""Replaced-object detection: a classifier of background against background with objects added, replaced, renamed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from unmask.detectors.event_features import FeatureKind, n_features
from unmask.detectors.explanations import Explanation
from unmask.detectors.fixed_length import FixedLengthDetector, FixedLengthTask
from unmask.detectors.quantity_detector import DEFAULT_TRAINING
from unmask.errors import UsageError
from unmask.events.alterations import alter
from unmask.events.distortions import columns_of, rebuilt
from unmask.events.event_set import EventSet
from unmask.events.objects import MAX_OBJECTS
from unmask.networks.fixed_length import AlterationClassifier
from unmask.training import Task, TrainingSettings, derive_seed


class ReplacedObjectDetector(FixedLengthDetector[AlterationClassifier]):
    """Tells background events from copies of them in which tokens were replaced, as ELECTRA does with words.

    What is replaced are objects: some are added, alone or in the place of others, some renamed, all made harder, or MET
    added (:func:`~unmask.events.alterations.alter`). The score is the logit of the probability that an event is such a
    copy. New objects lie at random angles, as those of no process do, so by default the network does not see angles.

    Parameters
    ----------
    features : "momenta", "summary" or "flat", see :mod:`unmask.detectors.event_features`.
    n_copies : altered copies of each event.
    hidden, n_layers : see :class:`~unmask.networks.fixed_length.AlterationClassifier`.
    training : how the network is trained.
    seed : shorthand for the seed in ``training``.
    """

    kind = "replaced-object"

    def __init__(
        self,
        *,
        features: FeatureKind = "momenta",
        n_copies: int = 2,
        hidden: int = 128,
        n_layers: int = 3,
        training: TrainingSettings = DEFAULT_TRAINING,
        seed: int | None = None,
    ) -> None:
        self.features: FeatureKind = features
        self.n_copies = n_copies
        self.hidden = hidden
        self.n_layers = n_layers
        super().__init__(training, seed)

    def _new_network(self) -> AlterationClassifier:
        if self.n_copies < 1:
            raise UsageError(f"n_copies is {self.n_copies}; accepted: 1 or more")
        return AlterationClassifier(n_features(self.features), hidden=self.hidden, n_layers=self.n_layers)

    def _new_task(self, network: AlterationClassifier, train: EventSet, validation: EventSet) -> Task:
        return FixedLengthTask(
            network,
            self._with_copies(train, "train"),
            self._with_copies(validation, "validation"),
            self.training.seed,
        )

    def _with_copies(self, events: EventSet, name: str) -> npt.NDArray[np.float32]:
        """Features of each event, then of its copies, (n_events, (1 + n_copies) x n_features)."""
        seeds = [derive_seed(self.training.seed, f"{name} copy {i}") for i in range(self.n_copies)]
        copies = (self.features_.of(alter(events, seed=seed)) for seed in seeds)
        return np.concatenate([self.features_.of(events), *copies], axis=1)

    def explain(self, events: EventSet, *, device: str = "auto") -> list[Explanation]:
        """Of each object, by how much the score would fall without it."""
        n_objects = events.n_objects
        which = np.repeat(np.arange(len(events)), n_objects)
        place = np.arange(len(which)) - np.repeat(np.cumsum(n_objects) - n_objects, n_objects)
        copies = events[which]
        columns = columns_of(copies)
        columns["tag"] = np.where(np.arange(MAX_OBJECTS) == place[:, None], 0, columns["tag"])
        without = self.score_events(rebuilt(copies, columns), device=device)
        fall = self.score_events(events, device=device)[which] - without
        return [Explanation(fall[which == i].tolist()) for i in range(len(events))]
