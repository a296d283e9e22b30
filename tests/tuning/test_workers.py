"""Several workers, real processes, share a study; one of them is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from tests.tuning.conftest import ENVIRONMENT, command, detector_scan, unmask
from tests.tuning.test_storages import free_port
from unmask.tuning.liveness import RETRY_OF, Heartbeat, Watch
from unmask.tuning.storages import find_study

# The command line, but the training of trial 1 never gets beyond its first epoch.
HANGS_IN_TRIAL_1 = """
import time
from unmask.cli import main
from unmask.tuning.scan import _TrialReporter

report = _TrialReporter.epoch_done

def report_and_hang(self, record):
    report(self, record)
    if self.trial.number == 1:
        print("in trial 1", flush=True)
        time.sleep(600)

_TrialReporter.epoch_done = report_and_hang
main()
"""


@contextmanager
def started(*words: str | Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_killed_worker_loses_at_most_its_running_trial(folder: Path, tmp_path: Path) -> None:
    journal = tmp_path / "journal.log"
    scan = detector_scan(folder, "--trials", "3", "--epochs", "2", "--storage", journal, "--grace", "2")
    with started(sys.executable, "-c", HANGS_IN_TRIAL_1, *scan) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "in trial 1\n"
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    before = find_study(str(journal)).trials
    assert [trial.state.name for trial in before] == ["COMPLETE", "RUNNING"]
    other = unmask(*scan)
    assert other.returncode == 0, other.stderr
    trials = find_study(str(journal)).trials
    assert trials[0].value == before[0].value
    assert trials[1].state == TrialState.FAIL
    assert sorted(trial.state.name for trial in trials[2:]) == ["COMPLETE"] * 2
    (again,) = [trial for trial in trials if trial.user_attrs.get(RETRY_OF) == 1]
    assert again.params == before[1].params


def test_a_trial_is_taken_over_once_and_only_from_the_dead() -> None:
    study, grace_s = optuna.create_study(), 1.0
    watches = Watch(study, grace_s), Watch(study, grace_s)

    def reclaimed(seconds: float) -> list[int]:
        """What both watches find dead, within a time or until one has found something."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := [number for watch in watches for number in watch.reclaim()]:
                return found
            time.sleep(0.02)
        return []

    trial = study.ask()
    trial.suggest_float("x", 0, 1)
    with Heartbeat(trial, grace_s):
        assert reclaimed(2.0) == []
    assert reclaimed(30) == [0]
    again = study.ask()
    assert again.suggest_float("x", 0, 1) == trial.params["x"]
    assert reclaimed(30) == [1]
    assert [trial.state.name for trial in study.trials] == ["FAIL", "FAIL"]


def test_workers_share_a_journal_and_report_once(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    scan = detector_scan(folder, "--trials", "4", "--epochs", "1", "--out", tmp_path, "--workers", "2", "--seed", "3")
    result = unmask(*scan)
    assert result.returncode == 0, result.stderr
    study = find_study(str(tmp_path / "journal.log"))
    done = [trial for trial in study.trials if trial.state.is_finished()]
    assert 4 <= len(done) <= 5
    assert len({str(trial.params) for trial in done}) == len(done)
    assert result.stdout.count("best preset") == 1
    from_workers = capfd.readouterr()
    assert from_workers.err.count("validation loss") == len(done)
    assert not from_workers.out
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        "history.png",
        "importances.png",
        "parallel-coordinates.png",
    ]
    trained = unmask(
        "train", folder / "background.parquet", "--preset", tmp_path / "best.toml", "--out", tmp_path / "model",
        "--set", "training.max_epochs=1", "--device", "cpu",
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr
    shown = json.loads(unmask("tune", "show", tmp_path / "journal.log", "--json", "--limit", "1").stdout)
    assert shown["study"] == "detector-lut-predict"
    assert shown["best"][0]["parameters"] == study.best_trial.params
    exported = unmask("tune", "export", tmp_path / "journal.log", "--out", tmp_path / "again.toml")
    assert exported.returncode == 0, exported.stderr
    assert (tmp_path / "again.toml").read_text() == (tmp_path / "best.toml").read_text()


def test_mistakes_are_one_message(folder: Path, tmp_path: Path) -> None:
    for arguments, code, message in (
        (["tune", "detector", folder / "signal.parquet", "--out", tmp_path], 2, "labelled signal"),
        (detector_scan(folder), 2, "say where the study is kept"),
        (["tune", "detector", folder / "background.parquet", "--preset", "gluino-lut-465"], 2, "did you mean"),
        (["tune", "show", tmp_path / "none.log"], 3, "no such journal"),
    ):
        result = unmask(*arguments)
        assert result.returncode == code
        assert message in result.stderr
        assert "Traceback" not in result.stderr


def test_workers_share_a_database_through_a_proxy(folder: Path, tmp_path: Path) -> None:
    port, database = free_port(), f"sqlite:///{tmp_path}/scan.db"
    where = f"grpc://127.0.0.1:{port}"
    scan = detector_scan(folder, "--trials", "3", "--epochs", "1", "--storage", where)
    with started(*command("tune", "serve", database, "--host", "127.0.0.1", "--port", str(port))) as proxy:
        result = unmask(*scan)
        assert result.returncode == 0, result.stderr
        assert proxy.poll() is None
        assert json.loads(unmask("tune", "show", where, "--json").stdout)["trials"] == {"complete": 3}


def postgres_programs() -> Path | None:
    found = shutil.which("initdb")
    versions = [Path(found)] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return versions[-1].parent if versions else None


@pytest.fixture
def postgres() -> Iterator[str]:
    """The URL of an empty database of a server of the test's own."""
    programs = postgres_programs()
    if programs is None:
        pytest.skip("needs PostgreSQL: no initdb in PATH or /usr/lib/postgresql")
    # The server refuses to run as root.
    user = {"user": "nobody", "extra_groups": []} if os.geteuid() == 0 else {}
    data = Path(tempfile.mkdtemp(prefix="unmask-postgres-"))

    def run(program: str, *arguments: str) -> None:
        subprocess.run(
            [programs / program, "-D", data / "db", *arguments], check=True, stdout=subprocess.DEVNULL, cwd=data, **user
        )

    if user:
        shutil.chown(data, "nobody")
    try:
        run("initdb", "-A", "trust", "-U", "unmask", "--no-sync")
        port = free_port()
        options = f"-F -h 127.0.0.1 -p {port} -k {data}"
        run("pg_ctl", "-w", "-l", str(data / "log"), "-o", options, "start")
        try:
            yield f"postgresql+psycopg://unmask@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(data, ignore_errors=True)


def test_workers_that_start_together_share_a_postgresql_server(folder: Path, postgres: str) -> None:
    scan = detector_scan(folder, "--trials", "4", "--epochs", "1", "--pruner", "none", "--storage", postgres)
    with started(*command(*scan)) as first, started(*command(*scan)) as second:
        for worker in (first, second):
            _, errors = worker.communicate(timeout=120)
            assert worker.returncode == 0, errors
            assert "Traceback" not in errors
    shown = subprocess.run(
        command("tune", "show", postgres, "--json"), capture_output=True, text=True, env=ENVIRONMENT, check=True
    )
    facts = json.loads(shown.stdout)
    (state, n_done), *others = facts["trials"].items()
    assert state == "complete"
    assert 4 <= n_done <= 5
    assert not others
    assert len({str(best["parameters"]) for best in facts["best"]}) == n_done
