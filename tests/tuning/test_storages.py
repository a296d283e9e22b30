"""Places for studies: what is found there, and what is said when nothing is."""

from __future__ import annotations

import socket
from pathlib import Path

import optuna
import pytest

from unmask.errors import BadDataError, MissingExtraError, UsageError
from unmask.tuning import storages
from unmask.tuning.storages import find_study, open_storage, serve


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_journals(tmp_path: Path) -> None:
    with pytest.raises(BadDataError, match=r"none\.log: no such journal"):
        find_study(str(tmp_path / "none.log"))
    assert not (tmp_path / "none.log").exists()
    (tmp_path / "text.log").write_text("Dear diary,\ntoday I\n")
    with pytest.raises(BadDataError, match=r"text\.log: is not a journal"):
        open_storage(str(tmp_path / "text.log"))
    path = str(tmp_path / "new" / "journal.log")
    storage = open_storage(path)
    with pytest.raises(UsageError, match="holds no study yet"):
        find_study(path)
    optuna.create_study(storage=storage, study_name="first")
    assert find_study(path).study_name == "first"
    optuna.create_study(storage=storage, study_name="second")
    with pytest.raises(UsageError, match="several studies; choose one with --study: first, second"):
        find_study(path)
    assert find_study(path, "second").study_name == "second"
    with pytest.raises(UsageError, match="no study 'secnd'; did you mean 'second'"):
        find_study(path, "secnd")


def test_databases_that_cannot_be_used() -> None:
    url = f"postgresql+psycopg://me:secret@127.0.0.1:{free_port()}/scans"
    with pytest.raises(UsageError, match=r"me:\*\*\*@127\.0\.0\.1.*cannot be used: connection failed") as caught:
        open_storage(url)
    assert "secret" not in str(caught.value)
    with pytest.raises(UsageError, match=r"there is no driver for it .*; try postgresql\+psycopg"):
        open_storage("postgresql+nothing://host/scans")
    with pytest.raises(UsageError, match="is not the URL of a database"):
        open_storage("://x")


def test_proxies_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storages, "_TIMEOUT_S", 0.3)
    with pytest.raises(UsageError, match=r"no gRPC proxy answers at grpc://127\.0\.0\.1"):
        open_storage(f"grpc://127.0.0.1:{free_port()}")
    for wrong in ("grpc://host", "grpc://host:port"):
        with pytest.raises(UsageError, match="write grpc://HOST:PORT"):
            open_storage(wrong)
    with pytest.raises(UsageError, match="is not a database"):
        serve("journal.log")


def test_without_optuna(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"optuna is not installed; run: pip install 'unmask\[tune\]'"):
        open_storage("journal.log")
