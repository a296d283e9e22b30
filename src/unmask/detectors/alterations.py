"""Altered copies of background events: the negatives of the contrast detector."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Dirichlet

from unmask.detectors.copies import CopyGenerator, in_order, random_choices, with_tensors
from unmask.detectors.decays import drawn_decays
from unmask.detectors.momenta import (
    boost_transverse,
    directions,
    log_mass_factor,
    log_uniform,
    reflected_in,
    reflected_up,
    visible,
)
from unmask.errors import UsageError
from unmask.events.cuts import Cut
from unmask.events.event_set import EventSet
from unmask.events.objects import IS_B_JET, IS_JET, LEPTON_TAGS, MAX_ENERGY_MEV, MET_TYPE, TAGS, by_tag
from unmask.kinematics import delta_r, log_cosh, wrap_phi
from unmask.networks.event_network import ETA, LOG_ENERGY, LOG_PT, PHI
from unmask.networks.event_tensors import EventTensors
from unmask.parameters import Count, NotNegative, mistakes_in

#: Objects of each type that lend their eta and E / |p| to new ones.
_N_KNOWN = 1 << 14
_JET, _B_JET, _PHOTON = TAGS["jet"], TAGS["b-jet"], TAGS["photon"]
_LEPTONS = [tag for pair in LEPTON_TAGS for tag in pair]
#: Tags of added objects; a lepton becomes one of either flavor and charge.
_ADDED_TAGS = (_JET, _B_JET, _LEPTONS[0], _PHOTON)
_IS_JET, _IS_B_JET = torch.tensor(IS_JET), torch.tensor(IS_B_JET)
_IS_NEGATIVE, _IS_POSITIVE = (
    torch.tensor(by_tag(lambda one, charge=charge: one.tag in _LEPTONS and one.charge == charge))  # type: ignore[misc]
    for charge in (-1, +1)
)
_IS_PHOTON = torch.tensor(by_tag(lambda one: one.family == "photon"))
#: Dirichlet parameters of the fractions of jets, b-jets, leptons and photons among the objects added to one event.
_CONCENTRATION = (0.7, 0.5, 0.5, 0.15)
#: Directions that are tried for added objects, so that together they are roughly balanced.
_N_TRIES = 6
#: Fraction of the pairs of objects in background that are closer than the minimum distance.
_TOO_CLOSE = 0.01
#: Training events that this is measured on.
_N_FOR_DISTANCES = 4096

#: Lends copies the columns that no cut on observables looks at.
_ONE_EVENT = EventSet.from_arrays(
    unit="MeV", types=[[0]], energy=[[0]], pt=[[0]], eta=[[0]], phi=[[0]], met=[1e5], met_phi=[0]
)

Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Alterations:
    """Kinds and strengths of the changes that make an altered copy of a background event.

    A copy keeps the momentum balance of its event: the rest recoils against what is added or removed. Momenta are
    drawn log-uniformly from their range for each event.

    Attributes
    ----------
    fewer_jets
        Fraction of the copies in which jets are removed, each with the same probability, and sometimes MET is added or
        all momenta are scaled: electroweak production has less hadronic activity than top-quark background.
    decays
        Fraction of the copies with one or two additional W, Z or Higgs bosons or top quarks: heavy new particles decay
        to known ones. All other copies undergo any of the next four changes, at least one.
    scale
        Width of the log-normal factor, above 1, on all momenta: a heavier system is harder throughout.
    max_retagged
        Maximum number of objects that change their type: new couplings change the flavor of the products.
    max_added
        Maximum number of added objects, in half of the copies in place of as many of the softest jets without b-tag:
        long decay chains give many objects.
    added_pt_gev, invisible_pt_gev, decaying_pt_gev
        Ranges of the mean pT of added objects above their threshold, of the mean pT of an added invisible particle, as
        dark matter would be, and of the pT of a decaying particle.
    """

    fewer_jets: float = 0.2
    decays: float = 0.15
    scale: NotNegative = 0.8
    max_retagged: Count = 3
    max_added: Count = 8
    added_pt_gev: Range = (20.0, 600.0)
    invisible_pt_gev: Range = (30.0, 800.0)
    decaying_pt_gev: Range = (30.0, 1500.0)

    def __post_init__(self) -> None:
        mistakes = [
            f"{name} is {getattr(self, name)}; expected a fraction, the two together at most 1"
            for name in ("fewer_jets", "decays")
            if not (getattr(self, name) >= 0 and self.fewer_jets + self.decays <= 1)
        ]
        mistakes += mistakes_in(type(self), vars(self))
        for field in fields(self):
            if field.name.endswith("_gev"):
                low, high = getattr(self, field.name)
                object.__setattr__(self, field.name, (low, high))  # JSON gives a list
                if not 0 < low <= high < math.inf:
                    mistakes.append(f"{field.name} is {low}, {high}; expected two momenta above 0, the smaller first")
        if mistakes:
            raise UsageError("alterations: " + "; ".join(mistakes))


class AlteredCopies(CopyGenerator):
    """Makes altered copies of background events.

    New objects have the eta and the mass of background objects of their type, at any angle about the beam, and are not
    closer to others than those are. None is softer or more forward than in background: momenta are reflected there.
    """

    def __init__(self, alterations: Alterations, train: EventTensors, cut: str | None = None) -> None:
        super().__init__(train, n_known=_N_KNOWN)
        self.alterations = alterations
        self.cuts = Cut(cut).of_observables() if cut else []
        some = train.at(slice(None, None, max(1, -(-len(train.types) // _N_FOR_DISTANCES))))
        types, distance = some.types[:, 1:], _distances(some.kinematics[:, 1:], some.kinematics[:, 1:])
        is_pair = (types > 0)[:, :, None] & (types > 0)[:, None] & ~torch.eye(types.shape[1], dtype=torch.bool)
        n_jets = _n_jets(types, types)
        # Between none, one and two jets: jets are wide.
        self.min_delta_r = torch.zeros(3)
        for n in range(3):
            of_pairs = distance[is_pair & (n_jets == n)]
            if len(of_pairs):
                self.min_delta_r[n] = of_pairs.kthvalue(1 + int(_TOO_CLOSE * (len(of_pairs) - 1))).values
        selected = _selected_on(train) if len(train.types) else torch.zeros(1, 8)
        self.min_selected, self.is_vetoed = selected.amin(0), selected.amax(0) == 0

    def __call__(self, events: EventTensors) -> EventTensors:
        draw = torch.rand(len(events.types), device=events.types.device)
        limit = self.alterations.fewer_jets
        kinds = (draw >= limit).long() + (draw >= limit + self.alterations.decays)
        copies = EventTensors(torch.empty_like(events.kinematics), torch.empty_like(events.types))
        for kind, altered in enumerate((self.with_fewer_jets, self.with_decays, self.changed)):
            index = torch.nonzero(kinds == kind)[:, 0]
            for whole, part in zip(copies, altered(events.at(index)), strict=True):
                whole[index] = part
        return copies

    def weights(self, events: EventTensors, copies: EventTensors) -> Tensor:
        """1 for copies that would have been selected like background, 0 for others and for copies without a change."""
        is_moved = ((copies.kinematics - events.kinematics).abs() > 1e-3).flatten(1).any(1)
        is_same = (copies.types == events.types).all(1) & ~is_moved
        return (self.are_selected(copies) & ~is_same).float()

    def are_selected(self, events: EventTensors) -> Tensor:
        """Whether each event (n,) passes the selection of all training events.

        That is minimum numbers of objects, minimum HT and MET, and a veto on kinds of objects that none of them has;
        and the cut, but for terms that name other columns than observables.
        """
        numbers = _selected_on(events)
        is_vetoed = ((numbers > 0) & self.is_vetoed).any(1)
        is_selected = (numbers >= self.min_selected * (1 - 1e-5)).all(1) & ~is_vetoed
        if self.cuts:
            table = with_tensors(_ONE_EVENT[np.zeros(len(numbers), np.int64)], events)
            passed = np.logical_and.reduce([cut.passes(table) for cut in self.cuts])
            is_selected &= torch.from_numpy(passed).to(is_selected.device)
        return is_selected

    def with_fewer_jets(self, events: EventTensors) -> EventTensors:
        """Remove jets, each with a probability that is drawn for the event, and let the rest recoil."""
        n, device = len(events.types), events.types.device
        probability = 0.15 + 0.75 * torch.rand(n, 1, device=device)
        is_jet = _of(events.types, _IS_JET)
        is_removed = is_jet & (torch.rand(events.types.shape, device=device) < probability)
        scales, hides = (torch.rand(n, 1, device=device) < 0.3 for _ in range(2))
        kinematics = self._scaled(events.kinematics, scales & is_removed.any(1, keepdim=True))
        invisible = self._invisible(hides & is_removed.any(1, keepdim=True))
        types = events.types.long().masked_fill(is_removed, 0)
        recoil = visible(kinematics, is_removed) - invisible
        return self.recoiled(events, kinematics, types, recoil, kinematics[:, :0], types[:, :0])

    def with_decays(self, events: EventTensors) -> EventTensors:
        """Add one or two bosons or top quarks, decayed."""
        new, new_types, invisible = drawn_decays(len(events.types), self.alterations.decaying_pt_gev, self)
        return self.recoiled(events, events.kinematics, events.types.long(), -invisible, new, new_types)

    def changed(self, events: EventTensors) -> EventTensors:
        """Scale momenta, change types, add objects or add an invisible particle: any of these, at least one."""
        n, device, n_new = len(events.types), events.types.device, self.alterations.max_added
        scales, retags, adds, hides = random_choices(n, [True] * 4, device)
        preference = Dirichlet(torch.tensor(_CONCENTRATION, device=device)).sample((n,))
        kinematics, types = self._scaled(events.kinematics, scales), events.types.to(torch.long, copy=True)
        self._retag(kinematics[:, 1:], types[:, 1:], retags, preference)
        n_added = torch.where(adds, torch.randint(1, n_new + 1, (n, 1), device=device), 0)
        new_types = torch.where(torch.arange(n_new, device=device) < n_added, self._types(preference, n_new), 0)
        n_removed = torch.where(torch.rand(n, 1, device=device) < 0.5, n_added, 0)
        jet_pt = torch.where(types == _JET, kinematics[..., LOG_PT], torch.inf)
        is_removed = (jet_pt.argsort(1).argsort(1) < n_removed) & (types == _JET)
        recoil = visible(kinematics, is_removed) - self._invisible(hides)
        new = self.new_objects(new_types, log_uniform(self.alterations.added_pt_gev, (n, 1), device), -recoil)
        return self.recoiled(events, kinematics, types.masked_fill(is_removed, 0), recoil, new, new_types)

    def recoiled(
        self,
        events: EventTensors,
        kinematics: Tensor,
        types: Tensor,
        recoil: Tensor,
        new: Tensor,
        new_types: Tensor,
    ) -> EventTensors:
        """Give what is left of events a ``recoil`` (n, 2) in GeV, add objects (n, n_new, 4) and let the rest recoil.

        The copies are as balanced as the unchanged ``events``.
        """
        kinematics = boost_transverse(kinematics, types, recoil - visible(new, new_types))
        kinematics = self._within_limits(kinematics, types)
        objects, types = kinematics[:, 1:], types[:, 1:]
        new, new_types = self._apart(new, new_types, objects, types)
        objects, types = torch.cat([objects, new], 1), torch.cat([types, new_types], 1)
        excess = (objects[..., LOG_ENERGY] - math.log(MAX_ENERGY_MEV)).clamp_min(0)
        objects = torch.cat([objects[..., : LOG_PT + 1] - excess[..., None], objects[..., LOG_PT + 1 :]], -1)
        # Turned, reflected, cut or lost momenta are missing instead.
        return self.balanced(events, in_order(kinematics[:, :1], objects, types, events.types.shape[1] - 1))

    def _scaled(self, kinematics: Tensor, scales: Tensor) -> Tensor:
        """All momenta of the events that ``scales`` (n, 1) names, times a factor above 1."""
        log_factor = (self.alterations.scale * torch.randn(scales.shape, device=scales.device)).abs() * scales
        return torch.cat([kinematics[..., : LOG_PT + 1] + log_factor[..., None], kinematics[..., LOG_PT + 1 :]], -1)

    def _invisible(self, hides: Tensor) -> Tensor:
        """Transverse momentum (n, 2) in GeV of an invisible particle in the events that ``hides`` (n, 1) names."""
        n, device = len(hides), hides.device
        # Two exponential numbers for each: none is very small.
        size = 0.5 * torch.empty(n, 2, device=device).exponential_().sum(1, keepdim=True)
        return size * hides * log_uniform(self.alterations.invisible_pt_gev, (n, 1), device) * directions((n,), device)

    def _retag(self, kinematics: Tensor, types: Tensor, retags: Tensor, preference: Tensor) -> None:
        """Change the type of some objects, in place."""
        n_max = self.alterations.max_retagged
        n_retagged = torch.where(retags, torch.randint(1, n_max + 1, retags.shape, device=types.device), 0)
        rank = torch.rand(types.shape, device=types.device).masked_fill(types == 0, 2.0).argsort(1).argsort(1)
        others = self._types(preference, types.shape[1])
        is_retagged = (types > 0) & (rank < n_retagged) & (others != types)
        types.copy_(torch.where(is_retagged, others, types))
        _, log_pt, eta, phi = kinematics.unbind(-1)
        log_energy = log_pt + log_cosh(eta) + self.drawn(types)[1]
        retagged = torch.stack([log_energy, log_pt, eta, phi], -1)
        kinematics.copy_(torch.where(is_retagged[..., None], retagged, kinematics))

    def _types(self, preference: Tensor, n_objects: int) -> Tensor:
        """Types (n, n_objects), drawn by each event's ``preference`` (n, 4)."""
        race = torch.empty(len(preference), n_objects, preference.shape[1], device=preference.device).exponential_()
        drawn = (race / preference.clamp_min(1e-6)[:, None]).argmin(-1)
        types = torch.tensor(_ADDED_TAGS, device=drawn.device)[drawn]
        leptons = torch.tensor(_LEPTONS, device=drawn.device)
        of_all = leptons[torch.randint(len(leptons), types.shape, device=types.device)]
        return torch.where(types == _LEPTONS[0], of_all, types)

    def new_objects(self, types: Tensor, mean_pt_gev: Tensor, beside: Tensor) -> Tensor:
        """New objects (n, n_new, 4) of these types, roughly balanced with the momentum ``beside`` (n, 2) them."""
        (n, n_objects), device = types.shape, types.device
        above = mean_pt_gev * torch.empty(types.shape, device=device).exponential_()
        pt_gev = self.min_log_pt[types].exp() / 1e3 + above
        tried = directions((n, _N_TRIES, n_objects), device)  # the sum is the less, the more tries there are
        total = ((pt_gev * (types > 0))[:, None, :, None] * tried).sum(2) + beside[:, None]
        is_tried = torch.arange(_N_TRIES, device=device) < torch.randint(1, _N_TRIES + 1, (n, 1), device=device)
        best = torch.where(is_tried, total.norm(dim=-1), torch.inf).argmin(1)
        x, y = tried[torch.arange(n, device=device), best].unbind(-1)
        eta, factor = self.drawn(types)
        log_pt = (pt_gev * 1e3).log()
        return torch.stack([log_pt + log_cosh(eta) + factor, log_pt, eta, torch.atan2(y, x)], -1)

    def _within_limits(self, kinematics: Tensor, types: Tensor) -> Tensor:
        """Objects within the limits of momentum and direction of their types; the MET stays."""
        log_energy, log_pt, eta, phi = kinematics.unbind(-1)
        limits = (self.min_log_pt, self.max_abs_eta, self.max_log_mass_factor)
        min_log_pt, max_abs_eta, max_factor = (limit[types] for limit in limits)
        is_outside = (log_pt < min_log_pt) | (eta.abs() > max_abs_eta) | (log_mass_factor(kinematics) > max_factor)
        mass_squared = (2 * log_energy).exp() - (2 * (log_pt + log_cosh(eta))).exp()
        log_pt, eta = reflected_up(log_pt, min_log_pt), reflected_in(eta, max_abs_eta)
        log_momentum = log_pt + log_cosh(eta)
        log_energy = 0.5 * ((2 * log_momentum).exp() + mass_squared.clamp_min(0)).log()
        within = torch.stack([log_energy.minimum(log_momentum + max_factor), log_pt, eta, phi], -1)
        return torch.where((is_outside & (types > 0) & (types < MET_TYPE))[..., None], within, kinematics)

    def _apart(self, new: Tensor, new_types: Tensor, old: Tensor, old_types: Tensor) -> tuple[Tensor, Tensor]:
        """Turn new objects that are too close to others away from them; those that stay too close are lost."""
        new, new_types = new.clone(), new_types.clone()
        index = torch.arange(len(new), device=new.device)  # of events that may have objects too close
        for i in range(_N_TRIES + 1):
            objects, types = new[index], new_types[index]
            is_close = self._is_close(objects, types, old[index], old_types[index])
            some = is_close.any(1)
            index, is_close, objects, types = index[some], is_close[some], objects[some], types[some]
            if i == _N_TRIES or not len(index):
                break
            eta = torch.where(is_close, self.drawn(types)[0], objects[..., ETA])
            turn = torch.where(is_close, 0.5 * torch.randn(is_close.shape, device=new.device), 0)
            log_pt, phi = objects[..., LOG_PT], wrap_phi(objects[..., PHI] + turn)
            new[index] = torch.stack([log_pt + log_cosh(eta) + log_mass_factor(objects), log_pt, eta, phi], -1)
        new_types[index] = torch.where(is_close, 0, types)
        return new, new_types

    def _is_close(self, new: Tensor, new_types: Tensor, old: Tensor, old_types: Tensor) -> Tensor:
        """(n, n_new): which new objects are too close to old or other new ones."""
        itself = torch.eye(old.shape[1] + new.shape[1], dtype=torch.bool, device=new.device)[old.shape[1] :]
        types = torch.cat([old_types, new_types], 1)
        minimum = self.min_delta_r[_n_jets(new_types, types)]
        is_close = (_distances(new, torch.cat([old, new], 1)) < minimum) & (types > 0)[:, None] & ~itself
        return is_close.any(2) & (new_types > 0)


def _selected_on(events: EventTensors) -> Tensor:
    """(n, 8): numbers of objects, jets, b-jets, leptons, leptons of one charge and photons, HT and MET."""
    types, pt = events.types[:, 1:], events.kinematics[:, 1:, LOG_PT].exp()
    is_jet = _of(types, _IS_JET)
    negative, positive = _of(types, _IS_NEGATIVE).sum(1), _of(types, _IS_POSITIVE).sum(1)
    counts = [(types > 0).sum(1), is_jet.sum(1), _of(types, _IS_B_JET).sum(1), negative + positive]
    counts += [torch.maximum(negative, positive), _of(types, _IS_PHOTON).sum(1)]
    return torch.stack([*counts, (pt * is_jet).sum(1), events.kinematics[:, 0, LOG_PT].exp()], 1)


def _of(types: Tensor, by_tag: Tensor) -> Tensor:
    """Entry of a table by tag for each type."""
    return by_tag.to(types.device)[types.int()]


def _distances(kinematics: Tensor, others: Tensor) -> Tensor:
    """(n, objects, others): the angular distance."""
    eta, phi = (kinematics[..., i, None] - others[:, None, :, i] for i in (ETA, PHI))
    return delta_r(eta, phi)


def _n_jets(types: Tensor, others: Tensor) -> Tensor:
    """(n, objects, others): number of jets among the two."""
    return _of(types, _IS_JET).long()[:, :, None] + _of(others, _IS_JET).long()[:, None]
