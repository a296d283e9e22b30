"""Several workers on one machine: the same command in processes of their own, of which each can die alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence


def run_workers(arguments: Sequence[str], flag: str, n_workers: int) -> Iterator[tuple[int, int]]:
    """Run ``unmask ARGUMENTS FLAG`` in each of ``n_workers`` processes; yield the id and exit code of each.

    They share the cores of the machine. None outlives this one, unless it is killed.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    command = [sys.executable, "-m", "unmask", *arguments[:end], flag, *arguments[end:]]
    n_threads = str(max(1, (os.cpu_count() or 1) // n_workers))
    environment = {"OMP_NUM_THREADS": n_threads} | os.environ
    workers = [subprocess.Popen(command, env=environment) for _ in range(n_workers)]
    try:
        for worker in workers:
            yield worker.pid, worker.wait()
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait()
