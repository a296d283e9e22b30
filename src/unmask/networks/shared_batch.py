"""Sums over a batch of which each of several processes holds a part.

A loss that is not a mean over events, as one of the share of each code in a batch, needs them: what such a loss is for
a part says little of what it is for the whole. With one process they cost nothing and change nothing.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class _SumOverProcesses(torch.autograd.Function):
    """What each process adds enters the loss of all, so the gradients of all come back to it."""

    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:  # noqa: ARG004
        total = part.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _SumOverProcesses.forward(ctx, gradients[0])


def is_shared() -> bool:
    """Whether there are other processes with parts of the batch."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def sum_over_processes(part: Tensor) -> Tensor:
    """Add up the tensors of all processes, differentiably; all of them must call this alike.

    Examples
    --------
    >>> sum_over_processes(torch.ones(2))
    tensor([1., 1.])
    """
    return _SumOverProcesses.apply(part) if is_shared() else part  # type: ignore[no-untyped-call]


def sum_before(part: Tensor) -> Tensor:
    """Add up the tensors of the processes that hold earlier parts of the batch.

    Examples
    --------
    >>> sum_before(torch.ones(2))
    tensor([0., 0.])
    """
    if not is_shared():
        return torch.zeros_like(part)
    parts = part.new_zeros((dist.get_world_size(), *part.shape))
    parts[dist.get_rank()] = part
    return sum_over_processes(parts)[: dist.get_rank()].sum(0)


def of_first_process(values: Tensor) -> Tensor:
    """Give the ``values`` of the first process to all."""
    if is_shared():
        dist.broadcast(values, 0)
    return values
