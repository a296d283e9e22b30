"""Pairwise features and running couplings, against values worked out by hand."""

import math
from functools import partial

import pytest
import torch

from unmask.networks.particle_transformer import (
    NO_COUPLING,
    Z_MASS_GEV,
    Coupling,
    log_couplings,
    pair_kinematics,
    running_coupling,
)

alpha_strong, alpha_electromagnetic, alpha_weak = (
    partial(running_coupling, coupling) for coupling in (Coupling.STRONG, Coupling.ELECTROMAGNETIC, Coupling.WEAK)
)
SCALES = torch.logspace(1, 3.5, 20)


def test_strong_and_weak_couplings_fall_and_the_electromagnetic_one_rises() -> None:
    at_z = torch.tensor(Z_MASS_GEV)
    assert float(alpha_strong(at_z)) == pytest.approx(0.118)
    assert float(1 / alpha_electromagnetic(at_z)) == pytest.approx(127.95)
    assert (alpha_strong(SCALES).diff() < 0).all()
    assert (alpha_electromagnetic(SCALES).diff() > 0).all()
    assert (alpha_weak(SCALES).diff() < 0).all()
    assert float(alpha_weak(torch.tensor(1000.0))) == pytest.approx(0.0325, abs=2e-4)
    assert float(alpha_strong(torch.tensor(10.0))) == pytest.approx(0.173, abs=0.001)  # 0.178 in the PDG's full running
    assert float(alpha_electromagnetic(torch.tensor(1000.0)) / alpha_electromagnetic(at_z)) == pytest.approx(
        1.027, abs=2e-3
    )
    assert (alpha_strong(SCALES) > alpha_weak(SCALES)).all()
    assert (alpha_weak(SCALES) > alpha_electromagnetic(SCALES)).all()
    assert torch.isfinite(alpha_strong(torch.tensor([0.0, 1e-9, 1e9]))).all()


def test_two_massless_objects_by_hand() -> None:
    # 30 GeV at eta 0.5, phi 3.0 and 60 GeV at eta -0.7, phi -3.0: deta 1.2, dphi 2 pi - 6
    log_pt = torch.tensor([[100e3, 30e3, 60e3]]).log()
    eta, phi = torch.tensor([[0.0, 0.5, -0.7]]), torch.tensor([[1.0, 3.0, -3.0]])
    found = pair_kinematics(log_pt, eta, phi)[0]
    delta_phi = 2 * math.pi - 6.0
    delta_r = math.hypot(1.2, delta_phi)
    # From four-momenta: E = pT cosh eta, and m^2 = E^2 - p^2 of the sum.
    energy = 30 * math.cosh(0.5) + 60 * math.cosh(0.7)
    momentum = (
        30 * math.cos(3.0) + 60 * math.cos(-3.0),
        30 * math.sin(3.0) + 60 * math.sin(-3.0),
        30 * math.sinh(0.5) + 60 * math.sinh(-0.7),
    )
    mass_squared = energy**2 - sum(p**2 for p in momentum)
    expected = [math.log(delta_r), math.log(30 * delta_r), math.log(30 / 90), math.log(mass_squared)]
    assert found[2].tolist() == pytest.approx(expected, abs=1e-5)
    # With the missing energy in the transverse plane: the transverse mass.
    transverse_mass_squared = 2 * 100 * 30 * (1 - math.cos(2.0))
    assert found[0].tolist() == pytest.approx(
        [math.log(2.0), math.log(60.0), math.log(30 / 130), math.log(transverse_mass_squared)], abs=1e-5
    )


def test_numbers_and_gradients_stay_finite() -> None:
    # The same object twice, far forward, tiny and huge momenta.
    log_pt = torch.tensor([[0.0, 11.0, 11.0, 0.0, 16.4]], requires_grad=True)
    eta = torch.tensor([[0.0, 1.0, 1.0, 10.0, -10.0]], requires_grad=True)
    phi = torch.tensor([[0.0, 0.5, 0.5, math.pi, -math.pi]], requires_grad=True)
    pairs = pair_kinematics(log_pt, eta, phi)
    couplings = log_couplings(pairs[..., -1], torch.full((1, 10), int(Coupling.STRONG)))
    (pairs.sum() + couplings.sum()).backward()
    for tensor in (pairs, couplings, log_pt.grad, eta.grad, phi.grad):
        assert tensor is not None
        assert torch.isfinite(tensor).all()


def test_the_coupling_of_a_pair_runs_with_its_mass() -> None:
    log_mass_squared = 2 * torch.tensor([[[Z_MASS_GEV] * 4, [500.0] * 4]]).log()
    forces = torch.tensor([Coupling.NONE, Coupling.STRONG, Coupling.ELECTROMAGNETIC, Coupling.WEAK]).expand(1, 2, 4)
    at_z, above = log_couplings(log_mass_squared, forces)[0].exp()
    assert at_z.tolist() == pytest.approx([NO_COUPLING, 0.118, 1 / 127.95, 1 / 127.95 / 0.2312], rel=1e-4)
    assert above[0] == at_z[0]
    assert above[1] < at_z[1]
    assert above[2] > at_z[2]
    assert above[3] < at_z[3]
