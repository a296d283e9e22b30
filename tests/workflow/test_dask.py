"""A real cluster of worker processes, and a real kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from distributed import LocalCluster

from tests.workflow.running import unmask
from tests.workflow.test_parts import assert_same_scores
from unmask import read_events
from unmask.detectors import load_detector
from unmask.detectors.masked_token import MaskedTokenDetector
from unmask.events.event_set import EventSet
from unmask.io.parquet import write_events
from unmask.scores.score_table import read_scores


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster:
        yield cluster


def worker_pids(cluster: LocalCluster) -> set[int]:
    return {nanny.pid for nanny in cluster.workers.values() if nanny.pid}


def test_killed_workers_lose_nothing(
    cluster: LocalCluster, model: Path, tmp_path: Path, make_events: Callable[..., EventSet]
) -> None:
    source = tmp_path / "events.parquet"
    write_events(source, make_events(40_000, file="original.csv"))
    out = tmp_path / "scores"
    command = ["score", model, source, "--out", out, "--parts", "16", "--dask"]
    code = "from unmask.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, command), cluster.scheduler_address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        victims = worker_pids(cluster)
        assert len(victims) == 2
        # In the middle: some parts are complete, and one is being written.
        wait_for(lambda: any(out.glob("*.parquet")) and any(out.glob(".*.parquet.*")), process)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        n_at_kill = len(list(out.glob("*.parquet")))
        stdout, stderr = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert n_at_kill < 16
    assert process.returncode == 0, stderr
    assert "40,000 events in 16 parts" in stdout
    assert not worker_pids(cluster) & victims

    again = unmask(*command, cluster.scheduler_address)
    assert again.returncode == 0, again.stderr
    assert "16 parts (16 there before)" in again.stdout
    detector = load_detector(model)
    assert isinstance(detector, MaskedTokenDetector)
    assert_same_scores(read_scores(out), detector.scores(read_events(source)))
    assert sorted(path.name for path in out.iterdir() if path.name.startswith(".")) == []


def test_a_corrupt_file_stops_nothing_and_alone_is_done_again(
    cluster: LocalCluster, model: Path, files: list[Path], tmp_path: Path
) -> None:
    corrupt = tmp_path / "corrupt.csv"
    corrupt.write_text("nonsense\n")
    command = ("score", model, corrupt, files[2], "--out", tmp_path / "scores", "--dask", cluster.scheduler_address)
    result = unmask(*command)
    assert result.returncode == 3
    assert "25 events in 1 parts" in result.stdout
    assert "1 parts failed" in result.stderr
    assert "corrupt.csv, line 1" in result.stderr

    corrupt.write_bytes(files[1].read_bytes())
    result = unmask(*command)
    assert result.returncode == 0
    assert "65 events in 2 parts (1 there before)" in result.stdout


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_nobody_at_the_address_is_a_clear_error(
    model: Path, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unmask.workflow.dask._CONNECT_SECONDS", 1)
    result = unmask("score", model, files[2], "--out", tmp_path / "scores", "--dask", "tcp://127.0.0.1:9")
    assert result.returncode == 1
    assert "no Dask scheduler at tcp://127.0.0.1:9" in result.stderr
