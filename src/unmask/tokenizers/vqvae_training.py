"""Training of the VQ-VAE, and statistics of its codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unmask.events.objects import MET_TYPE, OBJECTS
from unmask.kinematics import wrap_phi
from unmask.networks.event_tensors import Kinematics
from unmask.networks.vqvae import NormFormerVQVAE
from unmask.training import Task, batches

#: Samples for each code from which the codebook starts.
_SAMPLES_PER_CODE = 64
#: Types that make up a smaller fraction of a code are not named in its description.
_MIN_NAMED = 0.1
_QUANTILES = (0.16, 0.5, 0.84)


class VQVAETask(Task):
    """Reconstruction of standardized events: features (n_events, sequence, 4), and which positions are real.

    The loss that is watched from epoch to epoch is the reconstruction's. The quantizer's terms belong to the minimized
    loss, but they grow while the encoder spreads over its codes and everything else still improves.
    """

    network: NormFormerVQVAE
    shares_batches = False  # the usage of codes is that of a whole batch

    def __init__(self, *data: Any, batch_events: int, log_pt_std: float, **options: Any) -> None:
        super().__init__(*data, **options)
        self.batch_events = batch_events  # type: ignore[misc]
        self.log_pt_std = log_pt_std

    def loss(self, *data: Tensor) -> Tensor:
        loss: Tensor = self.network(*data).loss
        return loss

    def start_training(self) -> None:
        """Start the codebook from the k-means centers of encoded training objects."""
        features, is_real = self.train
        quantizer, samples, n_samples = self.network.quantizer, [], 0
        for index in torch.split(torch.randperm(self.n_train).to(features.device), self.batch_events):
            samples.append(self.network.encode(features[index], is_real[index])[is_real[index]])
            n_samples += len(samples[-1])
            if n_samples >= _SAMPLES_PER_CODE * quantizer.n_codes:
                break
        quantizer.initialize(torch.cat(samples))

    def evaluate(self) -> dict[str, float]:
        index = self.sample_index()
        training_loss = self._measure(*(tensor[index] for tensor in self.train))["reconstruction_loss"]
        measured = self._measure(*self.validation)
        return {"training_loss": training_loss, "validation_loss": measured.pop("reconstruction_loss")} | measured

    def _measure(self, features: Tensor, is_real: Tensor) -> dict[str, float]:
        """Losses, codebook usage and rms error of log pT, in batches of training's size."""
        n_events, n_codes, device = len(features), self.network.quantizer.n_codes, features.device
        counts = torch.zeros(n_codes, device=device)
        loss, reconstruction_loss, squares, n_real = (torch.zeros((), device=device) for _ in range(4))
        for x, is_counted in batches((features, is_real), self.batch_events):
            result = self.network(x, is_counted)
            loss += result.loss * len(x) / n_events
            reconstruction_loss += result.reconstruction_loss * len(x) / n_events
            counts.index_add_(0, result.codes.flatten(), is_counted.flatten().float())
            squares += torch.where(is_counted, (result.features - x)[..., 1], 0).square().sum()
            n_real += is_counted.sum()
        usage = counts / n_real
        return {
            "reconstruction_loss": float(reconstruction_loss),
            "minimized_loss": float(loss),
            "usage": float((counts > 0).float().mean()),
            "perplexity": float(torch.exp(-torch.special.xlogy(usage, usage).sum())),
            "rms_log_pt": float((squares / n_real).sqrt()) * self.log_pt_std,
        }


@dataclass(frozen=True)
class CodeStatistics:
    """Background positions with each code in training.

    A code's quantiles (16%, median, 84%) are those of its objects or, where most of its positions are METs, of those.

    Attributes
    ----------
    type_counts
        (n_codes, n_types) int64, positions by type; the first (padding) is 0.
    pt_gev, eta, phi
        (n_codes, 3) float32; phi may leave [-pi, pi] so that the three are in order. NaN for an unused code.
    """

    type_counts: npt.NDArray[np.int64]
    pt_gev: npt.NDArray[np.float32]
    eta: npt.NDArray[np.float32]
    phi: npt.NDArray[np.float32]

    @classmethod
    def measure(
        cls, kinematics: Kinematics, types: npt.NDArray[np.uint8], tokens: npt.NDArray[np.int32], n_codes: int
    ) -> Self:
        """Collect the positions (n_events, sequence) by their tokens."""
        is_real = tokens != 0
        code, types = tokens[is_real].astype(np.int64) - 1, types[is_real]
        width = MET_TYPE + 1
        type_counts = np.bincount(code * width + types, minlength=n_codes * width).reshape(n_codes, width)
        is_met_code = type_counts[:, MET_TYPE] > type_counts.sum(axis=1) / 2
        is_typical = (types == MET_TYPE) == is_met_code[code]
        order = np.argsort(code[is_typical], kind="stable")
        columns = (kinematics.pt_mev / 1e3, kinematics.eta, kinematics.phi)
        ends = np.cumsum(np.bincount(code[is_typical], minlength=n_codes))
        by_code = zip(*(np.split(column[is_real][is_typical][order], ends[:-1]) for column in columns), strict=True)
        quantiles = np.full((3, n_codes, 3), np.nan, np.float32)
        for i, (pt, eta, phi) in enumerate(by_code):
            if len(pt):
                # An angle has no quantiles; its distance from the mean direction has.
                mean_phi = np.angle(np.exp(1j * phi.astype(np.float64)).mean())
                quantiles[0, i], quantiles[1, i] = np.quantile(pt, _QUANTILES), np.quantile(eta, _QUANTILES)
                quantiles[2, i] = mean_phi + np.quantile(wrap_phi(phi - mean_phi), _QUANTILES)
        return cls(type_counts, *quantiles)

    def describe(self, token: int, *, brief: bool = False) -> str:
        """Describe a token from 1; briefly by its types and the middle 68% of pT."""
        counts = self.type_counts[token - 1]
        n_positions = int(counts.sum())
        if not n_positions:
            return "a code that no background object had in training"
        names = {tag: one.name for tag, one in OBJECTS.items()} | {MET_TYPE: "MET"}
        fraction = counts / n_positions
        most_common = [int(t) for t in np.argsort(-counts, kind="stable")]
        named = most_common[:1] + [t for t in most_common[1:] if fraction[t] >= _MIN_NAMED]
        is_met = fraction[MET_TYPE] > 0.5
        pt, eta, phi = (quantiles[token - 1] for quantiles in (self.pt_gev, self.eta, self.phi))
        if brief:
            kinds = " or ".join(names[t] for t in named)
            return f"{'MET' if is_met else f'{kinds}, pT'} {pt[0]:.0f} to {pt[2]:.0f} GeV"
        parts = [
            " or ".join(f"{names[t]} ({fraction[t]:.0%})" for t in named),
            f"{'MET' if is_met else 'pT'} {pt[1]:.1f} ({pt[0]:.1f} to {pt[2]:.1f}) GeV",
            *([] if is_met else [f"eta {eta[1]:.2f} ({eta[0]:.2f} to {eta[2]:.2f})"]),
            f"phi {phi[1]:.2f} ({phi[0]:.2f} to {phi[2]:.2f})",
        ]
        return f"{', '.join(parts)}; {n_positions / int(self.type_counts.sum()):.2%} of background"


def reconstruction_report(
    true: Kinematics, types: npt.NDArray[np.uint8], decoded: Kinematics, tokens: npt.NDArray[np.int32], n_codes: int
) -> dict[str, float]:
    """Usage and perplexity of the codes, and root mean square errors of the features, over all real positions."""
    m = types == MET_TYPE
    o = ~m & (types != 0)
    used = np.bincount(tokens[tokens != 0]) / max(int(np.count_nonzero(tokens)), 1)
    used = used[used > 0]

    def rms(error: npt.NDArray[np.floating[Any]]) -> float:
        return float(np.sqrt(np.mean(np.square(error, dtype=np.float64)))) if error.size else 0.0

    return {
        "n_events": float(len(tokens)),
        "usage": len(used) / n_codes,
        "perplexity": float(np.exp(-np.sum(used * np.log(used)))),
        "rms_energy_gev": rms(decoded.energy_mev[o] - true.energy_mev[o]) / 1e3,
        "rms_pt_gev": rms(decoded.pt_mev[o] - true.pt_mev[o]) / 1e3,
        "rms_eta": rms(decoded.eta[o] - true.eta[o]),
        "rms_phi": rms(wrap_phi(decoded.phi[o] - true.phi[o])),
        "rms_log_energy": rms(np.log(decoded.energy_mev[o] / true.energy_mev[o])),
        "rms_log_pt": rms(np.log(decoded.pt_mev[o] / true.pt_mev[o])),
        "rms_met_gev": rms(decoded.pt_mev[m] - true.pt_mev[m]) / 1e3,
        "rms_log_met": rms(np.log(decoded.pt_mev[m] / true.pt_mev[m])),
        "rms_met_phi": rms(wrap_phi(decoded.phi[m] - true.phi[m])),
    }
