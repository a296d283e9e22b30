"""Make the sample that ships with the package from the full simulated data: `python scripts/make_sample.py DATA`."""

from __future__ import annotations

import argparse
import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from unmask.artifacts import provenance, sha256_of_file
from unmask.events.event_set import EventSet
from unmask.io.parquet import write_events
from unmask.io.read import read_events

SEED = 20261115
#: study -> (folder, signal process, most events of a process, exceptions)
STUDIES = {
    "four-top": ("four_top", "tttt", 3400, {}),
    "gluino": ("channel_2b", "gluino_1000_1", 3000, {"ttbar": 12_000}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="folder with four_top/ and channel_2b/")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "src/unmask/sample")
    arguments = parser.parse_args()
    version = data_version(arguments.data)
    for study, (folder, signal, limit, exceptions) in STUDIES.items():
        files = sorted((arguments.data / folder).glob("*.csv.gz"))
        parts = [take(read_events(file), exceptions.get(file.name.split(".")[0], limit)) for file in files]
        events = EventSet.concatenate(parts).with_signal([signal])
        facts = provenance(data="unmask-sim-2026.11", version=version, seed=SEED, files=[file.name for file in files])
        write_events(arguments.out / f"{study}.parquet", events, provenance=facts)
        print(study, version, events, (arguments.out / f"{study}.parquet").stat().st_size)


def take(events: EventSet, n: int) -> EventSet:
    """Draw at most ``n`` events; their weight makes up for those left out."""
    if len(events) <= n:
        return events
    chosen = np.sort(np.random.default_rng(SEED).choice(len(events), n, replace=False))
    return replace(events[chosen], weight=events.weight[chosen] * (len(events) / n))


def data_version(folder: Path) -> str:
    """SHA-256 of the sorted hashes of all event files, one after the other."""
    hashes = sorted(sha256_of_file(file) for file in folder.glob("*/*.csv.gz"))
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


if __name__ == "__main__":
    main()
