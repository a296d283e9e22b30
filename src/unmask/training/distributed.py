"""Several processes that train one network together, each on its part of every batch; ``torchrun`` starts them.

All of them hold the same network, data and order of events; after each step they sum their gradients, so that every one
of them does the step that a single process would do with the whole batch.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256

import torch
import torch.distributed as dist
from torch import Tensor

from unmask.errors import TrainingError, UsageError

#: One process waits so long for the others; reading the data may take them differently long.
_TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True)
class Processes:
    """The processes that train together, and the rank of this one; by default it is alone.

    Every method but :meth:`part` is called by all processes at the same point, and does nothing in a single one.

    >>> Processes(rank=1, size=3).part(torch.arange(10))
    tensor([3, 4, 5])
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def part(self, batch: Tensor) -> Tensor:
        """The rows of a batch for this process: neighbors, and as many as for the others, give or take one."""
        return batch[len(batch) * self.rank // self.size : len(batch) * (self.rank + 1) // self.size]

    def add_up(self, loss: Tensor, gradient: Tensor) -> Tensor:
        """Sum the gradients of all processes in place, and return the sum of ``loss``; one message in all."""
        if self.size == 1:
            return loss
        message = torch.cat([loss.reshape(1), gradient])
        dist.all_reduce(message)
        gradient.copy_(message[1:])
        return message[0]

    def copy_first(self, values: Iterable[Tensor]) -> None:
        """Give the values of the first process to all, in place."""
        for value in values if self.size > 1 else ():
            dist.broadcast(value, 0)

    def check_same(self, text: str) -> None:
        """Raise in all processes unless ``text`` is the same in all of them."""
        digest = int.from_bytes(sha256(text.encode()).digest()[:7], "little")
        extremes = torch.tensor([digest, -digest], device=self.device)
        if self.size > 1:
            dist.all_reduce(extremes, dist.ReduceOp.MAX)
        if int(extremes.sum()):
            raise TrainingError(
                f"the {self.size} processes do not start from the same settings, data and checkpoint: "
                "give all of them the same command, the same input files and the same --out on a shared file system"
            )


def join_processes(device: torch.device) -> Processes:
    """Join the processes that ``torchrun`` started, if it did; on CUDA each takes the GPU of its own number."""
    if os.environ.get("WORLD_SIZE", "1") in ("0", "1"):
        return Processes(device=device)
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_PORT"):
        if not (value := os.environ.get(name, "0")).isdecimal():
            raise UsageError(f"{name} is {value!r}; expected a whole number, as torchrun sets it, or unset WORLD_SIZE")
    if missing := {"RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"} - os.environ.keys():
        raise UsageError(
            f"WORLD_SIZE says that several processes train together, but {', '.join(sorted(missing))} is not set: "
            "start them with torchrun, or unset WORLD_SIZE"
        )
    if device.type == "cuda":
        number, n_gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if ":" in str(device) or number >= n_gpus:
            raise UsageError(
                f"process {number} of this machine has no GPU of its own; use --device cuda and {n_gpus} processes per "
                "machine at most"
            )
        device = torch.device("cuda", number)
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        try:
            dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=_TIMEOUT)
        except (RuntimeError, ValueError) as error:
            text = " ".join(str(error).split())[:200]
            raise TrainingError(f"the processes that train together cannot find each other ({text})") from None
        atexit.register(lambda: dist.is_initialized() and dist.destroy_process_group())
    return Processes(dist.get_rank(), dist.get_world_size(), device)


def wait_for_all() -> None:
    """Return when all processes have come here: one that ends while others still talk to it can take them down."""
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(torch.zeros(()))  # not dist.barrier, which guesses the device
