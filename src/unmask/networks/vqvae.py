"""A VQ-VAE on sets of objects, with NormFormer blocks in encoder and decoder."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from unmask.networks.vector_quantizer import VectorQuantizer, masked_mean


class NormFormerBlock(nn.Module):
    """A pre-norm transformer layer with the three additions of NormFormer (arXiv:2110.09456).

    They are a gain for each head, a LayerNorm after the attention, and one inside the MLP after its activation.
    There is no dropout.
    """

    def __init__(self, hidden: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.norm_before_attention = nn.LayerNorm(hidden)
        self.query_key_value = nn.Linear(hidden, 3 * hidden)
        self.head_gain = nn.Parameter(torch.ones(n_heads, 1, 1))
        self.attention_output = nn.Linear(hidden, hidden)
        self.norm_after_attention = nn.LayerNorm(hidden)
        self.mlp = nn.Sequential(
            nn.LayerNorm(hidden),
            nn.Linear(hidden, 2 * hidden),
            nn.GELU(),
            nn.LayerNorm(2 * hidden),
            nn.Linear(2 * hidden, hidden),
        )

    def forward(self, x: Tensor, is_real: Tensor | None) -> Tensor:
        batch, sequence, hidden = x.shape
        projected = self.query_key_value(self.norm_before_attention(x))
        projected = projected.view(batch, sequence, 3, self.n_heads, hidden // self.n_heads)
        query, key, value = projected.permute(2, 0, 3, 1, 4)  # (batch, heads, sequence, hidden / heads)
        is_seen = None if is_real is None else is_real[:, None, None, :]
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=is_seen) * self.head_gain
        attended = attended.transpose(1, 2).reshape(batch, sequence, hidden)
        x = x + self.norm_after_attention(self.attention_output(attended))
        out: Tensor = x + self.mlp(x)
        return out


class NormFormer(nn.Module):
    """Linear, blocks, linear."""

    def __init__(self, n_in: int, n_out: int, *, hidden: int, n_heads: int, n_blocks: int) -> None:
        super().__init__()
        self.into = nn.Linear(n_in, hidden)
        self.blocks = nn.ModuleList(NormFormerBlock(hidden, n_heads) for _ in range(n_blocks))
        self.out = nn.Linear(hidden, n_out)

    def forward(self, x: Tensor, is_real: Tensor | None) -> Tensor:
        """Map ``x`` (batch, sequence, n_in)."""
        x = self.into(x)
        for block in self.blocks:
            x = block(x, is_real)
        out: Tensor = self.out(x)
        return out


class Reconstruction(NamedTuple):
    """What the network makes of a batch."""

    features: Tensor  # (batch, sequence, n_features)
    codes: Tensor  # (batch, sequence), 0 ... K-1
    loss: Tensor  # what is minimised
    reconstruction_loss: Tensor  # the part of it that compares output with input


class NormFormerVQVAE(nn.Module):
    """Encoder, quantizer and decoder for events of up to ``sequence`` positions.

    Padding is never attended to, and enters neither the quantizer's statistics nor the loss; every event must have at
    least one real position. The network is equivariant under permutations of the positions.

    Parameters
    ----------
    n_features : features of a position, standardised.
    n_codes, latent, hidden, n_heads, n_blocks : sizes; the MLPs are twice as wide as ``hidden``.
    alpha, beta, gamma : weights of the quantizer's terms, of the usage divergence, and of commitment within ``alpha``.
    """

    def __init__(
        self,
        n_features: int,
        *,
        n_codes: int,
        latent: int,
        hidden: int,
        n_heads: int,
        n_blocks: int,
        alpha: float,
        beta: float,
        gamma: float,
    ) -> None:
        super().__init__()
        self.alpha, self.beta, self.gamma = alpha, beta, gamma
        self.n_features = n_features
        self.encoder = NormFormer(n_features, latent, hidden=hidden, n_heads=n_heads, n_blocks=n_blocks)
        self.quantizer = VectorQuantizer(n_codes, latent)
        self.decoder = NormFormer(latent, n_features, hidden=hidden, n_heads=n_heads, n_blocks=n_blocks)

    def encode(self, features: Tensor, is_real: Tensor | None) -> Tensor:
        """Latent vectors (batch, sequence, latent) before quantisation; ``is_real`` None means that all are.

        What padding holds must be finite, as 0 times anything else is not 0.
        """
        latents = self.encoder(features, is_real)
        # Of one length: otherwise the encoder can lower its error by growing away from the codebook.
        return functional.rms_norm(latents, latents.shape[-1:])

    def decode(self, codes: Tensor, is_real: Tensor | None) -> Tensor:
        """Features (batch, sequence, n_features) of ``codes`` (batch, sequence)."""
        decoded: Tensor = self.decoder(functional.embedding(codes, self.quantizer.codebook), is_real)
        return decoded

    def forward(self, features: Tensor, is_real: Tensor) -> Reconstruction:
        """Reconstruct ``features`` (batch, sequence, n_features); ``is_real`` is (batch, sequence)."""
        features = features.masked_fill(~is_real.unsqueeze(-1), 0)
        quantized = self.quantizer(self.encode(features, is_real), is_real)
        reconstructed = self.decoder(quantized.latents, is_real).float()
        reconstruction_loss = masked_mean((reconstructed - features).square().mean(-1), is_real)
        quantizer_loss = quantized.codebook_term + self.gamma * quantized.commitment_term
        loss = reconstruction_loss + self.alpha * quantizer_loss + self.beta * quantized.usage_divergence
        return Reconstruction(reconstructed, quantized.codes, loss, reconstruction_loss)
