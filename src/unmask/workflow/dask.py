"""Scoring on a Dask cluster: each part is a task; a lost worker's tasks go to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import dask.config
from distributed import Client, LocalCluster, as_completed

from unmask.errors import UnmaskError, UsageError
from unmask.workflow.score import Outcome, Parts
from unmask.workflow.sources import Part, Sources

#: Entries per part, where files are cut.
PART_ENTRIES = 500_000
_CONNECT_SECONDS = 20
#: Further tries of a task that met a failing file system. Bad data is not tried again.
_RETRIES = 2
#: Dask has its workers give back freed memory at once, with which a network on a CPU scores half as fast.
_KEEP_FREED_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 28), "MALLOC_MMAP_THRESHOLD_": str(1 << 25)}


def number_of_parts(sources: Sources) -> int:
    """Parts of half a million entries, or one per file where files stay whole."""
    lengths = sources.lengths()
    return len(sources.files) if lengths is None else max(-(-sum(lengths) // PART_ENTRIES), 1)


@contextmanager
def connect(address: str) -> Iterator[Client]:
    """Connect to the scheduler at an address, or start ``local:N``, a cluster of N processes on this machine."""
    if address.startswith("local:"):
        n_workers = address.removeprefix("local:")
        if not n_workers.isdecimal() or not int(n_workers):
            raise UsageError(f"--dask {address!r}: write local:N with N worker processes, such as local:2")
        environment = dask.config.get("distributed.nanny.pre-spawn-environ") | _KEEP_FREED_MEMORY
        settings = {"distributed.nanny.pre-spawn-environ": environment, "distributed.worker.profile.enabled": False}
        with (
            dask.config.set(settings),
            LocalCluster(n_workers=int(n_workers), threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
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


def score_parts(client: Client, parts: Parts, pieces: Sequence[Part]) -> Iterator[Outcome]:
    """Yield what became of each part as it comes in; no failure stops the others."""
    numbers = range(len(pieces))
    futures = client.map(parts.write, numbers, pieces, pure=False, retries=_RETRIES)
    number_of = dict(zip((future.key for future in futures), numbers, strict=True))
    for future in as_completed(futures):
        try:
            yield future.result()
        except Exception as error:
            reason = " ".join(str(error).split()) or "no reason given"
            yield Outcome(failure=f"part {number_of[future.key] + 1}: {type(error).__name__}, {reason}")
        future.release()
