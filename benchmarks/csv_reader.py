"""Dark Machines CSV: throughput against a plain Python parser, and peak memory against the size of the file."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.timing import best_times
from unmask.events.event_set import EventSet
from unmask.events.objects import OBJECTS, SYMBOL_TAGS
from unmask.io.read import darkmachines_csv, stream_events
from unmask.io.sample import load_sample

# From /proc, since getrusage counts what the parent had when it forked.
_PEAK_MEMORY = """
import re, sys
from pathlib import Path
from unmask.io.read import stream_events
n = sum(len(chunk) for chunk in stream_events(sys.argv[1]))
print(n, int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024)
"""


def run() -> dict[str, float]:
    """Events and MB a second of both parsers, their ratio, and peak memory for 200k and 1M events."""
    lines = list(_csv_lines(load_sample("gluino")))
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        small = _write(Path(folder) / "small.csv", lines, 100_000)
        ours, alone, plain = best_times(
            lambda: _read_all(small), lambda: _read_with_one_thread(small), lambda: plain_parse(small), repeats=3
        )
        megabytes = small.stat().st_size / 1e6
        figures |= {
            "events/s, unmask": 100_000 / ours,
            "events/s, plain split-and-float": 100_000 / plain,
            "MB/s, unmask": megabytes / ours,
            f"ratio, {os.cpu_count()} cores (target at least 5)": plain / ours,
            "ratio, one parsing thread": plain / alone,
        }
        for n in (200_000, 1_000_000):
            path = _write(Path(folder) / f"{n}.csv", lines, n)
            command = [sys.executable, "-c", _PEAK_MEMORY, str(path)]
            n_read, peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            assert int(n_read) == n
            figures[f"peak memory in MB, {n:,} events ({path.stat().st_size / 1e6:.0f} MB)"] = float(peak)
            path.unlink()
    return figures


def plain_parse(path: Path) -> list[tuple[int, str, float, float, float, list[tuple[int, float, float, float, float]]]]:
    """What one writes in a notebook: split and float."""
    events = []
    with path.open() as file:
        for line in file:
            fields = line.rstrip("\n").rstrip(";").split(";")
            objects = []
            for text in fields[5:]:
                symbol, energy, pt, eta, phi = text.split(",")
                objects.append((SYMBOL_TAGS[symbol], float(energy), float(pt), float(eta), float(phi)))
            objects.sort(key=lambda one: (one[0], -one[2]))
            events.append((int(fields[0]), fields[1], float(fields[2]), float(fields[3]), float(fields[4]), objects))
    return events


def _read_all(path: Path) -> int:
    return sum(len(chunk) for chunk in stream_events(path))


def _read_with_one_thread(path: Path) -> int:
    most = darkmachines_csv._MAX_THREADS
    darkmachines_csv._MAX_THREADS = 1
    try:
        return _read_all(path)
    finally:
        darkmachines_csv._MAX_THREADS = most


def _csv_lines(events: EventSet) -> Iterator[str]:
    process = events.process
    for i in range(len(events)):
        head = f"{events.event_id[i]};{process[i]};1;{events.met_mev[i]:.6g};{events.met_phi[i]:.6g};"
        objects = [
            f"{OBJECTS[int(events.tag[i, j])].symbols[0]},{events.energy_mev[i, j]:.6g},{events.pt_mev[i, j]:.6g},"
            f"{events.eta[i, j]:.6g},{events.phi[i, j]:.6g};"
            for j in range(int(events.n_objects[i]))
        ]
        yield head + "".join(objects) + "\n"


def _write(path: Path, lines: list[str], n_events: int) -> Path:
    with path.open("w") as file:
        for start in range(0, n_events, len(lines)):
            file.writelines(lines[: n_events - start])
    return path
