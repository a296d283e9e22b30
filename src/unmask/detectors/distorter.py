"""Distorted copies of events, made on the device: momenta smeared, objects added, removed and renamed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.detectors.copies import Copier, in_order, random_choices
from unmask.detectors.momenta import log_mass_factor, mirrored_in, mirrored_up
from unmask.errors import UsageError
from unmask.events.objects import OBJECTS
from unmask.kinematics import log_cosh, wrap_phi
from unmask.networks.event_network import ETA, LOG_ENERGY, LOG_PT, PHI
from unmask.networks.event_tensors import EventTensors

#: Objects of each type whose E / |p| a renamed object can take over.
_N_KNOWN = 1024
#: Training events whose objects can be added to others, at most.
_MAX_DONORS = 1 << 16


@dataclass(frozen=True)
class Strengths:
    """How strongly events are distorted.

    Attributes
    ----------
    smear : standard deviation of the logarithm of each pT and, in radians, of each direction.
    add, remove, retag : probability of each object: of another event, to be added; of the event, to be removed; to
        become one of another type. At least one object is, if there is any.
    recoil : the missing momentum takes up what the objects lose or gain, so that a distorted event is as balanced as
        any real one, known or not. Otherwise it is smeared like an object, and distortions show as a lack of balance.
    """

    smear: float
    add: float
    remove: float
    retag: float
    recoil: bool

    def __post_init__(self) -> None:
        mistakes = []
        if not (math.isfinite(self.smear) and self.smear >= 0):
            mistakes.append(f"smear is {self.smear}; accepted: 0 or more")
        mistakes += [
            f"{name} is {getattr(self, name)}; accepted: from 0 to 1"
            for name in ("add", "remove", "retag")
            if not 0 <= getattr(self, name) <= 1
        ]
        if not (mistakes or self.is_used):
            mistakes.append("no distortion is left: all strengths are 0")
        if mistakes:
            raise UsageError("; ".join(mistakes))

    @property
    def is_used(self) -> list[int]:
        """The kinds of distortion, in the order of the attributes, whose strength is not 0."""
        return [i for i, value in enumerate((self.smear, self.add, self.remove, self.retag)) if value > 0]


class Distorter(Copier):
    """Distorts events so that only what the distortion means tells them from the others.

    Each event undergoes at least one kind of distortion, every combination as often as the others. Momenta are mirrored
    at the lowest pT and the largest absolute eta that the training events have for a type, a renamed object takes over
    the ratio of energy to momentum of an object of its new type, and objects are put in order and cut again.
    """

    def __init__(self, strengths: Strengths, train: EventTensors, tags: Sequence[int] = tuple(OBJECTS)) -> None:
        super().__init__(train, n_known=_N_KNOWN)
        self.strengths, self.tags = strengths, torch.tensor(tags)
        # From all parts of a file that may be sorted by process: a neighbour could only lend what the event has anyway.
        self.donors = train.at(slice(None, None, -(-len(train.types) // _MAX_DONORS)))

    def __call__(self, events: EventTensors) -> EventTensors:
        """Distort each event; what is added comes from training events."""
        n, device = len(events.types), events.types.device
        is_smeared, is_added_to, is_removed_from, is_retagged = random_choices(n, self.strengths.is_used, 4, device)
        theirs = self.donors.at(torch.randint(len(self.donors.types), (n,), device=device))
        kinematics, types = events.kinematics[:, 1:], events.types[:, 1:].long()
        their_types = theirs.types[:, 1:].long()
        types = torch.where(is_removed_from & _picked(types != 0, self.strengths.remove), 0, types)
        is_added = is_added_to & _picked(their_types != 0, self.strengths.add)
        types = torch.cat([types, torch.where(is_added, their_types, 0)], 1)
        kinematics = torch.cat([kinematics, theirs.kinematics[:, 1:]], 1)
        factor = log_mass_factor(kinematics)
        is_renamed = is_retagged & _picked(types != 0, self.strengths.retag)
        n_types = len(self.tags)
        other = torch.searchsorted(self.tags, types) + torch.randint(1, n_types, types.shape, device=device)
        renamed = self.tags[other % n_types]
        types = torch.where(is_renamed, renamed, types)
        factor = torch.where(is_renamed, self.drawn(types)[1], factor)
        kinematics = self._moved(kinematics, types, is_smeared, is_smeared | is_renamed, factor)
        met, met_type = events.kinematics[:, :1], events.types[:, :1]
        distorted = in_order(met, kinematics, types, events.types.shape[1] - 1)
        if self.strengths.recoil:
            return self.balanced(events, distorted)
        met = self._moved(met, met_type.long(), is_smeared, is_smeared, torch.zeros_like(met[..., 0]))
        return EventTensors(torch.cat([met, distorted.kinematics[:, 1:]], 1), distorted.types)

    def _moved(
        self, kinematics: Tensor, types: Tensor, is_smeared: Tensor, is_changed: Tensor, log_mass_factor: Tensor
    ) -> Tensor:
        """Smear where asked, keep within the limits of the types, and make the energies anew."""
        shift = torch.randn_like(kinematics) * self.strengths.smear * is_smeared[..., None]
        least, most = self.least_log_pt[types], self.most_eta[types]
        log_pt = kinematics[..., LOG_PT] + shift[..., LOG_PT]
        log_pt = torch.where(is_changed, mirrored_up(log_pt, least), log_pt)
        eta = kinematics[..., ETA] + shift[..., ETA]
        eta = torch.where(is_changed, mirrored_in(eta, most), eta)
        phi = kinematics[..., PHI] + shift[..., PHI]
        phi = torch.where(is_smeared, wrap_phi(phi), phi)
        log_energy = torch.where(is_changed, log_pt + log_cosh(eta) + log_mass_factor, kinematics[..., LOG_ENERGY])
        return torch.stack([log_energy, log_pt, eta, phi], -1)


def _picked(is_there: Tensor, probability: float) -> Tensor:
    """Pick of those that are there each with a probability, and at least one."""
    drawn = torch.rand(is_there.shape, device=is_there.device).masked_fill(~is_there, 2.0)
    return is_there & (drawn <= drawn.amin(1, keepdim=True).clamp_min(probability))
