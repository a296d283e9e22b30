"""Changed copies of events, made on the device, and a network that learns to tell them from the events."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.detectors.event_network import BackgroundTask, EventNetworkDetector
from unmask.detectors.inputs import EVENT_TYPE, MAX_OBJECTS, EventTensors
from unmask.events.event_set import EventSet
from unmask.networks.backbones import ETA, LOG_ENERGY, LOG_PT, PHI, EventNetwork

# Events that are copied at a time.
_PART = 1 << 16
# Larger than any logarithm of a momentum.
_TYPE_STEP = 100.0


class CopiesTask(BackgroundTask):
    """Every event is seen once as it is and once as a changed copy, made anew in every epoch."""

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
        self.copies = EventTensors(*(torch.zeros_like(tensor) for tensor in self.train))

    def to(self, device: torch.device) -> None:
        super().to(device)
        self.copier.to(device)
        self.copies = self.copies.to(device)

    def start_epoch(self) -> None:
        for i in range(0, self.n_train, _PART):
            some = slice(i, i + _PART)
            for mine, new in zip(self.copies, self.copier(self.train.at(some)), strict=True):
                mine[some] = new

    def training_loss(self, index: Tensor) -> Tensor:
        return self._cross_entropy(self.train.at(index), self.copies.at(index))

    def loss(self, events: EventTensors) -> Tensor:
        return self._cross_entropy(events, self.copier(events))

    def _cross_entropy(self, events: EventTensors, copies: EventTensors) -> Tensor:
        both = (torch.cat(pair) for pair in zip(events, copies, strict=True))
        of_events, of_copies = self.network(*both)[:, 0].float().chunk(2)
        return (F.softplus(of_events).mean() + F.softplus(-of_copies).mean()) / 2


class Copier(ABC):
    """What training events know of each type of object; a subclass makes copies.

    What a selection or a detector never gives would be a mark of the copies that says nothing of anomalies.

    Attributes
    ----------
    least_log_pt, most_eta : (9,), the limits of each type, in training events.
    known : (9, n_known, 2), eta and ln(E / |p|) of some objects of each type.
    """

    def __init__(self, train: EventTensors, *, n_known: int) -> None:
        self.least_log_pt = torch.zeros(EVENT_TYPE + 1)
        self.most_eta = torch.zeros(EVENT_TYPE + 1)
        self.known = torch.zeros(EVENT_TYPE + 1, n_known, 2)
        objects, tags = train.kinematics[:, 1:], train.types[:, 1:]
        for tag in range(1, EVENT_TYPE + 1):
            of_type = train.kinematics[:, 0] if tag == EVENT_TYPE else objects[tags == tag]
            # A type that never occurs has the limits of all.
            found = of_type if len(of_type) else objects[tags != 0]
            if not len(found):
                continue
            self.least_log_pt[tag] = found[:, LOG_PT].min()
            self.most_eta[tag] = found[:, ETA].abs().max()
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


def in_order(met: Tensor, kinematics: Tensor, types: Tensor) -> EventTensors:
    """Events of missing energies (n, 1, 4) and any number of objects in any order: by type and pT, cut to 18."""
    order = torch.where(types > 0, types * _TYPE_STEP - kinematics[..., LOG_PT], torch.inf).argsort(1)[:, :MAX_OBJECTS]
    types = types.gather(1, order)
    kinematics = kinematics.gather(1, order[..., None].expand(-1, -1, kinematics.shape[-1]))
    kinematics = torch.where((types > 0)[..., None], kinematics, 0)
    types = torch.cat([torch.full_like(types[:, :1], EVENT_TYPE), types], 1)
    return EventTensors(torch.cat([met, kinematics], 1), types.to(torch.uint8))


def missing(momentum: Tensor, least_log_pt: Tensor) -> Tensor:
    """Kinematics (n, 1, 4) of the missing momentum (n, 2) in GeV, mirrored at the least that there is."""
    x, y = momentum.unbind(-1)
    log_met = mirrored_up(torch.log(torch.hypot(x, y).clamp_min(1e-3) * 1e3), least_log_pt)
    return torch.stack([log_met, log_met, torch.zeros_like(x), torch.atan2(y, x)], -1)[:, None]


def mirrored_up(log_pt: Tensor, least: Tensor) -> Tensor:
    """Mirror momenta at the least one: what is below comes to lie between it and its double.

    >>> mirrored_up(torch.tensor([15.0, 30.0]).log(), torch.tensor(20.0).log()).exp()
    tensor([25.0000, 30.0000])
    """
    below = (log_pt - least).clamp_max(0)
    return torch.where(log_pt < least, least + (2 - below.exp()).log(), log_pt)


def mirrored_in(eta: Tensor, most: Tensor) -> Tensor:
    """Mirror directions at the most forward one.

    >>> mirrored_in(torch.tensor([-2.6, 1.0, 9.0]), torch.tensor(2.5))
    tensor([-2.4000,  1.0000, -2.5000])
    """
    mirrored = torch.where(eta.abs() > most, eta.sign() * (2 * most - eta.abs()), eta)
    return torch.clamp(mirrored, -most, most)


def transverse(kinematics: Tensor) -> Tensor:
    """Transverse momenta (..., 2) in GeV."""
    pt_gev, phi = kinematics[..., LOG_PT].exp() / 1e3, kinematics[..., PHI]
    return torch.stack([pt_gev * phi.cos(), pt_gev * phi.sin()], -1)


def visible(kinematics: Tensor, types: Tensor) -> Tensor:
    """Sum (n, 2) of the transverse momenta of all objects, in GeV."""
    return (transverse(kinematics) * (types != 0)[..., None]).sum(1)


def log_mass_factor(kinematics: Tensor) -> Tensor:
    """ln(E / |p|): 0 for what is massless."""
    return kinematics[..., LOG_ENERGY] - kinematics[..., LOG_PT] - log_cosh(kinematics[..., ETA])


def log_cosh(eta: Tensor) -> Tensor:
    return torch.logaddexp(eta, -eta) - math.log(2)
