"""The default detector and VQ-VAE training beside those of an earlier commit, on the same machine in the same run.

The earlier source is taken from the repository's history; or give its `src` folder as REFERENCE.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

#: The last commit whose default was made of two detectors.
COMMIT = "3a550ca"


def run() -> dict[str, float]:
    """Events a second of both, and how many times as fast ours is."""
    with tempfile.TemporaryDirectory() as folder:
        reference = os.environ.get("REFERENCE") or _source_at(COMMIT, Path(folder))
        theirs, ours = (_rates(source) for source in (reference, "src"))
    figures: dict[str, float] = {}
    for name, rate in ours.items():
        figures |= {name: rate, f"{name}, times {COMMIT}": rate / theirs[name]}
    return figures


def _source_at(commit: str, folder: Path) -> str:
    archive = subprocess.run(["git", "archive", commit, "src"], check=True, capture_output=True).stdout
    subprocess.run(["tar", "x", "-C", folder], check=True, input=archive)
    return str(folder / "src")


def _rates(source: str) -> dict[str, float]:
    environment = os.environ | {"PYTHONPATH": f"{source}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, str(Path(__file__).with_name("one_source.py"))]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout
    rates: dict[str, float] = json.loads(printed)
    return rates
