"""State of a training on disk: one safetensors file, replaced atomically after every epoch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from unmask.artifacts import atomic_path
from unmask.errors import ArtifactError

CHECKPOINT = "checkpoint.safetensors"


class Checkpoint(NamedTuple):
    """State for an undisturbed continuation: plain JSON, and tensors by name."""

    state: dict[str, Any]
    network: dict[str, Tensor]
    best: dict[str, Tensor]
    optimizer: dict[str, Tensor]

    def restore(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Load network and optimizer in place."""
        network.load_state_dict(self.network)
        slots: dict[int, dict[str, Tensor]] = {}
        for name, value in self.optimizer.items():
            i, slot = name.split("/")
            slots.setdefault(int(i), {})[slot] = value
        optimizer.load_state_dict({"state": slots, "param_groups": optimizer.state_dict()["param_groups"]})


def write_checkpoint(
    folder: Path, network: nn.Module, optimizer: torch.optim.Optimizer, best: dict[str, Tensor], state: dict[str, Any]
) -> None:
    """Replace the checkpoint in ``folder``."""
    tensors = {f"network/{name}": value for name, value in network.state_dict().items()}
    tensors |= {f"best/{name}": value for name, value in best.items()}
    for i, slots in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer/{i}/{slot}": torch.as_tensor(value) for slot, value in slots.items()}
    # Clones, since safetensors refuses tensors that share memory (tied weights).
    tensors = {name: value.detach().clone().contiguous() for name, value in tensors.items()}
    with atomic_path(folder / CHECKPOINT) as path:
        path.write_bytes(save(tensors, metadata={"state": json.dumps(state)}))


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
    return Checkpoint(state, **groups)
