"""A VQ-VAE on sets of objects: NormFormer blocks in encoder and decoder, and a quantizer between them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

#: Weight of the newest batch in the running usage of the codes: a memory of some thirty batches.
USAGE_RATE = 0.03
#: A code whose fraction of the positions falls below this part of the even fraction 1/K is moved.
REVIVAL_FRACTION = 0.1


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
        projected = self.query_key_value(self.norm_before_attention(x)).view(batch, sequence, 3, self.n_heads, -1)
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


class Quantized(NamedTuple):
    """Quantized vectors, and the terms of the loss that belong to them."""

    latents: Tensor  # (batch, sequence, latent), zero at padding; the gradient passes straight through
    codes: Tensor  # (batch, sequence), 0 ... K-1; meaningless at padding
    codebook_term: Tensor
    commitment_term: Tensor
    usage_divergence: Tensor


class VectorQuantizer(nn.Module):
    """Nearest entry of a learned codebook (van den Oord et al., arXiv:1711.00937), blind to padding.

    In training mode, codes that hardly any vector has chosen lately are moved onto vectors of the current batch.
    Nothing here waits for the device or branches on data, so that a training step can be a CUDA graph.
    """

    usage: Tensor

    def __init__(self, n_codes: int, latent: int) -> None:
        super().__init__()
        self.n_codes = n_codes
        self.codebook = nn.Parameter(torch.randn(n_codes, latent) / latent**0.5)
        self.register_buffer("usage", torch.full((n_codes,), 1 / n_codes))

    def nearest(self, latents: Tensor) -> Tensor:
        """Index of the entry nearest to each of ``latents`` (..., latent)."""
        return self._distances(latents).argmin(-1)

    def _distances(self, latents: Tensor) -> Tensor:
        """|z - c|^2 (..., K) without |z|^2, which does not change the order: one matrix product."""
        flat = latents.flatten(0, -2)
        distances = torch.addmm(self.codebook.square().sum(1), flat, self.codebook.T, alpha=-2)
        return distances.view(*latents.shape[:-1], self.n_codes)

    def forward(self, latents: Tensor, is_real: Tensor) -> Quantized:
        """Quantize ``latents`` (batch, sequence, latent); only positions that are real (batch, sequence) count."""
        # Half precision would confuse neighboring codes.
        with torch.autocast(latents.device.type, enabled=False):
            latents = latents.float()
            if self.training:
                self._revive(latents.detach(), is_real)
            distances = self._distances(latents)
            codes = distances.detach().argmin(-1)
            if self.training:
                self._count(codes, is_real)
            entries = functional.embedding(codes, self.codebook)
            straight_through = latents + (entries - latents).detach()
            return Quantized(
                latents=straight_through * is_real.unsqueeze(-1),
                codes=codes,
                # Squared norms as in the paper, not means over the latent dimension: with those the encoder outruns
                # its codebook.
                codebook_term=masked_mean((entries - latents.detach()).square().sum(-1), is_real),
                commitment_term=masked_mean((entries.detach() - latents).square().sum(-1), is_real),
                usage_divergence=self._usage_divergence(latents.detach(), distances, is_real),
            )

    def _usage_divergence(self, latents: Tensor, distances: Tensor, is_real: Tensor) -> Tensor:
        """KL divergence of the batch's soft code usage from even usage.

        A vector belongs to each code with a weight that falls exponentially with the squared distance, on the scale of
        the squared distance to the nearest code: as soft as the codebook is coarse, whatever the size of the vectors.
        """
        nearest = latents.square().sum(-1) + distances.detach().amin(-1)
        temperature = masked_mean(nearest, is_real).clamp_min(1e-6)
        soft = torch.softmax(distances * (-1 / temperature), -1)
        usage = is_real.flatten().to(soft.dtype) @ soft.flatten(0, 1) / is_real.sum()
        return (usage * (usage * self.n_codes).clamp_min(1e-12).log()).sum()

    @torch.no_grad()
    def _count(self, codes: Tensor, is_real: Tensor) -> None:
        counts = torch.zeros_like(self.usage).index_add_(0, codes.flatten(), is_real.flatten().float())
        self.usage.lerp_(counts / is_real.sum(), USAGE_RATE)

    @torch.no_grad()
    def _revive(self, latents: Tensor, is_real: Tensor) -> None:
        """Move the codes that are hardly used onto vectors drawn from the real positions."""
        n_up_to = is_real.flatten().cumsum(0)
        draws = (torch.rand(self.n_codes, device=latents.device) * n_up_to[-1]).long()
        places = torch.searchsorted(n_up_to, draws, right=True).clamp_max(len(n_up_to) - 1)
        is_dead = self.usage < REVIVAL_FRACTION / self.n_codes
        self.codebook.copy_(torch.where(is_dead[:, None], latents.flatten(0, 1)[places], self.codebook))
        self.usage.copy_(torch.where(is_dead, 1 / self.n_codes, self.usage))

    @torch.no_grad()
    def initialize(self, samples: Tensor) -> None:
        """Set the codebook to the k-means centers of ``samples`` (n, latent), at least one for each code."""
        order = torch.randperm(len(samples)).to(samples.device)
        self.codebook.copy_(samples[order[: self.n_codes]])
        for _ in range(20):
            codes = self.nearest(samples)
            counts = torch.zeros_like(self.usage).index_add_(0, codes, torch.ones_like(samples[:, 0]))
            sums = torch.zeros_like(self.codebook).index_add_(0, codes, samples)
            # A center that lost all its samples starts again from another one.
            spare = samples[torch.randint(len(samples), (self.n_codes,)).to(samples.device)]
            self.codebook.copy_(torch.where(counts[:, None] > 0, sums / counts[:, None].clamp_min(1), spare))
        self.usage.fill_(1 / self.n_codes)


class Reconstruction(NamedTuple):
    """Output of the network for a batch."""

    features: Tensor  # (batch, sequence, n_features)
    codes: Tensor  # (batch, sequence), 0 ... K-1
    loss: Tensor  # minimized
    reconstruction_loss: Tensor  # the part of it that compares output with input


class NormFormerVQVAE(nn.Module):
    """Encoder, quantizer and decoder for events of up to ``sequence`` positions.

    Padding is never attended to, and enters neither the quantizer's statistics nor the loss; every event must have at
    least one real position. The network is equivariant under permutations of the positions. The MLPs are twice as wide
    as ``hidden``; ``alpha``, ``beta`` and ``gamma`` weigh the quantizer's terms, the usage divergence, and commitment
    within ``alpha``.
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
        self.encoder = NormFormer(n_features, latent, hidden=hidden, n_heads=n_heads, n_blocks=n_blocks)
        self.quantizer = VectorQuantizer(n_codes, latent)
        self.decoder = NormFormer(latent, n_features, hidden=hidden, n_heads=n_heads, n_blocks=n_blocks)

    def encode(self, features: Tensor, is_real: Tensor | None) -> Tensor:
        """Latent vectors (batch, sequence, latent) before quantization; ``is_real`` None means that all are.

        Padding must be finite, as 0 times anything else is not 0.
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


def masked_mean(values: Tensor, is_real: Tensor) -> Tensor:
    """Mean of ``values`` over the positions that are real."""
    return torch.where(is_real, values, 0).sum() / is_real.sum()
