"""Exact scoring against the plain way, which masks each position and runs the whole network."""

from __future__ import annotations

import pytest
import torch
from benchmarks.masked_token_scoring import reference_token_losses

from unmask.networks.masked_token import MaskedTokenTransformer
from unmask.networks.masked_token_scoring import (
    reduced_losses,
    token_losses,
    token_probabilities,
)
from unmask.networks.transformer import POSITIONS

N_CODES, SEQUENCE = 30, 7


def make_tokens() -> torch.Tensor:
    """Events with padding anywhere, and one each with nothing but padding, no padding, one token, equal tokens."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(1, N_CODES + 1, (24, SEQUENCE), generator=generator)
    tokens[torch.rand(tokens.shape, generator=generator) < 0.4] = 0
    tokens[0] = 0
    tokens[1] = torch.arange(1, SEQUENCE + 1)
    tokens[2] = torch.tensor([0, 0, 0, 0, 9, 0, 0])
    tokens[3] = torch.tensor([5, 5, 5, 0, 5, 0, 0])
    tokens[4] = torch.tensor([1, 2, 3, 4, 5, 6, 0])
    return tokens


def make_network(*, n_steps: int = 20, **options) -> MaskedTokenTransformer:
    """Make a network, trained a little with large steps so that its predictions are sharp."""
    torch.manual_seed(0)
    network = MaskedTokenTransformer(N_CODES, SEQUENCE, **options)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    tokens, generator = make_tokens(), torch.Generator().manual_seed(2)
    for _ in range(n_steps):
        loss = network.loss(tokens, network.draw_masked_position(tokens, generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network


@pytest.mark.parametrize("n_layers", [1, 2, 3])
@pytest.mark.parametrize("padding", ["predict", "ignore"])
@pytest.mark.parametrize("position", POSITIONS)
def test_losses_equal_the_plain_way(position, padding, n_layers):
    tokens = make_tokens()
    for n_steps in (0, 20):
        network = make_network(n_steps=n_steps, position=position, padding=padding, n_layers=n_layers, ffn_expansion=2)
        expected = reference_token_losses(network, tokens)
        assert (token_losses(network, tokens) - expected).abs().max() < 1e-5
    assert expected.max() > 2  # the comparison would say little of losses that are all alike


@pytest.mark.parametrize("position", ["none", "rotary"])
def test_losses_equal_the_plain_way_when_one_token_draws_all_attention(position):
    network = make_network(position=position)
    with torch.no_grad():
        network.layers[0].query_key_value.weight[:128] *= 12
    tokens = make_tokens()
    losses = token_losses(network, tokens)
    assert (losses - reference_token_losses(network, tokens)).abs().max() < 1e-4  # logits of hundreds are less precise
    assert losses.isfinite().all()


def test_losses_equal_the_plain_way_when_the_rows_have_a_large_mean():
    network = make_network()
    with torch.no_grad():
        network.embedding.weight += 20  # which every LayerNorm takes away again
    tokens = make_tokens()
    losses = token_losses(network, tokens)
    assert (losses - reference_token_losses(network, tokens)).abs().max() < 1e-3  # fewer digits are left
    assert (losses - token_losses(make_network(), tokens)).abs().max() < 1e-3


@pytest.mark.parametrize("padding", ["predict", "ignore"])
@pytest.mark.parametrize("position", ["none", "learned"])
def test_losses_do_not_depend_on_batching_order_or_integer_type(position, padding):
    network, tokens = make_network(position=position, padding=padding), make_tokens()
    expected = token_losses(network, tokens)
    torch.testing.assert_close(token_losses(network, tokens, max_rows=1), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(token_losses(network, tokens.flip(0)).flip(0), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(token_losses(network, tokens.int()), expected, atol=0, rtol=0)


def test_scoring_leaves_parameters_as_they_were():
    network, tokens = make_network(), make_tokens()
    before = [parameter.clone() for parameter in network.parameters()]
    token_losses(network, tokens)
    assert not network.training  # no dropout
    assert torch.equal(tokens, make_tokens())
    assert all(torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True))


def test_no_events_give_no_losses():
    assert token_losses(make_network(n_steps=0), torch.zeros(0, SEQUENCE, dtype=torch.long)).shape == (0, SEQUENCE)


def test_ignored_padding_has_no_loss():
    tokens = make_tokens()
    losses = token_losses(make_network(padding="ignore"), tokens)
    assert torch.equal(losses == 0, tokens == 0)


@pytest.mark.parametrize("padding", ["predict", "ignore"])
def test_probabilities_give_the_losses(padding):
    network, tokens = make_network(padding=padding), make_tokens()
    probabilities = token_probabilities(network, tokens)
    assert probabilities.shape == (*tokens.shape, N_CODES + 1)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(tokens.shape))
    losses = -probabilities.gather(2, tokens[..., None])[..., 0].log()
    is_scored = (tokens != 0) | (padding == "predict")
    torch.testing.assert_close(losses[is_scored], token_losses(network, tokens)[is_scored], atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("padding", "how", "expected"),
    [
        ("predict", "mean", 2.0),
        ("predict", "mean-real", 1.5),
        ("predict", "sum", 8.0),
        ("predict", "max", 4.0),
        ("ignore", "mean", 1.5),
        ("ignore", "mean-real", 1.5),
        ("ignore", "sum", 3.0),
        ("ignore", "max", 2.0),
    ],
)
def test_reduced_losses(padding, how, expected):
    losses = torch.tensor([[1.0, 2.0, 4.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    is_real = torch.tensor([[True, True, False, False], [False] * 4])
    is_counted = torch.tensor([[True] * 4, [False] * 4]) if padding == "predict" else is_real
    assert reduced_losses(losses, is_counted, is_real, how).tolist() == [expected, 0.0]
