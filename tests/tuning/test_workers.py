"""Several workers, real processes, share a study; one of them is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.tuning.conftest import ENVIRONMENT, command, detector_scan, unmask
from tests.tuning.test_storages import free_port
from unmask.tuning.scan import find_study


@contextmanager
def started(*words: str | Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_workers_share_a_journal_and_a_killed_one_loses_only_its_trial(folder: Path, tmp_path: Path) -> None:
    journal = tmp_path / "journal.log"
    scan = detector_scan(folder, "--trials", "4", "--epochs", "1", "--out", tmp_path, "--seed", "3")
    endless = detector_scan(folder, "--trials", "100", "--epochs", "1", "--out", tmp_path, "--seed", "3")
    with started(*command(*endless)) as victim:
        assert victim.stderr is not None
        while not victim.stderr.readline().startswith("trial 0: complete"):
            assert victim.poll() is None
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    with started(*command(*scan)) as other:
        result = unmask(*scan)
        assert result.returncode == 0, result.stderr
        _, errors = other.communicate(timeout=120)
        assert other.returncode == 0, errors
    trials = find_study(str(journal)).trials
    done = [trial for trial in trials if trial.state.is_finished()]
    assert 4 <= len(done) <= 5 + sum(trial.number == 1 for trial in done)
    assert len({str(trial.params) for trial in done}) == len(done)
    assert result.stdout.count("best preset") == 1
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
    again = tmp_path / "again.toml"
    shown = json.loads(unmask("tune", "show", journal, "--json", "--limit", "1", "--preset", again).stdout)
    assert shown["study"] == "detector-lut"
    assert shown["best"][0]["parameters"] == find_study(str(journal)).best_trial.params
    assert again.read_text() == (tmp_path / "best.toml").read_text()


def test_mistakes_are_one_message(folder: Path, tmp_path: Path) -> None:
    for arguments, code, message in (
        (["tune", "run", "detector", folder / "signal.parquet", "--out", tmp_path], 2, "labeled signal"),
        (detector_scan(folder), 2, "no place for the study"),
        (["tune", "run", "detector", folder / "background.parquet", "--preset", "gluino-lut-465"], 2, "Did you mean"),
        (["tune", "show", tmp_path / "none.log"], 3, "no such journal"),
    ):
        result = unmask(*arguments)
        assert result.returncode == code
        assert message in result.stderr
        assert "Traceback" not in result.stderr


def test_a_database_is_a_storage(folder: Path, tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path}/scan.db"
    result = unmask(*detector_scan(folder, "--trials", "2", "--epochs", "1", "--storage", where))
    assert result.returncode == 0, result.stderr
    assert json.loads(unmask("tune", "show", where, "--json").stdout)["trials"] == {"complete": 2}


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
    first_trial = detector_scan(folder, "--trials", "1", "--epochs", "1", "--storage", postgres)  # makes the tables
    subprocess.run(command(*first_trial), capture_output=True, env=ENVIRONMENT, check=True)
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
