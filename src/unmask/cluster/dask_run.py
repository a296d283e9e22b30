"""Tasks on a Dask cluster: the model goes to each worker once, a lost worker's tasks go to another."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from distributed import Client, LocalCluster, Worker, WorkerPlugin, as_completed

from unmask.cluster.plan import Task
from unmask.cluster.work import Model, Outcome, provide_model, run_part
from unmask.errors import UnmaskError, UsageError

LOCAL = "local:"
_CONNECT_SECONDS = 20
#: Further tries of a task that met a failing file system. Bad data is not tried again.
_RETRIES = 2


class _ModelPlugin(WorkerPlugin):
    """Gives every worker the model, those that join later and those that are restarted too.

    It stays there, a megabyte or so, as long as they live: others may be using the same model on the same cluster.
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    def setup(self, worker: Worker) -> None:  # noqa: ARG002
        provide_model(self.model)
        _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Undo, where glibc is, what Dask sets in its workers: that every piece of memory goes back when it is free.

    A network takes and frees the same pieces all the time; with Dask's setting it scores half as fast.
    """
    trim_threshold, mmap_threshold = -1, -3  # names in malloc.h
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return
    libc.mallopt(trim_threshold, 1 << 28)
    libc.mallopt(mmap_threshold, 1 << 25)  # the largest that glibc accepts


@contextmanager
def connect(address: str) -> Iterator[Client]:
    """Connect to the scheduler at an address, or start ``local:N``, a cluster of N processes on this machine.

    Raises
    ------
    UsageError
        If the address is none.
    UnmaskError
        If no scheduler answers.
    """
    if address.startswith(LOCAL):
        n_workers = address.removeprefix(LOCAL)
        if not n_workers.isdecimal() or not int(n_workers):
            raise UsageError(f"--dask {address!r}: write local:N with N worker processes, such as local:2")
        with (
            LocalCluster(n_workers=int(n_workers), threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):
            yield client
        return
    try:
        client = Client(address, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise UnmaskError(
            f"no Dask scheduler at {address} ({error}); give tcp://HOST:PORT of a running one, or local:N"
        ) from None
    with client:
        yield client


def run_tasks(client: Client, tasks: Sequence[Task], model: Model | None = None) -> Iterator[Outcome]:
    """Yield the outcomes of all tasks as they come in; no failure stops the others."""
    if model:
        client.register_plugin(_ModelPlugin(model), name=f"unmask-{model.digest}")
    keys = [f"unmask-{task.work.kind}-{task.out.stem}-{task.digest[:12]}" for task in tasks]
    futures = client.map(run_part, list(tasks), key=keys, retries=_RETRIES)
    task_of = dict(zip((future.key for future in futures), tasks, strict=True))
    for future in as_completed(futures):
        try:
            yield future.result()
        except Exception as error:
            task, reason = task_of[future.key], " ".join(str(error).split()) or "no reason given"
            yield Outcome(task, failure=f"{task.path}: {type(error).__name__}, {reason}")
        future.release()
