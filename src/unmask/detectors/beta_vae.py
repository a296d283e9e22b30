"""Beta-VAE: how badly a fixed-length summary of the event comes back from latent numbers, and how odd those are."""

from __future__ import annotations

from unmask.detectors.event_features import FeatureKind, n_features
from unmask.detectors.fixed_length import FixedLengthDetector
from unmask.networks.fixed_length import BetaVAE
from unmask.training import TrainingSettings


class BetaVAEDetector(FixedLengthDetector[BetaVAE]):
    """Variational autoencoder on a fixed-length summary of the event.

    Score: the loss itself, (1 - beta) x squared error of the reconstruction + beta x divergence of the latent
    distribution.

    Parameters
    ----------
    features : "summary", or "flat" for the 92 columns; see :mod:`unmask.detectors.event_features`.
    latent, hidden, n_layers, beta : see :class:`~unmask.networks.fixed_length.BetaVAE`.
    training : how the network is trained.
    seed : shorthand for the seed in ``training``.
    """

    kind = "beta-vae"

    def __init__(
        self,
        *,
        features: FeatureKind = "summary",
        latent: int = 16,
        hidden: int = 128,
        n_layers: int = 2,
        beta: float = 0.5,
        training: TrainingSettings = TrainingSettings(),
        seed: int | None = None,
    ) -> None:
        self.features: FeatureKind = features
        self.latent = latent
        self.hidden = hidden
        self.n_layers = n_layers
        self.beta = beta
        super().__init__(training, seed)

    def _new_network(self) -> BetaVAE:
        return BetaVAE(
            n_features(self.features), latent=self.latent, hidden=self.hidden, n_layers=self.n_layers, beta=self.beta
        )
