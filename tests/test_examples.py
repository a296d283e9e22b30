"""The examples of detectors of one's own run, and what they write can be evaluated."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import running
from unmask import load_sample, write_events

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("name", ["isolation_forest", "flow", "vae"])
def test_a_detector_of_ones_own_is_evaluated_like_any_other(name: str, tmp_path: Path) -> None:
    events = load_sample("gluino")
    background = events[events.label == 0]
    write_events(tmp_path / "train.parquet", [background[:10_000]])
    write_events(tmp_path / "test.parquet", [background[10_000:12_000], events[events.label == 1]])
    files = [tmp_path / f"{part}.parquet" for part in ("train", "test", name)]
    few_epochs = [] if name == "isolation_forest" else ["4"]
    command = [sys.executable, EXAMPLES / f"{name}.py", *files, *few_epochs]
    made = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert made.returncode == 0, made.stderr
    result, _ = running("evaluate", files[-1], "--json")
    (row,) = [row for row in json.loads(result)["rows"] if row["name"] == name]
    assert row["metrics"]["auc"]["value"] > 0.97
