"""Submit files for batch systems: one job a shard, each running the same command on its share.

Files and folders appear as the user gave them, relative ones from where the jobs are submitted. Jobs need the file
system of the machine that submits them, and `unmask` on the path there.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from unmask.artifacts import atomic_path
from unmask.errors import UsageError

BatchSystem = Literal["slurm", "htcondor"]


@dataclass(frozen=True)
class Jobs:
    """A command without ``--shard``, in how many shards it is run, and what each of them needs."""

    command: Sequence[str]
    n_shards: int
    n_cpus: int = 1
    memory_gb: int = 4
    hours: int = 8

    @property
    def name(self) -> str:
        """What the jobs are called."""
        words = [word for word in self.command[:2] if word in ("score", "encode", "convert")]
        return f"unmask-{words[0]}"


def write_batch(system: BatchSystem, jobs: Jobs, folder: Path) -> tuple[Path, str]:
    """Write the script of a shard and the submit file to a folder; return the latter, and how to submit it.

    Raises
    ------
    UsageError
        If a name holds what a submit file cannot.
    """
    for text in (*jobs.command, str(folder)):
        if any(character in text for character in "\n\r\0"):
            raise UsageError(f"{text!r}: a submit file cannot hold a name with a line end")
    if any(character in str(folder) for character in "\"'$%\\ "):
        raise UsageError(f"{folder}: choose a folder for submit files without quotes, blanks, $, % and backslashes")
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    script, submit = folder / "shard.sh", folder / ("submit.sh" if system == "slurm" else "submit.sub")
    _write(script, _script(jobs), is_executable=True)
    _write(submit, (_slurm if system == "slurm" else _htcondor)(jobs, folder, script))
    return submit, f"{'sbatch' if system == 'slurm' else 'condor_submit'} {submit}"


def _write(path: Path, text: str, *, is_executable: bool = False) -> None:
    with atomic_path(path) as scratch:
        scratch.write_text(text)
        scratch.chmod(0o755 if is_executable else 0o644)


def _script(jobs: Jobs) -> str:
    return f"""#!/bin/sh
# One share of the work; the argument is the number of the job, from 0 to {jobs.n_shards - 1}.
set -eu
shard=$(( ${{1:?give the number of the job}} + 1 ))
export OMP_NUM_THREADS={jobs.n_cpus}
exec unmask {shlex.join(jobs.command)} --shard "$shard/{jobs.n_shards}"
"""


def _slurm(jobs: Jobs, folder: Path, script: Path) -> str:
    return f"""#!/bin/sh
#SBATCH --job-name={jobs.name}
#SBATCH --array=0-{jobs.n_shards - 1}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task={jobs.n_cpus}
#SBATCH --mem={jobs.memory_gb}G
#SBATCH --time={jobs.hours:02d}:00:00
#SBATCH --output={folder}/logs/%a.log
#SBATCH --requeue
exec sh {shlex.quote(str(script))} "$SLURM_ARRAY_TASK_ID"
"""


def _htcondor(jobs: Jobs, folder: Path, script: Path) -> str:
    return f"""# {jobs.name}
universe = vanilla
executable = {script}
arguments = $(Process)
transfer_executable = false
should_transfer_files = no
getenv = PATH, VIRTUAL_ENV, CONDA_PREFIX, LD_LIBRARY_PATH
request_cpus = {jobs.n_cpus}
request_memory = {jobs.memory_gb} GB
output = {folder}/logs/$(Process).out
error = {folder}/logs/$(Process).err
log = {folder}/logs/condor.log
allowed_job_duration = {jobs.hours * 3600}
max_retries = 2
success_exit_code = 0
queue {jobs.n_shards}
"""
