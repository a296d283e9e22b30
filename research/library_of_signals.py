"""How well the default finds simulated signals: a library of 51 mass points in 12 families, and two benchmarks.

    python research/library_of_signals.py prepare DATA EXTRACT      # splits and signals, as Parquet
    python research/library_of_signals.py fit EXTRACT OUT [--n-jobs 8] [--device cuda]
    python research/library_of_signals.py table OUT

`DATA` is a copy of the data set `unmask-sim-2026.11`, with the folders `channel_2b`, `four_top` and `theories`.
Trainings and scores that are in `OUT` are not made again. The families count the same, whatever the number of signals.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

import unmask
from unmask.detectors.contrast import TRAINING, ContrastDetector
from unmask.evaluation.metrics import roc_auc
from unmask.events.event_set import EventSet
from unmask.events.observables import OBSERVABLES
from unmask.io.parquet import EventsWriter
from unmask.scores.p_values import Array, BackgroundTail

SELECTIONS = {"2b": ("channel_2b", "gluino_1000_1"), "four-top": ("four_top", "tttt")}
#: Beginnings of the names of signals.
FAMILIES = {
    "2b": {
        "gluino": ("gluino_1000_1__", "gluino_1000_500_w"),
        "stop": ("stop_500_w", "stop_600_1"),
        "electroweak": ("chargino", "wz_"),
        "slepton": ("slepton",),
        "RPV, leptoquark": ("stop_rpv", "leptoquark"),
        "resonance": ("zprime", "wprime"),
        "vector-like quark": ("tprime", "bprime_700__"),
        "gluino (benchmark)": ("benchmark",),
    },
    "four-top": {
        "vector-like quark, ss": ("bprime_700_ss",),
        "gluino, ss": ("gluino_1200",),
        "gluino to tbW, ss": ("gluino_tbw",),
        "gluino RPV, ss": ("gluino_rpv",),
        "sbottom, ss": ("sbottom",),
        "tttt (benchmark)": ("benchmark",),
    },
}
SIZES, SEEDS = (1_000, 3_000, 10_000, 30_000, 100_000), (1, 2, 3)
ALL = 1_000_000
FOUR = ("n_objects", "met", "n_b_jets", "sum_pt")


def prepare(data: Path, extract: Path) -> None:
    """Write the splits of background, and all signals."""
    extract.mkdir(parents=True, exist_ok=True)
    for name, (folder, signal) in SELECTIONS.items():
        files = sorted((data / folder).glob("*.csv.gz"))
        background = unmask.read_events([file for file in files if signal not in file.name]).with_label(0)
        for part, events in zip(
            ("train", "validation", "test"), unmask.split_background(background, seed=1), strict=True
        ):
            _write(extract / f"{name}-{part}.parquet", events)
        benchmark = unmask.read_events([file for file in files if signal in file.name]).with_label(1)
        library = unmask.read_events(sorted((data / "theories").glob("*.csv.gz"))).with_label(1)
        is_here = np.char.find(library.process, "_ss__") >= 0
        _write(extract / f"{name}-library.parquet", library[is_here == (name == "four-top")])
        _write(extract / f"{name}-benchmark.parquet", benchmark)


def _write(path: Path, events: EventSet) -> None:
    with EventsWriter(path) as writer:
        writer.write(events)


@cache
def _read(extract: Path, name: str) -> dict[str, EventSet]:
    parts = ("train", "validation", "test", "library", "benchmark")
    return {part: unmask.read_events(extract / f"{name}-{part}.parquet") for part in parts}


def _tested(events: dict[str, EventSet]) -> dict[str, EventSet]:
    """Test background and every signal."""
    library = events["library"]
    signals = {str(signal): library[library.process == signal] for signal in np.unique(library.process)}
    return {"background": events["test"], "benchmark": events["benchmark"]} | signals


def _observables(events: EventSet) -> Array:
    return np.stack([OBSERVABLES[name].of(events) for name in FOUR])


def fit(extract: Path, out: Path, name: str, n: int, seed: int, device: str) -> str:
    """Train on n events, and write scores, the network's part of them, and observables."""
    torch.set_num_threads(1)
    events = _read(extract, name)
    path = out / f"{name}-{min(n, len(events['train']))}-{seed}.npz"
    if path.exists():
        return f"{path.name} is there"
    train = events["train"][np.random.default_rng(seed).permutation(len(events["train"]))[:n]]
    validation = events["validation"][: max(len(train) // 8, 100)]
    detector = ContrastDetector(training=replace(TRAINING, device=device), seed=seed)
    started = time.perf_counter()
    detector.fit(train, validation)
    seconds = time.perf_counter() - started
    scores = {"train": _observables(train), "validation": _observables(validation)}
    for key, some in _tested(events).items():
        score = detector.score_events(some)
        network = detector.logits_.minus_log_p_of(detector.network_scores(some, device=device))
        scores[key] = np.stack([score, network, *_observables(some)])
    np.savez(path, **{key: value.astype(np.float32) for key, value in scores.items()})
    return f"{path.name}: {seconds:.0f} s, {len(detector.history_)} epochs"


def figures_of(scores: dict[str, Array], families: dict[str, tuple[str, ...]]) -> dict[str, list[Array]]:
    """AUC, eps(1e-2) and eps(1e-3) of each signal, by family; scores are (n_events,)."""
    background = scores["background"]
    cuts = np.quantile(background, [0.99, 0.999])
    found: dict[str, list[Array]] = {family: [] for family in families}
    for key, signal in scores.items():
        if key != "background":
            (family,) = (family for family, starts in families.items() if key.startswith(starts))
            label = np.repeat([False, True], [len(background), len(signal)])
            auc = roc_auc(np.concatenate([background, signal]), label).value
            found[family].append(np.array([auc, *((signal > cut).mean() for cut in cuts)]))
    return found


def rules_of(parts: dict[str, Array], names: Sequence[str]) -> list[dict[str, Array]]:
    """The smallest p-value and the product of p-values of observables, for background and each signal."""
    rows = [FOUR.index(name) for name in names]
    tails = [BackgroundTail.of(parts["train"][i].astype(np.float64)) for i in rows]
    p = {
        key: np.stack([tail.minus_log_p_of(part[-len(FOUR) :][i]) for tail, i in zip(tails, rows, strict=True)])
        for key, part in parts.items()
        if key != "train"
    }
    rules = []
    for rule in (np.max, np.sum):
        tail = BackgroundTail.of(rule(p["validation"], axis=0))
        rules.append({key: tail.minus_log_p_of(rule(value, axis=0)) for key, value in p.items()})
    return rules


def scores_of(parts: dict[str, Array]) -> dict[str, dict[str, Array]]:
    """Scores to be compared, each of background and all signals."""
    smallest, product = rules_of(parts, FOUR)
    tested = [key for key in parts if key not in ("train", "validation")]
    return {
        "default": {key: parts[key][0] for key in tested},
        "its network": {key: parts[key][1] for key in tested},
        "four, smallest": {key: smallest[key] for key in tested},
        "four, product": {key: product[key] for key in tested},
    }


def table(out: Path) -> None:
    """Print the mean over families for every training sample and score, and the least of AUC - best of the four."""
    print("selection, events, seed, score: library (AUC, 1e-2, 1e-3), worst signal, benchmark")
    for path in sorted(out.glob("*.npz"), key=_sample_of):
        name, n, seed = _sample_of(path)
        for score, values in scores_of(dict(np.load(path))).items():
            found = figures_of(values, FAMILIES[name])
            *library, benchmark = [np.mean(figures, axis=0) for figures in found.values()]
            worst = min(figures[0] for family in list(found)[:-1] for figures in found[family])
            text = "  ".join(
                " ".join(f"{x:.4f}" for x in row) for row in (np.mean(library, axis=0), [worst], benchmark)
            )
            print(f"{name:9s} {n:7d} {seed} {score:16s} {text}")


def _sample_of(path: Path) -> tuple[str, int, int]:
    name, n, seed = path.stem.rsplit("-", 2)
    return name, int(n), int(seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command, folders in {"prepare": ("data", "extract"), "fit": ("extract", "out"), "table": ("out",)}.items():
        of_command = commands.add_parser(command)
        for folder in folders:
            of_command.add_argument(folder, type=Path)
    commands.choices["fit"].add_argument("--n-jobs", type=int, default=1)
    commands.choices["fit"].add_argument("--device", default="auto")
    arguments = vars(parser.parse_args())
    command = arguments.pop("command")
    {"prepare": prepare, "fit": fit_all, "table": table}[command](**arguments)


def fit_all(extract: Path, out: Path, n_jobs: int, device: str) -> None:
    """Train and score every sample that is not there yet, the largest first."""
    out.mkdir(parents=True, exist_ok=True)
    samples = [(name, n, seed) for n in SIZES[::-1] for seed in SEEDS for name in SELECTIONS]
    samples = [("2b", ALL, seed) for seed in SEEDS] + samples
    with ProcessPoolExecutor(n_jobs, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(fit, extract, out, *sample, device) for sample in samples]
        for job in as_completed(jobs):
            print(job.result(), flush=True)


if __name__ == "__main__":
    main()
