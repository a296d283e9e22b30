"""Several processes that train one network together, each on its part of every batch.

``torchrun`` starts the processes and tells them of each other in the environment. All of them hold the same network,
the same data and the same order of events; after each step they add up their gradients, so that every one of them does
the step that a single process would do with the whole batch.
"""

from __future__ import annotations

import atexit
import os
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256

import torch
import torch.distributed as dist
from torch import Tensor, nn

from unmask.errors import TrainingError, UsageError

#: How long one process waits for the others before it gives up; reading the data may take them differently long.
TIMEOUT = timedelta(minutes=10)
_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Processes:
    """The processes that train together, and which of them this one is; by default it is alone.

    Every method but :meth:`part` is called by all processes at the same point, and does nothing in a single one.

    >>> Processes(rank=1, size=3).part(torch.arange(10))
    tensor([3, 4, 5])
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def part(self, batch: Tensor) -> Tensor:
        """The rows of a batch that are this process's: neighbours, and as many as the others' give or take one."""
        n = len(batch)
        return batch[n * self.rank // self.size : n * (self.rank + 1) // self.size]

    def add_up(self, loss: Tensor, gradient: Tensor) -> Tensor:
        """Add up the gradients of all processes in place, and return the sum of ``loss``; one message in all."""
        if self.size == 1:
            return loss
        message = torch.cat([loss.reshape(1), gradient])
        dist.all_reduce(message)
        gradient.copy_(message[1:])
        return message[0]

    def copy_first(self, network: nn.Module) -> None:
        """Give the parameters and buffers of the first process to all."""
        if self.size > 1:
            for value in network.state_dict().values():
                dist.broadcast(value, 0)

    def first_of(self, values: dict[str, float]) -> dict[str, float]:
        """Give the numbers of the first process to all, so that all decide alike."""
        if self.size == 1:
            return values
        message = torch.tensor(list(values.values()), dtype=torch.float64, device=self.device)
        dist.broadcast(message, 0)
        return dict(zip(values, message.tolist(), strict=True))

    def check_same(self, what: str) -> None:
        """Raise in all processes unless ``what`` is the same in all of them."""
        if self.size == 1:
            return
        digest = int.from_bytes(sha256(what.encode()).digest()[:7], "little")
        extremes = torch.tensor([digest, -digest], device=self.device)
        dist.all_reduce(extremes, dist.ReduceOp.MAX)
        if int(extremes.sum()):
            raise TrainingError(
                f"the {self.size} processes do not start from the same settings, data and checkpoint: "
                "give all of them the same command, the same input files and the same --out on a shared file system"
            )

    def wait_for_all(self) -> None:
        """Return when all processes have come here."""
        if self.size > 1:
            # Not dist.barrier, which guesses the device.
            dist.all_reduce(torch.zeros((), device=self.device))
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)


def join_processes(device: torch.device) -> Processes:
    """Join the processes that ``torchrun`` started, if it did; on CUDA each takes the GPU of its own number.

    The connection is made once and lasts until the interpreter ends, for a tokenizer and a detector trained in turn.

    Raises
    ------
    UsageError
        If the environment speaks of several processes and leaves out where they are, or a GPU is missing.
    """
    if not _is_joined():
        if int(os.environ.get("WORLD_SIZE", "1")) < 2:
            return Processes(device=device)
        if missing := [name for name in _VARIABLES if name not in os.environ]:
            raise UsageError(
                f"WORLD_SIZE says that several processes train together, but {', '.join(missing)} is not set: "
                "start them with torchrun, or unset WORLD_SIZE"
            )
    if device.type == "cuda":
        device = _own_gpu(device, int(os.environ.get("LOCAL_RANK", "0")))
    if not _is_joined():
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=TIMEOUT)
        atexit.register(_leave)
    return Processes(dist.get_rank(), dist.get_world_size(), device)


def leave_together() -> None:
    """Wait for all processes: one that ends while others still talk to it can take them down with it."""
    if _is_joined():
        device = torch.device("cuda" if "nccl" in dist.get_backend_config() else "cpu")
        Processes(dist.get_rank(), dist.get_world_size(), device).wait_for_all()


def _own_gpu(device: torch.device, number: int) -> torch.device:
    if ":" in str(device):
        raise UsageError(
            f"device {str(device)!r} cannot be shared by several processes; ask for 'cuda', a GPU for each"
        )
    if number >= torch.cuda.device_count():
        raise UsageError(
            f"process {number} of this machine has no GPU: there are {torch.cuda.device_count()}; "
            "start at most as many processes on it"
        )
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def _is_joined() -> bool:
    return dist.is_available() and dist.is_initialized()


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
