"""Kill the whole chain of commands at random, again and again; its results must be those of an undisturbed run.

Two chains run on the bundled sample: split, train, score, calibrate, flag and evaluate, and a study. Each command is
killed a random time after its start, by SIGKILL or SIGTERM, and started again until the kills are used up; then the
bytes of all results are compared with those of a chain that nobody disturbed, apart from times and dates. Not part of
the tests: with 50 kills it takes some ten minutes.

    python scripts/soak.py --kills 50 --seed 1
    python scripts/soak.py --kills 20 --dask 2     # scoring on Dask workers
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

#: Facts of a file that differ between runs: times, commands, durations, and hashes of what holds them.
_DIFFER = {"created", "command", "seconds", "events_per_second", "digest", "model", "calibration", "part", "sha256",
           "inputs", "files", "packages", "mtime_s", "size", "outputs", "key"}  # fmt: skip


def chain(dask: int) -> list[tuple[list[str], list[str]]]:
    """Commands, each with the arguments that are given when it is started again."""
    where = ["--dask", f"local:{dask}", "--parts", "6"] if dask else []
    scores = "scores" if dask else "scores.parquet"
    again = ["--overwrite"]
    training = ["--device", "cpu", "--set", "training.max_epochs=6"]
    return [
        (["data", "split", "sample:gluino", "--out", "events", "--seed", "1"], again),
        (["train", "events/train.parquet", "--validation", "events/validation.parquet", "--out", "model", *training],
         []),
        (["score", "model", "events/validation.parquet", "--out", "validation.parquet"], again),
        (["calibrate", "validation.parquet", "--out", "calibration"], again),
        (["score", "model", "events/test.parquet", "--out", scores, *where], [] if dask else again),
        (["flag", "calibration", scores, "--out", "flagged.parquet", "--csv"], again),
        (["evaluate", scores, "--out", "results"], again),
        (["study", "run", "gluino", "--only", "default", "--out", "study", "--epochs", "3", "--device", "cpu"], []),
    ]  # fmt: skip


def start(folder: Path, command: list[str]) -> subprocess.Popen[bytes]:
    """Start a command in a process group of its own, so that its workers are killed with it."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    output = (folder / "log.txt").open("ab")
    return subprocess.Popen(
        [sys.executable, "-m", "unmask", *command], cwd=folder, stdout=output, stderr=output, env=environment,
        start_new_session=True,
    )  # fmt: skip


def run(folder: Path, commands: list[tuple[list[str], list[str]]], kills: list[int], longest: list[float]) -> list[str]:
    """Run the chain with so many kills per command, and describe each kill."""
    said = []
    for i, (command, again) in enumerate(commands):
        for attempt in range(kills[i] + 1):
            process = start(folder, [*command, *(again if attempt and _is_there(folder, command) else [])])
            started = time.monotonic()
            if attempt < kills[i]:
                number = random.choice([signal.SIGKILL, signal.SIGTERM])
                seconds = random.uniform(0, longest[i])
                try:
                    process.wait(seconds)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, number)
                code = process.wait()
                said.append(f"{command[0]} after {seconds:.1f} s: {number.name}, exit code {code}")
                if code not in (0, -number, 128 + number):
                    raise SystemExit(f"{said[-1]}: see {folder / 'log.txt'}")
            elif process.wait():
                raise SystemExit(f"{' '.join(command)} failed: see {folder / 'log.txt'}")
            else:
                longest[i] = longest[i] or time.monotonic() - started
    return said


def _is_there(folder: Path, command: list[str]) -> bool:
    return (folder / command[command.index("--out") + 1]).exists()


def content(path: Path) -> str:
    """Digest of a result: of its rows and facts, without what differs between any two runs."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        facts = json.loads(table.schema.metadata[b"unmask"])
        return _digest([_without(facts), hashlib.sha256(str(table.to_pydict()).encode()).hexdigest()])
    if path.suffix in (".json", ".jsonl"):
        return _digest([_without(json.loads(line)) for line in _documents(path)])
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _documents(path: Path) -> list[str]:
    text = path.read_text()
    return text.splitlines() if path.suffix == ".jsonl" else [text]


def _without(facts: Any) -> Any:
    if isinstance(facts, dict):
        return {key: _without(value) for key, value in facts.items() if key not in _DIFFER}
    return [_without(each) for each in facts] if isinstance(facts, list) else facts


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def results(folder: Path) -> dict[str, str]:
    """Digests of all results; checkpoints, logs, records and reports, which hold times, are left out."""
    skipped = ("log", "hashes.json", "checkpoint", "report", "cost", "summary")
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(skipped))
    return {path.relative_to(folder).as_posix(): content(path) for path in files if path.parent.name != "stages"}


def main() -> None:
    """Run both chains and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="number of kills over the chain")
    parser.add_argument("--seed", type=int, default=0, help="seed of the times and signals")
    parser.add_argument("--dask", type=int, default=0, help="number of Dask workers that score; 0 for none")
    options = parser.parse_args()
    random.seed(options.seed)
    commands = chain(options.dask)
    kills = [options.kills // len(commands) + (i < options.kills % len(commands)) for i in range(len(commands))]
    with tempfile.TemporaryDirectory() as folder:
        undisturbed, disturbed = Path(folder, "undisturbed"), Path(folder, "disturbed")
        longest = [0.0] * len(commands)
        for one in (undisturbed, disturbed):
            one.mkdir()
        run(undisturbed, commands, [0] * len(commands), longest)
        said = run(disturbed, commands, kills, longest)
        print("\n".join(said))
        n_hit = sum(not line.endswith("exit code 0") for line in said)  # the others had ended before
        expected, found = results(undisturbed), results(disturbed)
        wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        if wrong:
            raise SystemExit(f"{len(wrong)} of {len(expected)} results differ or are left over: {', '.join(wrong)}")
        print(f"{n_hit} of {options.kills} kills hit: all {len(expected)} results as in an undisturbed run")


if __name__ == "__main__":
    main()
