"""Networks on a fixed number of features an event, which learn by one loss an event and give one score an event."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from itertools import pairwise

import torch
from torch import Tensor, nn

from unmask.errors import UsageError, require


class FixedLengthNetwork(nn.Module, ABC):
    """What :class:`~unmask.detectors.fixed_length.FixedLengthTask` trains."""

    #: Random numbers that the loss of an event needs.
    n_noise: int

    @abstractmethod
    def loss(self, features: Tensor, noise: Tensor) -> Tensor:
        """Losses (batch,) of standardised features (batch, n_features), with normal ``noise`` (batch, n_noise)."""

    @abstractmethod
    def score(self, features: Tensor) -> Tensor:
        """Scores (batch,), without noise; larger is more anomalous."""


class NormalizingFlow(FixedLengthNetwork):
    """Autoregressive neural spline flow (Durkan et al. 2019): the density of the features.

    Counts and absent objects are values without a width, on which a density can grow without limit and be right for
    nothing else. So the density learnt is that of features with normal noise of width ``noise``, which bounds it.

    Parameters
    ----------
    n_transforms, hidden, n_layers, n_bins : splines one after the other, hidden layers of the network that gives the
        parameters of each and their width, and pieces of a spline. Splines act on [-5, 5]; beyond, the density is
        that of a normal distribution.
    noise : standard deviation, in units of that of a feature; more than 0. The default was chosen on distorted
        background.
    """

    def __init__(
        self,
        n_features: int,
        *,
        n_transforms: int = 4,
        hidden: int = 128,
        n_layers: int = 2,
        n_bins: int = 8,
        noise: float = 0.3,
    ) -> None:
        require("zuko", "flow")
        from zuko.flows import NSF

        if noise <= 0:
            raise UsageError(f"noise is {noise}; accepted: a positive number")
        super().__init__()
        self.n_noise = n_features
        self.noise = noise
        # No density of noisy features can do better on average than this; what is above it is positive, as rules on
        # relative changes of the loss need it.
        self.least_loss = n_features * (math.log(noise) + 0.5 * math.log(2 * math.pi * math.e))
        flow = NSF(n_features, transforms=n_transforms, bins=n_bins, hidden_features=(hidden,) * n_layers)
        self.transform = flow.transform

    def log_density(self, features: Tensor) -> Tensor:
        """Logarithm of the density (batch,)."""
        # Not by a torch distribution: it checks its arguments, which waits for the device.
        normal, log_jacobian = self.transform().call_and_ladj(features)
        log_normal = -0.5 * (normal**2 + math.log(2 * math.pi)).sum(-1)
        return torch.as_tensor(log_normal + log_jacobian)

    def loss(self, features: Tensor, noise: Tensor) -> Tensor:
        return -self.log_density(features + self.noise * noise) - self.least_loss

    def score(self, features: Tensor) -> Tensor:
        return -self.log_density(features)

    def extra_repr(self) -> str:
        return f"noise={self.noise}"


class BetaVAE(FixedLengthNetwork):
    """Variational autoencoder with the loss (1 - beta) x squared error + beta x KL divergence.

    The error is a sum over the features, the divergence over the latent dimensions. The score is the loss with the mean
    of the latent distribution in place of a draw from it. The error alone overlooks events that lie far out along
    directions that background has, such as those with harder momenta: they come back well, from far out in the
    latent space.
    """

    def __init__(
        self, n_features: int, *, latent: int = 16, hidden: int = 128, n_layers: int = 2, beta: float = 0.5
    ) -> None:
        if not 0 <= beta <= 1:
            raise UsageError(f"beta is {beta}; accepted: from 0 to 1")
        super().__init__()
        self.n_noise = latent
        self.beta = beta
        widths = [hidden] * n_layers
        self.encoder = _mlp([n_features, *widths, 2 * latent])
        self.decoder = _mlp([latent, *widths, n_features])

    def loss(self, features: Tensor, noise: Tensor) -> Tensor:
        mean, log_variance = self.encoder(features).chunk(2, dim=-1)  # (batch, latent) each
        log_variance = log_variance.clamp(-20, 10)  # its exponential stays finite
        reconstructed = self.decoder(mean + torch.exp(0.5 * log_variance) * noise)
        error = torch.sum((reconstructed - features) ** 2, -1)
        divergence = 0.5 * torch.sum(mean**2 + log_variance.exp() - 1 - log_variance, -1)
        return (1 - self.beta) * error + self.beta * divergence

    def score(self, features: Tensor) -> Tensor:
        return self.loss(features, torch.zeros(len(features), self.n_noise, device=features.device))

    def extra_repr(self) -> str:
        return f"beta={self.beta}"


def _mlp(widths: list[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        layers += [nn.Linear(n_in, n_out), nn.SiLU()]
    return nn.Sequential(*layers[:-1])
