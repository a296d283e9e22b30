"""Decays of W, Z and Higgs bosons and top quarks, as isotropic phase space."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from unmask.detectors.copies import CopyGenerator
from unmask.detectors.momenta import log_uniform
from unmask.events.objects import LEPTON_TAGS, TAGS
from unmask.kinematics import log_cosh

W_MASS_GEV, TOP_MASS_GEV = 80.4, 172.5
_JET, _B_JET, _PHOTON = TAGS["jet"], TAGS["b-jet"], TAGS["photon"]
_LEPTON, _ANTI = -1, -2  # of a random flavor and charge, and its antiparticle
#: Relative frequency, mass in GeV, and the tags of the decay products; the third is the b-jet of a top quark. Not
#: branching fractions: rare decays to leptons and photons are the visible ones in a search.
_CHANNELS: tuple[tuple[float, float, tuple[int, int, int]], ...] = (
    (1.0, W_MASS_GEV, (_JET, _JET, 0)),
    (1.0, W_MASS_GEV, (_LEPTON, 0, 0)),
    (1.0, 91.2, (_LEPTON, _ANTI, 0)),
    (1.0, 91.2, (_JET, _JET, 0)),
    (0.5, 91.2, (0, 0, 0)),
    (1.0, 125.0, (_B_JET, _B_JET, 0)),
    (0.3, 125.0, (_PHOTON, _PHOTON, 0)),
    (1.0, TOP_MASS_GEV, (_JET, _JET, _B_JET)),
    (1.0, TOP_MASS_GEV, (_LEPTON, 0, _B_JET)),
)
#: Spread of the azimuthal angle about back to back, and of the rapidity.
_ACOPLANARITY, _RAPIDITY = 0.4, 1.0


def drawn_decays(n: int, pt_gev: tuple[float, float], limits: CopyGenerator) -> tuple[Tensor, Tensor, Tensor]:
    """Objects (n, 6, 4), types (n, 6) and invisible momenta (n, 2) in GeV from one or two particles in each event.

    Two are about back to back. Products outside the ``limits`` of pT and eta of their types count as invisible.
    """
    device = limits.min_log_pt.device
    frequency, mass, products = (torch.tensor(column, device=device) for column in zip(*_CHANNELS, strict=True))
    channel = torch.multinomial(frequency, 2 * n, replacement=True).view(n, 2) if n else products.new_zeros(0, 2)
    mass, products = mass[channel], products[channel]
    pt = log_uniform(pt_gev, (n, 2), device)
    phi = 2 * math.pi * torch.rand(n, 1, device=device) + torch.tensor([0, math.pi], device=device)
    phi = phi + _ACOPLANARITY * torch.randn(n, 2, device=device)
    rapidity = _RAPIDITY * torch.randn(n, 2, device=device)
    transverse_mass = (pt**2 + mass**2).sqrt()
    parent = torch.stack(
        [transverse_mass * rapidity.cosh(), pt * phi.cos(), pt * phi.sin(), transverse_mass * rapidity.sinh()], -1
    )
    is_top = products[..., 2] > 0
    b_quark, w_boson = two_body(parent, mass, torch.where(is_top, W_MASS_GEV, 0.0))
    parent = torch.where(is_top[..., None], w_boson, parent)
    first, second = two_body(parent, torch.where(is_top, W_MASS_GEV, mass), torch.zeros_like(mass))
    is_there = torch.stack([torch.ones(n, device=device), torch.rand(n, device=device)], 1) > 0.5
    momenta = torch.stack([first, second, torch.where(is_top[..., None], b_quark, 0)], 2)
    momenta = (momenta * is_there[..., None, None]).flatten(1, 2)
    flavor, charge = (torch.randint(2, (n, 2, 1), device=device) for _ in range(2))
    leptons = torch.tensor(LEPTON_TAGS, device=device)
    types = torch.where(products == _LEPTON, leptons[flavor, charge], products)
    types = torch.where(products == _ANTI, leptons[flavor, 1 - charge], types)
    types = (types * is_there[..., None]).flatten(1)
    pt = momenta[..., 1:3].norm(dim=-1).clamp_min(1e-2)
    eta, phi = torch.asinh(momenta[..., 3] / pt), torch.atan2(momenta[..., 2], momenta[..., 1])
    log_pt = (pt * 1e3).log()
    types = types * ((log_pt > limits.min_log_pt[types]) & (eta.abs() < limits.max_abs_eta[types]))
    objects = torch.stack([log_pt + log_cosh(eta) + limits.drawn(types)[1], log_pt, eta, phi], -1)
    invisible = (momenta[..., 1:3] * (types == 0)[..., None]).sum(1)
    return torch.where((types > 0)[..., None], objects, 0), types, invisible


def two_body(parent: Tensor, mass: Tensor, second_mass: Tensor) -> tuple[Tensor, Tensor]:
    """Four-momenta (..., 4), energy first, of a massless and a massive product of an isotropic decay.

    >>> at_rest = torch.tensor([80.4, 0, 0, 0])
    >>> one, other = two_body(at_rest, torch.tensor(80.4), torch.tensor(0.0))
    >>> torch.allclose(one + other, at_rest, atol=1e-4), round(float(one[0]), 3)
    (True, 40.2)
    """
    momentum = (mass**2 - second_mass**2) / (2 * mass)
    cosine = 2 * torch.rand(mass.shape, device=mass.device) - 1
    phi = 2 * math.pi * torch.rand(mass.shape, device=mass.device)
    sine = (1 - cosine**2).sqrt()
    vector = momentum[..., None] * torch.stack([sine * phi.cos(), sine * phi.sin(), cosine], -1)
    gamma, gamma_beta = parent[..., 0] / mass, parent[..., 1:] / mass[..., None]

    def boosted(energy: Tensor, vector: Tensor) -> Tensor:
        along = (gamma_beta * vector).sum(-1)
        moved = vector + (along / (gamma + 1) + energy)[..., None] * gamma_beta
        return torch.cat([(gamma * energy + along)[..., None], moved], -1)

    return boosted(momentum, vector), boosted((momentum**2 + second_mass**2).sqrt(), -vector)
