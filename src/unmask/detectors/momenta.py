"""Momenta of events as tensors: sums, limits and boosts. Kinematics (..., 4) are those of ``EventTensors``."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from unmask.events.objects import MET_TYPE
from unmask.kinematics import log_cosh
from unmask.networks.event_network import ETA, LOG_ENERGY, LOG_PT, PHI

#: Maximum speed of a recoil.
_MAX_SPEED = 0.95


def boost_transverse(kinematics: Tensor, types: Tensor, delta_pt: Tensor) -> Tensor:
    """Boost events (n, 1 + max_objects, 4) so that their total pT changes by ``delta_pt`` (n, 2) in GeV.

    Each event is boosted as a whole; the invisible part is taken to be massless and as central as the visible one.
    """
    is_real = types > 0
    momentum = transverse(kinematics) * is_real[..., None]
    energy = torch.where(is_real, kinematics[..., LOG_ENERGY].exp() / 1e3, 0)
    along = torch.where(is_real, kinematics[..., LOG_PT].exp() / 1e3 * kinematics[..., ETA].sinh(), 0)
    met = energy[:, :1]
    forward, backward = ((energy + sign * along).sum(1, keepdim=True).clamp_min(1e-3) for sign in (1, -1))
    boost = (0.5 * (forward / backward).log()).clamp(-3, 3)
    # Into the frame in which nothing moves along the beam; the MET has no eta, so it is there already.
    energy, along = energy * boost.cosh() - along * boost.sinh(), along * boost.cosh() - energy * boost.sinh()
    energy, along = (torch.cat([first, rest[:, 1:]], 1) for first, rest in ((met, energy), (0 * met, along)))
    size = delta_pt.norm(dim=-1, keepdim=True).clamp_min(1e-3)
    direction = (delta_pt / size)[:, None]
    parallel = (momentum * direction).sum(-1)
    # As much faster, in rapidity, as the event with the change is than without.
    total = parallel.sum(1, keepdim=True)
    mass = (energy.sum(1, keepdim=True) ** 2 - total**2).clamp_min(100.0).sqrt()
    speed = (torch.asinh((total + size) / mass) - torch.asinh(total / mass)).tanh().clamp_max(_MAX_SPEED)
    gamma = (1 - speed**2).rsqrt()
    momentum = momentum + ((gamma - 1) * parallel + gamma * speed * energy)[..., None] * direction
    energy = gamma * (energy + speed * parallel)
    # And back.
    energy, along = energy * boost.cosh() + along * boost.sinh(), along * boost.cosh() + energy * boost.sinh()
    pt = momentum.norm(dim=-1).clamp_min(1e-3)
    log_pt = (pt * 1e3).log()
    is_object = is_real & (types != MET_TYPE)
    eta = torch.where(is_object, torch.asinh(along / pt), 0)
    log_energy = log_pt + log_cosh(eta)
    log_energy = torch.where(is_object, torch.maximum(log_energy, (energy.clamp_min(1e-3) * 1e3).log()), log_energy)
    phi = torch.atan2(momentum[..., 1], momentum[..., 0])
    return torch.where(is_real[..., None], torch.stack([log_energy, log_pt, eta, phi], -1), 0)


def met_kinematics(momentum: Tensor, min_log_pt: Tensor) -> Tensor:
    """Kinematics (n, 1, 4) of a missing momentum (n, 2) in GeV, reflected at the minimum."""
    x, y = momentum.unbind(-1)
    log_met = reflected_up(torch.log(torch.hypot(x, y).clamp_min(1e-3) * 1e3), min_log_pt)
    return torch.stack([log_met, log_met, torch.zeros_like(x), torch.atan2(y, x)], -1)[:, None]


def reflected_up(log_pt: Tensor, minimum: Tensor) -> Tensor:
    """Reflect momenta at the minimum: pT -> 2 pT_min - pT for those below.

    >>> reflected_up(torch.tensor([15.0, 30.0]).log(), torch.tensor(20.0).log()).exp()
    tensor([25.0000, 30.0000])
    """
    below = (log_pt - minimum).clamp_max(0)
    return torch.where(log_pt < minimum, minimum + (2 - below.exp()).log(), log_pt)


def reflected_in(eta: Tensor, maximum: Tensor) -> Tensor:
    """Reflect directions at the maximum of \\|eta\\|.

    >>> reflected_in(torch.tensor([-2.6, 1.0, 9.0]), torch.tensor(2.5))
    tensor([-2.4000,  1.0000, -2.5000])
    """
    reflected = torch.where(eta.abs() > maximum, eta.sign() * (2 * maximum - eta.abs()), eta)
    return torch.clamp(reflected, -maximum, maximum)


def transverse(kinematics: Tensor) -> Tensor:
    """Transverse momenta (..., 2) in GeV."""
    pt_gev, phi = kinematics[..., LOG_PT].exp() / 1e3, kinematics[..., PHI]
    return torch.stack([pt_gev * phi.cos(), pt_gev * phi.sin()], -1)


def visible(kinematics: Tensor, types: Tensor) -> Tensor:
    """Sum (n, 2) of the transverse momenta in GeV of all objects, whose types are not 0."""
    return (transverse(kinematics) * (types != 0)[..., None]).sum(1)


def log_mass_factor(kinematics: Tensor) -> Tensor:
    """ln(E / \\|p\\|): 0 for a massless object."""
    return kinematics[..., LOG_ENERGY] - kinematics[..., LOG_PT] - log_cosh(kinematics[..., ETA])


def directions(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Unit vectors (..., 2), at random angles."""
    phi = 2 * math.pi * torch.rand(shape, device=device)
    return torch.stack([phi.cos(), phi.sin()], -1)


def log_uniform(limits: tuple[float, float], shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Random numbers between the limits, whose logarithms are uniform."""
    low, high = limits
    return low * torch.exp(math.log(high / low) * torch.rand(shape, device=device))
