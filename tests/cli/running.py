"""Run the command line as a user does."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest


def unmask(*arguments: str | Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from unmask.cli import main; main()", *map(str, arguments)]
    settings = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"} | (environment or {})
    return subprocess.run(command, capture_output=True, text=True, env=settings, check=False)


def running(*arguments: str | Path) -> tuple[str, str]:
    """What a command that must succeed, run in this process, says on stdout and on stderr."""
    from unmask.cli import main

    result, progress = io.StringIO(), io.StringIO()
    argv = ["unmask", *map(str, arguments)]
    with patch.object(sys, "argv", argv), redirect_stdout(result), redirect_stderr(progress):
        code = None
        try:
            main()
        except SystemExit as end:
            code = end.code
    assert not code, progress.getvalue()
    return result.getvalue(), progress.getvalue()


def failing(*arguments: str | Path) -> tuple[int, str]:
    """Exit code and message of a command that must fail, run in this process: quicker where many mistakes are tried."""
    from unmask.cli import main

    message = io.StringIO()
    argv = ["unmask", *map(str, arguments)]
    with patch.object(sys, "argv", argv), redirect_stderr(message), pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0), message.getvalue()
