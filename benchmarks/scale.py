"""Work in parts: events/s with 1 and 2 Dask workers, the cost of a task, and memory and time as the events grow."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from unmask.cluster.dask_run import connect, run_tasks
from unmask.cluster.plan import Task, Work, make_tasks, open_folder
from unmask.cluster.work import Model, Outcome, run_part
from unmask.detectors.masked_token import MaskedTokenDetector
from unmask.events.event_set import BACKGROUND, EventSet
from unmask.events.readers.parquet import EventsWriter
from unmask.events.sample import load_sample
from unmask.tokenizers.lookup_table import LookupTableTokenizer
from unmask.training import TrainingSettings

N_SCORED, N_TINY_PARTS, N_REPEATS = 60_000, 150, 3
SIZES = (200_000, 1_000_000, 5_000_000)

# In a process of its own, whose memory is that of the work alone; from /proc, since getrusage counts what the parent
# had when it forked.
_MEASURED = """
import re, sys, time
from pathlib import Path
from unmask.cluster.plan import Work, make_tasks, open_folder
from unmask.cluster.work import Model, provide_model, run_part
from unmask.evaluation.streaming_roc import streaming_roc
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
source, model, out = map(Path, sys.argv[1:])
sent = Model.of(model)
provide_model(sent)
# CPU time, which other processes on the machine do not change; on one core it is what the clock shows.
started = time.process_time()
tasks = make_tasks(Work("score", model=sent.digest, device="cpu"), [source], out, part_events=500_000)
open_folder(out, tasks, part_events=500_000)
for task in tasks:
    assert run_part(task).failure is None
scored = time.process_time()
print(scored - started, peak())
streaming_roc(out, piece_events=500_000)
print(time.process_time() - scored, peak())
"""


def run() -> dict[str, float]:
    """Events a second, milliseconds a task, and peak memory and time for 0.2, 1 and 5 million events."""
    events = load_sample("gluino")
    with tempfile.TemporaryDirectory() as folder:
        return _dask_figures(events, Path(folder)) | _growth_figures(events, Path(folder))


def _dask_figures(events: EventSet, folder: Path) -> dict[str, float]:
    model = Model.of(_saved_detector(events, folder / "published-size", hidden=64, ffn_expansion=2))
    background = events[events.label == BACKGROUND]
    large = _write(folder / "large.parquet", background, N_SCORED)
    small = _write(folder / "small.parquet", background, N_TINY_PARTS)
    score, convert = Work("score", model=model.digest, device="cpu"), Work("convert")
    figures: dict[str, float] = {}
    for n in (1, 2):
        with connect(f"local:{n}") as client:
            # Imports and the model, once a worker, are not counted.
            _seconds(run_tasks(client, _tasks(small, folder / f"warm-up-{n}", N_TINY_PARTS // 10, score), model))
            seconds = min(
                _seconds(run_tasks(client, _tasks(large, folder / f"scores-{n}-{i}", N_SCORED // 12, score), model))
                for i in range(N_REPEATS)
            )
            figures[f"scored events/s, {n} Dask workers (LUT-456, gluino background)"] = N_SCORED / seconds
            if n == 1:
                on_dask = _seconds(run_tasks(client, _tasks(small, folder / "tiny", 1, convert)))
    here = _seconds(map(run_part, _tasks(small, folder / "tiny-here", 1, convert)))
    figures["ms a task of one event, in one process"] = 1e3 * here / N_TINY_PARTS
    figures["ms a task more on Dask, 1 worker"] = 1e3 * (on_dask - here) / N_TINY_PARTS
    one, two = (value for name, value in figures.items() if name.startswith("scored"))
    return figures | {"2 workers over 1": two / one}


def _seconds(outcomes: Iterable[Outcome]) -> float:
    started = time.perf_counter()
    for outcome in outcomes:
        assert outcome.failure is None, outcome.failure
    return time.perf_counter() - started


def _growth_figures(events: EventSet, folder: Path) -> dict[str, float]:
    """A network of the smallest size, so that five million events are scored within minutes on a core."""
    model = _saved_detector(events, folder / "smallest", hidden=4, n_heads=1, n_layers=1)
    figures: dict[str, float] = {}
    for n_events in SIZES:
        source = _write(folder / f"{n_events}.parquet", events, n_events)
        command = [sys.executable, "-c", _MEASURED, str(source), str(model), str(folder / f"scores-{n_events}")]
        one_core = os.environ | {"OMP_NUM_THREADS": "1"}
        printed = subprocess.run(command, check=True, capture_output=True, text=True, env=one_core).stdout.split()
        score_seconds, score_peak, roc_seconds, roc_peak = map(float, printed)
        figures |= {
            f"{n_events:,} events: read, encode, score, write, CPU us an event": 1e6 * score_seconds / n_events,
            f"{n_events:,} events: peak memory in MB": score_peak,
            f"{n_events:,} events: exact ROC, CPU us an event": 1e6 * roc_seconds / n_events,
            f"{n_events:,} events: peak memory in MB, with the ROC": roc_peak,
        }
        source.unlink()
    return figures


def _saved_detector(events: EventSet, folder: Path, *, ffn_expansion: int = 1, **sizes: int) -> Path:
    background = events[events.label == BACKGROUND]
    training = TrainingSettings(max_epochs=1, device="cpu")
    detector = MaskedTokenDetector(
        LookupTableTokenizer(4),
        ffn_expansion=ffn_expansion,
        training=training,
        **sizes,  # type: ignore[arg-type]
    )
    detector.fit(background[:2000], background[2000:2500]).save(folder)
    return folder


def _write(path: Path, events: EventSet, n_events: int) -> Path:
    """Events, repeated as often as it takes."""
    with EventsWriter(path) as writer:
        for start in range(0, n_events, len(events)):
            writer.write(events[: n_events - start])
    return path


def _tasks(path: Path, out: Path, part_events: int, work: Work) -> list[Task]:
    tasks = make_tasks(work, [path], out, part_events=part_events)
    open_folder(out, tasks, part_events=part_events)
    return tasks
