"""Submit files hold what the batch systems ask for, and their script does the shares."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.running import unmask
from unmask import read_events
from unmask.tables import table_files


def parse_submit_description(text: str) -> tuple[dict[str, str], int]:
    """The commands of an HTCondor submit description and the number of jobs of its last line."""
    commands: dict[str, str] = {}
    *lines, queue = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for line in lines:
        name, equals, value = line.partition("=")
        assert equals, line
        assert name.strip().isidentifier(), line
        assert name.strip() not in commands, line
        commands[name.strip()] = value.strip()
    word, n_jobs = queue.split()
    assert word == "queue"
    return commands, int(n_jobs)


def write(system: str, *words: str | Path) -> str:
    result = unmask("batch", system, *words)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_slurm_runs_every_share_once(files: list[Path], tmp_path: Path) -> None:
    awkward = tmp_path / "it's a $HOME; file.csv"
    awkward.write_bytes(files[2].read_bytes())
    out = tmp_path / "events"
    said = write("slurm", "data", "convert", files[1], awkward, out, "--shards", "3", "--hours", "12")
    submit, script = tmp_path / "events.batch" / "submit.sh", tmp_path / "events.batch" / "shard.sh"
    assert f"sbatch {submit}" in said
    for file in (submit, script):
        assert subprocess.run(["sh", "-n", file], check=False).returncode == 0
        assert subprocess.run(["bash", "-n", file], check=False).returncode == 0
    directives = dict(
        line.removeprefix("#SBATCH --").partition("=")[::2]
        for line in submit.read_text().splitlines()
        if line.startswith("#SBATCH ")
    )
    assert directives["array"] == "0-2"
    assert directives["time"] == "12:00:00"
    assert directives["cpus-per-task"] == "1"
    assert Path(directives["output"]).parent.is_dir()
    # As Slurm would: the submit script, once a task of the array, with `unmask` on the path.
    program = tmp_path / "bin" / "unmask"
    program.parent.mkdir()
    code = "from unmask.cli import main; main()"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(code)} "$@"\n')
    program.chmod(0o755)
    for task in range(3):
        environment = os.environ | {
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "SLURM_ARRAY_TASK_ID": str(task),
        }
        result = subprocess.run(["sh", submit], env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
    assert len(read_events(table_files(out))) == 65


def test_htcondor_has_the_commands_and_the_queue(model: Path, files: list[Path], tmp_path: Path) -> None:
    pattern = files[0].parent / "*.csv"
    said = write(
        "htcondor", "tokenizer", "encode", model / "tokenizer", pattern, "-o", tmp_path / "t", "--shards", "40"
    )
    submit = tmp_path / "t.batch" / "submit.sub"
    assert f"condor_submit {submit}" in said
    commands, n_jobs = parse_submit_description(submit.read_text())
    assert n_jobs == 40
    assert commands["universe"] == "vanilla"
    assert commands["arguments"] == "$(Process)"
    assert {"output", "error", "log", "request_cpus", "request_memory"} <= set(commands)
    assert "$(Process)" in commands["output"]
    script = Path(commands["executable"])
    assert os.access(script, os.X_OK)
    assert subprocess.run(["sh", "-n", script], check=False).returncode == 0
    line = script.read_text().splitlines()[-1]
    assert shlex.split(line)[:5] == ["exec", "unmask", "tokenizer", "encode", str(model / "tokenizer")]
    assert str(pattern) in shlex.split(line)
    assert line.endswith('--shard "$shard/40"')


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "x.csv"), "cannot be run in shards"),
        (("score", "model", "{file}", "--out", "s", "--shard", "1/2"), "leave out --shard"),
        (("score", "model", "{file}"), "give a folder"),
        (("score", "model", "missing.csv", "--out", "s"), "no such file"),
        (("score", "model", "{file}", "--out", "s", "--colour", "red"), "No such option"),
        (("score", "model", "{file}", "--out", "a b"), "without quotes, blanks"),
    ],
)
def test_mistakes_are_found_before_any_job_starts(
    files: list[Path], tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    filled = [str(files[2]) if word == "{file}" else word for word in words]
    filled = [str(tmp_path / word) if filled[i - 1] == "--out" else word for i, word in enumerate(filled)]
    result = unmask("batch", "slurm", *filled, "--shards", "2")
    assert result.returncode in (2, 3)
    assert message in result.stderr
    assert not list(tmp_path.iterdir())
