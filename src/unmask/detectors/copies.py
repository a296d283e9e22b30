"""Changed copies of events, made on the device, and a network that learns to tell them from the events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.detectors.momenta import log_mass_factor, met_kinematics, transverse, visible
from unmask.events.event_set import EventSet
from unmask.events.objects import MET_TYPE, OBJECTS
from unmask.networks.event_network import ETA, LOG_ENERGY, LOG_PT, PHI, EventNetwork
from unmask.networks.event_tensors import EventTensors
from unmask.training import Task, batches, derive_seed

# Events that are copied at a time; on a CPU their data stay in the cache.
_PART, _PART_ON_CPU = 1 << 16, 1 << 11


class CopyGenerator(ABC):
    """Makes changed copies of events, within the limits of training events.

    A property that a selection or a detector never gives would mark the copies without being an anomaly.

    Attributes
    ----------
    min_log_pt, max_abs_eta, max_log_mass_factor
        (33,), by type: limits of pT, \\|eta\\| and ln(E / \\|p\\|) in training events.
    known
        (33, n_known, 2), by type: eta and ln(E / \\|p\\|) of some objects.
    """

    def __init__(self, train: EventTensors, *, n_known: int) -> None:
        self.min_log_pt = torch.zeros(MET_TYPE + 1)
        self.max_abs_eta = torch.zeros(MET_TYPE + 1)
        self.max_log_mass_factor = torch.zeros(MET_TYPE + 1)
        self.known = torch.zeros(MET_TYPE + 1, n_known, 2)
        objects, tags = train.kinematics[:, 1:], train.types[:, 1:]
        for tag in (*OBJECTS, MET_TYPE):
            of_type = train.kinematics[:, 0] if tag == MET_TYPE else objects[tags == tag]
            # A type that never occurs has the limits of all.
            of_type = of_type if len(of_type) else objects[tags != 0]
            if not len(of_type):
                continue
            self.min_log_pt[tag] = of_type[:, LOG_PT].min()
            self.max_abs_eta[tag] = of_type[:, ETA].abs().max()
            self.max_log_mass_factor[tag] = log_mass_factor(of_type).max()
            # From all parts of a file that may be sorted by process.
            some = of_type[torch.arange(n_known) * len(of_type) // n_known]
            self.known[tag] = torch.stack([some[:, ETA], log_mass_factor(some)], -1)

    def to(self, device: torch.device) -> CopyGenerator:
        """Move all tensors."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor | EventTensors):
                setattr(self, name, value.to(device))
        return self

    @abstractmethod
    def __call__(self, events: EventTensors) -> EventTensors:
        """Copy each event, with random changes."""

    def weights(self, events: EventTensors, copies: EventTensors) -> Tensor:  # noqa: ARG002
        """Weight (n,) of each copy in the training; here 1."""
        return torch.ones(len(copies.types), device=copies.types.device)

    def balanced(self, events: EventTensors, changed: EventTensors) -> EventTensors:
        """Let the MET of ``changed`` events compensate the changes of their objects."""
        lost = visible(events.kinematics[:, 1:], events.types[:, 1:]) - visible(
            changed.kinematics[:, 1:], changed.types[:, 1:]
        )
        met = met_kinematics(transverse(events.kinematics[:, 0]) + lost, self.min_log_pt[MET_TYPE])
        return EventTensors(torch.cat([met, changed.kinematics[:, 1:]], 1), changed.types)

    def drawn(self, types: Tensor) -> tuple[Tensor, Tensor]:
        """Eta and ln(E / \\|p\\|) of training objects of these types."""
        eta, factor = self.known[types, torch.randint(self.known.shape[1], types.shape, device=types.device)].unbind(-1)
        return eta, factor


class CopiesTask(Task):
    """Cross-entropy of every event once as it is and once as a changed copy, made anew in every epoch.

    Copies of validation events are made once, so that epochs can be compared.
    """

    def __init__(
        self,
        network: EventNetwork,
        train: EventTensors,
        validation: EventTensors,
        generator: CopyGenerator,
        **options: Any,
    ) -> None:
        super().__init__(network, _with_room(train), _with_room(validation), **options)
        self.generator = generator
        self.has_validation_copies = False

    def start_epoch(self) -> None:
        self._copy(self.train)

    def evaluate(self) -> dict[str, float]:
        if not self.has_validation_copies:
            # Whatever was drawn before, a run that is continued gets the same copies.
            torch.manual_seed(derive_seed(self.seed, "validation copies"))
            self._copy(self.validation)
            self.has_validation_copies = True
        return super().evaluate()

    def _copy(self, data: tuple[Tensor, ...]) -> None:
        size = _PART_ON_CPU if data[0].device.type == "cpu" else _PART
        for kinematics, types, *copies in batches(data, size):
            events = EventTensors(kinematics, types)
            new = self.generator(events)
            for whole, values in zip(copies, (*new, self.generator.weights(events, new)), strict=True):
                whole.copy_(values)

    def loss(self, *data: Tensor) -> Tensor:
        kinematics, types, copied_kinematics, copied_types, weight = data
        both = torch.cat([kinematics, copied_kinematics]), torch.cat([types, copied_types])
        of_events, of_copies = self.network(*both)[:, 0].float().chunk(2)
        of_copies = (F.softplus(-of_copies) * weight).sum() / weight.sum().clamp_min(1)
        return (F.softplus(of_events).mean() + of_copies) / 2


def _with_room(events: EventTensors) -> tuple[Tensor, ...]:
    """Tensors of events, and others for their copies and the weights of these."""
    weight = torch.zeros(len(events.types), device=events.types.device)
    return *events, torch.zeros_like(events.kinematics), torch.zeros_like(events.types), weight


def random_choices(n_events: int, is_used: Sequence[bool], device: torch.device) -> list[Tensor]:
    """Draw whether each event (n_events, 1) undergoes each kind of change.

    Each combination of at least one of the kinds that are used is as likely as the others.
    """
    numbers = torch.randint(1, 2 ** sum(is_used), (n_events, 1), device=device)
    return [(numbers >> sum(is_used[:kind])) % 2 == 1 if used else numbers < 0 for kind, used in enumerate(is_used)]


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


def with_tensors(events: EventSet, tensors: EventTensors) -> EventSet:
    """Events with other objects and another MET."""
    kinematics, types = (tensor.cpu().numpy() for tensor in tensors)
    is_object = types[:, 1:] != 0
    columns = {
        "energy_mev": np.where(is_object, np.exp(kinematics[:, 1:, LOG_ENERGY]), 0),
        "pt_mev": np.where(is_object, np.exp(kinematics[:, 1:, LOG_PT]), 0),
        "eta": kinematics[:, 1:, ETA],
        "phi": kinematics[:, 1:, PHI],
        "met_mev": np.exp(kinematics[:, 0, LOG_PT]),
        "met_phi": kinematics[:, 0, PHI],
    }
    return replace(events, tag=types[:, 1:], **columns)
