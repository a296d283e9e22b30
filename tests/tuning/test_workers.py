"""Several workers, real processes, share a study; one of them is killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
import pytest

from tests.tuning.conftest import ENVIRONMENT, command, detector_scan, unmask
from tests.tuning.test_storages import free_port
from unmask.tuning.scan import open_storage


@contextmanager
def started(*words: str | Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def the_study(where: str | Path) -> optuna.Study:
    storage = open_storage(str(where))
    return optuna.load_study(study_name=storage.get_all_studies()[0].study_name, storage=storage)


def test_workers_share_a_journal_and_a_killed_one_loses_only_its_trial(folder: Path, tmp_path: Path) -> None:
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
    study = the_study(tmp_path / "journal.log")
    trials = study.trials
    done = [trial for trial in trials if trial.state.is_finished()]
    assert 4 <= len(done) <= 5 + sum(trial.number == 1 for trial in done)
    assert len({str(trial.params) for trial in done}) == len(done)
    assert result.stdout.count("best preset") == 1
    assert f"study detector-lut: {len(trials)} trials" in result.stdout
    assert f"{study.best_value:.5g}" in result.stdout
    trained = unmask(
        "train", folder / "background.parquet", "--preset", tmp_path / "best.toml", "--out", tmp_path / "model",
        "--set", "training.max_epochs=1", "--device", "cpu",
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr


def test_mistakes_are_one_message(folder: Path, tmp_path: Path) -> None:
    for arguments, code, message in (
        (["tune", "detector", folder / "signal.parquet", "--out", tmp_path], 2, "labeled signal"),
        (detector_scan(folder), 2, "no place for the study"),
        (["tune", "detector", folder / "background.parquet", "--preset", "gluino-lut-465"], 2, "Did you mean"),
        (detector_scan(folder, "--storage", folder / "lut.toml"), 3, "is not a journal"),
    ):
        result = unmask(*arguments)
        assert result.returncode == code
        assert message in result.stderr
        assert "Traceback" not in result.stderr


def test_a_database_is_a_storage(folder: Path, tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path}/scan.db"
    result = unmask(*detector_scan(folder, "--trials", "2", "--epochs", "1", "--storage", where))
    assert result.returncode == 0, result.stderr
    assert "study detector-lut: 2 trials, 2 complete" in result.stdout
    assert [trial.state.name for trial in the_study(where).trials] == ["COMPLETE"] * 2


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
    scan = detector_scan(folder, "--trials", "4", "--epochs", "1", "--storage", postgres)
    first_trial = detector_scan(folder, "--trials", "1", "--epochs", "1", "--storage", postgres)  # makes the tables
    subprocess.run(command(*first_trial), capture_output=True, env=ENVIRONMENT, check=True)
    with started(*command(*scan)) as first, started(*command(*scan)) as second:
        for worker in (first, second):
            _, errors = worker.communicate(timeout=120)
            assert worker.returncode == 0, errors
            assert "Traceback" not in errors
    shown = subprocess.run(command(*first_trial), capture_output=True, text=True, env=ENVIRONMENT, check=True)
    n_trials, n_complete = map(int, re.findall(r"(\d+) trials, (\d+) complete", shown.stdout)[0])
    assert 4 <= n_complete == n_trials <= 5
    shown_parameters = re.findall(r"dropout .*", shown.stdout)
    assert len(set(shown_parameters)) == n_trials
