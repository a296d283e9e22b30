"""Scoring with the default: 1 and 2 Dask workers, the cost of a part, and memory and time as the events grow."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from distributed import Client

from unmask.events.event_set import BACKGROUND, EventSet
from unmask.io.parquet import EventsWriter
from unmask.io.sample import load_sample, resolve
from unmask.workflow.dask import connect, score_parts
from unmask.workflow.score import Outcome, Parts, Scoring
from unmask.workflow.sources import Sources

MODEL = resolve("sample:gluino-model")
N_SCORED, N_PARTS, N_TINY_PARTS, N_REPEATS = 1_500_000, 24, 150, 3
SIZES = (200_000, 1_000_000, 10_000_000)
MAX_EVALUATED = 1_000_000

# In a process of its own, whose memory is that of the work alone; from /proc, since getrusage counts what the parent
# had when it forked.
_MEASURED = f"""
import re, sys, time
from pathlib import Path
from unmask.scores.score_table import read_scores
from unmask.evaluation.evaluate import evaluate
from unmask.workflow.score import Scoring
from unmask.workflow.sources import Sources
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
source, model, out = map(Path, sys.argv[1:])
# CPU time, which other processes on the machine do not change; on one core it is what the clock shows.
started = time.process_time()
n_events = Scoring(model, device="cpu").write(Sources([source]).stream(), out).n_events
scored = time.process_time()
print(scored - started, peak())
if n_events <= {MAX_EVALUATED}:
    evaluate({{"scores": read_scores(out)}})
print(time.process_time() - scored, peak())
"""


def run() -> dict[str, float]:
    """Events per second, milliseconds per task, and peak memory and time for 0.2, 1 and 10 million events."""
    events = load_sample("gluino")
    with tempfile.TemporaryDirectory() as folder:
        return _dask_figures(events[events.label == BACKGROUND], Path(folder)) | _growth_figures(events, Path(folder))


def _dask_figures(events: EventSet, folder: Path) -> dict[str, float]:
    scoring = Scoring(MODEL, device="cpu")
    large = Sources([_write(folder / "large.parquet", events, N_SCORED)])
    small = Sources([_write(folder / "small.parquet", events, N_TINY_PARTS)])
    figures: dict[str, float] = {}
    for n in (1, 2):
        with connect(f"local:{n}") as client:

            def on_dask(sources: Sources, name: str, n_parts: int, client: Client = client) -> float:
                parts = Parts(scoring, folder / name, n_parts)
                return _seconds(score_parts(client, parts, sources.parts(n_parts)))

            on_dask(small, f"warm-up-{n}", 10)  # imports and the model, once a worker, are not counted
            seconds = min(on_dask(large, f"scores-{n}-{i}", N_PARTS) for i in range(N_REPEATS))
            figures[f"scored events/s, {n} Dask workers (default, gluino background)"] = N_SCORED / seconds
            if n == 1:
                tiny_on_dask = on_dask(small, "tiny", N_TINY_PARTS)
    here = Parts(scoring, folder / "tiny-here", N_TINY_PARTS)
    tiny_here = _seconds(map(here.write, range(N_TINY_PARTS), small.parts(N_TINY_PARTS)))
    figures["ms per part of one event, in one process"] = 1e3 * tiny_here / N_TINY_PARTS
    figures["ms more per part on Dask, 1 worker"] = 1e3 * (tiny_on_dask - tiny_here) / N_TINY_PARTS
    one, two = (value for name, value in figures.items() if name.startswith("scored"))
    return figures | {"2 workers over 1": two / one}


def _seconds(outcomes: Iterable[Outcome]) -> float:
    started = time.perf_counter()
    for outcome in outcomes:
        assert outcome.failure is None, outcome.failure
    return time.perf_counter() - started


def _growth_figures(events: EventSet, folder: Path) -> dict[str, float]:
    figures: dict[str, float] = {}
    for n_events in SIZES:
        source = _write(folder / f"{n_events}.parquet", events, n_events)
        command = [sys.executable, "-c", _MEASURED, str(source), str(MODEL), str(folder / f"scores-{n_events}.parquet")]
        one_core = os.environ | {"OMP_NUM_THREADS": "1"}
        printed = subprocess.run(command, check=True, capture_output=True, text=True, env=one_core).stdout.split()
        score_seconds, score_peak, evaluate_seconds, evaluate_peak = map(float, printed)
        figures |= {
            f"{n_events:,} events: file to scores, CPU us per event": 1e6 * score_seconds / n_events,
            f"{n_events:,} events: peak memory in MB": score_peak,
        }
        if n_events <= MAX_EVALUATED:
            figures |= {
                f"{n_events:,} events: evaluate, CPU us per event": 1e6 * evaluate_seconds / n_events,
                f"{n_events:,} events: peak memory in MB, with the evaluation": evaluate_peak,
            }
        source.unlink()
    return figures


def _write(path: Path, events: EventSet, n_events: int) -> Path:
    """Events, repeated as often as it takes."""
    with EventsWriter(path) as writer:
        for start in range(0, n_events, len(events)):
            writer.write(events[: n_events - start])
    return path
