"""Places for studies: what is found there, and what is said when nothing is."""

from __future__ import annotations

import socket
from pathlib import Path

import optuna
import pytest

from tests.tuning.conftest import unmask
from unmask.errors import BadDataError, UnmaskError
from unmask.tuning.scan import open_storage


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_journals(tmp_path: Path) -> None:
    (tmp_path / "text.log").write_text("Dear diary,\ntoday I\n")
    with pytest.raises(BadDataError, match=r"text\.log: is not a journal"):
        open_storage(str(tmp_path / "text.log"))
    path = str(tmp_path / "new" / "journal.log")
    optuna.create_study(storage=open_storage(path), study_name="first")
    assert [study.study_name for study in open_storage(path).get_all_studies()] == ["first"]


def test_databases_that_cannot_be_used() -> None:
    url = f"postgresql+psycopg://me:secret@127.0.0.1:{free_port()}/scans"
    with pytest.raises(UnmaskError, match=r"cannot be used: connection failed: .*127\.0\.0\.1") as caught:
        open_storage(url)
    assert "secret" not in str(caught.value)
    for wrong in ("postgresql+nothing://host/scans", "://x"):
        with pytest.raises(UnmaskError, match="the database of the study cannot be used"):
            open_storage(wrong)


def test_without_optuna(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = unmask("tune", "detector", "sample:gluino", "--out", tmp_path)
    assert result.returncode == 2
    assert "optuna is not installed; run: pip install 'unmask[tune]'" in result.stderr
