"""The default: a small network that tells background from altered copies of it, times a tail term of observables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from unmask.artifacts import Json
from unmask.detectors.alterations import Alterations, AlteredCopies
from unmask.detectors.copies import CopiesTask, in_order, with_tensors
from unmask.detectors.event_detector import EventDetector, as_numbers
from unmask.detectors.momenta import boost_transverse, transverse
from unmask.detectors.observable_tail import ObservableTail
from unmask.detectors.prior import CopiesAndTheories
from unmask.events.cuts import Cut
from unmask.events.event_set import EventSet
from unmask.networks.event_network import ETA, PHI, BackboneName, EventNetwork
from unmask.networks.event_tensors import EventTensors, event_tensors
from unmask.networks.particle_transformer import SizeName
from unmask.parameters import Fraction, NotNegative
from unmask.scores.explanations import Explanation, Term
from unmask.scores.p_values import BackgroundTail
from unmask.training import Task, TrainingSettings, derive_seed

# The epoch that is best on validation events is kept, so there is no need to stop before the last.
TRAINING = TrainingSettings(
    max_epochs=30,
    learning_rate=2e-3,
    schedule="cosine",
    gradient_clip=1.0,
    min_improvement=0,
    patience=30,
    divergence=100,
)
#: The weight of the network is (N + 2000) / (N + 7000): with 3,000 training events it is a half.
_WEIGHT_OF_NETWORK = (2000, 7000)
#: Of -ln p in the logit. Logits are rounded to some 3e-6, by batch and device; scores must not differ by 1e-5.
_MAX_SLOPE = 3.0


@dataclass(eq=False, repr=False, kw_only=True)
class ContrastDetector(EventDetector):
    """Tells background events from altered copies of them (replaced-object detection, after ELECTRA's replaced tokens).

    The score is w_N (-ln p_network) + w_tail (w_N (-ln p_tail) + 2 (1 - w_N) (-ln p_all)). p_network is the tail
    probability, in training background, of the network's logit that an event is a copy; p_tail that of MET, the number
    of b-jets and the sum of pT, and p_all that of these and the number of objects (see
    :class:`~unmask.detectors.observable_tail.ObservableTail`). With N training events w_N = (N + 2000) / (N + 7000): a
    network that has seen few events adds noise where observables alone are strong.

    All tail probabilities are those in training events, so that the scores of validation events are as those of any
    other background, and p-values calibrated on them are valid.

    Parameters
    ----------
    alterations
        How copies differ from their events.
    tail_weight
        Weight of the observables; 0 for the network alone.
    cut
        Condition that the training events were selected with, as ``--cut`` has it; altered copies fulfill it too.
    prior_fraction
        Fraction of theories in the alternative class where a prior is given; the rest are altered copies.
    """

    kind = "contrast"
    can_explain = True
    events_wanted = 30_000
    takes_prior = True

    backbone: BackboneName = "part-pairs"
    size: SizeName = "small"
    alterations: Alterations = Alterations()
    tail_weight: NotNegative = 0.5
    cut: str | None = None
    prior_fraction: Fraction = 0.7
    training: TrainingSettings = TRAINING

    def check(self) -> None:
        super().check()
        if self.cut:
            Cut(self.cut)

    def new_task(
        self,
        network: EventNetwork,
        train: EventTensors,
        validation: EventTensors,
        *,
        prior: EventSet | None = None,
        **options: Any,
    ) -> Task:
        generator = AlteredCopies(self.alterations, train, self.cut)
        if prior is not None:
            generator = CopiesAndTheories(self.alterations, train, self.cut, prior, self.prior_fraction)
        return _Task(network, train, validation, generator, **options)

    def _fit(self, train: EventSet, validation: EventSet, **options: Any) -> None:
        self.observables_ = ObservableTail.of(train)
        super()._fit(train, validation, **options)
        more, most = _WEIGHT_OF_NETWORK
        self.network_weight_ = (len(train) + more) / (len(train) + most)
        logits = as_numbers(self._outputs(train, self.training.device))
        self.logits_ = BackgroundTail.of(logits, max_slope=_MAX_SLOPE)

    def score_events(self, events: EventSet, *, device: str = "auto") -> npt.NDArray[np.float64]:
        self.check_fitted()
        logits = self._outputs(events, device)
        of_tail, of_all = self.observables_.minus_log_p(events)  # on the CPU, while a GPU is at work on the logits
        of_network = self.logits_.minus_log_p_of(as_numbers(logits))
        weight = self.network_weight_
        of_observables = weight * of_tail + 2 * (1 - weight) * of_all
        return np.asarray(weight * of_network + self.tail_weight * of_observables)

    def altered_copies(self, background: EventSet) -> EventSet:
        """Altered copies of background events, as in the training: those that pass the selection of all these events.

        >>> from unmask import load_sample
        >>> events = load_sample("gluino")
        >>> background = events[events.label == 0][:1000]
        >>> copies = ContrastDetector(seed=1).altered_copies(background)
        >>> bool(copies.met_mev.min() >= background.met_mev.min())
        True
        """
        events = event_tensors(background)
        with torch.random.fork_rng([]):
            torch.manual_seed(derive_seed(self.run_settings.seed, "altered copies"))
            generator = AlteredCopies(self.alterations, events, self.cut)
            copies = generator(events)
        is_used = generator.weights(events, copies).numpy() > 0
        return with_tensors(background, copies)[is_used]

    def explain(self, events: EventSet, *, device: str = "auto") -> list[Explanation]:
        """Give the drop in score without each object, whose momentum the rest compensates, and both terms."""
        scores = self.score_events(events, device=device)
        which, without = _without_each_object(events)
        drop = scores[which] - self.score_events(without, device=device)
        parts = np.split(drop, np.cumsum(events.n_objects)[:-1]) if len(events) else []
        minus_log_p = self.logits_.minus_log_p_of(as_numbers(self._outputs(events, device)))
        return [
            Explanation(part.tolist(), terms=[Term("objects, together", self.logits_.text(p), None, p), *observables])
            for part, p, observables in zip(parts, minus_log_p.tolist(), self.observables_.terms(events), strict=True)
        ]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return super().arrays() | self.logits_.arrays("logits") | self.observables_.arrays()

    def metadata(self) -> dict[str, Json]:
        return super().metadata() | {"network_weight": self.network_weight_}

    def restore(self, arrays: dict[str, npt.NDArray[Any]], metadata: dict[str, Json]) -> None:
        super().restore(arrays, metadata)
        self.logits_ = BackgroundTail.from_arrays(arrays, "logits")
        self.observables_ = ObservableTail.from_arrays(arrays)
        self.network_weight_ = float(metadata["network_weight"])


class _Task(CopiesTask):
    """With few events, makes more of them: in each epoch, each is as it is or mirrored in eta, in phi, or in both."""

    min_steps = 20
    signs = torch.ones(())

    def start_epoch(self) -> None:
        if self.n_train < ContrastDetector.events_wanted:
            kinematics, before = self.train[0], self.signs
            self.signs = 2.0 * torch.randint(2, (self.n_train, 1, 2), device=kinematics.device) - 1
            kinematics[..., [ETA, PHI]] *= self.signs * before.to(kinematics.device)
        super().start_epoch()


def _without_each_object(events: EventSet) -> tuple[npt.NDArray[np.int64], EventSet]:
    """Index of the event, and that event without one of its objects, the rest recoiling, for each object."""
    tensors = event_tensors(events)
    which, place = torch.nonzero(tensors.types[:, 1:], as_tuple=True)
    copies, rows, place = tensors.at(which), torch.arange(len(which)), place + 1
    removed = transverse(copies.kinematics[rows, place])
    copies.types[rows, place] = 0
    moved = boost_transverse(*copies, removed)
    index = which.numpy()
    return index, with_tensors(
        events[index], in_order(moved[:, :1], moved[:, 1:], copies.types[:, 1:].long(), events.max_objects)
    )
