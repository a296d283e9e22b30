"""How the VQ-VAE is trained: its data, its start and what is measured after each epoch."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unmask.artifacts import Json
from unmask.networks.vqvae import NormFormerVQVAE
from unmask.training import Task

#: Samples for each code from which the codebook starts.
_SAMPLES_PER_CODE = 64


class VQVAETask(Task):
    """Reconstruction of standardised events.

    The loss that is watched from epoch to epoch is the reconstruction's. The quantizer's terms belong to the loss that
    is minimised, but they grow while the encoder spreads over its codes and everything else still improves.

    Parameters
    ----------
    train, validation : features (n_events, sequence, n_features) float32, and which positions are real.
    log_pt_std : what one unit of the second feature is in log pT.
    """

    network: NormFormerVQVAE
    shares_batches = False  # the usage of codes is that of a whole batch

    def __init__(
        self,
        network: NormFormerVQVAE,
        train: tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]],
        validation: tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]],
        *,
        batch_size: int,
        log_pt_std: float,
        settings: dict[str, Json],
    ) -> None:
        self.network, self.batch_size, self.log_pt_std = network, batch_size, log_pt_std
        self.n_train = len(train[0])
        self.identity = json.dumps(settings, sort_keys=True)
        # Positions that are padding in every event cost time and change nothing.
        self.train, self.validation = (
            (torch.from_numpy(features[:, :longest]), torch.from_numpy(is_real[:, :longest]))
            for features, is_real in (train, validation)
            for longest in [int(is_real.sum(axis=1).max(initial=1))]
        )
        # The divergence rule compares losses on samples of equal size, drawn alike from all processes.
        n = min(self.n_train, len(validation[0]))
        drawn = torch.from_numpy(np.random.default_rng(0).permutation(self.n_train)[:n])
        self.training_sample = (self.train[0][drawn], self.train[1][drawn])

    def to(self, device: torch.device) -> None:
        self.network.to(device)
        for name in ("train", "validation", "training_sample"):
            setattr(self, name, tuple(tensor.to(device) for tensor in getattr(self, name)))

    def training_loss(self, index: Tensor) -> Tensor:
        features, is_real = self.train
        loss: Tensor = self.network(features[index], is_real[index]).loss
        return loss

    def start_training(self) -> None:
        """Start the codebook from the k-means centres of encoded training objects."""
        features, is_real = self.train
        quantizer, found, n_found = self.network.quantizer, [], 0
        for index in torch.split(torch.randperm(self.n_train).to(features.device), self.batch_size):
            found.append(self.network.encode(features[index], is_real[index])[is_real[index]])
            n_found += len(found[-1])
            if n_found >= _SAMPLES_PER_CODE * quantizer.n_codes:
                break
        quantizer.initialise(torch.cat(found))

    def evaluate(self) -> dict[str, float]:
        training_loss = self._measure(*self.training_sample)["reconstruction_loss"]
        measured = self._measure(*self.validation)
        return {"training_loss": training_loss, "validation_loss": measured.pop("reconstruction_loss")} | measured

    def _measure(self, features: Tensor, is_real: Tensor) -> dict[str, float]:
        """Losses, codebook usage and rms error of log pT, in batches of training's size."""
        n_events, n_codes, device = len(features), self.network.quantizer.n_codes, features.device
        counts = torch.zeros(n_codes, device=device)
        loss, reconstruction_loss, squares, n_real = (torch.zeros((), device=device) for _ in range(4))
        for start in range(0, n_events, self.batch_size):
            batch = slice(start, min(start + self.batch_size, n_events))
            is_counted = is_real[batch]
            result = self.network(features[batch], is_counted)
            loss += result.loss * len(is_counted) / n_events
            reconstruction_loss += result.reconstruction_loss * len(is_counted) / n_events
            counts.index_add_(0, result.codes.flatten(), is_counted.flatten().float())
            errors = (result.features - features[batch])[..., 1]
            squares += torch.where(is_counted, errors, 0).square().sum()
            n_real += is_counted.sum()
        share = counts / n_real
        return {
            "reconstruction_loss": float(reconstruction_loss),
            "minimised_loss": float(loss),
            "usage": float((counts > 0).float().mean()),
            "perplexity": float(torch.exp(-torch.special.xlogy(share, share).sum())),
            "rms_log_pt": float((squares / n_real).sqrt()) * self.log_pt_std,
        }
