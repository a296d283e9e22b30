"""How a network learns the place of a token in its sequence: the five encodings of the masked-token model.

========================  =====================================================================================
name                      what it does
========================  =====================================================================================
``"none"``                nothing: the event is a set of tokens, in whatever order they come
``"sinusoidal"``          adds fixed sines and cosines of the position to the embedding (Vaswani et al. 2017)
``"learned"``             adds a trained vector for each position to the embedding
``"rotary"``              turns queries and keys by angles proportional to the position (Su et al. 2021)
``"convolutional"``       adds a depthwise convolution over three neighbouring tokens (Chu et al. 2021)
========================  =====================================================================================
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from unmask.errors import UsageError, nearest

PositionName = Literal["none", "sinusoidal", "learned", "rotary", "convolutional"]
POSITIONS: tuple[PositionName, ...] = get_args(PositionName)

#: Cosines and sines (..., sequence, head_size / 2) by which queries and keys are turned.
Rotation = tuple[Tensor, Tensor]


class PositionalEncoding(nn.Module):
    """No encoding, and the contract of the others."""

    #: Whether a token's embedding depends on its neighbours, so that masking one changes several.
    mixes_neighbours = False

    def forward(self, embedded: Tensor, positions: Tensor) -> Tensor:  # noqa: ARG002
        """Give embeddings (..., sequence, hidden) of the tokens at ``positions`` (..., sequence) their place."""
        return embedded

    def rotation(self, positions: Tensor) -> Rotation | None:  # noqa: ARG002
        """Return what turns the queries and keys at ``positions`` (..., sequence), if anything does."""
        return None


class AddedEncoding(PositionalEncoding):
    """Adds one vector per position: trained, or fixed sines and cosines."""

    def __init__(self, sequence_length: int, hidden: int, *, learned: bool) -> None:
        super().__init__()
        self.vectors: Tensor
        if learned:
            self.vectors = nn.Parameter(0.02 * torch.randn(sequence_length, hidden))
        else:
            angle = angles(torch.arange(sequence_length), hidden)
            self.register_buffer("vectors", torch.stack([angle.sin(), angle.cos()], -1).flatten(1), persistent=False)

    def forward(self, embedded: Tensor, positions: Tensor) -> Tensor:
        return embedded + self.vectors[positions]


class RotaryEncoding(PositionalEncoding):
    """Turns each pair of components of a query or key by an angle proportional to its position."""

    def __init__(self, sequence_length: int, head_size: int) -> None:
        super().__init__()
        angle = angles(torch.arange(sequence_length), head_size)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def rotation(self, positions: Tensor) -> Rotation | None:
        return self.get_buffer("cos")[positions], self.get_buffer("sin")[positions]


class ConvolutionalEncoding(PositionalEncoding):
    """Adds to each embedding a depthwise convolution of its neighbourhood; beyond the ends there are zeros."""

    mixes_neighbours = True

    def __init__(self, hidden: int, width: int = 3) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(hidden, hidden, width, padding="same", groups=hidden)

    def forward(self, embedded: Tensor, positions: Tensor) -> Tensor:  # noqa: ARG002
        mixed: Tensor = self.convolution(embedded.transpose(-1, -2))
        return embedded + mixed.transpose(-1, -2)


def angles(positions: Tensor, size: int) -> Tensor:
    """Angle of each position for ``size / 2`` frequencies, from 1 down to almost 1/10000 radian per position.

    >>> angles(torch.tensor([0, 1]), 4)
    tensor([[0.0000, 0.0000],
            [1.0000, 0.0100]])
    """
    frequency = 10000.0 ** (-torch.arange(0, size, 2) / size)
    return positions[..., None] * frequency


def rotate(vectors: Tensor, rotation: Rotation) -> Tensor:
    """Turn ``vectors`` (..., sequence, heads, head_size): components k and k + head_size/2 are a pair."""
    cos, sin = (part.unsqueeze(-2) for part in rotation)
    first, second = vectors.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


def make_positional_encoding(
    name: PositionName, *, sequence_length: int, hidden: int, head_size: int
) -> PositionalEncoding:
    """Build the encoding called ``name``.

    Raises
    ------
    UsageError
        If there is no such encoding, or the sizes do not split into pairs of components.
    """
    if name not in POSITIONS:
        raise UsageError(f"position encoding {name!r}: {nearest(name, POSITIONS)}")
    if name == "rotary" and head_size % 2:
        raise UsageError(f"rotary encoding turns pairs of components, but each head has {head_size}")
    if name == "sinusoidal" and hidden % 2:
        raise UsageError(f"sinusoidal encoding fills pairs of components, but the hidden size is {hidden}")
    match name:
        case "none":
            return PositionalEncoding()
        case "rotary":
            return RotaryEncoding(sequence_length, head_size)
        case "convolutional":
            return ConvolutionalEncoding(hidden)
        case _:
            return AddedEncoding(sequence_length, hidden, learned=name == "learned")
