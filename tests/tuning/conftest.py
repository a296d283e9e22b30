"""A tiny scan: a few hundred events, a small detector, and the command line that runs it."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from unmask.cli import main
from unmask.events.event_set import EventSet
from unmask.io.parquet import write_events

# Neither patience nor divergence ends these trainings, so that a trial lasts as long as --epochs says.
DETECTOR = """
[detector]
kind = "masked-token"
hidden = 8
n_layers = 1
n_heads = 2

[detector.training]
batch_size = 128
patience = 100000
divergence = 1000.0
"""
LUT = 'description = "tiny"\n\n[tokenizer]\nkind = "lookup-table"\nn_bins = 2\n' + DETECTOR
VQVAE = (
    'description = "tiny"\n\n[tokenizer]\nkind = "vqvae"\nn_codes = 8\n\n[tokenizer.training]\nbatch_size = 128\n'
    + DETECTOR
)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, make_events: Callable[..., EventSet]) -> Path:
    """A folder with background.parquet, signal.parquet, lut.toml and vq.toml."""
    folder = tmp_path_factory.mktemp("tuning")
    write_events(folder / "background.parquet", make_events(300))
    write_events(folder / "signal.parquet", make_events(30, label=1))
    (folder / "lut.toml").write_text(LUT)
    (folder / "vq.toml").write_text(VQVAE)
    return folder


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "unmask", *map(str, arguments)]


ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}


@dataclass(frozen=True)
class Result:
    returncode: int
    stdout: str
    stderr: str


def unmask(*arguments: str | Path) -> Result:
    """Run the command line in this process, where torch and optuna are loaded already."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", ["unmask", *map(str, arguments)])
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return Result(code, out.getvalue(), err.getvalue())


def detector_scan(folder: Path, *options: str | Path) -> list[str | Path]:
    """Arguments of a scan of the tiny detector."""
    files = ["tune", "detector", folder / "background.parquet", "--preset", folder / "lut.toml"]
    return [*files, "--device", "cpu", *options]
