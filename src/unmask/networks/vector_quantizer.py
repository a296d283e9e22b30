"""A codebook that replaces each vector by the nearest of its K entries, and that stays in use."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

#: Weight of the newest batch in the running usage of the codes: a memory of some thirty batches.
USAGE_RATE = 0.03
#: A code whose share of the positions falls below this part of the even share 1/K is given a new place.
REVIVAL_SHARE = 0.1


class Quantized(NamedTuple):
    """Vectors after quantisation, and the terms of the loss that belong to it."""

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
        """Quantise ``latents`` (batch, sequence, latent); only positions that are real (batch, sequence) count."""
        # Half precision would confuse neighbouring codes.
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
        found = latents.flatten(0, 1)[places]
        is_dead = self.usage < REVIVAL_SHARE / self.n_codes
        self.codebook.copy_(torch.where(is_dead[:, None], found, self.codebook))
        self.usage.copy_(torch.where(is_dead, 1 / self.n_codes, self.usage))

    @torch.no_grad()
    def initialise(self, samples: Tensor, n_rounds: int = 20) -> None:
        """Set the codebook to the k-means centres of ``samples`` (n, latent), at least one for each code."""
        order = torch.randperm(len(samples)).to(samples.device)
        self.codebook.copy_(samples[order[: self.n_codes]])
        for _ in range(n_rounds):
            codes = self.nearest(samples)
            counts = torch.zeros_like(self.usage).index_add_(0, codes, torch.ones_like(samples[:, 0]))
            sums = torch.zeros_like(self.codebook).index_add_(0, codes, samples)
            # A centre that lost all its samples starts again from another one.
            spare = samples[torch.randint(len(samples), (self.n_codes,)).to(samples.device)]
            self.codebook.copy_(torch.where(counts[:, None] > 0, sums / counts[:, None].clamp_min(1), spare))
        self.usage.fill_(1 / self.n_codes)


def masked_mean(values: Tensor, is_real: Tensor) -> Tensor:
    """Mean of ``values`` over the positions that are real."""
    return torch.where(is_real, values, 0).sum() / is_real.sum()
