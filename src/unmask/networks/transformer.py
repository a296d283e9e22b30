"""One layer of the transformer encoder, for all rows of a sequence or for one, and encodings of the position.

========================  =====================================================================================
position                  effect
========================  =====================================================================================
``"none"``                none: the event is a set of tokens, in whatever order they come
``"sinusoidal"``          adds fixed sines and cosines of the position to the embedding (Vaswani et al. 2017)
``"learned"``             adds a trained vector for each position to the embedding
``"rotary"``              turns queries and keys by angles proportional to the position (Su et al. 2021)
``"convolutional"``       adds a depthwise convolution over three neighboring tokens (Chu et al. 2021)
========================  =====================================================================================
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UsageError

PositionName = Literal["none", "sinusoidal", "learned", "rotary", "convolutional"]
POSITIONS: tuple[PositionName, ...] = get_args(PositionName)

#: Cosines and sines (..., sequence, head_size / 2) by which queries and keys are turned.
Rotation = tuple[Tensor, Tensor]

#: Rows whose feed-forward activations stay in the cache of a CPU core.
CPU_CACHE_ROWS = 1024


class PositionalEncoding(nn.Module):
    """Encoding of the position, by one of the names above."""

    vectors: Tensor
    cos: Tensor
    sin: Tensor

    def __init__(self, name: PositionName, *, sequence_length: int, hidden: int, head_size: int) -> None:
        super().__init__()
        self.name = name
        #: Whether a token's embedding depends on its neighbors, so that masking one changes several.
        self.mixes_neighbors = name == "convolutional"
        positions = torch.arange(sequence_length)
        match name:
            case "learned":
                self.vectors = nn.Parameter(0.02 * torch.randn(sequence_length, hidden))
            case "sinusoidal":
                if hidden % 2:
                    raise UsageError(f"sinusoidal encoding fills pairs of components, but the hidden size is {hidden}")
                angle = angles(positions, hidden)
                vectors = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
                self.register_buffer("vectors", vectors, persistent=False)
            case "rotary":
                if head_size % 2:
                    raise UsageError(f"rotary encoding turns pairs of components, but each head has {head_size}")
                angle = angles(positions, head_size)
                self.register_buffer("cos", angle.cos(), persistent=False)
                self.register_buffer("sin", angle.sin(), persistent=False)
            case "convolutional":  # beyond the ends there are zeros
                self.convolution = nn.Conv1d(hidden, hidden, 3, padding="same", groups=hidden)

    def extra_repr(self) -> str:
        return self.name

    def forward(self, embedded: Tensor, positions: Tensor) -> Tensor:
        """Encode ``positions`` (..., sequence) in embeddings (..., sequence, hidden)."""
        if self.name in ("learned", "sinusoidal"):
            return embedded + self.vectors[positions]
        if self.mixes_neighbors:
            mixed: Tensor = self.convolution(embedded.transpose(-1, -2))
            return embedded + mixed.transpose(-1, -2)
        return embedded

    def rotation(self, positions: Tensor) -> Rotation | None:
        """Rotation of the queries and keys at ``positions`` (..., sequence), if there is any."""
        return (self.cos[positions], self.sin[positions]) if self.name == "rotary" else None


def angles(positions: Tensor, size: int) -> Tensor:
    """Angle of each position for ``size / 2`` frequencies, from 1 down to almost 1/10000 radian per position.

    >>> angles(torch.tensor([0, 1]), 4)
    tensor([[0.0000, 0.0000],
            [1.0000, 0.0100]])
    """
    return positions[..., None] * 10000.0 ** (-torch.arange(0, size, 2) / size)


def rotate(vectors: Tensor, rotation: Rotation) -> Tensor:
    """Turn ``vectors`` (..., sequence, heads, head_size): components k and k + head_size/2 are a pair."""
    cos, sin = (part.unsqueeze(-2) for part in rotation)
    first, second = vectors.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


class TransformerLayer(nn.Module):
    """Self-attention and feed-forward network, each on normalized input and added to it (pre-norm).

    The sub-layers read a LayerNorm of the rows, so the sum that runs through the layers is never rescaled and
    trains at the published learning rates with or without warm-up. Dropout acts on what each sub-layer adds.

    Queries, keys and values have no bias: a key's bias cancels in the softmax, and without them a head's two
    pairs of projections multiply to one matrix each, which is what :meth:`at_row` uses.
    """

    def __init__(self, hidden: int, n_heads: int, ffn_width: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.head_size = hidden // n_heads
        self.logit_scale = 1 / math.sqrt(self.head_size)
        self.attention_norm = nn.LayerNorm(hidden)
        self.query_key_value = nn.Linear(hidden, 3 * hidden, bias=False)
        self.attention_out = nn.Linear(hidden, hidden)
        self.ffn_norm = nn.LayerNorm(hidden)
        self.ffn_in = nn.Linear(hidden, ffn_width)
        self.ffn_out = nn.Linear(ffn_width, hidden)
        self.dropout = nn.Dropout(dropout)

    def extra_repr(self) -> str:
        return f"n_heads={self.n_heads}"  # which no parameter shows

    def forward(self, rows: Tensor, rotation: Rotation | None = None, key_bias: Tensor | None = None) -> Tensor:
        """Apply the layer to ``rows`` (batch, sequence, hidden).

        ``key_bias`` is added to the attention logits; its shape broadcasts to (batch, heads, sequence, sequence).
        """
        batch, sequence, hidden = rows.shape
        projected = self.query_key_value(self.attention_norm(rows)).view(batch, sequence, 3 * self.n_heads, -1)
        query_key, value = projected.split([2 * self.n_heads, self.n_heads], dim=2)
        if rotation is not None:
            query_key = rotate(query_key, rotation)
        query, key = query_key.transpose(1, 2).chunk(2, dim=1)  # (batch, heads, sequence, head_size)
        value = value.transpose(1, 2)
        read = F.scaled_dot_product_attention(query, key, value, attn_mask=key_bias)
        read = read.transpose(1, 2).reshape(batch, sequence, hidden)
        return self.feed_forward(rows + self.dropout(self.attention_out(read)))

    def at_row(
        self,
        row: Tensor,
        rows: Tensor,
        rotation_of_row: Rotation | None = None,
        rotation: Rotation | None = None,
        key_bias: Tensor | None = None,
    ) -> Tensor:
        """Apply the layer to a single ``row`` (batch, hidden) that attends to ``rows`` (batch, sequence, hidden).

        Neither keys nor values are made: the one query is projected back to the space of the rows, and the average
        of the rows forward. ``key_bias`` broadcasts to (batch, heads, sequence).
        """
        normed = self.attention_norm(row)
        if rotation_of_row is not None and rotation is not None:  # each key is turned by its own angle: they are made
            keys = self.attention_norm(rows)
            logits = self.attention_logits(normed[:, None], keys, rotation_of_row, rotation)[:, :, 0]
            weights = softmax_over_few(logits if key_bias is None else logits + key_bias)
            added = (weights @ keys).flatten(1) @ self.value_to_out().flatten(0, 1) + self.attention_out.bias
            return self.feed_forward(row + self.dropout(added))
        # The rows are not even normalized: what centers and stretches them is in the matrices around them.
        norm, to_out = self.attention_norm, self.value_to_out()
        to_key = _centered(self.query_to_key().view(-1, self.n_heads, len(norm.weight)) * norm.weight, -1).flatten(1)
        scale = inverse_deviation(rows, norm.eps)[:, None]  # (batch, 1, sequence)
        logits = ((normed @ to_key).view(len(row), self.n_heads, -1) @ rows.transpose(1, 2)) * scale
        weights = softmax_over_few(logits if key_bias is None else logits + key_bias) * scale
        read = (weights @ rows).flatten(1)  # (batch, heads * hidden)
        added = read @ _centered(to_out * norm.weight[:, None], 1).flatten(0, 1)
        return self.feed_forward(row + self.dropout(added + (norm.bias @ to_out.sum(0) + self.attention_out.bias)))

    def attention_logits(
        self,
        queries: Tensor,
        keys: Tensor,
        rotation_of_queries: Rotation | None = None,
        rotation_of_keys: Rotation | None = None,
    ) -> Tensor:
        """Attention logits (batch, heads, n_queries, n_keys) between normalized rows (batch, n, hidden)."""
        query_weight, key_weight, _ = self.query_key_value.weight.chunk(3)
        of_heads = (len(keys), -1, self.n_heads, self.head_size)
        query = F.linear(queries, query_weight * self.logit_scale).view(of_heads)
        key = F.linear(keys, key_weight).view(of_heads)
        if rotation_of_queries is not None and rotation_of_keys is not None:
            query, key = rotate(query, rotation_of_queries), rotate(key, rotation_of_keys)
        return query.transpose(1, 2) @ key.permute(0, 2, 3, 1)

    def query_to_key(self) -> Tensor:
        """Matrix (hidden, heads * hidden) from a normalized row to the keys that its query of each head matches."""
        query, key, _ = self.query_key_value.weight.view(3, self.n_heads, self.head_size, -1).unbind()
        return (query.transpose(1, 2) @ key).transpose(0, 1).flatten(1) * self.logit_scale

    def value_to_out(self) -> Tensor:
        """Matrices (heads, hidden, hidden) from a normalized row to the output of a head that attends to it alone."""
        _, _, value = self.query_key_value.weight.view(3, self.n_heads, self.head_size, -1).unbind()
        out = self.attention_out.weight.view(-1, self.n_heads, self.head_size)
        return value.transpose(1, 2) @ out.permute(1, 2, 0)

    def feed_forward(self, rows: Tensor) -> Tensor:
        """Apply the second sub-layer to rows (..., hidden)."""
        inner = F.relu(self.ffn_in(self.ffn_norm(rows)), inplace=True)
        added: Tensor = self.dropout(self.ffn_out(inner))
        return rows + added

    def feed_forward_(self, rows: Tensor) -> Tensor:
        """Apply the second sub-layer to contiguous rows (..., hidden) in place, without dropout or gradient."""
        flat, norm = rows.view(-1, rows.shape[-1]), self.ffn_norm
        into = _centered(self.ffn_in.weight * norm.weight, 1).t()
        bias = self.ffn_in.weight @ norm.bias + self.ffn_in.bias
        scale = inverse_deviation(flat, norm.eps)[:, None]
        at_once = CPU_CACHE_ROWS if flat.device.type == "cpu" else len(flat)
        for part, scale_of_part in zip(torch.split(flat, at_once), torch.split(scale, at_once), strict=True):
            inner = torch.addmm(bias, part * scale_of_part, into).relu_()
            part.addmm_(inner, self.ffn_out.weight.t()).add_(self.ffn_out.bias)
        return rows


def inverse_deviation(rows: Tensor, eps: float) -> Tensor:
    """Factor (...,) by which a LayerNorm multiplies centered rows (..., hidden).

    With it, centering and gain can go into the matrix behind the LayerNorm, which on CUDA is slow on rows so short.
    """
    variance: Tensor = torch.linalg.vector_norm(rows, dim=-1).square() / rows.shape[-1] - rows.mean(-1).square()
    return (variance.clamp(min=0) + eps).rsqrt()


def _centered(weight: Tensor, dim: int) -> Tensor:
    """Make of ``weight``, whose ``dim`` meets the rows, one for rows from which their mean is not subtracted."""
    return weight - weight.mean(dim, keepdim=True)


def softmax_over_few(logits: Tensor) -> Tensor:
    """Softmax over the last dimension; torch's own is many times slower on a CPU for fewer than 16 values."""
    if logits.device.type != "cpu":
        return torch.softmax(logits, dim=-1)
    exponential = (logits - logits.amax(-1, keepdim=True)).exp_()
    return exponential / exponential.sum(-1, keepdim=True)
