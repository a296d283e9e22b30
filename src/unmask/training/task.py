"""Training tasks, and fitted things with a network: device, seed, data and identity of a training, once for all."""

from __future__ import annotations

import hashlib
import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from unmask.artifacts import Json
from unmask.events.event_set import EventSet
from unmask.events.fingerprints import fingerprint_of
from unmask.fitted import Fitted, Reporter
from unmask.training.loop import train
from unmask.training.settings import TrainingSettings, derive_seed, pick_device

Network = TypeVar("Network", bound=nn.Module)
_PREFIX = "network/"


class Task(ABC):
    """A network, its training and validation data on their device, and its losses.

    On CUDA the training step is captured as a graph: :meth:`loss` must not synchronize, nor let control flow depend on
    data. With several processes it receives a part of the batch in each; apart from dropout, random numbers that belong
    to an event are best drawn in :meth:`start_epoch`, which does the same in all of them.

    ``train`` and ``validation`` are tensors with one row per event. Parts of one run share the ``identity``: settings
    and data.
    """

    #: Whether several processes each take a part of a batch; otherwise each trains with the whole of it.
    shares_batches: ClassVar[bool] = True
    #: Steps per epoch at least, in smaller batches if there are few events.
    min_steps: ClassVar[int] = 1
    #: Events that are evaluated at a time.
    batch_events: ClassVar[int] = 1 << 14

    def __init__(
        self, network: Any, train: tuple[Tensor, ...], validation: tuple[Tensor, ...], *, seed: int, identity: str
    ) -> None:
        self.network, self.seed, self.identity = network, seed, identity
        self.train, self.validation = tuple(train), tuple(validation)

    @property
    def n_train(self) -> int:
        """Number of training events."""
        return len(self.train[0])

    def to(self, device: torch.device) -> None:
        """Move the network and all tensors."""
        for name, value in vars(self).items():
            setattr(self, name, _moved(value, device))

    @abstractmethod
    def loss(self, *data: Tensor) -> Tensor:
        """Mean loss of some events, with a gradient."""

    def training_loss(self, index: Tensor) -> Tensor:
        """Mean loss of the training events at ``index`` (batch,)."""
        return self.loss(*(tensor[index] for tensor in self.train))

    def evaluate(self) -> dict[str, float]:
        """At least ``training_loss`` and ``validation_loss``, without dropout, on samples of equal size."""
        sample = tuple(tensor[self.sample_index()] for tensor in self.train)
        return {"training_loss": self.mean_loss(sample), "validation_loss": self.mean_loss(self.validation)}

    def sample_index(self) -> Tensor:
        """Indices of as many training events as there are validation events, for the divergence rule."""
        drawn = np.random.default_rng(self.seed).permutation(self.n_train)[: len(self.validation[0])]
        return torch.from_numpy(np.sort(drawn)).to(self.train[0].device)

    def mean_loss(self, data: tuple[Tensor, ...]) -> float:
        """Mean loss of all these events, a batch at a time."""
        parts = [self.loss(*part).double() * len(part[0]) for part in batches(data, self.batch_events)]
        return float(torch.stack(parts).sum()) / len(data[0])

    def fingerprint(self) -> str:
        """Digest of data and settings of the network."""
        return hashlib.sha256(f"{self.identity} {self.network}".encode()).hexdigest()[:16]

    def start_training(self) -> None:  # noqa: B027 (most tasks have nothing to do here)
        """Prepare what depends on the initial network, once before the first epoch."""

    def start_epoch(self) -> None:  # noqa: B027
        """Draw random numbers for an epoch; tensors that :meth:`loss` reads must be changed in place."""


def batches(data: tuple[Tensor, ...], n_events: int) -> Iterator[tuple[Tensor, ...]]:
    """Split tensors with one row per event into views of at most ``n_events``."""
    for start in range(0, len(data[0]), n_events):
        yield tuple(tensor[start : start + n_events] for tensor in data)


def in_batches(compute: Callable[[Any], Tensor], table: Any, n_events: int) -> list[Tensor]:
    """Compute something of at most ``n_events`` rows of a table at a time, or of fewer if GPU memory is too small."""
    done: list[Tensor] = []
    start, n_events = 0, min(n_events, len(table))
    while start < len(table):
        try:
            done.append(compute(table[start : start + n_events]))
            start += n_events
            continue
        except torch.OutOfMemoryError:
            if n_events == 1:
                raise
        warnings.warn(f"GPU memory is too small for {n_events:,} events at a time: going on with half", stacklevel=2)
        n_events //= 2
        torch.cuda.empty_cache()
    return done


def _moved(value: Any, device: torch.device) -> Any:
    if hasattr(value, "to"):
        return value.to(device)
    return tuple(_moved(part, device) for part in value) if isinstance(value, tuple) else value


class Trained(Fitted, Generic[Network]):
    """A tokenizer or detector with a network that is trained on one :class:`Task`."""

    shorthands: ClassVar[tuple[str, ...]] = ("seed",)
    #: Name of the random stream of the initial parameters.
    stream: ClassVar[str] = "weights"

    training: TrainingSettings
    seed: int | None = None
    network_: Network

    @abstractmethod
    def new_network(self) -> Network:
        """Make the network from the settings."""

    @property
    def run_settings(self) -> TrainingSettings:
        """Settings of the training, with the seed of ``seed`` if that was given."""
        return self.training if self.seed is None else replace(self.training, seed=self.seed)

    @property
    def max_epochs(self) -> int:
        return self.training.max_epochs

    @property
    def n_parameters(self) -> int:
        self.check_fitted()
        return sum(parameter.numel() for parameter in self.network_.parameters())

    def fit(self, train: EventSet, validation: EventSet | None = None, **options: Any) -> Self:
        """See the base class; random state and settings of torch are afterwards what they were before."""
        device, products = pick_device(self.run_settings.device), torch.backends.cuda.matmul
        with torch.random.fork_rng([] if device.type == "cpu" else [device]), ExitStack() as stack:
            stack.callback(torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled())
            stack.callback(setattr, products, "allow_tf32", products.allow_tf32)
            return super().fit(train, validation, **options)

    def settings(self) -> dict[str, Json]:
        return super().settings() | {"training": vars(self.run_settings)}

    def identity(self, *events: EventSet) -> str:
        """Settings but those of the training, which the loop compares itself, and a digest of the events."""
        settings = {name: value for name, value in self.settings().items() if name != "training"}
        return f"{json.dumps(settings)} {fingerprint_of(*events)}"

    def seeded_network(self) -> Network:
        """Make the network with parameters drawn from the seed."""
        torch.manual_seed(derive_seed(self.run_settings.seed, self.stream))
        return self.new_network()

    def run(self, task: Task, run_folder: str | Path | None, reporter: Reporter | None) -> None:
        """Train the network of ``task`` and keep it."""
        folder = None if run_folder is None else Path(run_folder)
        self.history_ = train(task, self.run_settings, run_folder=folder, reporter=reporter)
        self.network_ = task.network

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        state = self.network_.state_dict()
        return super().arrays() | {f"{_PREFIX}{name}": value.cpu().numpy() for name, value in state.items()}

    def restore(self, arrays: dict[str, npt.NDArray[Any]], metadata: dict[str, Json]) -> None:
        super().restore(arrays, metadata)
        own = {name: torch.from_numpy(array.copy()) for name, array in arrays.items() if name.startswith(_PREFIX)}
        own = {name.removeprefix(_PREFIX): value for name, value in own.items()}
        with torch.device("meta"):  # where shapes alone are made
            self.new_network().load_state_dict(own, assign=True)
        self.network_ = self.new_network()
        self.network_.load_state_dict(own)
        self.network_.eval()
