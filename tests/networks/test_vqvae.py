"""The VQ-VAE's network: what padding may not do, and what its parts are."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from unmask.networks.vqvae import NormFormerBlock, NormFormerVQVAE, VectorQuantizer

SIZES = {
    "n_codes": 12,
    "latent": 4,
    "hidden": 16,
    "n_heads": 2,
    "n_blocks": 2,
    "alpha": 0.4,
    "beta": 0.1,
    "gamma": 0.25,
}
LENGTHS = torch.tensor([1, 4, 6, 3, 5])


def make_network(**changes: float) -> NormFormerVQVAE:
    torch.manual_seed(0)
    network = NormFormerVQVAE(4, **{**SIZES, **changes})
    with torch.no_grad():
        network.quantizer.usage[:2] = 0  # so that codes are revived in the first step
    return network


def make_batch(sequence: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(5, 9, 4, generator=generator)[:, :sequence]
    is_real = torch.arange(sequence) < LENGTHS[:, None]
    return features * is_real.unsqueeze(-1), is_real


def one_step(network: NormFormerVQVAE, features: Tensor, is_real: Tensor) -> dict[str, Tensor]:
    torch.manual_seed(2)
    result = network.train()(features, is_real)
    result.loss.backward()
    found = {f"gradient of {name}": value.grad for name, value in network.named_parameters()}
    found |= {name: value.detach().clone() for name, value in network.state_dict().items()}
    return found | {"loss": result.loss.detach(), "codes": torch.where(is_real, result.codes, -1)[:, :6]}


@pytest.mark.parametrize("junk", [math.nan, math.inf, 1e30, 3.0])
def test_content_of_padding_changes_nothing(junk: float) -> None:
    features, is_real = make_batch(9)
    clean = one_step(make_network(), features, is_real)
    filled = features.masked_fill(~is_real.unsqueeze(-1), junk)
    found = one_step(make_network(), filled, is_real)
    for name, value in clean.items():
        assert torch.equal(found[name], value), name


def test_amount_of_padding_changes_nothing() -> None:
    short = one_step(make_network(), *make_batch(6))
    long = one_step(make_network(), *make_batch(9))
    for name, value in short.items():
        torch.testing.assert_close(long[name], value, msg=name)


def test_an_event_is_reconstructed_alike_alone_and_among_others() -> None:
    network = make_network().eval()
    features, is_real = make_batch(9)
    whole = network(features, is_real)
    for i, length in enumerate(LENGTHS):
        latents = network.encode(features[i : i + 1, :length], None)
        codes = network.quantizer.nearest(latents)
        assert torch.equal(codes[0], whole.codes[i, :length])
        decoded = network.decode(codes, None)
        torch.testing.assert_close(decoded[0], whole.features[i, :length])


def test_objects_see_each_other_but_not_their_order() -> None:
    network = make_network().eval()
    features = make_batch(9)[0][2:3, :6]
    latents = network.encode(features, None)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    torch.testing.assert_close(network.encode(features[:, order], None), latents[:, order])
    changed = features.clone()
    changed[0, 5] += 1
    assert not torch.allclose(network.encode(changed, None)[0, :5], latents[0, :5], atol=1e-3)


def test_the_loss_is_the_sum_of_its_terms() -> None:
    batch = make_batch(9)
    features, is_real = batch
    network = make_network().eval()
    result = network(*batch)
    latents = network.encode(features, is_real)[is_real]
    squares = (latents - network.quantizer.codebook[result.codes[is_real]]).square().sum(-1).mean()
    error = (result.features - features)[is_real].square().mean()
    torch.testing.assert_close(result.reconstruction_loss, error)
    torch.testing.assert_close(make_network(beta=0.0).eval()(*batch).loss, error + 0.4 * (1 + 0.25) * squares)
    divergence = network.quantizer(network.encode(features, is_real), is_real).usage_divergence
    torch.testing.assert_close(result.loss, error + 0.4 * 1.25 * squares + 0.1 * divergence)


def test_codebook_and_commitment_terms_each_move_their_own_side() -> None:
    quantizer = VectorQuantizer(3, 2).eval()
    latents = torch.randn(2, 4, 2, requires_grad=True)
    is_real = torch.ones(2, 4, dtype=torch.bool)
    to_codebook = torch.autograd.grad(
        quantizer(latents, is_real).codebook_term, [latents, quantizer.codebook], allow_unused=True
    )
    to_latents = torch.autograd.grad(
        quantizer(latents, is_real).commitment_term, [latents, quantizer.codebook], allow_unused=True
    )
    assert to_codebook[0] is None
    assert to_codebook[1].abs().sum() > 0
    assert to_latents[0].abs().sum() > 0
    assert to_latents[1] is None


def test_the_gradient_passes_straight_through_the_quantizer() -> None:
    quantizer = VectorQuantizer(3, 2).eval()
    latents = torch.randn(2, 4, 2, requires_grad=True)
    is_real = torch.tensor([[True, True, True, False]] * 2)
    quantized = quantizer(latents, is_real)
    assert torch.equal(quantized.codes, torch.cdist(latents, quantizer.codebook).argmin(-1))
    torch.testing.assert_close(quantized.latents[is_real], quantizer.codebook[quantized.codes[is_real]])
    assert not quantized.latents[~is_real].any()
    weight = torch.randn(2, 4, 2)
    (gradient,) = torch.autograd.grad((quantized.latents * weight).sum(), latents)
    torch.testing.assert_close(gradient, weight * is_real.unsqueeze(-1))


def test_nearest_is_the_nearest() -> None:
    torch.manual_seed(0)
    quantizer = VectorQuantizer(50, 6)
    latents = torch.randn(20, 7, 6)
    assert torch.equal(quantizer.nearest(latents), torch.cdist(latents, quantizer.codebook).argmin(-1))


def test_usage_divergence_is_nought_for_even_and_log_k_for_collapsed_usage() -> None:
    quantizer = VectorQuantizer(4, 2).eval()
    corners = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    with torch.no_grad():
        quantizer.codebook.copy_(corners * 100)
    even = (corners * 99.9)[None]
    every = torch.ones(1, 4, dtype=torch.bool)
    assert quantizer(even, every).usage_divergence.item() == pytest.approx(0, abs=1e-5)
    only_one = torch.tensor([[True, False, False, False]])
    assert quantizer(even, only_one).usage_divergence.item() == pytest.approx(math.log(4), abs=1e-5)


def test_usage_divergence_pulls_vectors_towards_unused_codes() -> None:
    quantizer = VectorQuantizer(2, 1).eval()
    with torch.no_grad():
        quantizer.codebook.copy_(torch.tensor([[0.0], [1.0]]))
    latents = torch.full((1, 5, 1), 0.3, requires_grad=True)
    divergence = quantizer(latents, torch.ones(1, 5, dtype=torch.bool)).usage_divergence
    (gradient,) = torch.autograd.grad(divergence, latents)
    assert (gradient < 0).all()  # downhill is to the right


def test_unused_codes_are_moved_onto_real_vectors() -> None:
    torch.manual_seed(0)
    quantizer = VectorQuantizer(6, 3)
    with torch.no_grad():
        quantizer.codebook[4:] = 1e3
    latents = torch.randn(8, 5, 3)
    is_real = torch.arange(5) < 3
    is_real = is_real.expand(8, 5)
    before = quantizer.codebook.detach().clone()
    quantizer.eval()
    for _ in range(600):
        quantizer(latents, is_real)
    assert torch.equal(quantizer.codebook, before)  # never when only looking
    quantizer.train()
    for _ in range(600):
        quantizer(latents, is_real)
    # Sooner or later every code is chosen by a vector; the two that were far away lay on real vectors at once.
    assert (quantizer.codebook.abs() < 10).all()
    is_new = (quantizer.codebook != before).any(1)
    assert is_new[4:].all()
    distance = torch.cdist(quantizer.codebook[is_new].detach(), latents[is_real])
    assert (distance.min(1).values < 1e-6).all()


def test_the_codebook_starts_from_the_centers_of_the_samples() -> None:
    torch.manual_seed(0)
    centers = torch.randn(5, 3) * 10
    samples = (centers[:, None] + 0.1 * torch.randn(5, 40, 3)).flatten(0, 1)
    quantizer = VectorQuantizer(20, 3)
    quantizer.initialize(samples)
    codes = quantizer.nearest(samples)
    assert len(codes.unique()) == 20
    for code in range(20):
        torch.testing.assert_close(quantizer.codebook[code], samples[codes == code].mean(0), atol=0.02, rtol=0)


def test_normformer_has_head_gains_and_a_norm_after_attention() -> None:
    torch.manual_seed(0)
    block = NormFormerBlock(8, 2)
    x = torch.randn(1, 5, 8)
    out = block(x, None)
    with torch.no_grad():
        block.attention_output.weight *= 100
        block.attention_output.bias *= 100
    torch.testing.assert_close(block(x, None), out, atol=1e-3, rtol=1e-3)  # the norm takes the size away
    with torch.no_grad():
        block.head_gain.zero_()
    y = x.clone()
    y[0, 1:] += 1
    torch.testing.assert_close(block(y, None)[0, 0], block(x, None)[0, 0])  # no head, no view of the others
    assert block.mlp[3].normalized_shape == (16,)
