"""The paper's detector: how badly a masked-token model, trained on background, fills in each token of an event."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unmask.artifacts import Artifact, Json, provenance, save_artifact
from unmask.detectors.base import Detector
from unmask.detectors.scores import Scores
from unmask.errors import ArtifactError, UsageError
from unmask.events.event_set import EventSet
from unmask.networks.masked_token import MaskedTokenTransformer, Padding
from unmask.networks.masked_token_scoring import EventScore, event_scores, token_losses
from unmask.networks.positional_encoding import PositionName
from unmask.tokenizers import load_tokenizer
from unmask.tokenizers.base import Tokenizer, TokenSet, check_background
from unmask.training import EpochRecord, Reporter, Task, TrainingSettings, derive_seed, pick_device
from unmask.training import train as run_training

#: Events that are evaluated or scored at a time on the device.
_BATCH_EVENTS = 1 << 16


class MaskedTokenDetector(Detector):
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

    network_: MaskedTokenTransformer
    history_: list[EpochRecord]

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
        self.training = training if seed is None else replace(training, seed=seed)

    def fit(
        self,
        train: EventSet,
        validation: EventSet,
        *,
        run_folder: Path | None = None,
        reporter: Reporter | None = None,
    ) -> Self:
        for events in (train, validation):
            check_background(events)
        if not len(train) or not len(validation):
            raise UsageError("training and validation events are both needed; one of them has none")
        if self.tokenizer.fitted_on_ is None:
            self.tokenizer.fit(train, validation)
        task = _MaskedTokenTask(
            self._new_network(), self.tokenizer.encode(train), self.tokenizer.encode(validation), self.training.seed
        )
        self.history_ = run_training(task, self.training, run_folder=run_folder, reporter=reporter)
        self.network_ = task.network
        self.fitted_on_ = {
            "n_train": len(train),
            "n_validation": len(validation),
            "processes": train.process_names.counts(),
            "files": train.file_names.counts(),
        }
        return self

    @property
    def n_parameters(self) -> int:
        """Weights of the network, without those of the tokenizer."""
        self._check_fitted()
        return sum(parameter.numel() for parameter in self.network_.parameters())

    def score_events(self, events: EventSet) -> npt.NDArray[np.float64]:
        return self.scores(events).score

    def scores(
        self,
        events: EventSet,
        *,
        how: EventScore | None = None,
        with_token_losses: bool = False,
        device: str = "auto",
    ) -> Scores:
        """Scores with the identity of the events, on request with the loss of every token.

        Parameters
        ----------
        how : "mean", "mean-real", "sum" or "max" of the token losses; by default what the detector was made with.
        """
        tokens = self.tokenizer.encode(events)
        losses = self.token_losses(tokens, device=device)
        is_real = torch.from_numpy(tokens.is_real)
        is_counted = is_real if self.padding == "ignore" else torch.ones_like(is_real)
        score = event_scores(torch.from_numpy(losses).double(), is_counted, is_real, how or self.score).numpy()
        return Scores.of(events, score, losses if with_token_losses else None)

    def token_losses(self, events: EventSet | TokenSet, *, device: str = "auto") -> npt.NDArray[np.float32]:
        """Cross-entropy (n_events, sequence) of each token when it is masked; 0 at ignored padding."""
        self._check_fitted()
        tokens = self.tokenizer.encode(events) if isinstance(events, EventSet) else events
        where = pick_device(device)
        network = self.network_.to(where)
        parts = [
            token_losses(network, torch.tensor(part, device=where)).cpu().numpy()
            for part in np.array_split(tokens.tokens, max(1, -(-len(tokens) // _BATCH_EVENTS)))
        ]
        return np.concatenate(parts)

    def settings(self) -> dict[str, Json]:
        """Arguments of the constructor but the tokenizer, as JSON can hold them."""
        names = ("hidden", "n_layers", "n_heads", "ffn_expansion", "dropout", "position", "padding", "score")
        return {name: getattr(self, name) for name in names} | {"training": asdict(self.training)}

    def save(self, folder: str | Path) -> None:
        self._check_fitted()
        arrays = {name: value.cpu().numpy() for name, value in self.network_.state_dict().items()}
        facts = provenance(fitted_on=self.fitted_on_, history=[asdict(record) for record in self.history_])
        save_artifact(
            folder, Artifact(self.kind, self.settings(), arrays, facts), parts={"tokenizer": self.tokenizer.save}
        )

    @classmethod
    def from_artifact(cls, artifact: Artifact, folder: Path) -> Self:
        try:
            training = TrainingSettings(**artifact.settings["training"])
            detector = cls(load_tokenizer(folder / "tokenizer"), **artifact.settings | {"training": training})
            detector.network_ = detector._new_network()
            detector.network_.load_state_dict({name: torch.from_numpy(a.copy()) for name, a in artifact.arrays.items()})
            detector.history_ = [EpochRecord(**record) for record in artifact.provenance["history"]]
            detector.fitted_on_ = artifact.provenance["fitted_on"]
        except (TypeError, KeyError, RuntimeError) as error:
            raise ArtifactError(f"does not hold a whole {cls.kind} detector ({error})", path=folder) from None
        detector.network_.eval()
        return detector

    def _new_network(self) -> MaskedTokenTransformer:
        torch.manual_seed(derive_seed(self.training.seed, "weights"))
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
        for i in range(0, self.n_train, _BATCH_EVENTS):
            some = slice(i, i + _BATCH_EVENTS)
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
        for part in torch.split(tokens, _BATCH_EVENTS // 8):
            batch = part.long()
            total += self.network.loss(batch, self.network.draw_masked_position(batch)).double() * len(batch)
        return float(total) / len(tokens)

    def fingerprint(self) -> str:
        content = hashlib.sha256()
        for tokens in (self.tokens, self.validation):
            content.update(tokens.cpu().numpy().tobytes())
        content.update(repr(self.network).encode())
        return content.hexdigest()[:16]
