"""How much better an event fits quantities of any size than background: masked-token prediction of exact tokens."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from torch import Tensor

from unmask.artifacts import Json
from unmask.detectors.broad_alternative import BroadAlternative
from unmask.detectors.explanations import Explanation
from unmask.detectors.quantity_detector import DEFAULT_QUANTITIES, DEFAULT_TRAINING, QuantityDetector, QuantityTask
from unmask.errors import UsageError
from unmask.events.event_set import EventSet
from unmask.events.quantities import QuantityName
from unmask.networks.masked_quantity import MaskedQuantityTransformer, subset_log_probabilities
from unmask.networks.masked_token_scoring import evaluating
from unmask.training import Reporter, Task, TrainingSettings

ScoreName = Literal["root-ratio", "mean-ratio", "joint-ratio", "improbability"]
#: Objects of each kind, how hard they are, and their charge: like charges are rare, whatever the number of leptons.
SEVEN_QUANTITIES: tuple[QuantityName, ...] = (*DEFAULT_QUANTITIES, "n_jets", "lepton_charge")


class LikelihoodRatioDetector(QuantityDetector[MaskedQuantityTransformer]):
    """How much likelier an event would be than in background if its quantities were independent and of any size.

    Each event is a short sequence of ordered tokens: its quantities in bins that stay fine in the tails. A transformer
    learns to fill in the masked ones, any number of them, given the others. Products of its answers are the
    probabilities p of any subset of the quantities in background. They are compared with those of an alternative q that
    is made of background alone: quantities that do not know of each other and prefer no size
    (:class:`~unmask.detectors.broad_alternative.BroadAlternative`). It is like background where there is little, so
    only more is odd, or what does not come together in background.

    Parameters
    ----------
    quantities : what an event is judged by, see :data:`unmask.events.quantities.QUANTITIES`; at most 8.
    score : "root-ratio", twice the logarithm of the mean of the square root of q / p over all subsets of the
        quantities; "mean-ratio", the mean of log q - log p; "joint-ratio", that of all quantities together;
        "improbability", -log p of all quantities together, without alternative.
    process_power : in training a process of background counts as this power of its share: 1 as it comes; less, and rare
        processes are learnt too, so that what is known is not found odd because there is little of it; 0, all alike.
        Events without a process have the name of their file instead.
    hidden, n_layers, n_heads, ffn_expansion, dropout : see
        :class:`~unmask.networks.masked_quantity.MaskedQuantityTransformer`.
    training : how the network is trained.
    seed : shorthand for the seed in ``training``.
    """

    kind = "likelihood-ratio"

    alternatives_: dict[QuantityName, BroadAlternative]

    def __init__(
        self,
        *,
        quantities: tuple[QuantityName, ...] = SEVEN_QUANTITIES,
        score: ScoreName = "root-ratio",
        process_power: float = 1.0,
        hidden: int = 32,
        n_layers: int = 2,
        n_heads: int = 4,
        ffn_expansion: int = 2,
        dropout: float = 0.0,
        training: TrainingSettings = DEFAULT_TRAINING,
        seed: int | None = None,
    ) -> None:
        self.score: ScoreName = score
        self.process_power = process_power
        super().__init__(
            quantities=quantities,
            hidden=hidden,
            n_layers=n_layers,
            n_heads=n_heads,
            ffn_expansion=ffn_expansion,
            dropout=dropout,
            training=training,
            seed=seed,
        )

    def _fit(self, train: EventSet, validation: EventSet, run_folder: Path | None, reporter: Reporter | None) -> None:
        if self.score not in get_args(ScoreName):
            raise UsageError(f"score {self.score!r}; accepted: {', '.join(get_args(ScoreName))}")
        if not 0 <= self.process_power <= 1:
            raise UsageError(f"process_power is {self.process_power}; accepted: 0 to 1")
        super()._fit(train, validation, run_folder, reporter)
        self.alternatives_ = {
            name: BroadAlternative.fit(self.bins_[name], values)
            for name, values in zip(self.quantities, self._values(train).T, strict=True)
        }

    def _network_class(self) -> type[MaskedQuantityTransformer]:
        return MaskedQuantityTransformer

    def _new_task(self, network: MaskedQuantityTransformer, train: EventSet, validation: EventSet) -> Task:
        train_bins, validation_bins = (self._bins(self._values(events)) for events in (train, validation))
        power, weights = self.process_power, None
        if power != 1:
            weights = _process_weights(train, power), _process_weights(validation, power)
        return _MaskedQuantityTask(network, train_bins, validation_bins, self.training.seed, weights)

    def _surprises(self, events: EventSet, device: str) -> npt.NDArray[np.float64]:
        """Of every subset but the empty one log q - log p, or only -log p, (n_events, 2^quantities - 1)."""

        def log_probabilities(network: MaskedQuantityTransformer, bins: Tensor) -> Tensor:
            with evaluating(network):
                return subset_log_probabilities(network, bins)

        values = self._values(events)
        log_p = self._in_batches((self._bins(values),), log_probabilities, device).astype(np.float64)
        # What belongs to one quantity alone adds up over the subset: where in its bin it is, and the alternative.
        alone = np.zeros(values.shape)
        for i, name in enumerate(self.quantities):
            alone[:, i] = -self.bins_[name].log_share_at(values[:, i])
            if self.score != "improbability":
                alone[:, i] += self.alternatives_[name].log_probability(values[:, i])
        subsets = np.arange(1, 1 << len(self.quantities))
        is_member = subsets >> np.arange(len(self.quantities))[:, None] & 1  # (quantities, subsets)
        return np.asarray(alone @ is_member - log_p[:, 1:])

    def score_events(self, events: EventSet, *, device: str = "auto") -> npt.NDArray[np.float64]:
        self._check_fitted()
        surprises = self._surprises(events, device)
        if self.score == "root-ratio":
            return np.asarray(2 * (np.logaddexp.reduce(surprises / 2, axis=1) - np.log(surprises.shape[1])))
        return np.asarray(surprises.mean(axis=1) if self.score == "mean-ratio" else surprises[:, -1])

    def explain(self, events: EventSet, *, device: str = "auto") -> list[Explanation]:
        self._check_fitted()
        surprises = self._surprises(events, device)
        if self.score in ("root-ratio", "mean-ratio"):
            first = surprises.argmax(axis=1) + 1
        else:
            first = np.full(len(events), surprises.shape[1])
        return self._explanations(events, surprises, first)

    def _say(self, found: list[str], surprise: float) -> str:
        words = " and ".join(found) + (" together" if len(found) > 1 else "")
        if self.score == "improbability":
            return f"{words}: {_in_digits(-surprise)} of background"
        supposed = "if independent and of any size" if len(found) > 1 else "if of any size"
        return f"{words}: {_in_digits(surprise)} times as likely {supposed} as in background"

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        shares = {f"background.{name}": one.background for name, one in self.alternatives_.items()}
        return super()._arrays() | shares

    def _restore(self, arrays: dict[str, npt.NDArray[Any]], facts: dict[str, Json]) -> None:
        shares = {name: arrays.pop(f"background.{name}") for name in self.quantities}
        super()._restore(arrays, facts)
        self.alternatives_ = {name: BroadAlternative(self.bins_[name], share) for name, share in shares.items()}


def _process_weights(events: EventSet, power: float) -> npt.NDArray[np.float64]:
    """Weights (n_events,), 1 in the mean, with which processes have shares like this power of their own."""
    n = np.bincount(events.process_names.code)[events.process_names.code].astype(np.float64)
    weights = n ** (power - 1)
    return np.asarray(weights / weights.mean())


def _in_digits(log_number: float) -> str:
    """Two digits of a number that may be too large or too small to be one, from its logarithm.

    >>> [_in_digits(math.log(number)) for number in (0.5, 40, 432)], _in_digits(2000.0)
    (['0.5', '40', '430'], '1e+869')
    """
    if abs(log_number) < 700:
        return f"{float(f'{math.exp(log_number):.2g}'):g}"
    return f"1e{log_number / math.log(10):+.0f}"


class _MaskedQuantityTask(QuantityTask[MaskedQuantityTransformer]):
    """Some quantities are known, the others hidden."""

    def draw(self, bins: Tensor) -> tuple[Tensor, Tensor]:
        return self.network.draw_tokens(bins)
