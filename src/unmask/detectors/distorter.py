"""Distorted copies of events, made on the device: momenta smeared, objects added, removed and renamed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.detectors.inputs import EVENT_TYPE, MAX_OBJECTS, EventTensors
from unmask.errors import UsageError
from unmask.events.objects import N_TAGS
from unmask.networks.backbones import ETA, LOG_ENERGY, LOG_PT, PHI
from unmask.networks.pair_features import wrapped

#: Objects of each type whose E / |p| a renamed object can take over.
_POOL = 1024
#: Training events whose objects can be added to others, at most.
_MAX_DONORS = 1 << 16
# Larger than any logarithm of a momentum.
_TYPE_STEP = 100.0


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


class Distorter:
    """Distorts events so that only what the distortion means tells them from the others.

    Each event undergoes each kind of distortion with a probability of one half, and at least one. What a selection or
    a detector never gives would be a mark that says nothing of anomalies, so momenta are mirrored at the lowest pT and
    the largest absolute eta that the training events have for a type, a renamed object takes over the ratio of energy
    to momentum of an object of its new type, and objects are put in order and cut to 18 again.
    """

    def __init__(self, strengths: Strengths, train: EventTensors) -> None:
        self.strengths = strengths
        self.choices = _choices(strengths.is_used)
        # From all parts of a file that may be sorted by process: a neighbour could only lend what the event has anyway.
        self.donors = train.at(slice(None, None, -(-len(train.types) // _MAX_DONORS)))
        self.least_log_pt = torch.zeros(EVENT_TYPE + 1)
        self.most_eta = torch.zeros(EVENT_TYPE + 1)
        self.log_mass_factors = torch.zeros(EVENT_TYPE + 1, _POOL)
        objects, tags = train.kinematics[:, 1:], train.types[:, 1:]
        for tag in range(1, EVENT_TYPE + 1):
            of_type = train.kinematics[:, 0] if tag == EVENT_TYPE else objects[tags == tag]
            # A type that never occurs has the limits of all.
            known = of_type if len(of_type) else objects[tags != 0]
            if not len(known):
                continue
            self.least_log_pt[tag] = known[:, LOG_PT].min()
            self.most_eta[tag] = known[:, ETA].abs().max()
            factors = log_mass_factor(known)
            self.log_mass_factors[tag] = factors[torch.arange(_POOL) * len(factors) // _POOL]

    def to(self, device: torch.device) -> None:
        self.donors = self.donors.to(device)
        self.choices, self.least_log_pt, self.most_eta, self.log_mass_factors = (
            tensor.to(device) for tensor in (self.choices, self.least_log_pt, self.most_eta, self.log_mass_factors)
        )

    def __call__(self, events: EventTensors) -> EventTensors:
        """Distort each event; what is added comes from training events."""
        n, device = len(events.types), events.types.device
        chosen = self.choices[torch.randint(len(self.choices), (n,), device=device)]
        is_smeared, is_added_to, is_removed_from, is_retagged = (column[:, None] for column in chosen.unbind(1))
        theirs = self.donors.at(torch.randint(len(self.donors.types), (n,), device=device))
        kinematics, types = events.kinematics[:, 1:], events.types[:, 1:].long()
        their_types = theirs.types[:, 1:].long()
        types = torch.where(is_removed_from & _picked(types != 0, self.strengths.remove), 0, types)
        is_added = is_added_to & _picked(their_types != 0, self.strengths.add)
        types = torch.cat([types, torch.where(is_added, their_types, 0)], 1)
        kinematics = torch.cat([kinematics, theirs.kinematics[:, 1:]], 1)
        factor = log_mass_factor(kinematics)
        is_renamed = is_retagged & _picked(types != 0, self.strengths.retag)
        renamed = (types + torch.randint(1, N_TAGS, types.shape, device=device) - 1) % N_TAGS + 1
        types = torch.where(is_renamed, renamed, types)
        drawn = self.log_mass_factors[types, torch.randint(_POOL, types.shape, device=device)]
        factor = torch.where(is_renamed, drawn, factor)
        kinematics = self._moved(kinematics, types, is_smeared, is_smeared | is_renamed, factor)
        order = torch.where(types > 0, types * _TYPE_STEP - kinematics[..., LOG_PT], torch.inf).argsort(1)
        order = order[:, :MAX_OBJECTS]
        types = types.gather(1, order)
        kinematics = kinematics.gather(1, order[..., None].expand(-1, -1, kinematics.shape[-1]))
        kinematics = torch.where((types > 0)[..., None], kinematics, 0)
        met, met_type = events.kinematics[:, :1], events.types[:, :1]
        if self.strengths.recoil:
            lost = _visible(events.kinematics[:, 1:], events.types[:, 1:]) - _visible(kinematics, types)
            met = self._recoiled(met, lost)
        else:
            met = self._moved(met, met_type.long(), is_smeared, is_smeared, torch.zeros_like(met[..., 0]))
        return EventTensors(torch.cat([met, kinematics], 1), torch.cat([met_type, types.to(met_type.dtype)], 1))

    def _recoiled(self, met: Tensor, lost: Tensor) -> Tensor:
        """Add to the missing momentum (n, 1, 4) what the objects have lost, (n, 2) in GeV."""
        x, y = (_transverse(met[:, 0]) + lost).unbind(-1)
        log_met = torch.log(torch.hypot(x, y).clamp_min(1e-3) * 1e3)
        log_met = _mirrored_up(log_met, self.least_log_pt[EVENT_TYPE])
        return torch.stack([log_met, log_met, torch.zeros_like(x), torch.atan2(y, x)], -1)[:, None]

    def _moved(
        self, kinematics: Tensor, types: Tensor, is_smeared: Tensor, is_changed: Tensor, log_mass_factor: Tensor
    ) -> Tensor:
        """Smear where asked, keep within the limits of the types, and make the energies anew."""
        shift = torch.randn_like(kinematics) * self.strengths.smear * is_smeared[..., None]
        least, most = self.least_log_pt[types], self.most_eta[types]
        log_pt = kinematics[..., LOG_PT] + shift[..., LOG_PT]
        log_pt = torch.where(is_changed, _mirrored_up(log_pt, least), log_pt)
        eta = kinematics[..., ETA] + shift[..., ETA]
        mirrored = torch.where(eta.abs() > most, eta.sign() * (2 * most - eta.abs()), eta)
        eta = torch.where(is_changed, torch.clamp(mirrored, -most, most), eta)
        phi = kinematics[..., PHI] + shift[..., PHI]
        phi = torch.where(is_smeared, wrapped(phi), phi)
        log_energy = torch.where(is_changed, log_pt + _log_cosh(eta) + log_mass_factor, kinematics[..., LOG_ENERGY])
        return torch.stack([log_energy, log_pt, eta, phi], -1)


def _mirrored_up(log_pt: Tensor, least: Tensor) -> Tensor:
    """Mirror momenta at the least one: what is below comes to lie between it and its double.

    >>> _mirrored_up(torch.tensor([15.0, 30.0]).log(), torch.tensor(20.0).log()).exp()
    tensor([25.0000, 30.0000])
    """
    below = (log_pt - least).clamp_max(0)
    return torch.where(log_pt < least, least + (2 - below.exp()).log(), log_pt)


def _transverse(kinematics: Tensor) -> Tensor:
    """Transverse momenta (..., 2) in GeV."""
    pt_gev, phi = kinematics[..., LOG_PT].exp() / 1e3, kinematics[..., PHI]
    return torch.stack([pt_gev * phi.cos(), pt_gev * phi.sin()], -1)


def _visible(kinematics: Tensor, types: Tensor) -> Tensor:
    """Sum (n, 2) of the transverse momenta of all objects, in GeV."""
    return (_transverse(kinematics) * (types != 0)[..., None]).sum(1)


def log_mass_factor(kinematics: Tensor) -> Tensor:
    """ln(E / |p|): 0 for what is massless."""
    return kinematics[..., LOG_ENERGY] - kinematics[..., LOG_PT] - _log_cosh(kinematics[..., ETA])


def _log_cosh(eta: Tensor) -> Tensor:
    return torch.logaddexp(eta, -eta) - math.log(2)


def _choices(used: list[int]) -> Tensor:
    """All (n, 4) choices of at least one of the kinds of distortion that are used.

    >>> _choices([0, 2]).int().tolist()
    [[1, 0, 0, 0], [0, 0, 1, 0], [1, 0, 1, 0]]
    """
    choices = torch.zeros(2 ** len(used) - 1, 4, dtype=torch.bool)
    for i, kind in enumerate(used):
        choices[:, kind] = (torch.arange(1, 2 ** len(used)) >> i) % 2 == 1
    return choices


def _picked(is_there: Tensor, probability: float) -> Tensor:
    """Pick of those that are there each with a probability, and at least one."""
    drawn = torch.rand(is_there.shape, device=is_there.device).masked_fill(~is_there, 2.0)
    return is_there & (drawn <= drawn.amin(1, keepdim=True).clamp_min(probability))
