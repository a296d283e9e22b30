"""Where studies are kept, so that any number of workers on any number of machines can share one.

A journal file (on a file system that all workers see), a database by its SQLAlchemy URL, or Optuna's gRPC proxy in
front of a database that the workers cannot reach themselves.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from unmask.errors import BadDataError, UnmaskError, UsageError, nearest, require

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import BaseStorage

GRPC = "grpc://"
_TIMEOUT_S = 10
#: Several workers that find an empty database try to make its tables at the same time, and all but one fail at first.
_ATTEMPTS = 5


def open_storage(where: str, *, must_exist: bool = False) -> BaseStorage:
    """Open ``journal.log``, ``postgresql+psycopg://user@host/name`` (any SQLAlchemy URL) or ``grpc://host:port``.

    Parameters
    ----------
    must_exist : do not begin a new journal.

    Raises
    ------
    UsageError
        If the database or the proxy cannot be reached, or its driver is not installed.
    BadDataError
        If the journal does not exist, or is not one.
    """
    require("optuna", "tune")
    if where.startswith(GRPC):
        return _open_proxy(where)
    if "://" in where:
        return _open_database(where)
    return _open_journal(Path(where), must_exist)


def find_study(where: str, name: str | None = None) -> Study:
    """Load a study; without a name, the only one there is."""
    storage = open_storage(where, must_exist=True)
    import optuna

    names = sorted(study.study_name for study in storage.get_all_studies())
    if not names:
        raise UsageError(f"{where} holds no study yet")
    if name is None and len(names) > 1:
        raise UsageError(f"{where} holds several studies; choose one with --study: {', '.join(names)}")
    if name is not None and name not in names:
        raise UsageError(f"{where} holds no study {name!r}; {nearest(name, names)}")
    return optuna.load_study(study_name=name or names[0], storage=storage)


@contextmanager
def storage_failures(where: str) -> Iterator[None]:
    """Turn a database or proxy that fails while it is used into one clear error."""
    import optuna
    import sqlalchemy as sql

    known: list[type[Exception]] = [optuna.exceptions.StorageInternalError, sql.exc.SQLAlchemyError]
    if where.startswith(GRPC):
        known.append(import_module("grpc").RpcError)
    try:
        yield
    except tuple(known) as error:
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        raise UnmaskError(
            f"the storage failed during the scan ({_first_line(cause)}); finished trials are kept: "
            "run the same command again to go on"
        ) from error


def serve(where: str, *, host: str = "localhost", port: int = 13000) -> None:
    """Let workers use the database at ``where`` through ``grpc://host:port``, until interrupted."""
    if where.startswith(GRPC) or "://" not in where:
        raise UsageError(
            f"{where!r} is not a database: the gRPC proxy serves one (postgresql+psycopg://..., sqlite:///scan.db); "
            "workers that see a journal file share it directly"
        )
    require("grpc", "tune")
    storage = open_storage(where)
    import optuna

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            optuna.storages.run_grpc_proxy_server(storage, host=host, port=port)
    except RuntimeError as error:
        raise UsageError(f"cannot listen at {host}:{port} ({error}); choose another --port") from None


def _open_proxy(where: str) -> BaseStorage:
    require("grpc", "tune")
    import optuna

    try:
        place = urlsplit(where)
        host, port = place.hostname, place.port
    except ValueError:
        host = port = None
    if host is None or port is None:
        raise UsageError(f"--storage {where!r}: write {GRPC}HOST:PORT")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        proxy = optuna.storages.GrpcStorageProxy(host=host, port=port)
    try:
        proxy.wait_server_ready(timeout=_TIMEOUT_S)
    except ConnectionError:
        raise UsageError(
            f"no gRPC proxy answers at {where}; start one with: unmask tune serve DATABASE --port {port}"
        ) from None
    return proxy


def _open_database(url: str) -> BaseStorage:
    import optuna
    import sqlalchemy as sql

    try:
        parsed = sql.make_url(url)
        shown = parsed.render_as_string(hide_password=True)
    except sql.exc.ArgumentError:
        raise UsageError(f"--storage {url.partition('://')[0]}://...: is not the URL of a database") from None
    options = {"connect_timeout": _TIMEOUT_S} if parsed.get_backend_name() == "postgresql" else {}
    for attempt in range(_ATTEMPTS):
        try:
            engine = {"connect_args": options, "pool_pre_ping": True}
            return optuna.storages.get_storage(optuna.storages.RDBStorage(url, engine_kwargs=engine))
        except (sql.exc.NoSuchModuleError, ImportError) as error:
            raise UsageError(f"{shown}: there is no driver for it ({error}); try postgresql+psycopg://...") from None
        except (sql.exc.ProgrammingError, sql.exc.IntegrityError, sql.exc.OperationalError) as error:
            is_unreachable = isinstance(error, sql.exc.OperationalError) and "already exists" not in str(error)
            if is_unreachable or attempt == _ATTEMPTS - 1:
                raise UsageError(f"{shown}: cannot be used: {_first_line(error)}") from None
            time.sleep(1 + attempt)
        except RuntimeError as error:  # made by another version of Optuna
            raise UsageError(f"{shown}: {_first_line(error)}") from None
    raise AssertionError("the last attempt returns or raises")


def _open_journal(path: Path, must_exist: bool) -> BaseStorage:
    import optuna
    from optuna.storages.journal import JournalFileBackend

    if must_exist and not path.is_file():
        raise BadDataError("no such journal; give the storage of a scan", path=path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return optuna.storages.JournalStorage(JournalFileBackend(str(path)))
    except (ValueError, KeyError, TypeError) as error:
        raise BadDataError(f"is not a journal of Optuna, or is damaged ({error})", path=path) from None


def _first_line(error: Exception) -> str:
    cause = getattr(error, "orig", None) or error
    return (str(cause).strip() or type(cause).__name__).splitlines()[0]
