"""What the detectors share that judge an event by a few global quantities: bins, training, words."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unmask.artifacts import Json
from unmask.detectors.explanations import Explanation, Term
from unmask.detectors.network import BATCH_EVENTS, NetworkDetector
from unmask.detectors.tail_bins import TailBins
from unmask.errors import UsageError
from unmask.events.event_set import EventSet
from unmask.events.quantities import QUANTITIES, QuantityName
from unmask.networks.quantity_transformer import QuantityTransformer
from unmask.training import Reporter, Task, TrainingSettings

DEFAULT_QUANTITIES: tuple[QuantityName, ...] = ("n_objects", "n_b_jets", "n_leptons", "ht", "met")

DEFAULT_TRAINING = TrainingSettings(
    max_epochs=30, batch_size=1024, learning_rate=2e-3, schedule="plateau", min_improvement=0.0001
)

FloatArray = npt.NDArray[np.float64]
Network = TypeVar("Network", bound=QuantityTransformer)


class QuantityDetector(NetworkDetector[Network], Generic[Network]):
    """A detector for which each event is a short sequence of ordered tokens: quantities in bins fine in the tails."""

    bins_: dict[QuantityName, TailBins]

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
            name: TailBins.fit(values, is_count=QUANTITIES[name].is_count)
            for name, values in zip(self.quantities, self._values(train).T, strict=True)
        }
        super()._fit(train, validation, run_folder, reporter)

    @abstractmethod
    def _network_class(self) -> type[Network]:
        """The kind of network."""

    def _new_network(self) -> Network:
        return self._network_class()(
            [self.bins_[name].n_bins for name in self.quantities],
            hidden=self.hidden,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            ffn_expansion=self.ffn_expansion,
            dropout=self.dropout,
        )

    def _values(self, events: EventSet) -> FloatArray:
        """The quantities (n_events, quantities)."""
        return np.stack([QUANTITIES[name].of(events) for name in self.quantities], axis=1)

    def _bins(self, values: FloatArray) -> npt.NDArray[np.int64]:
        """The bins (n_events, quantities) of the quantities."""
        return np.stack([bins.bin_of(one) for bins, one in zip(self.bins_.values(), values.T, strict=True)], axis=1)

    def _explanations(
        self, events: EventSet, surprises: FloatArray, first: npt.NDArray[np.integer[Any]]
    ) -> list[Explanation]:
        """In words, of each event the subset of number ``first``, then each quantity by itself.

        ``surprises`` (n_events, 2^quantities - 1) are those of all subsets but the empty one.
        """
        rows = zip(events.n_objects, self._values(events), surprises, first.tolist(), strict=True)
        return [Explanation([None] * int(n), terms=self._terms(*event)) for n, *event in rows]

    def _terms(self, values: FloatArray, surprises: FloatArray, first: int) -> list[Term]:
        terms = []
        for subset in dict.fromkeys([first, *(1 << i for i in range(len(values)))]):
            pairs = zip(self.quantities, values.tolist(), strict=True)
            members = [(QUANTITIES[name], value) for i, (name, value) in enumerate(pairs) if subset >> i & 1]
            found = [f"{quantity.words} {quantity.show(value)}" for quantity, value in members]
            surprise = float(surprises[subset - 1])
            terms.append(
                Term(
                    name=", ".join(quantity.words for quantity, _ in members),
                    text=self._say(found, surprise),
                    value=members[0][1] if len(members) == 1 else None,
                    surprise=surprise,
                )
            )
        return terms

    @abstractmethod
    def _say(self, found: list[str], surprise: float) -> str:
        """What some quantities of an event together mean, in words; ``found`` is what each of them is."""

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        bins = {key: array for name, bins in self.bins_.items() for key, array in bins.arrays(f"bins.{name}").items()}
        return super()._arrays() | bins

    def _restore(self, arrays: dict[str, npt.NDArray[Any]], facts: dict[str, Json]) -> None:
        self.bins_ = {name: TailBins.from_arrays(arrays, f"bins.{name}") for name in self.quantities}
        super()._restore(arrays, facts)


class QuantityTask(Task, Generic[Network]):
    """What is known of an event is drawn anew in each epoch; the loss is the cross-entropy of the bins.

    Events count with ``weights``, those of training and of validation, if these are given.
    """

    network: Network

    def __init__(
        self,
        network: Network,
        bins: npt.NDArray[np.int64],
        validation: npt.NDArray[np.int64],
        seed: int,
        weights: tuple[FloatArray, FloatArray] | None = None,
    ) -> None:
        self.network = network
        self.n_train = len(bins)
        data = (bins, validation, *(weights or ()))
        self.identity = f"{hashlib.sha256(b''.join(one.tobytes() for one in data)).hexdigest()} {network}"
        self.bins, self.validation = torch.from_numpy(bins), torch.from_numpy(validation)
        weights = weights or (np.ones(len(bins)), np.ones(len(validation)))
        self.event_weight, validation_weight = (torch.from_numpy(one).float() for one in weights)
        # The divergence rule compares losses on samples of equal size, of which always the same is known.
        drawn = torch.from_numpy(np.sort(np.random.default_rng(seed).permutation(len(bins))[: len(validation)]))
        self.training_sample = self.bins[drawn]
        self.validation_tokens, self.validation_weight = self._drawn(self.validation, validation_weight)
        self.sample_tokens, self.sample_weight = self._drawn(self.training_sample, self.event_weight[drawn])
        self.tokens, self.weight = torch.zeros_like(self.bins), torch.zeros(len(bins))

    @abstractmethod
    def draw(self, bins: Tensor) -> tuple[Tensor, Tensor]:
        """Draw what is known of events in ``bins``: tokens (batch, quantities), and weights of the events (batch,)."""

    def _drawn(self, bins: Tensor, event_weight: Tensor) -> tuple[Tensor, Tensor]:
        tokens, weight = self.draw(bins)
        return tokens, weight * event_weight

    def to(self, device: torch.device) -> None:
        for name, value in vars(self).items():
            if isinstance(value, Tensor | QuantityTransformer):
                setattr(self, name, value.to(device))

    def start_epoch(self) -> None:
        tokens, weight = self._drawn(self.bins, self.event_weight)
        self.tokens.copy_(tokens)
        self.weight.copy_(weight)

    def training_loss(self, index: Tensor) -> Tensor:
        return self.network.loss(self.bins[index], self.tokens[index], self.weight[index])

    def evaluate(self) -> dict[str, float]:
        return {
            "training_loss": self._loss(self.training_sample, self.sample_tokens, self.sample_weight),
            "validation_loss": self._loss(self.validation, self.validation_tokens, self.validation_weight),
        }

    def _loss(self, *tensors: Tensor) -> float:
        parts = list(zip(*(torch.split(tensor, BATCH_EVENTS) for tensor in tensors), strict=True))
        weights = [float(part[-1].sum()) for part in parts]
        losses = [float(self.network.loss(*part)) for part in parts]
        return float(np.average(losses, weights=weights))
