"""State of a training on disk: one safetensors file, replaced atomically after every epoch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from unmask.artifacts import atomic_path
from unmask.errors import ArtifactError

CHECKPOINT = "checkpoint.safetensors"


def write_checkpoint(
    folder: Path,
    *,
    network: nn.Module,
    best: dict[str, Tensor],
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
) -> None:
    """Write everything that an undisturbed continuation needs; ``state`` is plain JSON."""
    tensors = {f"network/{name}": value for name, value in network.state_dict().items()}
    tensors |= {f"best/{name}": value for name, value in best.items()}
    for i, slots in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer/{i}/{slot}": torch.as_tensor(value) for slot, value in slots.items()}
    # Clones, since safetensors refuses tensors that share memory (tied weights).
    tensors = {name: value.detach().clone().contiguous() for name, value in tensors.items()}
    with atomic_path(folder / CHECKPOINT) as path:
        path.write_bytes(save(tensors, metadata={"state": json.dumps(state)}))


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as read, before anything is taken over from it."""

    network: dict[str, Tensor]
    best: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]

    def restore(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Load network and optimizer in place."""
        network.load_state_dict(self.network)
        slots: dict[int, dict[str, Tensor]] = {}
        for name, value in self.optimizer.items():
            i, slot = name.split("/")
            slots.setdefault(int(i), {})[slot] = value
        optimizer.load_state_dict({"state": slots, "param_groups": optimizer.state_dict()["param_groups"]})


def read_checkpoint(folder: Path, device: torch.device) -> Checkpoint | None:
    """Read what :func:`write_checkpoint` wrote; None if there is none."""
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    groups: dict[str, dict[str, Tensor]] = {"network": {}, "best": {}, "optimizer": {}}
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            state = json.loads(file.metadata()["state"])
            for key in file.keys():  # noqa: SIM118 (not a dictionary)
                group, name = key.split("/", 1)
                groups[group][name] = file.get_tensor(key)
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise ArtifactError(f"damaged checkpoint ({error}); remove it to start again", path=path) from None
    return Checkpoint(**groups, state=state)
