"""The only optimiser loop of the package: every network is trained here.

An epoch starts from seeds made of the run's seed and the epoch's number, and ends with a checkpoint. A run that is
killed goes on from its last finished epoch and ends, on a CPU, with the same weights bit for bit as one that was not.

Started by ``torchrun``, several processes share every batch and do the same steps as one would. All read a checkpoint,
only the first writes one; any number of processes can continue a run.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from unmask.artifacts import atomic_path
from unmask.errors import TrainingError, UsageError, nearest
from unmask.training.checkpoints import read_checkpoint, write_checkpoint
from unmask.training.devices import Precision, pick_device, set_determinism
from unmask.training.distributed import Processes, join_processes, wait_for_all
from unmask.training.early_stopping import EarlyStopping
from unmask.training.flat_parameters import FlatParameters
from unmask.training.schedules import WARMUP_SHARE, Plateau, warmup_cosine

LOG = "log.jsonl"
#: Steps run plainly before a CUDA graph is captured, so that lazily made state exists.
_STEPS_BEFORE_CAPTURE = 3


Optimizer = Literal["adam", "radam"]
Schedule = Literal["constant", "warmup-cosine", "cosine", "plateau"]


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How to train; the defaults are those that the published configurations share.

    Attributes
    ----------
    batch_size : events of a step, all processes together.
    schedule : "constant"; "warmup-cosine" (linear warm-up, cosine to 10 %); "cosine" (the same: 5 % of the steps are
        the warm-up, and it ends with the last epoch, so that no run is prolonged); "plateau" (halved when validation
        stalls).
    gradient_clip : largest norm of the gradient; None for no limit.
    min_improvement, patience, divergence : the three rules of early stopping.
    precision : "float32", or on CUDA "tf32" / "bf16" for speed.
    deterministic : the same result in every run, on CUDA too.
    """

    max_epochs: int = 100
    batch_size: int = 512
    optimizer: Optimizer = "adam"
    learning_rate: float = 1e-3
    schedule: Schedule = "constant"
    warmup_steps: int = 1000
    total_steps: int = 10_000
    gradient_clip: float | None = None
    min_improvement: float = 0.001
    patience: int = 5
    divergence: float = 0.2
    seed: int = 0
    device: str = "auto"
    precision: Precision = "float32"
    deterministic: bool = False

    def __post_init__(self) -> None:
        least = {"max_epochs": 1, "batch_size": 1, "patience": 1, "total_steps": 1, "warmup_steps": 0}
        mistakes = [
            f"{name} is {getattr(self, name)}; accepted: {n} or more"
            for name, n in least.items()
            if getattr(self, name) < n
        ]
        for name in ("learning_rate", "min_improvement", "divergence", "gradient_clip"):
            value, may_be_zero = getattr(self, name), name != "gradient_clip"
            # A rate of 0 trains nothing, but is of use in tests and benchmarks.
            if value is not None and not (math.isfinite(value) and (value > 0 or (may_be_zero and value == 0))):
                mistakes.append(f"{name} is {value}; accepted: {'0 or more' if may_be_zero else 'more than 0'}")
        for name, known in {"optimizer": Optimizer, "schedule": Schedule, "precision": Precision}.items():
            if (value := getattr(self, name)) not in get_args(known):
                mistakes.append(f"{name} is {value!r}; {nearest(str(value), get_args(known))}")
        if mistakes:
            raise UsageError("training: " + "; ".join(mistakes))


@dataclass(frozen=True)
class EpochRecord:
    """What one epoch brought; a line of the log."""

    epoch: int
    step: int
    learning_rate: float
    mean_batch_loss: float
    training_loss: float
    validation_loss: float
    events_per_second: float
    seconds: float
    further: dict[str, float] = field(default_factory=dict)


class Task(ABC):
    """What is trained: a network, its data on its device, and its losses.

    On CUDA the training step is captured as a graph: :meth:`training_loss` must not synchronise, nor let control
    flow depend on data.

    With several processes :meth:`training_loss` sees a part of the batch in each; apart from dropout, random numbers
    that belong to an event are best drawn in :meth:`start_epoch`, which does the same in all of them.
    """

    network: nn.Module
    n_train: int
    #: Whether several processes each take a part of a batch; otherwise each trains with the whole of it.
    shares_batches: ClassVar[bool] = True
    #: What the data and the settings of the network are; parts of one run share it.
    identity: str

    @abstractmethod
    def to(self, device: torch.device) -> None:
        """Move network and data."""

    @abstractmethod
    def training_loss(self, index: Tensor) -> Tensor:
        """Mean loss of the training events at ``index`` (batch,), with a gradient."""

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """At least ``training_loss`` and ``validation_loss``, without dropout, on samples of equal size."""

    def fingerprint(self) -> str:
        """Changes when the data or the network's settings change."""
        return hashlib.sha256(self.identity.encode()).hexdigest()[:16]

    def start_training(self) -> None:  # noqa: B027 (most tasks have nothing to do here)
        """Prepare what depends on the initial network, once before the first epoch."""

    def start_epoch(self) -> None:  # noqa: B027
        """Draw what an epoch needs; tensors that :meth:`training_loss` reads must be changed in place."""

    def end_epoch(self) -> None:  # noqa: B027
        """Do what is due after each epoch, before it is evaluated."""


class Reporter:
    """Hears of progress, of several processes in the first alone; the default is silent."""

    def epoch_started(self, epoch: int, n_steps: int) -> None: ...

    def step_done(self) -> None: ...

    def epoch_done(self, record: EpochRecord) -> None: ...


def train(
    task: Task,
    settings: TrainingSettings,
    *,
    run_folder: Path | None = None,
    reporter: Reporter | None = None,
) -> list[EpochRecord]:
    """Train ``task.network`` in place, leaving it with its best validation weights, and return the history.

    With a ``run_folder`` every epoch is logged there (``log.jsonl``) and checkpointed, and a run that is found there
    is continued.

    Raises
    ------
    TrainingError
        If the loss becomes NaN or infinite, the folder holds a run with other settings or data, or the processes that
        train together have different ones.
    """
    processes = join_processes(pick_device(settings.device))
    device = processes.device
    reporter = reporter if reporter and processes.rank == 0 else Reporter()
    set_determinism(settings.deterministic)
    torch.backends.cuda.matmul.allow_tf32 = settings.precision != "float32"
    torch.manual_seed(derive_seed(settings.seed, "start"))
    task.to(device)
    run = _Run(task, settings, processes, run_folder)
    if not run.resume():
        with torch.no_grad():
            task.start_training()
    processes.check_same(json.dumps([run.identity(), len(run.history)]))
    processes.copy_first(task.network.state_dict().values())
    while run.stopped_because is None and len(run.history) < settings.max_epochs:
        run.epoch(reporter)
        reporter.epoch_done(run.history[-1])
        run.save()
    wait_for_all()  # until the last checkpoint is written
    task.network.load_state_dict(run.best)
    task.network.eval()
    return run.history


def derive_seed(*parts: object) -> int:
    """One seed from several words and numbers.

    >>> derive_seed(1, "epoch", 2) == derive_seed(1, "epoch", 2) != derive_seed(1, "epoch", 3)
    True
    """
    words = [int.from_bytes(str(part).encode(), "little") for part in parts]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> np.uint64(1))


class _Run:
    """The state of a training between epochs."""

    def __init__(self, task: Task, settings: TrainingSettings, processes: Processes, folder: Path | None) -> None:
        if task.n_train < 1:
            raise UsageError("there are no events to train on")
        self.task, self.settings, self.processes, self.folder = task, settings, processes, folder
        self.sharing = processes if task.shares_batches else Processes(device=processes.device)
        self.device = device = processes.device
        self.batch_size = min(settings.batch_size, task.n_train)
        if self.batch_size < self.sharing.size:
            raise UsageError(f"a batch of {self.batch_size} events cannot be shared by {self.sharing.size} processes")
        self.stopping = EarlyStopping(settings.min_improvement, settings.patience, settings.divergence)
        self.plateau = Plateau(settings.learning_rate)
        self.history: list[EpochRecord] = []
        self.best = _copy(task.network)
        self.stopped_because: str | None = None
        self.parameters = FlatParameters(task.network)
        self.optimizer = _optimizer(self.parameters.vector, settings, device)
        self.step: Callable[[Tensor], None] = self._plain_step
        self.n_plain_steps = 0
        self.loss_sum = torch.zeros((), device=device)
        self.fingerprint = task.fingerprint()

    def epoch(self, reporter: Reporter) -> None:
        settings, epoch = self.settings, len(self.history)
        torch.manual_seed(derive_seed(settings.seed, "epoch", epoch))
        order = torch.randperm(self.task.n_train).to(self.device)
        self.task.start_epoch()
        if self.sharing.rank:
            # Dropout is to differ between the parts of a batch.
            torch.manual_seed(derive_seed(settings.seed, "epoch", epoch, "process", self.sharing.rank))
        # An incomplete last batch is left out; another one every epoch, since the order is drawn anew.
        n_steps = self.task.n_train // self.batch_size
        reporter.epoch_started(epoch, n_steps)
        self.task.network.train()
        self.loss_sum.zero_()
        started = time.perf_counter()
        for i in range(n_steps):
            self._set_rate(epoch * n_steps + i)
            self.step(order[i * self.batch_size : (i + 1) * self.batch_size])
            reporter.step_done()
        mean_batch_loss = float(self.loss_sum) / n_steps  # waits for the device
        seconds = time.perf_counter() - started
        torch.manual_seed(derive_seed(settings.seed, "evaluation"))
        self.processes.copy_first(self.task.network.state_dict().values())
        with torch.no_grad(), self._autocast():
            self.task.end_epoch()
            self.task.network.eval()
            measured = self._measured_by_first()
        if not all(map(math.isfinite, (mean_batch_loss, *measured.values()))):
            raise TrainingError(
                f"the loss became NaN or infinite in epoch {epoch + 1}, at a learning rate of {self._rate():.3g}; "
                "lower the learning rate or clip the gradient"
            )
        training_loss, validation_loss = measured.pop("training_loss"), measured.pop("validation_loss")
        if validation_loss < min((record.validation_loss for record in self.history), default=math.inf):
            self.best = _copy(self.task.network)
        self.history.append(
            EpochRecord(
                epoch=epoch + 1,
                step=(epoch + 1) * n_steps,
                learning_rate=self._rate(),
                mean_batch_loss=mean_batch_loss,
                training_loss=training_loss,
                validation_loss=validation_loss,
                events_per_second=n_steps * self.batch_size / seconds,
                seconds=seconds,
                further=measured,
            )
        )
        self.stopped_because = self.stopping.update(training_loss, validation_loss)
        self.plateau.update(validation_loss)

    def _measured_by_first(self) -> dict[str, float]:
        """What the first process measures, so that all decide alike."""
        measured = self.task.evaluate()
        values = torch.tensor(list(measured.values()), dtype=torch.float64, device=self.device)
        self.processes.copy_first([values])
        return dict(zip(measured, values.tolist(), strict=True))

    def _plain_step(self, index: Tensor) -> None:
        # Several processes do plain steps: a graph would have to hold their messages too.
        if self.device.type == "cuda" and self.sharing.size == 1:
            self.n_plain_steps += 1
            if self.n_plain_steps > _STEPS_BEFORE_CAPTURE:
                self.step = self._capture_step(index)
                self.step(index)
                return
        self._optimise(index)

    def _optimise(self, index: Tensor) -> None:
        self.parameters.forget_gradients()
        part = self.sharing.part(index)
        with self._autocast():
            loss = self.task.training_loss(part)
        if len(part) < len(index):
            loss = loss * (len(part) / len(index))  # the sum over the processes is the mean over the batch
        loss.backward()  # type: ignore[no-untyped-call]
        batch_loss = self.sharing.add_up(loss.detach(), self.parameters.gather())
        if self.settings.gradient_clip is not None:
            nn.utils.clip_grad_norm_(self.parameters.vector, self.settings.gradient_clip)
        self.optimizer.step()
        self.loss_sum += batch_loss

    def _capture_step(self, index: Tensor) -> Callable[[Tensor], None]:
        """Record one step as a CUDA graph: replaying it costs one launch instead of hundreds."""
        static_index = index.clone()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            self._optimise(static_index)

        def replay(new_index: Tensor) -> None:
            static_index.copy_(new_index)
            graph.replay()

        return replay

    def _autocast(self) -> AbstractContextManager[Any]:
        is_bf16 = self.device.type == "cuda" and self.settings.precision == "bf16"
        return torch.autocast("cuda", torch.bfloat16) if is_bf16 else nullcontext()

    def _set_rate(self, step: int) -> None:
        settings = self.settings
        if settings.schedule in ("warmup-cosine", "cosine"):
            warmup_steps, total_steps = settings.warmup_steps, settings.total_steps
            if settings.schedule == "cosine":
                total_steps = settings.max_epochs * (self.task.n_train // self.batch_size)
                warmup_steps = int(WARMUP_SHARE * total_steps)
            rate = warmup_cosine(step, peak=settings.learning_rate, warmup_steps=warmup_steps, total_steps=total_steps)
        else:
            rate = self.plateau.rate if settings.schedule == "plateau" else settings.learning_rate
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def _rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def identity(self) -> dict[str, Any]:
        """What must not differ between the parts of one run; the device, the processes and mostly the length may."""
        may_differ = ("device",) if self.settings.schedule == "cosine" else ("device", "max_epochs")
        settings = {k: v for k, v in asdict(self.settings).items() if k not in may_differ}
        return settings | {"data and network": self.fingerprint}

    def save(self) -> None:
        if self.folder is None or self.processes.rank:
            return
        state: dict[str, Any] = {
            "identity": self.identity(),
            "history": [asdict(record) for record in self.history],
            "stopping": asdict(self.stopping),
            "plateau": asdict(self.plateau),
            "stopped_because": self.stopped_because,
        }
        write_checkpoint(self.folder, network=self.task.network, best=self.best, optimizer=self.optimizer, state=state)
        with atomic_path(self.folder / LOG) as path:
            path.write_text("".join(json.dumps(record) + "\n" for record in state["history"]))

    def resume(self) -> bool:
        if self.folder is None:
            return False
        found = read_checkpoint(self.folder, self.device)
        if found is None:
            return False
        mine, theirs, state = self.identity(), found.state["identity"], found.state
        if mine != theirs:
            changes = [f"{key} {theirs.get(key)!r} -> {mine[key]!r}" for key in mine if mine[key] != theirs.get(key)]
            raise TrainingError(
                f"{self.folder} holds a run with other settings ({'; '.join(changes)}): "
                "use another folder, or remove this one to start again"
            )
        found.restore(self.task.network, self.optimizer)
        self.best = found.best
        self.history = [EpochRecord(**record) for record in state["history"]]
        self.stopping = EarlyStopping(**state["stopping"])
        self.plateau = Plateau(**state["plateau"])
        self.stopped_because = state["stopped_because"]
        return True


def _optimizer(parameters: Tensor, settings: TrainingSettings, device: torch.device) -> torch.optim.Optimizer:
    is_cuda = device.type == "cuda"
    # In a CUDA graph the rate must be a tensor, or the captured value would be replayed for ever.
    rate: Any = torch.tensor(settings.learning_rate, device=device) if is_cuda else settings.learning_rate
    if settings.optimizer == "radam":
        return torch.optim.RAdam([parameters], lr=rate, capturable=is_cuda, foreach=True)
    return torch.optim.Adam([parameters], lr=rate, capturable=is_cuda, fused=True)


def _copy(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}
