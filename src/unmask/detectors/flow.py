"""Normalizing flow: how improbable a fixed-length summary of the event is in background."""

from __future__ import annotations

from unmask.detectors.event_features import FeatureKind, n_features
from unmask.detectors.fixed_length import FixedLengthDetector
from unmask.networks.fixed_length import NormalizingFlow
from unmask.training import TrainingSettings


class FlowDetector(FixedLengthDetector[NormalizingFlow]):
    """Normalizing flow on a fixed-length summary of the event; needs the extra `flow`.

    Score: minus the logarithm of the density of the standardised features.

    Parameters
    ----------
    features : "summary", or "flat" for the 92 columns; see :mod:`unmask.detectors.event_features`.
    n_transforms, hidden, n_layers, n_bins, noise : see :class:`~unmask.networks.fixed_length.NormalizingFlow`.
    training : how the network is trained.
    seed : shorthand for the seed in ``training``.
    """

    kind = "flow"

    def __init__(
        self,
        *,
        features: FeatureKind = "summary",
        n_transforms: int = 4,
        hidden: int = 128,
        n_layers: int = 2,
        n_bins: int = 8,
        noise: float = 0.3,
        training: TrainingSettings = TrainingSettings(),
        seed: int | None = None,
    ) -> None:
        self.features: FeatureKind = features
        self.n_transforms = n_transforms
        self.hidden = hidden
        self.n_layers = n_layers
        self.n_bins = n_bins
        self.noise = noise
        super().__init__(training, seed)

    def _new_network(self) -> NormalizingFlow:
        return NormalizingFlow(
            n_features(self.features),
            n_transforms=self.n_transforms,
            hidden=self.hidden,
            n_layers=self.n_layers,
            n_bins=self.n_bins,
            noise=self.noise,
        )
