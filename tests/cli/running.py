"""Run the command line as a user does."""

import os
import subprocess
import sys
from pathlib import Path


def unmask(*arguments: str | Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from unmask.cli import main; main()", *map(str, arguments)]
    settings = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"} | (environment or {})
    return subprocess.run(command, capture_output=True, text=True, env=settings, check=False)
