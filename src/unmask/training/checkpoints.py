"""State of a training on disk: one safetensors file, replaced atomically after every epoch."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from unmask.artifacts import atomic_path, checked
from unmask.errors import ArtifactError, damage_named
from unmask.fitted import EpochRecord

CHECKPOINT = "checkpoint.safetensors"


@dataclass(frozen=True)
class CheckpointState:
    """State besides tensors: settings that must be the same to continue, and the record of each epoch."""

    identity: dict[str, Any]
    history: list[EpochRecord]


class Checkpoint(NamedTuple):
    """State for an undisturbed continuation: plain JSON, and tensors by name."""

    path: Path
    state: CheckpointState
    network: dict[str, Tensor]
    best: dict[str, Tensor]
    optimizer: dict[str, Tensor]

    def restore(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Load network and optimizer in place."""
        with damage_named(self.path, "remove this checkpoint to start again", error=ArtifactError):
            network.load_state_dict(self.best)  # which must fit too
            network.load_state_dict(self.network)
            slots: dict[int, dict[str, Tensor]] = {}
            for name, value in self.optimizer.items():
                i, slot = name.split("/")
                slots.setdefault(int(i), {})[slot] = value
            groups = optimizer.state_dict()["param_groups"]
            for parameter, values in zip(groups[0]["params"], slots.values(), strict=True):
                shape = optimizer.param_groups[0]["params"][parameter].shape
                if any(value.shape not in (shape, torch.Size()) for value in values.values()):
                    raise ValueError(f"a state of the optimizer is not of shape {tuple(shape)}")
            optimizer.load_state_dict({"state": slots, "param_groups": groups})


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
    text = json.dumps(state)
    with atomic_path(folder / CHECKPOINT) as path:
        path.write_bytes(save(tensors, metadata={"state": text, "digest": _digest(tensors, text)}))


def read_checkpoint(folder: Path, device: torch.device) -> Checkpoint | None:
    """Read what :func:`write_checkpoint` wrote; None if there is none."""
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    groups: dict[str, dict[str, Tensor]] = {"network": {}, "best": {}, "optimizer": {}}
    what = "remove this checkpoint to start again"
    with damage_named(path, what, error=ArtifactError), safe_open(path, framework="pt", device=str(device)) as file:
        text, digest = (file.metadata()[name] for name in ("state", "digest"))
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dictionary)
        if digest != _digest(tensors, text):
            raise ValueError("its checksum is wrong")
        for key, value in tensors.items():
            group, name = key.split("/", 1)
            groups[group][name] = value
        state = checked(CheckpointState, json.loads(text), path)
    return Checkpoint(path, state, **groups)


def _digest(tensors: dict[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        digest.update(name.encode() + tensors[name].cpu().numpy().tobytes())
    return digest.hexdigest()
