"""What two objects of an event say together: angular distance, relative momentum, mass, and the force between them."""

from __future__ import annotations

import math
from enum import IntEnum

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.kinematics import wrap_phi

#: ln dR, ln kT, ln z, ln m^2; and with couplings ln alpha.
N_KINEMATIC = 4
# Closer than a cell of a calorimeter two objects are at one place; it also keeps logarithms and gradients finite.
_MIN_DELTA_R_SQUARED = 1e-4
_MAX_DELTA_ETA = 20.0
_LN_GEV_IN_MEV = math.log(1e3)

Z_MASS_GEV = 91.19
ALPHA_STRONG_AT_Z = 0.118
ALPHA_ELECTROMAGNETIC_AT_Z = 1 / 127.95
ALPHA_WEAK_AT_Z = ALPHA_ELECTROMAGNETIC_AT_Z / 0.2312  # sin^2 of the weak mixing angle
N_FLAVOURS = 5
#: Sum of colours times squared charges of the fermions that are lighter than the Z.
_CHARGES_SQUARED = 20 / 3
# The one-loop strong coupling grows without limit below; such pairs are one jet anyway.
_MIN_SCALE_GEV = 2.0
_MAX_SCALE_GEV = 14e3
#: Stands for "no coupling": far below the weakest, the electromagnetic one.
NO_COUPLING = 1e-3


class Force(IntEnum):
    """What acts between two objects at a vertex of the Standard Model."""

    NONE = 0
    STRONG = 1
    ELECTROMAGNETIC = 2
    WEAK = 3


def alpha_strong(scale_gev: Tensor) -> Tensor:
    """Strong coupling at one loop with five flavours; it falls with the scale.

    >>> alpha_strong(torch.tensor([10.0, Z_MASS_GEV, 1000.0])).double().round(decimals=3).tolist()
    [0.173, 0.118, 0.088]
    """
    slope = (33 - 2 * N_FLAVOURS) / (12 * math.pi)
    return ALPHA_STRONG_AT_Z / (1 + ALPHA_STRONG_AT_Z * slope * _log_of_scale(scale_gev))


def alpha_electromagnetic(scale_gev: Tensor) -> Tensor:
    """Electromagnetic coupling at one loop; it rises slowly with the scale."""
    slope = _CHARGES_SQUARED / (3 * math.pi)
    return ALPHA_ELECTROMAGNETIC_AT_Z / (1 - ALPHA_ELECTROMAGNETIC_AT_Z * slope * _log_of_scale(scale_gev))


def alpha_weak(scale_gev: Tensor) -> Tensor:
    """Weak coupling of the Standard Model (SU(2)) at one loop; it falls slowly with the scale."""
    slope = 19 / 6 / (4 * math.pi)
    return ALPHA_WEAK_AT_Z / (1 + ALPHA_WEAK_AT_Z * slope * _log_of_scale(scale_gev))


def _log_of_scale(scale_gev: Tensor) -> Tensor:
    """ln(Q^2 / mZ^2), of scales between 2 GeV and 14 TeV."""
    return 2 * (scale_gev.clamp(_MIN_SCALE_GEV, _MAX_SCALE_GEV) / Z_MASS_GEV).log()


def pair_index(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Positions i < j of the pairs of ``n`` objects, (n_pairs,) each."""
    one, other = torch.triu_indices(n, n, 1, device=device).unbind()
    return one, other


def pair_kinematics(log_pt_mev: Tensor, eta: Tensor, phi: Tensor) -> Tensor:
    """ln dR, ln(kT / GeV), ln z and ln(m^2 / GeV^2) of all pairs, (batch, n_pairs, 4), of objects (batch, n).

    kT is the smaller pT times dR, z the smaller pT over the sum, and m the mass of the pair with both objects massless,
    which single precision gives without cancellation: m^2 = 4 pT pT' (sinh^2(deta / 2) + sin^2(dphi / 2)).
    The first position is the missing energy, which has no direction along the beam: its pairs are measured in the
    transverse plane, so that dR is the difference in phi and m the transverse mass. Distances below 0.01 count as 0.01.

    >>> back_to_back = torch.tensor([[0.0, 0.0, math.pi]])  # the missing energy, and two objects of 50 GeV
    >>> pairs = pair_kinematics(torch.full((1, 3), math.log(50e3)), torch.zeros(1, 3), back_to_back)
    >>> (pairs[0, 2] / torch.tensor([1, 1, 1, 2])).exp().double().round(decimals=2).tolist()  # dR, kT, z, m
    [3.14, 157.08, 0.5, 100.0]
    """
    i, j = pair_index(eta.shape[1], eta.device)
    delta_eta = (eta[:, i] - eta[:, j]).clamp(-_MAX_DELTA_ETA, _MAX_DELTA_ETA) * (i > 0)
    delta_phi = wrap_phi(phi[:, i] - phi[:, j])
    log_pt = log_pt_mev - _LN_GEV_IN_MEV
    one, other = log_pt[:, i], log_pt[:, j]
    smaller = torch.minimum(one, other)
    # The clamp stands before the logarithm (and there is no square root), so that gradients at 0 are 0.
    log_delta_r = (delta_eta.square() + delta_phi.square()).clamp_min(_MIN_DELTA_R_SQUARED).log() / 2
    opening = (delta_eta / 2).sinh().square() + (delta_phi / 2).sin().square()
    log_mass_squared = math.log(4) + one + other + opening.clamp_min(_MIN_DELTA_R_SQUARED / 4).log()
    log_z = -F.softplus((one - other).abs())
    return torch.stack([log_delta_r, smaller + log_delta_r, log_z, log_mass_squared], -1)


def log_couplings(log_mass_squared: Tensor, force: Tensor) -> Tensor:
    """ln alpha (batch, n_pairs) of the :class:`Force` of each pair at the scale of its mass; ln 0.001 for none."""
    scale_gev = (log_mass_squared.clamp(max=2 * math.log(_MAX_SCALE_GEV)) / 2).exp()
    none = torch.full_like(scale_gev, NO_COUPLING)
    alpha = torch.where(force == Force.STRONG, alpha_strong(scale_gev), none)
    alpha = torch.where(force == Force.ELECTROMAGNETIC, alpha_electromagnetic(scale_gev), alpha)
    return torch.where(force == Force.WEAK, alpha_weak(scale_gev), alpha).log()
