"""What each position encoding lets the network know of the order of tokens."""

from __future__ import annotations

import pytest
import torch

from unmask.errors import UsageError
from unmask.networks.masked_token import MaskedTokenTransformer
from unmask.networks.transformer import POSITIONS, PositionalEncoding, rotate

TOKENS = torch.tensor([[3, 1, 4, 2, 5]])
LAST = torch.tensor([4])


def make_network(position: str) -> MaskedTokenTransformer:
    torch.manual_seed(0)
    return MaskedTokenTransformer(8, 5, position=position).eval()  # type: ignore[arg-type]


@pytest.mark.parametrize("position", [name for name in POSITIONS if name != "none"])
def test_order_matters_with_an_encoding(position):
    network = make_network(position)
    swapped = TOKENS[:, [2, 1, 0, 3, 4]]
    assert (network(TOKENS, LAST) - network(swapped, LAST)).abs().max() > 1e-3


def test_order_does_not_matter_without_one():
    network = make_network("none")
    swapped = TOKENS[:, [2, 1, 0, 3, 4]]
    torch.testing.assert_close(network(TOKENS, LAST), network(swapped, LAST))


def test_rotary_attention_depends_on_distance_only():
    encoding = PositionalEncoding("rotary", sequence_length=12, hidden=8, head_size=8)
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 1, 1, 8)  # (batch, sequence, heads, head_size)

    def logit(query_position: int, key_position: int) -> torch.Tensor:
        turned = [
            rotate(vector, encoding.rotation(torch.tensor([[position]])))
            for vector, position in ((query, query_position), (key, key_position))
        ]
        return (turned[0] * turned[1]).sum()

    torch.testing.assert_close(logit(2, 5), logit(8, 11))
    assert (logit(2, 5) - logit(2, 6)).abs() > 1e-3


def test_sinusoidal_vectors_are_the_published_ones():
    encoding = PositionalEncoding("sinusoidal", sequence_length=3, hidden=4, head_size=2)
    added = encoding(torch.zeros(1, 3, 4), torch.arange(3))[0]
    position = torch.arange(3.0)[:, None]
    expected = torch.cat([position.sin(), position.cos(), (position / 100).sin(), (position / 100).cos()], dim=1)
    torch.testing.assert_close(added, expected)


def test_convolution_reaches_the_next_neighbours_only():
    encoding = PositionalEncoding("convolutional", sequence_length=7, hidden=4, head_size=2)
    embedded = torch.zeros(1, 7, 4)
    changed = embedded.clone()
    changed[0, 3] = 1
    difference = (encoding(changed, torch.arange(7)) - encoding(embedded, torch.arange(7)))[0].abs().sum(1)
    assert (difference > 0).tolist() == [False, False, True, True, True, False, False]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"position": "rotary", "hidden": 20, "n_heads": 4}, "pairs"),
        ({"position": "sinusoidal", "hidden": 5, "n_heads": 5}, "pairs"),
    ],
)
def test_wrong_choices_are_named(options, words):
    with pytest.raises(UsageError, match=words):
        MaskedTokenTransformer(8, 5, **options)
