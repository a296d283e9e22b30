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


@dataclass(frozen=True)
class Checkpoint:
    """State for an undisturbed continuation: tensors by name, and plain JSON."""

    network: dict[str, Tensor]
    best: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]

    @classmethod
    def of(
        cls, network: nn.Module, optimizer: torch.optim.Optimizer, best: dict[str, Tensor], state: dict[str, Any]
    ) -> Checkpoint:
        """Collect the state of a training."""
        slots = {
            f"{i}/{slot}": torch.as_tensor(value)
            for i, values in optimizer.state_dict()["state"].items()
            for slot, value in values.items()
        }
        return cls(network.state_dict(), best, slots, state)

    def write(self, folder: Path) -> None:
        """Replace the checkpoint in ``folder``."""
        groups = {"network": self.network, "best": self.best, "optimizer": self.optimizer}
        # Clones, since safetensors refuses tensors that share memory (tied weights).
        tensors = {
            f"{group}/{name}": value.detach().clone().contiguous()
            for group, values in groups.items()
            for name, value in values.items()
        }
        with atomic_path(folder / CHECKPOINT) as path:
            path.write_bytes(save(tensors, metadata={"state": json.dumps(self.state)}))

    @classmethod
    def read(cls, folder: Path, device: torch.device) -> Checkpoint | None:
        """Read what :meth:`write` wrote; None if there is none."""
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
        return cls(**groups, state=state)

    def restore(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Load network and optimizer in place."""
        network.load_state_dict(self.network)
        slots: dict[int, dict[str, Tensor]] = {}
        for name, value in self.optimizer.items():
            i, slot = name.split("/")
            slots.setdefault(int(i), {})[slot] = value
        optimizer.load_state_dict({"state": slots, "param_groups": optimizer.state_dict()["param_groups"]})
