"""Networks that read whole events: what they must not depend on, and what they must."""

from typing import get_args

import numpy as np
import pytest
import torch

from unmask import load_sample
from unmask.events.objects import MET_TYPE
from unmask.kinematics import wrap_phi
from unmask.networks.event_network import PHI, BackboneName, EventNetwork, SetNetwork, make_event_network
from unmask.networks.event_tensors import EventTensors, couplings_of_types, event_tensors
from unmask.networks.particle_transformer import Coupling

BACKBONES: tuple[BackboneName, ...] = get_args(BackboneName)
SETS = [name for name in BACKBONES if name != "mlp"]


def network_of(backbone: BackboneName, events: EventTensors, *, biases: bool = True) -> EventNetwork:
    torch.manual_seed(1)
    network = make_event_network(backbone, "tiny", n_out=3, dropout=0.1, biases=biases)
    network.measure(*events)
    return network.eval()


@pytest.fixture(scope="module")
def events() -> EventTensors:
    sample = load_sample("four-top")
    return event_tensors(sample[np.random.default_rng(0).permutation(len(sample))[:300]])


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("biases", [True, False])
@torch.no_grad()
def test_padding_never_matters(backbone: BackboneName, biases: bool, events: EventTensors) -> None:
    network = network_of(backbone, events, biases=biases)
    junk = torch.where((events.types != 0)[..., None], events.kinematics, 5.0)
    torch.testing.assert_close(network(junk, events.types), network(*events))
    assert network(*events).std(0).min() > 1e-3


@pytest.mark.parametrize("backbone", SETS)
@torch.no_grad()
def test_company_never_matters(backbone: BackboneName, events: EventTensors) -> None:
    network = network_of(backbone, events)
    alone = torch.cat([network(*events.at(slice(i, i + 1))) for i in range(len(events.types))])
    torch.testing.assert_close(network(*events), alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backbone", SETS)
@pytest.mark.parametrize("biases", [True, False])
@torch.no_grad()
def test_sets_have_no_order_and_no_origin_of_phi(backbone: BackboneName, biases: bool, events: EventTensors) -> None:
    network = network_of(backbone, events, biases=biases)
    expected = network(*events)
    order = torch.cat([torch.zeros(1, dtype=torch.long), 1 + torch.randperm(18)])
    shuffled = events.kinematics[:, order], events.types[:, order]
    torch.testing.assert_close(network(*shuffled), expected, rtol=1e-4, atol=1e-5)
    turned = events.kinematics.clone()
    turned[..., PHI] = torch.where(events.types != 0, wrap_phi(turned[..., PHI] + 2.0), 0.0)
    torch.testing.assert_close(network(turned, events.types), expected, rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_the_pair_features_are_what_tells_the_particle_transformers_apart(events: EventTensors) -> None:
    networks = {name: network_of(name, events) for name in ("part-noint", "part-pairs", "part-sm")}
    features = {name: network.n_pair_features for name, network in networks.items() if isinstance(network, SetNetwork)}
    assert features == {"part-noint": 0, "part-pairs": 4, "part-sm": 5}
    # An electron and a positron: with the couplings it matters that they are of the same flavour and opposite charge.
    network = networks["part-sm"]
    assert isinstance(network, SetNetwork)
    types = torch.tensor([[8, 3, 4] + [0] * 16, [8, 3, 3] + [0] * 16])
    kinematics = torch.zeros(2, 19, 4)
    kinematics[:, :3] = torch.tensor([[11.0, 11, 0, 0.3], [11, 11, 0.5, 1], [11, 11, -1, 2]])
    pairs = network.pair_features(kinematics, types)[:, 18]  # of the first two objects
    torch.testing.assert_close(pairs[0, :4], pairs[1, :4])
    assert pairs[0, 4] > pairs[1, 4] + 1


@torch.no_grad()
@pytest.mark.parametrize("backbone", BACKBONES)
def test_without_biases_nothing_constant_is_learned(backbone: BackboneName, events: EventTensors) -> None:
    network = make_event_network(backbone, "light", n_out=3, biases=False)
    network.measure(*events)
    assert not [name for name, _ in network.named_parameters() if "bias" in name or "token" in name]
    # What is far outside is mapped far away: the output has no bound.
    inputs = network.standardize(*events)
    near, far = (network.of_inputs(scale * inputs, events.types).norm(dim=1).median() for scale in (100, 1000))
    assert far > 5 * near


@torch.no_grad()
@pytest.mark.parametrize("backbone", SETS)
def test_without_biases_every_object_counts(backbone: BackboneName, events: EventTensors) -> None:
    """A mean over objects hides how many there are: with more of the same, an event would seem more ordinary."""
    network = network_of(backbone, events, biases=False)
    lengths = []
    for n_objects in (3, 6, 12):
        types, kinematics = events.types[:1].clone(), events.kinematics[:1].clone()
        types[:, 1 : n_objects + 1], types[:, n_objects + 1 :] = types[:, 1:2], 0
        kinematics[:, 1:] = kinematics[:, 1:2]
        lengths.append(float(network(kinematics, types).norm()))
    assert lengths[2] > 1.5 * lengths[1] > 2 * lengths[0]


def test_the_published_sizes() -> None:
    def n_parameters(backbone: BackboneName, size: str) -> int:
        network = make_event_network(backbone, size, n_out=1)  # type: ignore[arg-type]
        return sum(parameter.numel() for parameter in network.parameters())

    assert 2.0e6 < n_parameters("part-sm", "published") < 2.3e6
    for backbone in BACKBONES:
        assert 1.5e5 < n_parameters(backbone, "light") < 2.5e5


def test_the_couplings_of_the_standard_model() -> None:
    couplings = couplings_of_types()
    jet, b_jet, electron, positron, muon, antimuon, photon, met = *range(1, 8), MET_TYPE
    assert (couplings == couplings.T).all()
    assert couplings[jet, b_jet] == couplings[jet, jet] == couplings[b_jet, b_jet] == Coupling.STRONG
    assert couplings[electron, positron] == couplings[muon, antimuon] == Coupling.WEAK
    assert couplings[electron, electron] == couplings[electron, antimuon] == couplings[jet, electron] == Coupling.NONE
    assert couplings[photon, muon] == couplings[photon, b_jet] == Coupling.ELECTROMAGNETIC
    assert couplings[photon, photon] == Coupling.NONE
    assert (couplings[met] == Coupling.NONE).all()
    assert (couplings[0] == Coupling.NONE).all()
