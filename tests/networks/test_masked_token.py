"""The masked-token network as its training uses it."""

from __future__ import annotations

import math

import pytest
import torch
from benchmarks.masked_token_scoring import reference_logits

from unmask.errors import UsageError
from unmask.networks.masked_token import MaskedTokenTransformer
from unmask.networks.transformer import POSITIONS


def make_network(**options) -> MaskedTokenTransformer:
    torch.manual_seed(0)
    return MaskedTokenTransformer(12, 6, **options)


def make_tokens(n_events: int = 64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(1, 13, (n_events, 6), generator=generator)
    tokens[torch.rand(tokens.shape, generator=generator) < 0.4] = 0
    tokens[:, -1] = 12
    return tokens


@pytest.mark.parametrize("padding", ["predict", "ignore"])
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("n_layers", [1, 3])
def test_prediction_is_that_of_the_full_encoder_at_the_masked_row(position, padding, n_layers):
    network = make_network(position=position, padding=padding, n_layers=n_layers).eval()
    tokens = make_tokens()
    masked_position = network.draw_masked_position(tokens)
    expected = reference_logits(network, tokens, masked_position)
    torch.testing.assert_close(network(tokens, masked_position), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("padding", ["predict", "ignore"])
@pytest.mark.parametrize("position", POSITIONS)
def test_masked_token_is_not_seen(position, padding):
    network = make_network(position=position, padding=padding).eval()
    tokens = make_tokens()
    masked_position = torch.full((len(tokens),), 5)
    other = tokens.clone()
    other[:, 5] = 3
    assert torch.equal(network(tokens, masked_position), network(other, masked_position))


def test_classes_are_padding_and_vocabulary():
    network = make_network()
    assert network(make_tokens(), torch.zeros(64, dtype=torch.long)).shape == (64, 13)
    assert network.embedding.num_embeddings == 14


def test_every_position_is_drawn_equally_often_when_padding_is_predicted():
    network = make_network()
    drawn = network.draw_masked_position(torch.zeros(60_000, 6, dtype=torch.long), torch.Generator().manual_seed(1))
    assert torch.bincount(drawn, minlength=6).tolist() == pytest.approx([10_000] * 6, rel=0.05)


def test_only_real_tokens_are_drawn_equally_often_when_padding_is_ignored():
    network = make_network(padding="ignore")
    tokens = torch.tensor([[1, 0, 2, 0, 0, 3]]).repeat(30_000, 1)
    drawn = network.draw_masked_position(tokens, torch.Generator().manual_seed(1))
    counts = torch.bincount(drawn, minlength=6).tolist()
    assert [counts[i] for i in (1, 3, 4)] == [0, 0, 0]
    assert [counts[i] for i in (0, 2, 5)] == pytest.approx([10_000] * 3, rel=0.05)


def test_same_generator_draws_the_same():
    network, tokens = make_network(padding="ignore"), make_tokens()
    first, second = (network.draw_masked_position(tokens, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("position", POSITIONS)
def test_ignored_padding_is_as_if_it_were_not_there(position):
    network = make_network(position=position, padding="ignore").eval()
    without = MaskedTokenTransformer(12, 3, position=position, padding="ignore").eval()
    weights = network.state_dict()
    if position == "learned":
        weights["positional.vectors"] = weights["positional.vectors"][:3]
    without.load_state_dict(weights)
    masked_position = torch.tensor([1])
    padded, short = torch.tensor([[1, 2, 12, 0, 0, 0]]), torch.tensor([[1, 2, 12]])
    torch.testing.assert_close(network(padded, masked_position), without(short, masked_position))


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("padding", ["predict", "ignore"])
def test_network_learns_which_token_goes_with_which(position, padding):
    """The second token follows from the first, so its loss must fall far below that of guessing."""
    generator = torch.Generator().manual_seed(1)
    first = torch.randint(1, 5, (128,), generator=generator)
    tokens = torch.stack([first, first + 4, torch.zeros_like(first)], 1)
    torch.manual_seed(0)
    network = MaskedTokenTransformer(8, 3, position=position, padding=padding)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(100):
        loss = network.loss(tokens, network.draw_masked_position(tokens, generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    second = torch.ones_like(first)
    assert network.eval().loss(tokens, second) < 0.1 * math.log(4)


def test_loss_leaves_out_events_without_real_tokens_when_padding_is_ignored():
    network = make_network(padding="ignore").eval()
    tokens = make_tokens(8)
    position = torch.full((9,), 5)
    with_empty = torch.cat([tokens, torch.zeros(1, 6, dtype=torch.long)])
    torch.testing.assert_close(network.loss(with_empty, position), network.loss(tokens, position[:8]))


def test_gradient_reaches_every_parameter():
    network = make_network(position="learned", n_layers=2)
    tokens = make_tokens()
    network.loss(tokens, network.draw_masked_position(tokens)).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


def test_heads_that_cannot_share_are_named():
    with pytest.raises(UsageError, match="30 cannot be shared equally by 4"):
        make_network(hidden=30)
