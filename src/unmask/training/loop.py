"""The only optimizer loop of the package: every network is trained here.

An epoch starts from seeds derived from the run's seed and the epoch's number, and ends with a checkpoint. A run that is
killed continues after its last finished epoch and ends, on a CPU, with the same parameters bit for bit.

Started by ``torchrun``, several processes share every batch and do the same steps as one would. All read a checkpoint,
only the first writes one; any number of processes can continue a run.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from unmask.artifacts import atomic_path
from unmask.errors import TrainingError, UsageError
from unmask.fitted import EpochRecord, Reporter
from unmask.training.checkpoints import read_checkpoint, write_checkpoint
from unmask.training.distributed import Processes, join_processes, wait_for_all
from unmask.training.settings import TrainingSettings, derive_seed, pick_device

if TYPE_CHECKING:
    from unmask.training.task import Task

LOG = "log.jsonl"
#: Steps before a CUDA graph is captured, so that lazily created state exists.
_STEPS_BEFORE_CAPTURE = 3
#: Matrix products are slow with numbers that do not start at a multiple of so many.
_ALIGNED = 16
#: Events in a batch that is smaller than set, for more steps per epoch.
_MIN_BATCH = 16


def train(
    task: Task, settings: TrainingSettings, *, run_folder: Path | None = None, reporter: Reporter | None = None
) -> list[EpochRecord]:
    """Train ``task.network`` in place, leave it with its best validation parameters, and return the history.

    With a ``run_folder`` every epoch is logged there (``log.jsonl``) and checkpointed, and an earlier run in it is
    continued.

    Raises
    ------
    TrainingError
        If the loss becomes NaN or infinite, the folder holds a run with other settings or data, or the processes that
        train together have different ones.
    """
    if task.n_train < 1:
        raise UsageError("no events to train on; expected at least one")
    processes = join_processes(pick_device(settings.device))
    reporter = reporter if reporter and processes.rank == 0 else Reporter()
    if settings.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(settings.deterministic)
    torch.backends.cuda.matmul.allow_tf32 = settings.precision != "float32"
    torch.manual_seed(derive_seed(settings.seed, "start"))
    task.to(processes.device)
    run = _Run(task, settings, processes, run_folder)
    if not run.resume():
        with torch.no_grad():
            task.start_training()
    processes.check_same(json.dumps([run.identity(), len(run.history)]))
    processes.copy_first(task.network.state_dict().values())
    while len(run.history) < settings.max_epochs and not settings.is_over(run.history):
        run.epoch(reporter)
        reporter.epoch_done(run.history[-1])
        run.save()
    wait_for_all()  # until the last checkpoint is written
    task.network.load_state_dict(run.best)
    task.network.eval()
    return run.history


class _Run:
    """State of a training between epochs."""

    def __init__(self, task: Task, settings: TrainingSettings, processes: Processes, folder: Path | None) -> None:
        self.task, self.settings, self.processes, self.folder = task, settings, processes, folder
        self.device = processes.device
        self.sharing = processes if task.shares_batches else Processes(device=self.device)
        self.batch_size = min(settings.batch_size, task.n_train, max(task.n_train // task.min_steps, _MIN_BATCH))
        if self.batch_size < self.sharing.size:
            raise UsageError(f"a batch of {self.batch_size} events cannot be shared by {self.sharing.size} processes")
        self.history: list[EpochRecord] = []
        self.best = _copy(task.network)
        self.parameters = _FlatParameters(task.network)
        self.optimizer = self._new_optimizer()
        self.step: Callable[[Tensor], None] = self._step
        self.n_steps = 0
        self.loss_sum = torch.zeros((), device=self.device)
        self.fingerprint = task.fingerprint()

    def epoch(self, reporter: Reporter) -> None:
        settings, epoch, network = self.settings, len(self.history), self.task.network
        torch.manual_seed(derive_seed(settings.seed, "epoch", epoch))
        order = torch.randperm(self.task.n_train).to(self.device)
        self.task.start_epoch()
        if self.sharing.rank:
            # Dropout is to differ between the parts of a batch.
            torch.manual_seed(derive_seed(settings.seed, "epoch", epoch, "process", self.sharing.rank))
        # An incomplete last batch is left out; another one every epoch, since the order is drawn anew.
        n_steps = self.task.n_train // self.batch_size
        reporter.epoch_started(epoch, n_steps)
        network.train()
        self.loss_sum.zero_()
        started, rate = time.perf_counter(), 0.0
        for i in range(n_steps):
            rate = self._set_rate(settings.rate_at(epoch * n_steps + i, n_steps, self.history))
            self.step(order[i * self.batch_size : (i + 1) * self.batch_size])
            reporter.step_done()
        mean_batch_loss = float(self.loss_sum) / n_steps  # waits for the device
        seconds = time.perf_counter() - started
        further = self._evaluate()
        if not all(map(math.isfinite, (mean_batch_loss, *further.values()))):
            raise TrainingError(
                f"the loss became NaN or infinite in epoch {epoch + 1}, at a learning rate of {rate:.3g}; "
                "lower the learning rate or clip the gradient"
            )
        record = EpochRecord(
            epoch=epoch + 1,
            step=(epoch + 1) * n_steps,
            learning_rate=rate,
            mean_batch_loss=mean_batch_loss,
            training_loss=further.pop("training_loss"),
            validation_loss=further.pop("validation_loss"),
            events_per_second=n_steps * self.batch_size / seconds,
            seconds=seconds,
            further=further,
        )
        if record.validation_loss < min((earlier.validation_loss for earlier in self.history), default=math.inf):
            self.best = _copy(network)
        self.history.append(record)

    def _evaluate(self) -> dict[str, float]:
        """Losses of the first process, so that all decide alike."""
        torch.manual_seed(derive_seed(self.settings.seed, "evaluation"))
        self.processes.copy_first(self.task.network.state_dict().values())
        self.task.network.eval()
        with torch.no_grad(), self._autocast():
            measured = self.task.evaluate()
        values = torch.tensor(list(measured.values()), dtype=torch.float64, device=self.device)
        self.processes.copy_first([values])
        return dict(zip(measured, values.tolist(), strict=True))

    def _step(self, index: Tensor) -> None:
        # Several processes never capture: a graph would have to hold their messages too.
        self.n_steps += 1
        if self.device.type == "cuda" and self.sharing.size == 1 and self.n_steps > _STEPS_BEFORE_CAPTURE:
            self.step = self._captured(index)
            self.step(index)
        else:
            self._optimize(index)

    def _optimize(self, index: Tensor) -> None:
        for parameter in self.parameters.parameters:
            parameter.grad = None
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

    def _captured(self, index: Tensor) -> Callable[[Tensor], None]:
        """Record one step as a CUDA graph: replaying it costs one launch instead of hundreds."""
        static_index = index.clone()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            self._optimize(static_index)

        def replay(new_index: Tensor) -> None:
            static_index.copy_(new_index)
            graph.replay()

        return replay

    def _autocast(self) -> AbstractContextManager[Any]:
        is_bf16 = self.device.type == "cuda" and self.settings.precision == "bf16"
        return torch.autocast("cuda", torch.bfloat16) if is_bf16 else nullcontext()

    def _new_optimizer(self) -> torch.optim.Optimizer:
        is_cuda = self.device.type == "cuda"
        # In a CUDA graph the rate must be a tensor, or the captured value would be replayed for ever.
        rate: Any = self.settings.learning_rate
        rate = torch.tensor(rate, device=self.device) if is_cuda else rate
        if self.settings.optimizer == "radam":
            return torch.optim.RAdam([self.parameters.vector], lr=rate, capturable=is_cuda, foreach=True)
        return torch.optim.Adam([self.parameters.vector], lr=rate, capturable=is_cuda, fused=True)

    def _set_rate(self, rate: float) -> float:
        (group,) = self.optimizer.param_groups
        group["lr"] = group["lr"].fill_(rate) if isinstance(group["lr"], Tensor) else rate
        return float(group["lr"])

    def identity(self) -> dict[str, Any]:
        """Settings and data that parts of one run share; the device, the processes and mostly the length may differ."""
        may_differ = ("device",) if self.settings.schedule == "cosine" else ("device", "max_epochs")
        settings = {k: v for k, v in asdict(self.settings).items() if k not in may_differ}
        return settings | {"data and network": self.fingerprint}

    def save(self) -> None:
        if self.folder is None or self.processes.rank:
            return
        history = [asdict(record) for record in self.history]
        state = {"identity": self.identity(), "history": history}
        write_checkpoint(self.folder, self.task.network, self.optimizer, self.best, state)
        with atomic_path(self.folder / LOG) as path:
            path.write_text("".join(json.dumps(record) + "\n" for record in history))

    def resume(self) -> bool:
        checkpoint = None if self.folder is None else read_checkpoint(self.folder, self.device)
        if checkpoint is None:
            return False
        new, old = self.identity(), checkpoint.state.identity
        if changes := [f"{key} {old.get(key)!r} -> {new[key]!r}" for key in new if new[key] != old.get(key)]:
            raise TrainingError(
                f"{self.folder} holds a run with other settings ({'; '.join(changes)}): "
                "use another folder, or remove this one to start again"
            )
        checkpoint.restore(self.task.network, self.optimizer)
        self.best = checkpoint.best
        self.history = checkpoint.state.history
        return True


class _FlatParameters:
    """Trained parameters of a network, moved into one vector, so that an optimizer needs few operations."""

    def __init__(self, network: nn.Module) -> None:
        self.parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        sizes = [-(-parameter.numel() // _ALIGNED) * _ALIGNED for parameter in self.parameters]
        self.vector = nn.Parameter(torch.zeros(sum(sizes), device=self.parameters[0].device))
        self.vector.grad = torch.zeros_like(self.vector)
        for parameter, place in zip(self.parameters, torch.split(self.vector.detach(), sizes), strict=True):
            place = place[: parameter.numel()].view_as(parameter)
            parameter.data = place.copy_(parameter.detach())
        self.gaps = [self.vector.new_zeros(size - p.numel()) for size, p in zip(sizes, self.parameters, strict=True)]

    def gather(self) -> Tensor:
        """Copy the gradients of the parameters into that of the vector, 0 where the loss does not depend on one."""
        parts = []
        for parameter, gap in zip(self.parameters, self.gaps, strict=True):
            gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
            parts += [gradient.flatten(), gap]
        assert self.vector.grad is not None
        torch.cat(parts, out=self.vector.grad)
        return self.vector.grad


def _copy(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}
