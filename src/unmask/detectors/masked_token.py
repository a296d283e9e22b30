"""The paper's detector: how badly a masked-token model, trained on background, fills in each token of an event."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Self, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unmask.artifacts import Json
from unmask.detectors.masked_token_explanations import explain_masked_tokens
from unmask.detectors.network import BATCH_EVENTS, NetworkDetector
from unmask.events.event_set import EventSet
from unmask.networks.masked_token import MaskedTokenTransformer, Padding
from unmask.networks.masked_token_scoring import EventScore, event_scores, token_losses
from unmask.networks.positional_encoding import PositionName
from unmask.scores.explanations import Explanation
from unmask.scores.score_table import Scores
from unmask.tokenizers import load_tokenizer
from unmask.tokenizers.base import Tokenizer, TokenSet
from unmask.training import Reporter, Task, TrainingSettings


class MaskedTokenDetector(NetworkDetector[MaskedTokenTransformer]):
    """Anomaly score from masked-token prediction.

    Parameters
    ----------
    tokenizer : how events become tokens; fitted together with the detector if it has not been.
    hidden, n_layers, n_heads, ffn_expansion, dropout, position, padding : see
        :class:`~unmask.networks.masked_token.MaskedTokenTransformer`.
    score : how the losses of an event's tokens become its score: "mean" (the paper's), "mean-real", "sum" or "max".
    training : how the network is trained.
    seed : shorthand for the seed in ``training``.
    """

    kind = "masked-token"

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        hidden: int = 64,
        n_layers: int = 2,
        n_heads: int = 4,
        ffn_expansion: int = 1,
        dropout: float = 0.05,
        position: PositionName = "none",
        padding: Padding = "predict",
        score: EventScore = "mean",
        training: TrainingSettings = TrainingSettings(),
        seed: int | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.hidden = hidden
        self.n_layers = n_layers
        self.n_heads = n_heads
        self.ffn_expansion = ffn_expansion
        self.dropout = dropout
        self.position: PositionName = position
        self.padding: Padding = padding
        self.score: EventScore = score
        super().__init__(training, seed)

    def _fit(self, train: EventSet, validation: EventSet, run_folder: Path | None, reporter: Reporter | None) -> None:
        if self.tokenizer.fitted_on_ is None:
            self.tokenizer.fit(train, validation)
        super()._fit(train, validation, run_folder, reporter)

    def _new_task(self, network: MaskedTokenTransformer, train: EventSet, validation: EventSet) -> Task:
        tokens, held_out = self.tokenizer.encode(train), self.tokenizer.encode(validation)
        return _MaskedTokenTask(network, tokens, held_out, self.training.seed)

    def score_events(self, events: EventSet, *, device: str = "auto") -> npt.NDArray[np.float64]:
        return self.scores(events, device=device).score

    def scores(
        self,
        events: EventSet,
        *,
        how: str | None = None,
        with_token_losses: bool = False,
        device: str = "auto",
    ) -> Scores:
        """Scores with the identity of the events, on request with the loss of every token.

        Parameters
        ----------
        how : "mean", "mean-real", "sum" or "max" of the token losses; by default what the detector was made with.
        """
        chosen = cast("EventScore", how or self.score)
        tokens = self.tokenizer.encode(events)
        losses = self.token_losses(tokens, device=device)
        is_real = torch.from_numpy(tokens.is_real)
        is_counted = is_real if self.padding == "ignore" else torch.ones_like(is_real)
        score = event_scores(torch.from_numpy(losses).double(), is_counted, is_real, chosen).numpy()
        return Scores.of(events, score, losses if with_token_losses else None, seen=self.seen_)

    def token_losses(self, events: EventSet | TokenSet, *, device: str = "auto") -> npt.NDArray[np.float32]:
        """Cross-entropy (n_events, sequence) of each token when it is masked; 0 at ignored padding."""
        self._check_fitted()
        tokens = self.tokenizer.encode(events) if isinstance(events, EventSet) else events
        return self._in_batches((tokens.tokens,), token_losses, device)

    def explain(self, events: EventSet, *, device: str = "auto") -> list[Explanation]:
        return explain_masked_tokens(self, events, device=device)

    def _parts(self) -> dict[str, Callable[[Path], None]]:
        return {"tokenizer": self.tokenizer.save}

    @classmethod
    def _make(cls, settings: dict[str, Json], folder: Path) -> Self:
        made: Self = super()._make(settings | {"tokenizer": load_tokenizer(folder / "tokenizer")}, folder)
        return made

    def _new_network(self) -> MaskedTokenTransformer:
        return MaskedTokenTransformer(
            self.tokenizer.n_codes,
            self.tokenizer.sequence_length,
            hidden=self.hidden,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            ffn_expansion=self.ffn_expansion,
            dropout=self.dropout,
            position=self.position,
            padding=self.padding,
        )


class _MaskedTokenTask(Task):
    """One position of each event is masked; the loss is the cross-entropy of the token that stood there."""

    network: MaskedTokenTransformer

    def __init__(self, network: MaskedTokenTransformer, tokens: TokenSet, validation: TokenSet, seed: int) -> None:
        self.network = network
        self.n_train = len(tokens)
        content = hashlib.sha256(tokens.tokens.tobytes() + validation.tokens.tobytes())
        self.identity = f"{content.hexdigest()} {network}"
        self.tokens, self.validation = torch.tensor(tokens.tokens), torch.tensor(validation.tokens)
        # The divergence rule compares losses on samples of equal size.
        drawn = np.random.default_rng(seed).permutation(len(tokens))[: len(validation)]
        self.training_sample = self.tokens[torch.from_numpy(np.sort(drawn))]
        self.masked_position = torch.zeros(len(tokens), dtype=torch.int16)

    def to(self, device: torch.device) -> None:
        self.network.to(device)
        self.tokens, self.validation, self.training_sample, self.masked_position = (
            tensor.to(device) for tensor in (self.tokens, self.validation, self.training_sample, self.masked_position)
        )

    def start_epoch(self) -> None:
        # For all events before the first step: the same draws however many processes share the batches.
        for i in range(0, self.n_train, BATCH_EVENTS):
            some = slice(i, i + BATCH_EVENTS)
            self.masked_position[some] = self.network.draw_masked_position(self.tokens[some])

    def training_loss(self, index: Tensor) -> Tensor:
        return self.network.loss(self.tokens[index].long(), self.masked_position[index].long())

    def evaluate(self) -> dict[str, float]:
        return {
            "training_loss": self._mean_loss(self.training_sample),
            "validation_loss": self._mean_loss(self.validation),
        }

    def _mean_loss(self, tokens: Tensor) -> float:
        total = torch.zeros((), device=tokens.device, dtype=torch.float64)
        for part in torch.split(tokens, BATCH_EVENTS // 8):
            batch = part.long()
            total += self.network.loss(batch, self.network.draw_masked_position(batch)).double() * len(batch)
        return float(total) / len(tokens)
