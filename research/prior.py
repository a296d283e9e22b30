"""What theories as a prior gain: each family of the library scored by the network that never saw it.

    python research/library_of_signals.py prepare DATA EXTRACT
    python research/prior.py fit EXTRACT OUT [--events 150133] [--seeds 1,2,3] [--device cuda]
    python research/prior.py table OUT

The theories are the library itself, family by family; the benchmark gluino counts as one of the family gluino, and no
theory resembles tttt. Trainings that are in `OUT` are not made again.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from library_of_signals import FAMILIES, SELECTIONS, Array, _auc, _read

from unmask.detectors.contrast import TRAINING, ContrastDetector
from unmask.detectors.prior import OF_FAMILY
from unmask.events.columns import Names
from unmask.events.event_set import EventSet

#: Weights of the tail term that are compared.
TAIL_WEIGHTS = (0.0, 0.25, 0.5)
NO_PRIOR = "no prior"


def by_family(library: EventSet, name: str) -> EventSet:
    """The library with its families in the names of its processes."""
    family = {
        word: family
        for word in library.process_names.words
        for family, starts in FAMILIES[name].items()
        if word.startswith(starts)
    }
    words = tuple(f"{family.get(word, '')}{OF_FAMILY}{word}" for word in library.process_names.words)
    return replace(library, process_names=Names(library.process_names.code, words))


def tested_with(name: str, left_out: str, events: dict[str, EventSet]) -> dict[str, EventSet]:
    """Signals of the family that was left out; the benchmark with its own family, or with any."""
    library = events["library"]
    is_here = np.array([word.startswith(FAMILIES[name][left_out]) for word in library.process_names.words])
    some = library[is_here[library.process_names.code]]
    signals = {str(signal): some[some.process == signal] for signal in np.unique(some.process)}
    if left_out == next(iter(FAMILIES[name])):
        signals["benchmark"] = events["benchmark"]
    return signals


def fit(extract: Path, out: Path, n: int, seeds: list[int], device: str, selections: list[str]) -> None:
    """Train without a prior, and with one that lacks each family; write both terms of the scores."""
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for seed in seeds:
        for name in selections:
            events = _read(extract, name)
            library = by_family(events["library"], name)
            train = events["train"][np.random.default_rng(seed).permutation(len(events["train"]))[:n]]
            validation = events["validation"][: max(len(train) // 8, 100)]
            families = [family for family in FAMILIES[name] if "benchmark" not in family]
            for left_out in (NO_PRIOR, *families):
                path = out / f"{name}-{len(train)}-{seed}-{left_out.replace(' ', '_').replace(',', '')}.npz"
                if path.exists():
                    continue
                is_left = np.array([not word.startswith(left_out + OF_FAMILY) for word in library.process_names.words])
                prior = None if left_out == NO_PRIOR else library[is_left[library.process_names.code]]
                started = time.perf_counter()
                detector = ContrastDetector(training=replace(TRAINING, device=device), seed=seed)
                detector.fit(train, validation, prior=prior)
                tested = {"background": events["test"]}
                for family in families if left_out == NO_PRIOR else [left_out]:
                    tested |= tested_with(name, family, events)
                scores = {key: _terms(detector, some, device) for key, some in tested.items()}
                np.savez(path, **{key: value.astype(np.float32) for key, value in scores.items()})
                print(f"{path.name}: {time.perf_counter() - started:.0f} s", flush=True)


def _terms(detector: ContrastDetector, events: EventSet, device: str) -> Array:
    """The network's term and, for a weight of 1, that of the observables, (2, n_events)."""
    whole = detector.score_events(events, device=device)
    detector.tail_weight, kept = 0.0, detector.tail_weight
    network = detector.score_events(events, device=device)
    detector.tail_weight = kept
    return np.stack([network, (whole - network) / kept])


def table(out: Path) -> None:
    """Print means over families of AUC, eps(1e-2) and eps(1e-3), and those of the benchmark."""
    print("| selection | events | seed | tail weight | prior | library | benchmark |\n|---|---|---|---|---|---|---|")
    for base in sorted(out.glob(f"*-{NO_PRIOR.replace(' ', '_')}.npz")):
        stem = base.stem.removesuffix(NO_PRIOR.replace(" ", "_"))
        name = next(name for name in SELECTIONS if stem.startswith(name))
        with_prior = [path for path in sorted(out.glob(f"{stem}*.npz")) if path != base]
        for weight in TAIL_WEIGHTS:
            for label, paths in ((NO_PRIOR, [base]), ("family left out", with_prior)):
                figures: dict[str, list[Array]] = {}
                for path in paths:
                    scores = {key: network + weight * tail for key, (network, tail) in np.load(path).items()}
                    background = np.sort(scores.pop("background"))
                    cuts = np.quantile(background, [0.99, 0.999])
                    for key, signal in scores.items():
                        family = next(one for one, starts in FAMILIES[name].items() if key.startswith(starts))
                        row = np.array([_auc(background, signal), *((signal > cut).mean() for cut in cuts)])
                        figures.setdefault(family, []).append(row)
                benchmark = [figures.pop(family) for family in list(figures) if "benchmark" in family]
                if not benchmark:  # not all trainings are there yet
                    continue
                library = np.mean([np.mean(rows, axis=0) for rows in figures.values()], axis=0)
                cells = [" / ".join(f"{x:.3f}" for x in means) for means in (library, np.mean(benchmark[0], axis=0))]
                n, seed = stem.removeprefix(f"{name}-").split("-")[:2]
                print(f"| {name} | {n} | {seed} | {weight} | {label} ({len(figures)}) | {cells[0]} | {cells[1]} |")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("fit")
    train.add_argument("extract", type=Path)
    train.add_argument("out", type=Path)
    train.add_argument("--events", type=int, default=1_000_000)
    train.add_argument("--seeds", default="1,2,3")
    train.add_argument("--selections", default=",".join(SELECTIONS))
    train.add_argument("--device", default="cpu")
    commands.add_parser("table").add_argument("out", type=Path)
    given = parser.parse_args()
    if given.command == "table":
        table(given.out)
    else:
        seeds = [int(seed) for seed in given.seeds.split(",")]
        fit(given.extract, given.out, given.events, seeds, given.device, given.selections.split(","))


if __name__ == "__main__":
    main()
