"""What is written is whole, or not there; what is read is what was written."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import numpy as np
import pytest

import unmask
from unmask.artifacts import Artifact, load_artifact, provenance, save_artifact


def test_a_tree_without_installed_metadata_can_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    save_artifact(tmp_path / "model", Artifact("thing", {}, {"x": np.zeros(1)}, provenance()))
    assert load_artifact(tmp_path / "model").provenance["packages"]["unmask"] == unmask.__version__
