"""How rarely background has as much of everything: masked-token prediction of global quantities, seen from below."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import gammaincc, gammaln
from torch import Tensor

from unmask.artifacts import Json
from unmask.detectors.explanations import Explanation, Term
from unmask.detectors.network import BATCH_EVENTS, NetworkDetector
from unmask.detectors.tail_bins import TailBins
from unmask.errors import UsageError
from unmask.events.event_set import EventSet
from unmask.events.quantities import QUANTITIES, QuantityName
from unmask.networks.lower_bound import LowerBoundTransformer, subset_log_tails
from unmask.networks.masked_token_scoring import evaluating
from unmask.training import Reporter, Task, TrainingSettings

DEFAULT_QUANTITIES: tuple[QuantityName, ...] = ("n_objects", "n_b_jets", "n_leptons", "ht", "met")

DEFAULT_TRAINING = TrainingSettings(
    max_epochs=30, batch_size=1024, learning_rate=2e-3, schedule="plateau", min_improvement=0.0001
)


class JointTailDetector(NetworkDetector[LowerBoundTransformer]):
    """How rarely background has as much of several quantities together, at its most significant.

    Each event is a short sequence of ordered tokens: its quantities in bins that stay fine in the tails. A transformer
    learns to fill in the masked ones, given lower bounds on the others. Products of its answers are the probabilities
    that background has as much of any subset of the quantities, or more: they know how the quantities come together in
    background, look only where there is more, and fall without limit beyond the last bin. Under background minus the
    logarithm of such a probability is close to gamma distributed, the wider the more quantities it is of; from these
    distributions each subset gets a p-value. The score is minus the logarithm of the smallest: one extreme quantity
    stays visible beside many ordinary ones, and many slightly high ones add up.

    Parameters
    ----------
    quantities : what an event is judged by, see :data:`unmask.events.quantities.QUANTITIES`; at most 8.
    hidden, n_layers, n_heads, ffn_expansion, dropout : see
        :class:`~unmask.networks.lower_bound.LowerBoundTransformer`.
    training : how the network is trained.
    seed : shorthand for the seed in ``training``.
    """

    kind = "joint-tail"

    bins_: dict[QuantityName, TailBins]
    #: Mean of minus the logarithm of each subset's probability in the validation background.
    shape_: npt.NDArray[np.float64]

    def __init__(
        self,
        *,
        quantities: tuple[QuantityName, ...] = DEFAULT_QUANTITIES,
        hidden: int = 32,
        n_layers: int = 2,
        n_heads: int = 4,
        ffn_expansion: int = 2,
        dropout: float = 0.0,
        training: TrainingSettings = DEFAULT_TRAINING,
        seed: int | None = None,
    ) -> None:
        self.quantities = tuple(quantities)
        self.hidden = hidden
        self.n_layers = n_layers
        self.n_heads = n_heads
        self.ffn_expansion = ffn_expansion
        self.dropout = dropout
        super().__init__(training, seed)

    def _fit(self, train: EventSet, validation: EventSet, run_folder: Path | None, reporter: Reporter | None) -> None:
        if not 1 <= len(self.quantities) <= 8 or len(set(self.quantities)) < len(self.quantities):
            raise UsageError(f"quantities {list(self.quantities)}: name one to eight, each once")
        self.bins_ = {
            name: TailBins.fit(QUANTITIES[name].of(train), is_count=QUANTITIES[name].is_count)
            for name in self.quantities
        }
        super()._fit(train, validation, run_folder, reporter)
        # One continuous quantity has shape 1. With a count it is less, but its probability is a p-value as it is.
        self.shape_ = np.maximum(self._surprises(validation, self.training.device).mean(axis=0), 1.0)

    def _new_network(self) -> LowerBoundTransformer:
        return LowerBoundTransformer(
            [self.bins_[name].n_bins for name in self.quantities],
            hidden=self.hidden,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            ffn_expansion=self.ffn_expansion,
            dropout=self.dropout,
        )

    def _new_task(self, network: LowerBoundTransformer, train: EventSet, validation: EventSet) -> Task:
        return _LowerBoundTask(network, self._encode(train)[0], self._encode(validation)[0], self.training.seed)

    def _encode(self, events: EventSet) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Bins (n_events, quantities), and the logarithm of the share of each bin that lies above the event."""
        columns = [(self.bins_[name], QUANTITIES[name].of(events)) for name in self.quantities]
        bins = np.stack([bins.bin_of(values) for bins, values in columns], axis=1)
        share = np.stack([bins.log_share_above(values) for bins, values in columns], axis=1)
        return bins, share.astype(np.float32)

    def _surprises(self, events: EventSet, device: str) -> npt.NDArray[np.float64]:
        """Minus the logarithm of the probability of every subset but the empty one, (n_events, 2^quantities - 1)."""

        def log_tails(network: LowerBoundTransformer, bins: Tensor, log_share: Tensor) -> Tensor:
            with evaluating(network):
                return subset_log_tails(network, bins, log_share)

        return -self._in_batches(self._encode(events), log_tails, device)[:, 1:].astype(np.float64)

    def score_events(self, events: EventSet, *, device: str = "auto") -> npt.NDArray[np.float64]:
        self._check_fitted()
        significance = _minus_log_gamma_tail(self._surprises(events, device), self.shape_)
        return np.asarray(significance.max(axis=1))

    def explain(self, events: EventSet, *, device: str = "auto") -> list[Explanation]:
        self._check_fitted()
        surprises = self._surprises(events, device)
        best = _minus_log_gamma_tail(surprises, self.shape_).argmax(axis=1) + 1
        values = np.stack([QUANTITIES[name].of(events) for name in self.quantities], axis=1)
        return [
            Explanation([None] * int(n), terms=self._terms(*event))
            for n, *event in zip(events.n_objects, values, surprises, best.tolist(), strict=True)
        ]

    def _terms(
        self, values: npt.NDArray[np.float64], surprises: npt.NDArray[np.float64], most_significant: int
    ) -> list[Term]:
        """The most significant subset of an event, then each quantity by itself."""
        terms = []
        for subset in dict.fromkeys([most_significant, *(1 << i for i in range(len(values)))]):
            pairs = zip(self.quantities, values.tolist(), strict=True)
            members = [(QUANTITIES[name], value) for i, (name, value) in enumerate(pairs) if subset >> i & 1]
            surprise = float(surprises[subset - 1])
            words = " and ".join(f"{quantity.words} {quantity.show(value)} or more" for quantity, value in members)
            terms.append(
                Term(
                    name=", ".join(quantity.words for quantity, _ in members),
                    text=f"{words}: {np.exp(-surprise):.2g} of background",
                    value=members[0][1] if len(members) == 1 else None,
                    surprise=surprise,
                )
            )
        return terms

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        bins = {key: array for name, bins in self.bins_.items() for key, array in bins.arrays(f"bins.{name}").items()}
        return super()._arrays() | bins | {"shape": self.shape_}

    def _restore(self, arrays: dict[str, npt.NDArray[Any]], facts: dict[str, Json]) -> None:
        self.shape_ = arrays.pop("shape")
        self.bins_ = {name: TailBins.from_arrays(arrays, f"bins.{name}") for name in self.quantities}
        super()._restore(arrays, facts)


def _minus_log_gamma_tail(values: npt.NDArray[np.float64], shape: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Minus the logarithm of P(this or more) in gamma distributions of these shapes and unit scale."""
    tail = gammaincc(shape, values)
    # Where the function is too small to be a number, its leading term.
    far = values - (shape - 1) * np.log(np.maximum(values, 1)) + gammaln(shape)
    return np.asarray(np.where(tail > 1e-290, -np.log(np.maximum(tail, 1e-290)), far))


class _LowerBoundTask(Task):
    """Bounds are drawn anew in each epoch; the loss is the cross-entropy of the bins."""

    network: LowerBoundTransformer

    def __init__(
        self,
        network: LowerBoundTransformer,
        bins: npt.NDArray[np.int64],
        validation: npt.NDArray[np.int64],
        seed: int,
    ) -> None:
        self.network = network
        self.n_train = len(bins)
        self.bins, self.validation = torch.from_numpy(bins), torch.from_numpy(validation)
        self.usual_bin = self.bins.double().mean(0).float()
        # The divergence rule compares losses on samples of equal size, always with the same bounds.
        drawn = np.random.default_rng(seed).permutation(len(bins))[: len(validation)]
        self.training_sample = self.bins[torch.from_numpy(np.sort(drawn))]
        self.validation_bounds, self.validation_weight = network.draw_bounds(self.validation, self.usual_bin)
        self.sample_bounds, self.sample_weight = network.draw_bounds(self.training_sample, self.usual_bin)
        self.bounds, self.weight = torch.zeros_like(self.bins), torch.zeros(len(bins))

    def to(self, device: torch.device) -> None:
        for name, value in vars(self).items():
            if isinstance(value, Tensor | LowerBoundTransformer):
                setattr(self, name, value.to(device))

    def start_epoch(self) -> None:
        bounds, weight = self.network.draw_bounds(self.bins, self.usual_bin)
        self.bounds.copy_(bounds)
        self.weight.copy_(weight)

    def training_loss(self, index: Tensor) -> Tensor:
        return self.network.loss(self.bins[index], self.bounds[index], self.weight[index])

    def evaluate(self) -> dict[str, float]:
        return {
            "training_loss": self._loss(self.training_sample, self.sample_bounds, self.sample_weight),
            "validation_loss": self._loss(self.validation, self.validation_bounds, self.validation_weight),
        }

    def _loss(self, *tensors: Tensor) -> float:
        parts = list(zip(*(torch.split(tensor, BATCH_EVENTS) for tensor in tensors), strict=True))
        weights = [float(part[-1].sum()) for part in parts]
        losses = [float(self.network.loss(*part)) for part in parts]
        return float(np.average(losses, weights=weights))

    def fingerprint(self) -> str:
        content = hashlib.sha256()
        for bins in (self.bins, self.validation):
            content.update(bins.cpu().numpy().tobytes())
        content.update(repr(self.network).encode())
        return content.hexdigest()[:16]
