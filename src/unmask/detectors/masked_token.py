"""The paper's detector: losses of a masked-token model, trained on background, at each token of an event."""

from __future__ import annotations

import hashlib
from dataclasses import KW_ONLY, dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unmask.detectors.base import Detector, ScoresAndLosses
from unmask.detectors.token_explanations import TokenTexts
from unmask.events.event_set import EventSet
from unmask.networks.masked_token import MaskedTokenTransformer, Padding
from unmask.networks.masked_token_scoring import (
    REDUCTIONS,
    Reduction,
    reduced_losses,
    token_losses,
    token_probabilities,
)
from unmask.networks.transformer import PositionName
from unmask.parameters import Depth, Dropout, Width
from unmask.scores.explanations import Explanation
from unmask.tokenizers import Tokenizer, TokenSet
from unmask.training import Task, Trained, TrainingSettings, batches, in_batches, pick_device

#: Events that are scored at a time on the device.
BATCH_EVENTS = 1 << 16
#: Events whose probabilities of all tokens at all positions are held in memory.
_EXPLAINED_EVENTS = 32


@dataclass(eq=False, repr=False)
class MaskedTokenDetector(Trained[MaskedTokenTransformer], Detector):
    """Anomaly score from masked-token prediction.

    Parameters
    ----------
    tokenizer
        Turns events into tokens; fitted together with the detector if it has not been.
    hidden, n_layers, n_heads, ffn_expansion, dropout, position, padding
        See :class:`~unmask.networks.masked_token.MaskedTokenTransformer`.
    score
        Reduction of the losses of an event's tokens: "mean" (the paper's), "mean-real", "sum" or "max".
    training
        How the network is trained.
    seed
        Shorthand for the seed in ``training``.
    """

    kind = "masked-token"
    parts = ("tokenizer",)
    can_explain = True
    score_names = REDUCTIONS

    tokenizer: Tokenizer
    _: KW_ONLY
    hidden: Width = 64
    n_layers: Depth = 2
    n_heads: Depth = 4
    ffn_expansion: Depth = 1
    dropout: Dropout = 0.05
    position: PositionName = "none"
    padding: Padding = "predict"
    score: Reduction = "mean"
    training: TrainingSettings = TrainingSettings()
    seed: int | None = None

    def check(self) -> None:
        super().check()
        self.tokenizer.check()

    def new_network(self) -> MaskedTokenTransformer:
        names = ("hidden", "n_layers", "n_heads", "ffn_expansion", "dropout", "position", "padding")
        arguments = {name: getattr(self, name) for name in names}
        return MaskedTokenTransformer(self.tokenizer.n_codes, self.tokenizer.sequence_length, **arguments)

    def _fit(self, train: EventSet, validation: EventSet, **options: Any) -> None:
        if self.tokenizer.fitted_on_ is None:
            self.tokenizer.fit(train, validation)
        network = self.seeded_network()
        tokens, held_out = (torch.tensor(self.tokenizer.encode(events).tokens) for events in (train, validation))
        content = hashlib.sha256(tokens.numpy().tobytes() + held_out.numpy().tobytes()).hexdigest()
        task = _MaskedTokenTask(
            network,
            (tokens, torch.zeros(len(tokens), dtype=torch.int16)),
            (held_out,),
            seed=self.run_settings.seed,
            identity=content,
        )
        self.run(task, **options)

    def score_events(self, events: EventSet, *, device: str = "auto") -> npt.NDArray[np.float64]:
        return self._scored(events, None, device)[0]

    def _scored(self, events: EventSet, reduction: str | None, device: str) -> ScoresAndLosses:
        self.check_fitted()
        tokens = self.tokenizer.encode(events)
        losses = self.token_losses(tokens, device=device)
        is_real = torch.from_numpy(tokens.is_real)
        is_counted = is_real if self.padding == "ignore" else torch.ones_like(is_real)
        chosen = cast("Reduction", reduction or self.score)
        return reduced_losses(torch.from_numpy(losses).double(), is_counted, is_real, chosen).numpy(), losses

    def token_losses(self, events: EventSet | TokenSet, *, device: str = "auto") -> npt.NDArray[np.float32]:
        """Cross-entropy (n_events, sequence) of each token when it is masked; 0 at ignored padding."""
        self.check_fitted()
        tokens = (self.tokenizer.encode(events) if isinstance(events, EventSet) else events).tokens
        where = pick_device(device)
        network = self.network_.to(where)

        def losses(part: npt.NDArray[np.int32]) -> Tensor:
            return token_losses(network, torch.tensor(part, device=where)).cpu()

        return torch.cat(in_batches(losses, tokens, BATCH_EVENTS) or [losses(tokens)]).numpy()

    def explain(self, events: EventSet, *, device: str = "auto") -> list[Explanation]:
        """Give the loss of each token when it is masked, and the expected ones; see :class:`TokenTexts`."""
        texts = TokenTexts.of(self.tokenizer, counts_padding=self.padding == "predict")
        explanations: list[Explanation] = []
        for some in events.chunks(_EXPLAINED_EVENTS):
            tokens = self.tokenizer.encode(some)
            losses = self.token_losses(tokens, device=device)  # also moves the network to the device
            on_device = torch.tensor(tokens.tokens, device=next(self.network_.parameters()).device)
            probabilities = token_probabilities(self.network_, on_device).cpu().numpy()
            explanations += texts.explanations(some, tokens.tokens, losses, probabilities)
        return explanations


class _MaskedTokenTask(Task):
    """Cross-entropy of the token at one masked position of each event."""

    network: MaskedTokenTransformer
    batch_events = BATCH_EVENTS // 8

    def start_epoch(self) -> None:
        # For all events before the first step: the same draws however many processes share the batches.
        for tokens, position in batches(self.train, BATCH_EVENTS):
            position.copy_(self.network.draw_masked_position(tokens))

    def loss(self, *data: Tensor) -> Tensor:
        tokens, position = data
        return self.network.loss(tokens.long(), position.long())

    def mean_loss(self, data: tuple[Tensor, ...]) -> float:
        """Mean loss with masked positions that are drawn anew."""
        total = 0.0
        for (tokens,) in batches(data[:1], self.batch_events):
            total += float(self.loss(tokens, self.network.draw_masked_position(tokens))) * len(tokens)
        return total / len(data[0])
