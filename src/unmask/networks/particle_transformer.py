"""The Particle Transformer (arXiv:2202.03772): attention between objects with a bias for every pair of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.networks.pair_features import pair_index
from unmask.networks.transformer import softmax_over_few


class AttentionBlock(nn.Module):
    """Attention and feed-forward network, each normalised before and within, and added to the rows.

    The same block serves the objects, which attend to each other, and the class token, which attends to all.
    """

    def __init__(self, hidden: int, n_heads: int, ffn_width: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.norm = nn.LayerNorm(hidden)
        self.query = nn.Linear(hidden, hidden)
        self.key_value = nn.Linear(hidden, 2 * hidden)
        self.attention_out = nn.Linear(hidden, hidden)
        self.norm_of_attended = nn.LayerNorm(hidden)
        self.dropout = nn.Dropout(dropout)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(hidden),
            nn.Linear(hidden, ffn_width),
            nn.GELU(),
            nn.LayerNorm(ffn_width),
            nn.Dropout(dropout),
            nn.Linear(ffn_width, hidden),
            nn.Dropout(dropout),
        )

    def forward(self, rows: Tensor, seen: Tensor, bias: Tensor) -> Tensor:
        """Let ``rows`` (batch, n, hidden) attend to ``seen`` (batch, m, hidden).

        ``bias`` is added to the attention logits; its shape broadcasts to (batch, heads, n, m).
        """
        normed = self.norm(rows)
        query = self._heads(self.query(normed))
        key_value = self.key_value(normed if seen is rows else self.norm(seen))
        key, value = (self._heads(part) for part in key_value.chunk(2, -1))
        if rows.device.type == "cpu":  # several times as fast as the fused kernel where objects are few
            logits = query @ key.transpose(-1, -2) * (1 / math.sqrt(query.shape[-1])) + bias
            attended = softmax_over_few(logits) @ value
        else:
            attended = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        attended = self.attention_out(attended.transpose(1, 2).reshape(rows.shape))
        rows = rows + self.dropout(self.norm_of_attended(attended))
        out: Tensor = rows + self.feed_forward(rows)
        return out

    def _heads(self, rows: Tensor) -> Tensor:
        return rows.view(*rows.shape[:2], self.n_heads, -1).transpose(1, 2)  # (batch, heads, n, hidden / heads)


class ParticleTransformer(nn.Module):
    """One row (batch, hidden) for a set of objects, whatever their order.

    Parameters
    ----------
    n_features, n_pair_features : inputs of an object and of a pair; without pair features nothing biases attention.
    hidden, n_heads, ffn_width, n_layers, n_class_layers : sizes.
    embedding : widths between the features and ``hidden``.
    pair_embedding : widths between the pair features and the heads.
    dropout : in the layers between objects; there is none in the class layers.
    biases : False for a network that is to have no learned constants: the class token starts from the sum of the
        objects' rows, and the embedding is not normalised, so that the rows are not bounded. The biases of the layers
        are the caller's to remove.
    """

    def __init__(
        self,
        n_features: int,
        n_pair_features: int,
        *,
        hidden: int,
        n_heads: int,
        ffn_width: int,
        n_layers: int,
        n_class_layers: int,
        embedding: Sequence[int],
        pair_embedding: Sequence[int],
        dropout: float,
        biases: bool,
    ) -> None:
        super().__init__()
        self.embedding = _embedding((n_features, *embedding, hidden), norms=biases)
        self.pair_embedding = (
            _embedding((n_pair_features, *pair_embedding, n_heads), norms=False) if n_pair_features else None
        )
        self.layers = nn.ModuleList(AttentionBlock(hidden, n_heads, ffn_width, dropout) for _ in range(n_layers))
        self.class_layers = nn.ModuleList(
            AttentionBlock(hidden, n_heads, ffn_width, 0.0) for _ in range(n_class_layers)
        )
        self.class_token = nn.Parameter(0.02 * torch.randn(hidden)) if biases else None

    def forward(self, features: Tensor, is_real: Tensor, pairs: Tensor | None = None) -> Tensor:
        """Summarise objects: ``features`` (batch, n, n_features), ``pairs`` (batch, n_pairs, n_pair_features).

        Only those that are real (batch, n) count; every event needs one.
        """
        rows = self.embedding(features)
        unseen = torch.zeros_like(is_real, dtype=rows.dtype).masked_fill(~is_real, -torch.inf)[:, None, None]
        bias = unseen.expand(-1, -1, len(is_real[0]), -1)
        if self.pair_embedding is not None and pairs is not None:
            n = features.shape[1]
            one, other = pair_index(n, features.device)
            embedded = self.pair_embedding(pairs).transpose(1, 2)  # (batch, heads, n_pairs)
            square = embedded.new_zeros(*embedded.shape[:2], n * n).index_copy(2, one * n + other, embedded)
            square = square.view(*embedded.shape[:2], n, n)
            bias = square + square.transpose(2, 3) + unseen  # (batch, heads, n, n)
        for layer in self.layers:
            rows = layer(rows, rows, bias)
        if self.class_token is None:
            token = masked_sum_of_rows(rows, is_real)[:, None]
        else:
            token = self.class_token.expand(len(rows), 1, -1).to(rows.dtype)
        unseen = F.pad(unseen, (1, 0))  # the token sees itself
        for layer in self.class_layers:
            token = layer(token, torch.cat([token, rows], 1), unseen)
        return token[:, 0]


def masked_sum_of_rows(rows: Tensor, is_real: Tensor) -> Tensor:
    """Sum (batch, hidden) of the ``rows`` (batch, n, hidden) that are real (batch, n)."""
    return (rows * is_real[..., None]).sum(1)


def _embedding(widths: Sequence[int], *, norms: bool) -> nn.Sequential:
    """Linear layers with GELUs between them, on request normalised before each but the first."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        if layers:
            layers.append(nn.GELU())
            if norms:
                layers.append(nn.LayerNorm(n_in))
        layers.append(nn.Linear(n_in, n_out))
    return nn.Sequential(*layers)
