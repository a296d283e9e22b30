"""Tokens learnt by a VQ-VAE: the codes of an event's objects, seen in the context of the event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from unmask.artifacts import Json
from unmask.errors import UsageError
from unmask.events.event_set import EventSet
from unmask.events.fingerprints import fingerprint_of
from unmask.networks.kinematic_features import N_FEATURES, FeatureScale, Kinematics, kinematics_of
from unmask.networks.vqvae import NormFormerVQVAE
from unmask.tokenizers.base import PAD_ID, Tokenizer
from unmask.tokenizers.code_statistics import CodeStatistics, reconstruction_report
from unmask.tokenizers.token_set import TokenSet
from unmask.tokenizers.vqvae_training import VQVAETask
from unmask.training import EpochRecord, TrainingSettings
from unmask.training.devices import pick_device
from unmask.training.loop import Reporter, derive_seed
from unmask.training.loop import train as run_training

#: Patience beyond that of the schedule, so that the rate falls at least twice before training stops.
VQVAE_TRAINING = TrainingSettings(optimizer="radam", schedule="plateau", patience=12, min_improvement=1e-4)

#: Events that are worked on at a time, which bounds memory.
_CHUNK = 65_536
#: Events in a matrix product: as many as fit a core's cache, or fill a GPU. Always that many, padded if need be, since
#: a product of another shape may round differently and a token must not depend on the events beside it.
_BLOCK = {"cpu": 128, "cuda": 4096}


class VQVAETokenizer(Tokenizer):
    """Tokens learnt by a vector-quantized variational autoencoder (paper, section 3.3).

    A sequence has 1 + ``max_objects`` positions: the event (its MET), then the objects. The token of a position is the
    code nearest to what a NormFormer encoder, which sees the whole event, makes of log E, log pT, eta and phi. For the
    event these are log MET twice, 0 and the MET's phi, where a MET below 1 GeV counts as 1 GeV.

    Parameters
    ----------
    n_codes : size of the codebook K.
    latent, hidden, n_heads, n_blocks : sizes of the network: latent dimension D, hidden width H, heads and blocks.
    alpha, beta, gamma : weights in the loss: of the codebook and commitment terms, of the divergence of the usage of
        codes from even usage, and of the commitment term within ``alpha``.
    training : how to train; also as a mapping.

    Attributes
    ----------
    validation_report_ : on the validation events: the share of codes in use (``usage``), their ``perplexity``, and the
        root mean square errors of the reconstruction in GeV, radians and logarithms.
    history_ : what each epoch brought; None for a tokenizer saved by a version that did not keep it.
    """

    kind = "vqvae"
    _former_settings = ("phi_as_sin_cos", "with_type")

    network_: NormFormerVQVAE
    scale_: FeatureScale
    code_statistics_: CodeStatistics
    validation_report_: dict[str, float]
    history_: list[EpochRecord] | None = None

    def __init__(
        self,
        n_codes: int = 512,
        *,
        latent: int = 10,
        hidden: int = 64,
        n_heads: int = 2,
        n_blocks: int = 2,
        alpha: float = 0.4,
        beta: float = 0.1,
        gamma: float = 0.25,
        training: TrainingSettings | Mapping[str, Any] = VQVAE_TRAINING,
    ) -> None:
        self._n_codes = n_codes
        self.latent = latent
        self.hidden = hidden
        self.n_heads = n_heads
        self.n_blocks = n_blocks
        self.alpha = alpha
        self.beta = beta
        self.gamma = gamma
        self.training = training if isinstance(training, TrainingSettings) else TrainingSettings(**training)
        self._check_arguments()

    @property
    def n_codes(self) -> int:
        return self._n_codes

    @property
    def sequence_length(self) -> int:
        return 1 + self.schema_.max_objects

    @property
    def event_positions(self) -> dict[int, str]:
        return {0: "MET"}

    def settings(self) -> dict[str, Json]:
        return self._network_settings() | {"training": asdict(self.training)}

    def fit(
        self,
        train: EventSet,
        validation: EventSet | None = None,
        *,
        run_folder: str | Path | None = None,
        reporter: Reporter | None = None,
    ) -> Self:
        """Train the network; without ``validation`` events the training events stand in for them.

        Parameters
        ----------
        run_folder : log and checkpoint every epoch there, and continue the run that is found there.
        reporter : hears of progress.

        Raises
        ------
        UsageError
            If signal is among the events, or there are fewer objects than codes.
        BadDataError
            If a feature is the same everywhere.
        TrainingError
            If the loss becomes NaN or infinite, or ``run_folder`` holds a run with other settings or data.
        """
        fitted_on = self._start_fit(train, validation)
        n_positions = len(train) + int(train.n_objects.sum())
        if n_positions < self.n_codes:
            raise UsageError(
                f"{len(train):,} events have {n_positions:,} objects and METs, too few for {self.n_codes:,} codes; "
                "fit on more events, or use fewer codes"
            )
        if validation is None or not len(validation):
            validation = train
        train, validation = (self.schema_.admit(events, self.kind) for events in (train, validation))
        scale = FeatureScale.fit(train)
        torch.manual_seed(derive_seed(self.training.seed, "network"))
        network = self._new_network()
        task = VQVAETask(
            network,
            scale.features_of(train),
            scale.features_of(validation),
            batch_size=self.training.batch_size,
            log_pt_std=float(scale.std[1]),
            settings=self._network_settings() | {"events": fingerprint_of(train, validation)},
        )
        folder = None if run_folder is None else Path(run_folder)
        self.history_ = run_training(task, self.training, run_folder=folder, reporter=reporter)
        self.network_, self.scale_ = network, scale
        self.code_statistics_ = CodeStatistics.measure(kinematics_of(train), self._encode(train), self.n_codes)
        tokens = self._encode(validation)
        self.validation_report_ = reconstruction_report(
            kinematics_of(validation), self._decode(tokens), tokens, self.n_codes
        )
        self.fitted_on_ = fitted_on
        return self

    def to(self, device: str) -> Self:
        """Encode and decode on "cpu", "cuda" or, with "auto", the better one there is."""
        self._check_fitted()
        self.network_.to(pick_device(device))
        return self

    def decode(self, tokens: TokenSet | npt.NDArray[np.integer]) -> Kinematics:
        """Physical features of tokens (n_events, sequence), as the decoder sees them in the context of their event.

        Raises
        ------
        UsageError
            If a token does not exist, or the sequences have another length.
        """
        self._check_fitted()
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
        """The physical features that remain of events after encoding and decoding."""
        return self.decode(self.encode(events))

    def _encode(self, events: EventSet) -> npt.NDArray[np.int32]:
        tokens = np.zeros((len(events), self.sequence_length), np.int32)
        for start in range(0, len(events), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            features, is_real = self.scale_.features_of(events[chunk])
            self._fill(tokens[chunk], is_real, features)
        return tokens

    @torch.inference_mode()
    def _fill(
        self, tokens: npt.NDArray[np.int32], is_real: npt.NDArray[np.bool_], features: npt.NDArray[np.float32]
    ) -> None:
        network, device = self.network_, self.network_.quantizer.codebook.device
        size = _BLOCK[device.type]
        for rows, length in _blocks(is_real, size):
            is_used = is_real[rows]
            block = np.zeros((size, length, features.shape[-1]), np.float32)
            block[: len(rows)] = features[rows][is_used].reshape(len(rows), length, -1)
            latents = network.encode(torch.from_numpy(block).to(device), None)
            codes = network.quantizer.nearest(latents)[: len(rows)].cpu().numpy()
            found = np.zeros((len(rows), tokens.shape[1]), np.int32)
            found[is_used] = codes.ravel() + 1
            tokens[rows] = found

    @torch.inference_mode()
    def _decode(self, tokens: npt.NDArray[np.integer]) -> Kinematics:
        network, device = self.network_, self.network_.quantizer.codebook.device
        features = np.zeros((*tokens.shape, network.n_features), np.float32)
        is_real = tokens != PAD_ID
        for rows, length in _blocks(is_real, _BLOCK[device.type]):
            is_used = is_real[rows]
            codes = torch.from_numpy(tokens[rows][is_used].reshape(len(rows), length).astype(np.int64) - 1)
            decoded = network.decode(codes.to(device), None)
            found = np.zeros((len(rows), *features.shape[1:]), np.float32)
            found[is_used] = decoded.flatten(0, 1).cpu().numpy()
            features[rows] = found
        return self.scale_.kinematics(features, is_real)

    def _describe(self, token: int, brief: bool) -> str:
        return self.code_statistics_.describe(token, brief=brief)

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        arrays = {f"network/{name}": value.cpu().numpy() for name, value in self.network_.state_dict().items()}
        arrays |= {f"scale/{name}": value for name, value in vars(self.scale_).items()}
        arrays |= {f"codes/{name}": value for name, value in vars(self.code_statistics_).items()}
        return arrays | {f"report/{name}": np.array([value]) for name, value in self.validation_report_.items()}

    def _facts(self) -> dict[str, Json]:
        return {"history": [asdict(record) for record in self.history_ or []]}

    def _restore(self, arrays: dict[str, npt.NDArray[Any]], facts: dict[str, Json]) -> None:
        groups: dict[str, dict[str, npt.NDArray[Any]]] = {"network": {}, "scale": {}, "codes": {}, "report": {}}
        for key, array in arrays.items():
            group, name = key.split("/", 1)
            groups[group][name] = array
        network = self._new_network()
        try:
            network.load_state_dict({name: torch.from_numpy(array) for name, array in groups["network"].items()})
        except RuntimeError as error:
            raise ValueError(" ".join(str(error).split())) from None
        self.network_ = network.eval().to(pick_device("auto"))
        self.scale_ = FeatureScale(**groups["scale"])
        self.code_statistics_ = CodeStatistics(**groups["codes"])
        self.validation_report_ = {name: float(value.item()) for name, value in groups["report"].items()}
        self.history_ = [EpochRecord(**record) for record in facts.get("history", [])] or None

    def _network_settings(self) -> dict[str, Json]:
        names = ("n_codes", "latent", "hidden", "n_heads", "n_blocks", "alpha", "beta", "gamma")
        return {name: getattr(self, name) for name in names}

    def _new_network(self) -> NormFormerVQVAE:
        return NormFormerVQVAE(N_FEATURES, **self._network_settings())

    def _check_arguments(self) -> None:
        for name, least in (("n_codes", 2), ("latent", 2), ("hidden", 1), ("n_heads", 1), ("n_blocks", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"{name} is {value!r}; accepted: a whole number, {least} or more")
        if self.hidden % self.n_heads:
            raise UsageError(f"a hidden width of {self.hidden} is no multiple of {self.n_heads} heads")
        for name in ("alpha", "beta", "gamma"):
            value = getattr(self, name)
            if not 0 <= value < np.inf:
                raise UsageError(f"{name} is {value!r}; accepted: a number, 0 or more")


def _blocks(is_real: npt.NDArray[np.bool_], size: int) -> Iterator[tuple[npt.NDArray[np.intp], int]]:
    """Rows of at most ``size`` events that have the same number of real positions, and that number."""
    lengths = is_real.sum(axis=1)
    order = np.argsort(lengths, kind="stable")
    starts = np.flatnonzero(np.diff(lengths[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        length = int(lengths[rows[0]]) if len(rows) else 0
        for start in range(0, len(rows) if length else 0, size):
            yield rows[start : start + size], length
