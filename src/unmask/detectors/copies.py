"""Changed copies of events, made on the device, and a network that learns to tell them from the events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.detectors.event_detector import EventNetworkDetector, EventTask, batches
from unmask.detectors.momenta import log_mass_factor, missing, transverse, visible
from unmask.events.event_set import EventSet
from unmask.events.objects import MET_TYPE, OBJECTS
from unmask.networks.event_network import ETA, LOG_PT, EventNetwork
from unmask.networks.event_tensors import EventTensors
from unmask.training import derive_seed

# Events that are copied at a time; on a CPU what belongs to them stays in the cache.
_PART, _PART_ON_CPU = 1 << 16, 1 << 11


class CopiesTask(EventTask):
    """Every event is seen once as it is and once as a changed copy, made anew in every epoch.

    Copies of validation events are made once, so that epochs can be compared.
    """

    def __init__(
        self,
        network: EventNetwork,
        train: EventSet,
        validation: EventSet,
        detector: EventNetworkDetector,
        copier_of: Callable[[EventTensors], Copier],
    ) -> None:
        super().__init__(network, train, validation, detector)
        self.copier = copier_of(self.train)
        self.seed = detector.training.seed
        self.copies = Copies.empty_like(self.train)
        self.held_out: Copies | None = None

    def to(self, device: torch.device) -> None:
        super().to(device)
        self.copier.to(device)
        self.copies = self.copies.to(device)

    def start_epoch(self) -> None:
        self._copy(self.train, self.copies)

    def training_loss(self, index: Tensor) -> Tensor:
        return self._cross_entropy(self.train.at(index), self.copies.at(index))

    def evaluate(self) -> dict[str, float]:
        if self.held_out is None:
            # Whatever was drawn before, a run that is continued gets the same copies.
            torch.manual_seed(derive_seed(self.seed, "validation copies"))
            self.held_out = Copies.empty_like(self.validation)
            self._copy(self.validation, self.held_out)
        some = self.sample_index
        return {
            "training_loss": self._mean_loss(self.train.at(some), self.copies.at(some)),
            "validation_loss": self._mean_loss(self.validation, self.held_out),
        }

    def _copy(self, events: EventTensors, copies: Copies) -> None:
        size = _PART_ON_CPU if events.types.device.type == "cpu" else _PART
        for i in range(0, len(events.types), size):
            part = slice(i, i + size)
            originals = events.at(part)
            new = self.copier(originals)
            for whole, values in zip(copies, (*new, self.copier.weights(originals, new)), strict=True):
                whole[part] = values

    def _mean_loss(self, events: EventTensors, copies: Copies) -> float:
        n = len(events.types)
        parts = [self._cross_entropy(events.at(i), copies.at(i)).double() * len(events.types[i]) for i in batches(n)]
        return float(torch.stack(parts).sum()) / n

    def _cross_entropy(self, events: EventTensors, copies: Copies) -> Tensor:
        both = (torch.cat(pair) for pair in zip(events, copies[:2], strict=True))
        of_events, of_copies = self.network(*both)[:, 0].float().chunk(2)
        of_copies = (F.softplus(-of_copies) * copies.weight).sum() / copies.weight.sum().clamp_min(1)
        return (F.softplus(of_events).mean() + of_copies) / 2


class Copies(NamedTuple):
    """Copies of events, and how much each counts; the columns are those of ``EventTensors``."""

    kinematics: Tensor
    types: Tensor
    weight: Tensor

    @classmethod
    def empty_like(cls, events: EventTensors) -> Copies:
        weight = torch.zeros(len(events.types), device=events.types.device)
        return cls(torch.zeros_like(events.kinematics), torch.zeros_like(events.types), weight)

    def to(self, device: torch.device) -> Copies:
        return Copies(*(tensor.to(device) for tensor in self))

    def at(self, index: Tensor | slice) -> Copies:
        """Some of the copies."""
        return Copies(*(tensor[index] for tensor in self))


class Copier(ABC):
    """What training events know of each type of object; a subclass makes copies.

    What a selection or a detector never gives would be a mark of the copies that says nothing of anomalies.

    Attributes
    ----------
    least_log_pt, most_eta, most_factor
        (33,), by type: limits of pT, |eta| and ln(E / |p|) in training events.
    known
        (33, n_known, 2), by type: eta and ln(E / |p|) of some objects.
    """

    def __init__(self, train: EventTensors, *, n_known: int) -> None:
        self.least_log_pt = torch.zeros(MET_TYPE + 1)
        self.most_eta = torch.zeros(MET_TYPE + 1)
        self.most_factor = torch.zeros(MET_TYPE + 1)
        self.known = torch.zeros(MET_TYPE + 1, n_known, 2)
        objects, tags = train.kinematics[:, 1:], train.types[:, 1:]
        for tag in (*OBJECTS, MET_TYPE):
            of_type = train.kinematics[:, 0] if tag == MET_TYPE else objects[tags == tag]
            # A type that never occurs has the limits of all.
            found = of_type if len(of_type) else objects[tags != 0]
            if not len(found):
                continue
            self.least_log_pt[tag] = found[:, LOG_PT].min()
            self.most_eta[tag] = found[:, ETA].abs().max()
            self.most_factor[tag] = log_mass_factor(found).max()
            # From all parts of a file that may be sorted by process.
            some = found[torch.arange(n_known) * len(found) // n_known]
            self.known[tag] = torch.stack([some[:, ETA], log_mass_factor(some)], -1)

    def to(self, device: torch.device) -> None:
        for name, value in vars(self).items():
            if isinstance(value, Tensor | EventTensors):
                setattr(self, name, value.to(device))

    @abstractmethod
    def __call__(self, events: EventTensors) -> EventTensors:
        """Copy each event, with random changes."""

    def weights(self, events: EventTensors, copies: EventTensors) -> Tensor:  # noqa: ARG002
        """How much each copy (n,) counts in the training; here all alike."""
        return torch.ones(len(copies.types), device=copies.types.device)

    def balanced(self, events: EventTensors, changed: EventTensors) -> EventTensors:
        """The changed events, whose missing energy takes up what their objects lost or gained."""
        lost = visible(events.kinematics[:, 1:], events.types[:, 1:]) - visible(
            changed.kinematics[:, 1:], changed.types[:, 1:]
        )
        met = missing(transverse(events.kinematics[:, 0]) + lost, self.least_log_pt[MET_TYPE])
        return EventTensors(torch.cat([met, changed.kinematics[:, 1:]], 1), changed.types)

    def drawn(self, types: Tensor) -> tuple[Tensor, Tensor]:
        """Eta and ln(E / |p|) of an object of each of these types, as training events have them."""
        eta, factor = self.known[types, torch.randint(self.known.shape[1], types.shape, device=types.device)].unbind(-1)
        return eta, factor


def random_choices(n_events: int, used: list[int], n_kinds: int, device: torch.device) -> tuple[Tensor, ...]:
    """Whether each event (n_events, 1) undergoes each kind of change.

    Each combination of at least one of the kinds that are ``used`` is as likely as the others.
    """
    numbers = torch.randint(1, 2 ** len(used), (n_events, 1), device=device)
    never = torch.zeros_like(numbers, dtype=torch.bool)
    return tuple((numbers >> used.index(kind)) % 2 == 1 if kind in used else never for kind in range(n_kinds))


def in_order(met: Tensor, kinematics: Tensor, types: Tensor, max_objects: int) -> EventTensors:
    """Events of MET (n, 1, 4) and any number of objects in any order: the ``max_objects`` hardest, by type and pT."""
    by_pt = torch.where(types > 0, -kinematics[..., LOG_PT], torch.inf).argsort(1)[:, :max_objects]
    hardest = types.gather(1, by_pt)
    order = by_pt.gather(1, torch.where(hardest > 0, hardest, MET_TYPE).argsort(dim=1, stable=True))
    types = types.gather(1, order)
    kinematics = kinematics.gather(1, order[..., None].expand(-1, -1, kinematics.shape[-1]))
    kinematics = torch.where((types > 0)[..., None], kinematics, 0)
    types = torch.cat([torch.full_like(types[:, :1], MET_TYPE), types], 1)
    return EventTensors(torch.cat([met, kinematics], 1), types.to(torch.uint8))
