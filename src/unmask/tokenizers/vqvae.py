"""Tokens learned by a VQ-VAE: codes of an event's objects in the context of the event."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, fields
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unmask.artifacts import Json
from unmask.errors import UsageError
from unmask.events.event_set import EventSet
from unmask.networks.event_tensors import N_FEATURES, FeatureScale, Kinematics, kinematics_of, types_of
from unmask.networks.vqvae import NormFormerVQVAE
from unmask.parameters import Depth, NotNegative, Width, at_least
from unmask.tokenizers.base import Tokenizer
from unmask.tokenizers.token_set import PAD_ID, TokenSet
from unmask.tokenizers.vqvae_training import CodeStatistics, VQVAETask, reconstruction_report
from unmask.training import Trained, TrainingSettings, pick_device

#: Patience beyond that of the schedule, so that the rate falls at least twice before training stops.
VQVAE_TRAINING = TrainingSettings(optimizer="radam", schedule="plateau", patience=12, min_improvement=1e-4)

#: Events that are encoded at a time, which bounds memory.
CHUNK_EVENTS = 65_536
#: Events in a matrix product: as many as fit a core's cache, or fill a GPU. Always that many, padded if need be, since
#: a product of another shape may round differently and a token must not depend on the events beside it.
_BLOCK = {"cpu": 128, "cuda": 4096}


@dataclass(eq=False, repr=False)
class VQVAETokenizer(Trained[NormFormerVQVAE], Tokenizer):
    """Tokens learned by a vector-quantized variational autoencoder (paper, section 3.3).

    A sequence has 1 + ``max_objects`` positions: the event (its MET), then the objects. The token of a position is the
    code nearest to the output of a NormFormer encoder, which reads log E, log pT, eta and phi of the whole event. For
    the event these are log MET twice, 0 and the MET's phi, where a MET below 1 GeV counts as 1 GeV.

    Parameters
    ----------
    n_codes
        Size of the codebook K.
    latent, hidden, n_heads, n_blocks
        Latent dimension D, hidden width H, attention heads and blocks of the network.
    alpha, beta, gamma
        Weights in the loss: of the codebook and commitment terms, of the divergence of the usage of codes from even
        usage, and of the commitment term within ``alpha``.
    training
        How to train.

    Attributes
    ----------
    validation_report_
        On the validation events: fraction of codes in use (``usage``), their ``perplexity``, and the root mean square
        errors of the reconstruction in GeV, radians and logarithms.
    """

    kind = "vqvae"
    stream = "network"

    n_codes: Annotated[Width, at_least(2)] = 512
    _: KW_ONLY
    latent: Annotated[Width, at_least(2)] = 10
    hidden: Width = 64
    n_heads: Depth = 2
    n_blocks: Depth = 2
    alpha: NotNegative = 0.4
    beta: NotNegative = 0.1
    gamma: NotNegative = 0.25
    training: TrainingSettings = VQVAE_TRAINING

    @property
    def sequence_length(self) -> int:
        return 1 + self.schema_.max_objects

    @property
    def event_positions(self) -> dict[int, str]:
        return {0: "MET"}

    def check(self) -> None:
        super().check()
        if self.hidden % self.n_heads:
            raise UsageError(f"a hidden width of {self.hidden} is no multiple of {self.n_heads} heads")

    def new_network(self) -> NormFormerVQVAE:
        names = ("n_codes", "latent", "hidden", "n_heads", "n_blocks", "alpha", "beta", "gamma")
        return NormFormerVQVAE(N_FEATURES, **{name: getattr(self, name) for name in names})

    def _fit(self, train: EventSet, validation: EventSet, **options: Any) -> None:
        n_positions = len(train) + int(train.n_objects.sum())
        if n_positions < self.n_codes:
            raise UsageError(
                f"{len(train):,} events have {n_positions:,} objects and METs, too few for {self.n_codes:,} codes; "
                "fit on more events, or use fewer codes"
            )
        validation = validation if len(validation) else train
        train, validation = (self.schema_.admit(events, self.kind) for events in (train, validation))
        scale = FeatureScale.fit(train)
        task = VQVAETask(
            self.seeded_network(),
            _tensors(scale, train),
            _tensors(scale, validation),
            batch_events=self.training.batch_size,
            log_pt_std=float(scale.std[1]),
            seed=self.training.seed,
            identity=self.identity(train, validation),
        )
        self.run(task, **options)
        self.scale_ = scale
        self.code_statistics_ = CodeStatistics.measure(
            kinematics_of(train), types_of(train), self._encode(train), self.n_codes
        )
        tokens = self._encode(validation)
        self.validation_report_ = reconstruction_report(
            kinematics_of(validation), types_of(validation), self._decode(tokens), tokens, self.n_codes
        )

    def to(self, device: str) -> Self:
        """Encode and decode on "cpu", "cuda" or, with "auto", the better available one."""
        self.check_fitted()
        self.network_.to(pick_device(device))
        return self

    def decode(self, tokens: TokenSet | npt.NDArray[np.integer]) -> Kinematics:
        """Physical features of tokens (n_events, sequence), decoded in the context of their event.

        Raises
        ------
        UsageError
            If a token does not exist, or the sequences have another length.
        """
        self.check_fitted()
        array = np.asarray(tokens.tokens if isinstance(tokens, TokenSet) else tokens)
        if array.ndim != 2 or array.shape[1] != self.sequence_length or not np.issubdtype(array.dtype, np.integer):
            raise UsageError(
                f"tokens of shape {array.shape}, {array.dtype}; "
                f"expected whole numbers (n_events, {self.sequence_length})"
            )
        wrong = array[(array < PAD_ID) | (array > self.n_codes)]
        if len(wrong):
            raise UsageError(f"no token {wrong[0]}: this tokenizer has 0 (padding) and 1 to {self.n_codes}")
        return self._decode(array)

    def reconstruct(self, events: EventSet) -> Kinematics:
        return self.decode(self.encode(events))

    def _encode(self, events: EventSet) -> npt.NDArray[np.int32]:
        tokens = np.zeros((len(events), self.sequence_length), np.int32)
        for start in range(0, len(events), CHUNK_EVENTS):
            chunk = slice(start, start + CHUNK_EVENTS)
            features, is_real = self.scale_.features_of(events[chunk])
            self._in_blocks(self._nearest_codes, features, is_real, tokens[chunk])
        return tokens

    def _nearest_codes(self, features: Tensor) -> Tensor:
        return self.network_.quantizer.nearest(self.network_.encode(features, None)) + 1

    def _decode(self, tokens: npt.NDArray[np.integer]) -> Kinematics:
        features = np.zeros((*tokens.shape, N_FEATURES), np.float32)
        is_real = tokens != PAD_ID
        codes = tokens.astype(np.int64) - is_real
        self._in_blocks(lambda some: self.network_.decode(some, None), codes, is_real, features)
        return self.scale_.kinematics(features, is_real)

    @torch.inference_mode()
    def _in_blocks(
        self,
        function: Callable[[Tensor], Tensor],
        values: npt.NDArray[Any],
        is_real: npt.NDArray[np.bool_],
        out: npt.NDArray[Any],
    ) -> None:
        """Apply ``function`` to blocks (events, n) of ``values`` with n real positions, and fill ``out``."""
        device = self.network_.quantizer.codebook.device
        size = _BLOCK[device.type]
        for rows, length in _blocks(is_real, size):
            is_used = is_real[rows]
            block = np.zeros((size, length, *values.shape[2:]), values.dtype)
            block[: len(rows)] = values[rows][is_used].reshape(len(rows), length, *values.shape[2:])
            result = function(torch.from_numpy(block).to(device))[: len(rows)].flatten(0, 1).cpu().numpy()
            of_rows = np.zeros((len(rows), *out.shape[1:]), out.dtype)
            of_rows[is_used] = result
            out[rows] = of_rows

    def _describe(self, token: int, brief: bool) -> str:
        return self.code_statistics_.describe(token, brief=brief)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        arrays = super().arrays() | {f"scale/{name}": value for name, value in vars(self.scale_).items()}
        return arrays | {f"codes/{name}": value for name, value in vars(self.code_statistics_).items()}

    def metadata(self) -> dict[str, Json]:
        return super().metadata() | {"validation_report": self.validation_report_}

    def restore(self, arrays: dict[str, npt.NDArray[Any]], metadata: dict[str, Json]) -> None:
        super().restore(arrays, metadata)
        self.network_.to(pick_device("auto"))
        self.scale_ = FeatureScale(arrays["scale/mean"], arrays["scale/std"])
        names = [field.name for field in fields(CodeStatistics)]
        self.code_statistics_ = CodeStatistics(*(arrays[f"codes/{name}"] for name in names))
        self.validation_report_ = metadata["validation_report"]


def _tensors(scale: FeatureScale, events: EventSet) -> tuple[Tensor, Tensor]:
    features, is_real = scale.features_of(events)
    # Positions that are padding in every event cost time and change nothing.
    n = int(is_real.sum(axis=1).max(initial=1))
    return torch.from_numpy(features[:, :n]), torch.from_numpy(is_real[:, :n])


def _blocks(is_real: npt.NDArray[np.bool_], size: int) -> Iterator[tuple[npt.NDArray[np.intp], int]]:
    """Rows of at most ``size`` events with the same number of real positions, and that number."""
    lengths = is_real.sum(axis=1)
    order = np.argsort(lengths, kind="stable")
    starts = np.flatnonzero(np.diff(lengths[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        length = int(lengths[rows[0]]) if len(rows) else 0
        for start in range(0, len(rows) if length else 0, size):
            yield rows[start : start + size], length
