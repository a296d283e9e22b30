"""The examples of detectors of one's own run, and what they write can be evaluated."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import running
from unmask import load_sample, write_events

RESEARCH = Path(__file__).parents[1] / "research"
EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("name", ["isolation_forest", "flow", "vae"])
def test_a_detector_of_ones_own_is_evaluated_like_any_other(name: str, tmp_path: Path) -> None:
    events = load_sample("gluino")
    background = events[events.label == 0]
    write_events(tmp_path / "train.parquet", [background[:10_000]])
    write_events(tmp_path / "test.parquet", [background[10_000:12_000], events[events.label == 1]])
    files = [tmp_path / f"{part}.parquet" for part in ("train", "test", name)]
    run(EXAMPLES / f"{name}.py", *files, *([] if name == "isolation_forest" else ["4"]))
    assert auc_of(files[-1]) > 0.97


def test_the_supervised_reference_runs(tmp_path: Path) -> None:
    write_events(tmp_path / "events.parquet", [load_sample("gluino")])
    run(
        RESEARCH / "supervised_reference.py", tmp_path / "events.parquet", tmp_path / "scores.parquet",
        "--size", "tiny", "--epochs", "1",
    )  # fmt: skip
    assert auc_of(tmp_path / "scores.parquet") > 0.97


def run(*command: Path | str) -> None:
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    made = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, env=one_thread)
    assert made.returncode == 0, made.stderr


def auc_of(scores: Path) -> float:
    result, _ = running("evaluate", scores, "--json")
    (row,) = [row for row in json.loads(result)["rows"] if row["kind"] == "detector"]
    return float(row["metrics"]["auc"]["value"])
