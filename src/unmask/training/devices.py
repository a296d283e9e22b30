"""Which device to compute on, and how exactly."""

from __future__ import annotations

import os
from typing import Literal

import torch

from unmask.errors import UsageError

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["float32", "tf32", "bf16"]


def pick_device(name: str = "auto") -> torch.device:
    """Turn "auto", "cpu", "cuda" or "cuda:N" into a device that is there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"unknown device {name!r}; choose from auto, cpu, cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device {name!r} was asked for, but torch sees no CUDA device; use --device cpu")
    return device


def set_determinism(deterministic: bool) -> None:
    """Ask torch for the same result in every run on the same device (slower on CUDA)."""
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(deterministic)
