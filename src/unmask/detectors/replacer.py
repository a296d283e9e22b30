"""Copies of events with objects replaced, that could be events: balanced, and with their objects apart."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.distributions import Dirichlet

from unmask.detectors.copies import Copier, in_order, random_choices
from unmask.detectors.inputs import EVENT_TYPE, EventTensors
from unmask.detectors.momenta import log_cosh, log_mass_factor, mirrored_in, mirrored_up, pushed, transverse, visible
from unmask.events.objects import MAX_ENERGY_MEV
from unmask.networks.backbones import ETA, LOG_ENERGY, LOG_PT, PHI
from unmask.networks.pair_features import wrapped

#: Objects of each type whose eta and E / |p| a new one can have.
_N_KNOWN = 1 << 14
#: At most so many objects are added to an event, or renamed.
_MAX_ADDED, _MAX_RENAMED = 8, 3
_JET, _B_JET, LEPTON, _PHOTON = 1, 2, 3, 7
#: Tags of what can be added; a lepton becomes one of either flavour and charge.
ADDED_TAGS = (_JET, _B_JET, LEPTON, _PHOTON)
#: How events differ in what they get: Dirichlet's parameters of jets, b-jets, leptons and photons.
_CONCENTRATION = (0.7, 0.5, 0.5, 0.15)
#: Limits of what the mean pT of added objects above threshold, and the mean of added MET, are drawn from, in GeV.
_PT_GEV, _MET_GEV = (20.0, 300.0), (30.0, 400.0)
#: Width of the logarithm of what momenta are multiplied by.
_SCALE = 0.6
#: Directions that are tried for what is added, so that together it is balanced more or less.
_N_TRIES = 6
#: So large a share of the pairs of background is closer than what counts as too close.
_TOO_CLOSE = 0.01
#: Training events that this is measured on.
_N_FOR_DISTANCES = 4096


class Replacer(Copier):
    """Changes every event at random.

    Each of four changes is made in about one half of the events, and at least one of them in all: all momenta are
    multiplied by a number larger than 1; one to three objects become others (or, by chance, what they were); one to
    eight objects are added, in half of these events in the place of as many of the softest jets without b-tag; an
    invisible particle is added. How hard the new is, and of which types it is rather than of others, is drawn anew for
    each event.

    The rest of the event recoils against what is added, and takes over the momentum of what goes. New objects have the
    eta of background objects of their type, at any angle about the beam, and are not closer to others than those are.
    No object is softer or more forward than background has them: momenta are mirrored there.
    """

    def __init__(self, train: EventTensors) -> None:
        super().__init__(train, n_known=_N_KNOWN)
        some = train.at(slice(None, None, max(1, -(-len(train.types) // _N_FOR_DISTANCES))))
        types, distance = some.types[:, 1:], _distances(some.kinematics[:, 1:], some.kinematics[:, 1:])
        is_pair = (types > 0)[:, :, None] & (types > 0)[:, None] & ~torch.eye(types.shape[1], dtype=torch.bool)
        n_jets = _n_jets(types, types)
        # Between none, one and two jets: jets are wide.
        self.least_distance = torch.zeros(3)
        for n in range(3):
            found = distance[is_pair & (n_jets == n)]
            if len(found):
                self.least_distance[n] = found.kthvalue(1 + int(_TOO_CLOSE * (len(found) - 1))).values

    def __call__(self, events: EventTensors) -> EventTensors:
        n, device = len(events.types), events.types.device
        scales, renames, adds, hides = random_choices(n, [0, 1, 2, 3], 4, device)
        preference = Dirichlet(torch.tensor(_CONCENTRATION, device=device)).sample((n,))
        scale = torch.where(scales, (_SCALE * torch.randn(n, 1, device=device)).abs(), 0)
        kinematics, types = events.kinematics.clone(), events.types.to(torch.long, copy=True)
        kinematics[..., : LOG_PT + 1] += scale[..., None]
        self._rename(kinematics[:, 1:], types[:, 1:], renames, preference)
        n_added = torch.where(adds, torch.randint(1, _MAX_ADDED + 1, (n, 1), device=device), 0)
        new_types = self._types(preference, _MAX_ADDED)
        new_types = torch.where(torch.arange(_MAX_ADDED, device=device) < n_added, new_types, 0)
        n_gone = torch.where(torch.rand(n, 1, device=device) < 0.5, n_added, 0)
        met_gev = torch.where(hides, _log_uniform(_MET_GEV, n, device), 0)
        changed = EventTensors(kinematics, types)
        copies = self.added(changed, new_types, pt_gev=_log_uniform(_PT_GEV, n, device), met_gev=met_gev, n_gone=n_gone)
        return self.balanced(events, copies)  # as the events were before momenta grew and objects were renamed

    def added(
        self,
        events: EventTensors,
        new_types: Tensor,
        *,
        pt_gev: Tensor | float,
        met_gev: Tensor | float = 0,
        n_gone: Tensor | int = 0,
    ) -> EventTensors:
        """Add objects of ``new_types`` (n, n_new) to events, some in the place of jets, and an invisible particle.

        ``pt_gev`` is the mean pT of the new above threshold, ``met_gev`` the mean momentum of what is invisible,
        ``n_gone`` the number of the softest jets without b-tag that make way; each is one number or (n, 1).
        """
        kinematics, types = events.kinematics, events.types.long()
        jet_pt = torch.where(types == _JET, kinematics[..., LOG_PT], torch.inf)
        is_gone = (jet_pt.argsort(1).argsort(1) < n_gone) & (types == _JET)
        gone = (transverse(kinematics) * is_gone[..., None]).sum(1)
        types = torch.where(is_gone, 0, types)
        # Two exponential numbers for each invisible momentum: none of them is very small.
        size = 0.5 * met_gev * torch.empty(len(types), 2, device=types.device).exponential_().sum(1, keepdim=True)
        invisible = size * _directions((len(types),), types.device)
        new = self._new(new_types, pt_gev, invisible - gone)
        recoil = gone - visible(new, new_types) - invisible
        kinematics = self._within_limits(pushed(kinematics, types, recoil), types)
        new, new_types = self._apart(new, new_types, kinematics[:, 1:], types[:, 1:])
        objects, types = torch.cat([kinematics[:, 1:], new], 1), torch.cat([types[:, 1:], new_types], 1)
        excess = (objects[..., LOG_ENERGY] - math.log(MAX_ENERGY_MEV)).clamp_min(0)
        objects[..., : LOG_PT + 1] -= excess[..., None]
        # What was turned, mirrored, cut or lost is missing instead.
        return self.balanced(events, in_order(kinematics[:, :1], objects, types))

    def _rename(self, kinematics: Tensor, types: Tensor, renames: Tensor, preference: Tensor) -> None:
        """Let some objects become others, in place."""
        n_renamed = torch.where(renames, torch.randint(1, _MAX_RENAMED + 1, renames.shape, device=types.device), 0)
        rank = torch.rand(types.shape, device=types.device).masked_fill(types == 0, 2.0).argsort(1).argsort(1)
        others = self._types(preference, types.shape[1])
        is_renamed = (types > 0) & (rank < n_renamed) & (others != types)
        types.copy_(torch.where(is_renamed, others, types))
        _, log_pt, eta, phi = kinematics.unbind(-1)
        log_energy = log_pt + log_cosh(eta) + self.drawn(types)[1]
        renamed = torch.stack([log_energy, log_pt, eta, phi], -1)
        kinematics.copy_(torch.where(is_renamed[..., None], renamed, kinematics))

    def _types(self, preference: Tensor, n_objects: int) -> Tensor:
        """Types (n, n_objects), drawn by each event's ``preference`` (n, 4)."""
        race = torch.empty(len(preference), n_objects, preference.shape[1], device=preference.device).exponential_()
        drawn = (race / preference.clamp_min(1e-6)[:, None]).argmin(-1)
        types = torch.tensor(ADDED_TAGS, device=drawn.device)[drawn]
        return types + torch.where(types == LEPTON, torch.randint(4, types.shape, device=types.device), 0)

    def _new(self, types: Tensor, mean_pt_gev: Tensor | float, beside: Tensor) -> Tensor:
        """New objects (n, n_new, 4) of these types, balanced more or less with the momentum ``beside`` (n, 2) them."""
        (n, n_objects), device = types.shape, types.device
        above = mean_pt_gev * torch.empty(types.shape, device=device).exponential_()
        pt_gev = self.least_log_pt[types].exp() / 1e3 + above
        directions = _directions((n, _N_TRIES, n_objects), device)  # the sum is the less, the more tries there are
        total = ((pt_gev * (types > 0))[:, None, :, None] * directions).sum(2) + beside[:, None]
        is_tried = torch.arange(_N_TRIES, device=device) < torch.randint(1, _N_TRIES + 1, (n, 1), device=device)
        best = torch.where(is_tried, total.norm(dim=-1), torch.inf).argmin(1)
        x, y = directions[torch.arange(n, device=device), best].unbind(-1)
        eta, factor = self.drawn(types)
        log_pt = (pt_gev * 1e3).log()
        return torch.stack([log_pt + log_cosh(eta) + factor, log_pt, eta, torch.atan2(y, x)], -1)

    def _within_limits(self, kinematics: Tensor, types: Tensor) -> Tensor:
        """Objects with momenta and directions that their types have; what is missing stays."""
        log_energy, log_pt, eta, phi = kinematics.unbind(-1)
        least, most, heaviest = (limit[types] for limit in (self.least_log_pt, self.most_eta, self.most_factor))
        is_outside = (log_pt < least) | (eta.abs() > most) | (log_mass_factor(kinematics) > heaviest)
        mass_squared = (2 * log_energy).exp() - (2 * (log_pt + log_cosh(eta))).exp()
        log_pt, eta = mirrored_up(log_pt, least), mirrored_in(eta, most)
        log_momentum = log_pt + log_cosh(eta)
        log_energy = 0.5 * ((2 * log_momentum).exp() + mass_squared.clamp_min(0)).log()
        within = torch.stack([log_energy.minimum(log_momentum + heaviest), log_pt, eta, phi], -1)
        return torch.where((is_outside & (types > 0) & (types < EVENT_TYPE))[..., None], within, kinematics)

    def _apart(self, new: Tensor, new_types: Tensor, old: Tensor, old_types: Tensor) -> tuple[Tensor, Tensor]:
        """Turn new objects that are too close to others away from them; what stays too close is lost."""
        n_old, n_new = old.shape[1], new.shape[1]
        itself = torch.eye(n_old + n_new, dtype=torch.bool, device=new.device)[n_old:]
        for i in range(_N_TRIES + 1):
            types = torch.cat([old_types, new_types], 1)
            distance = _distances(new, torch.cat([old, new], 1)).masked_fill(itself, torch.inf)
            least = self.least_distance[_n_jets(new_types, types)]
            is_close = ((distance < least) & (types > 0)[:, None]).any(2)
            if i == _N_TRIES:
                break
            eta = torch.where(is_close, self.drawn(new_types)[0], new[..., ETA])
            turn = torch.where(is_close, 0.5 * torch.randn(is_close.shape, device=new.device), 0)
            factor = log_mass_factor(new)
            log_pt, phi = new[..., LOG_PT], wrapped(new[..., PHI] + turn)
            new = torch.stack([log_pt + log_cosh(eta) + factor, log_pt, eta, phi], -1)
        return new, torch.where(is_close, 0, new_types)


def _distances(kinematics: Tensor, others: Tensor) -> Tensor:
    """(n, objects, others): the angular distance."""
    eta, phi = (kinematics[..., i, None] - others[:, None, :, i] for i in (ETA, PHI))
    return torch.hypot(eta, wrapped(phi))


def _n_jets(types: Tensor, others: Tensor) -> Tensor:
    """(n, objects, others): how many of the two are jets."""
    return (types <= _B_JET).long()[:, :, None] + (others <= _B_JET).long()[:, None]


def _directions(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Unit vectors (..., 2)."""
    phi = 2 * math.pi * torch.rand(shape, device=device)
    return torch.stack([phi.cos(), phi.sin()], -1)


def _log_uniform(limits: tuple[float, float], n: int, device: torch.device) -> Tensor:
    """(n, 1)."""
    low, high = limits
    return low * torch.exp(math.log(high / low) * torch.rand(n, 1, device=device))
