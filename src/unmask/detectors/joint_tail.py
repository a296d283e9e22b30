"""How rarely background has as much of everything: masked-token prediction of global quantities, seen from below."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import gammaincc, gammaln
from torch import Tensor

from unmask.artifacts import Json
from unmask.detectors.explanations import Explanation
from unmask.detectors.quantity_detector import QuantityDetector, QuantityTask
from unmask.events.event_set import EventSet
from unmask.networks.lower_bound import LowerBoundTransformer, subset_log_tails
from unmask.networks.masked_token_scoring import evaluating
from unmask.training import Reporter, Task


class JointTailDetector(QuantityDetector[LowerBoundTransformer]):
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

    #: Mean of minus the logarithm of each subset's probability in the validation background.
    shape_: npt.NDArray[np.float64]

    def _fit(self, train: EventSet, validation: EventSet, run_folder: Path | None, reporter: Reporter | None) -> None:
        super()._fit(train, validation, run_folder, reporter)
        # One continuous quantity has shape 1. With a count it is less, but its probability is a p-value as it is.
        self.shape_ = np.maximum(self._surprises(validation, self.training.device).mean(axis=0), 1.0)

    def _network_class(self) -> type[LowerBoundTransformer]:
        return LowerBoundTransformer

    def _new_task(self, network: LowerBoundTransformer, train: EventSet, validation: EventSet) -> Task:
        train_bins, validation_bins = (self._bins(self._values(events)) for events in (train, validation))
        return _LowerBoundTask(network, train_bins, validation_bins, self.training.seed)

    def _surprises(self, events: EventSet, device: str) -> npt.NDArray[np.float64]:
        """Minus the logarithm of the probability of every subset but the empty one, (n_events, 2^quantities - 1)."""

        def log_tails(network: LowerBoundTransformer, bins: Tensor, log_share: Tensor) -> Tensor:
            with evaluating(network):
                return subset_log_tails(network, bins, log_share)

        values = self._values(events)
        columns = zip(self.bins_.values(), values.T, strict=True)
        share = np.stack([bins.log_share_above(one) for bins, one in columns], axis=1).astype(np.float32)
        return -self._in_batches((self._bins(values), share), log_tails, device)[:, 1:].astype(np.float64)

    def score_events(self, events: EventSet, *, device: str = "auto") -> npt.NDArray[np.float64]:
        self._check_fitted()
        significance = _minus_log_gamma_tail(self._surprises(events, device), self.shape_)
        return np.asarray(significance.max(axis=1))

    def explain(self, events: EventSet, *, device: str = "auto") -> list[Explanation]:
        self._check_fitted()
        surprises = self._surprises(events, device)
        best = _minus_log_gamma_tail(surprises, self.shape_).argmax(axis=1) + 1
        return self._explanations(events, surprises, best)

    def _say(self, found: list[str], surprise: float) -> str:
        return f"{' and '.join(f'{one} or more' for one in found)}: {np.exp(-surprise):.2g} of background"

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        return super()._arrays() | {"shape": self.shape_}

    def _restore(self, arrays: dict[str, npt.NDArray[Any]], facts: dict[str, Json]) -> None:
        self.shape_ = arrays.pop("shape")
        super()._restore(arrays, facts)


def _minus_log_gamma_tail(values: npt.NDArray[np.float64], shape: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Minus the logarithm of P(this or more) in gamma distributions of these shapes and unit scale."""
    tail = gammaincc(shape, values)
    # Where the function is too small to be a number, its leading term.
    far = values - (shape - 1) * np.log(np.maximum(values, 1)) + gammaln(shape)
    return np.asarray(np.where(tail > 1e-290, -np.log(np.maximum(tail, 1e-290)), far))


class _LowerBoundTask(QuantityTask[LowerBoundTransformer]):
    """Lower bounds on some quantities are known."""

    def __init__(
        self,
        network: LowerBoundTransformer,
        bins: npt.NDArray[np.int64],
        validation: npt.NDArray[np.int64],
        seed: int,
    ) -> None:
        self.usual_bin = torch.from_numpy(bins).double().mean(0).float()
        super().__init__(network, bins, validation, seed)

    def draw(self, bins: Tensor) -> tuple[Tensor, Tensor]:
        return self.network.draw_bounds(bins, self.usual_bin)
