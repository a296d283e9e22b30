"""How well the default finds simulated signals: a library of 51 mass points in 12 families, and two benchmarks.

    python research/library_of_signals.py prepare DATA EXTRACT      # splits and signals, as Parquet
    python research/library_of_signals.py fit EXTRACT OUT [--n-jobs 8] [--device cuda]
    python research/library_of_signals.py compare EXTRACT OUT [--n-jobs 8] [--device cuda]  # other detectors
    python research/library_of_signals.py table OUT                     # means over the library, trained on all events
    python research/library_of_signals.py learning_curve OUT            # AUC for 1,000 to all training events
    python research/library_of_signals.py p_values OUT                  # are calibrated p-values valid?
    python research/library_of_signals.py families OUT                  # means of families, trained on all events
    python research/library_of_signals.py against_observables OUT       # where the default loses
    python research/library_of_signals.py matrix OUT FIGURE             # every signal against every detector

`DATA` is a copy of the data set `unmask-sim-2026.11`, with the folders `channel_2b`, `four_top` and `theories`.
Trainings and scores that are in `OUT` are not made again. The families count the same, whatever the number of signals.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

import unmask
from unmask.detectors.contrast import TRAINING, ContrastDetector
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
#: Trees that have seen half of the signal, with its label: no competitor, but how much there is to find.
LABELS = "labels"
N_BOOTSTRAP = 200
COMPARED = (LABELS, "deep-svdd-mlp", "lut-456")
#: Of a training, what is not tested for signal.
NOT_TESTED = ("train", "validation", "fresh")
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


def _fit(extract: Path, out: Path, name: str, n: int, seed: int, device: str) -> str:
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
    scores["fresh"] = detector.score_events(events["validation"][len(validation) :])
    for key, some in _tested(events).items():
        score = detector.score_events(some)
        network = detector.logits_.minus_log_p_of(detector.network_scores(some, device=device))
        scores[key] = np.stack([score, network, *_observables(some)])
    np.savez(path, **{key: value.astype(np.float32) for key, value in scores.items()})
    return f"{path.name}: {seconds:.0f} s, {len(detector.history_)} epochs"


def _compare(extract: Path, out: Path, name: str, detector: str, device: str) -> str:
    """Scores of another detector for all that is tested, after a training on all events with seed 1."""
    torch.set_num_threads(1)
    path = out / f"{name}-{detector}.npz"
    if path.exists():
        return f"{path.name} is there"
    events = _read(extract, name)
    tested = _tested(events)
    started = time.perf_counter()
    if detector == LABELS:
        scores = dict(_with_labels(events["train"], tested))
    else:
        preset = f"{'gluino' if name == '2b' else name}-{detector}" if "lut" in detector else detector
        # A fifth of the epochs that the published method may take.
        changes = {"training": {"max_epochs": 20}} if "lut" in detector else {}
        fitted = unmask.fit(preset, events["train"], events["validation"], changes=changes, seed=1, device=device)
        scores = {key: fitted.score_events(some, device=device) for key, some in tested.items()}
    np.savez(path, **{key: value.astype(np.float32) for key, value in scores.items()})
    return f"{path.name}: {time.perf_counter() - started:.0f} s"


def fit(extract: Path, out: Path, n_jobs: int, device: str) -> None:
    """Train and score every sample that is not there yet, the largest first."""
    samples = [("2b", ALL, seed) for seed in SEEDS]
    samples += [(name, n, seed) for n in SIZES[::-1] for seed in SEEDS for name in SELECTIONS]
    _in_processes(_fit, [(extract, out, *sample, device) for sample in samples], n_jobs)


def compare(extract: Path, out: Path, n_jobs: int, device: str) -> None:
    """Train and score the other detectors that are not there yet."""
    _in_processes(_compare, [(extract, out, name, other, device) for other in COMPARED for name in SELECTIONS], n_jobs)


def _in_processes(function: Callable[..., str], jobs: list[tuple[Any, ...]], n_jobs: int) -> None:
    jobs[0][1].mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(n_jobs, mp_context=get_context("spawn")) as pool:
        for job in as_completed([pool.submit(function, *arguments) for arguments in jobs]):
            print(job.result(), flush=True)


def _with_labels(train: EventSet, tested: dict[str, EventSet]) -> Iterator[tuple[str, Array]]:
    """What trees find that are trained with the labels of half of a signal and tested on the other half, and back.

    The AUC is that of the signal's scores among those of background; the scores of the two halves are ranks there.
    """
    learnt, background = _numbers(train[:60_000]), _numbers(tested["background"])
    yield "background", np.arange(len(background)) / len(background)
    for key, signal in tested.items():
        if key != "background":
            numbers, score = _numbers(signal), np.zeros(len(signal))
            for half in range(2):
                is_tested = np.arange(len(signal)) % 2 == half
                both = np.concatenate([learnt, numbers[~is_tested]])
                label = np.repeat([0, 1], [len(learnt), (~is_tested).sum()])
                trees = HistGradientBoostingClassifier(class_weight="balanced", max_iter=100, random_state=1)
                trees.fit(both, label)
                of_background = np.sort(trees.decision_function(background))
                rank = np.searchsorted(of_background, trees.decision_function(numbers[is_tested]))
                score[is_tested] = (rank - 0.5) / len(background)
            yield key, score


def _numbers(events: EventSet) -> Array:
    """Numbers and leading pT of objects by type, observables, and the mass of all leptons, (n_events, 35)."""
    pt = np.where(events.is_object, events.pt_mev, 0)
    columns = [*_observables(events), events.ht_mev]
    for tags in ((1,), (2,), (3, 4), (5, 6), (7,)):
        of_type = np.where(np.isin(events.tag, tags), pt, 0)
        columns += [(of_type > 0).sum(1), *-np.sort(-of_type, axis=1)[:, :3].T]
    is_lepton = (events.tag >= 3) & (events.tag <= 6)
    charge = np.where(is_lepton, 2 * (events.tag % 2 == 0) - 1, 0).sum(1)
    x, y, z, energy = (
        np.where(is_lepton, column, 0).sum(1)
        for column in (pt * np.cos(events.phi), pt * np.sin(events.phi), pt * np.sinh(events.eta), events.energy_mev)
    )
    dphi = np.abs(np.angle(np.exp(1j * (np.arctan2(y, x) - events.met_phi))))
    columns += [np.abs(charge), energy**2 - x**2 - y**2 - z**2, np.hypot(x, y), dphi]
    return np.stack(columns, axis=1).astype(np.float64)


def figures_of(scores: dict[str, Array], families: dict[str, tuple[str, ...]]) -> dict[str, list[Array]]:
    """AUC, eps(1e-2) and eps(1e-3) of each signal, by family; scores are (n_events,)."""
    background = np.sort(scores["background"])
    cuts = np.quantile(background, [0.99, 0.999])
    figures: dict[str, list[Array]] = {family: [] for family in families}
    for key, signal in scores.items():
        if key != "background":
            (family,) = (family for family, starts in families.items() if key.startswith(starts))
            figures[family].append(np.array([_auc(background, signal), *((signal > cut).mean() for cut in cuts)]))
    return figures


def _auc(background: Array, signal: Array) -> float:
    """Probability that signal has more than background, in rising order; ties count half."""
    below, not_above = (np.searchsorted(background, signal, side) for side in ("left", "right"))
    return float((below + not_above).mean() / (2 * len(background)))


def means_of(scores: dict[str, Array], families: dict[str, tuple[str, ...]]) -> Array:
    """AUC, eps(1e-2) and eps(1e-3): the mean over the families of the library, and those of the benchmark; (6,)."""
    *library, benchmark = [np.mean(figures, axis=0) for figures in figures_of(scores, families).values()]
    return np.concatenate([np.mean(library, axis=0), benchmark])


def interval_of(scores: dict[str, Array], families: dict[str, tuple[str, ...]]) -> Array:
    """95 % interval (2, 6) of these means, by 200 bootstrap samples of background and of every signal."""
    rng = np.random.default_rng(1)
    samples = [
        means_of({key: score[rng.integers(0, len(score), len(score))] for key, score in scores.items()}, families)
        for _ in range(N_BOOTSTRAP)
    ]
    return np.quantile(samples, [0.025, 0.975], axis=0)


def rules_of(parts: dict[str, Array], names: Sequence[str]) -> list[dict[str, Array]]:
    """The smallest p-value and the product of p-values of observables, for background and each signal."""
    rows = [FOUR.index(name) for name in names]
    tails = [BackgroundTail.of(parts["train"][i].astype(np.float64)) for i in rows]
    p = {
        key: np.stack([tail.minus_log_p_of(part[-len(FOUR) :][i]) for tail, i in zip(tails, rows, strict=True)])
        for key, part in parts.items()
        if key not in ("train", "fresh")
    }
    rules = []
    for rule in (np.max, np.sum):
        tail = BackgroundTail.of(rule(p["validation"], axis=0))
        rules.append({key: tail.minus_log_p_of(rule(value, axis=0)) for key, value in p.items()})
    return rules


def scores_of(parts: dict[str, Array]) -> dict[str, dict[str, Array]]:
    """Scores to be compared, each of background and all signals."""
    smallest, product = rules_of(parts, FOUR)
    tested = [key for key in parts if key not in NOT_TESTED]
    return {
        "default": {key: parts[key][0] for key in tested},
        "its network": {key: parts[key][1] for key in tested},
        "observables, min p": {key: smallest[key] for key in tested},
        "observables, product": {key: product[key] for key in tested},
    }


def p_values(out: Path) -> None:
    """Print the fraction of fresh background with p-values up to 1 / (1 + n) and 0.01, calibrated on n events."""
    rng = np.random.default_rng(1)
    for path in _trainings(out):
        parts, (name, n_train, seed) = np.load(path), _sample_of(path)
        background = np.concatenate([parts["background"][0], parts["fresh"]])
        n, fractions = max(n_train // 8, 100), []
        if 2 * n > len(background):
            continue
        for _ in range(4000):
            drawn = background[rng.permutation(len(background))[: n + 3000]]
            calibration, fresh = np.sort(drawn[:n]), drawn[n:]
            fractions.append([(fresh > calibration[-i]).mean() for i in (1, max((n + 1) // 100, 1))])
        spread = 1.96 * np.std(fractions, axis=0) / np.sqrt(len(fractions))
        print(name, n_train, seed, n, np.mean(fractions, axis=0).round(5), "+-", spread.round(5))


def table(out: Path) -> None:
    """Print the means over the library after trainings on all events, and the smallest AUC of a signal."""
    print("| selection | detector | seed | library | smallest AUC | benchmark |\n|---|---|---|---|---|---|")
    for name, samples in _all_detectors(out).items():
        for detector, each in samples.items():
            for seed, scores in zip(SEEDS, each, strict=False):
                means, (low, high) = means_of(scores, FAMILIES[name]), interval_of(scores, FAMILIES[name])
                cells = [f"{x:.3f} [{a:.3f}, {b:.3f}]" for x, a, b in zip(means, low, high, strict=True)]
                *library, _ = figures_of(scores, FAMILIES[name]).values()
                worst = min(figures[0] for family in library for figures in family)
                print(
                    f"| {name} | {detector} | {seed} | {', '.join(cells[:3])} | {worst:.3f} | {', '.join(cells[3:])} |"
                )


def learning_curve(out: Path) -> None:
    """Print the AUC, means over the library and the benchmark, for every number of training events: all seeds."""
    print("| selection | events | detector | library | benchmark |\n|---|---|---|---|---|")
    rows: dict[tuple[str, int, str], list[Array]] = {}
    for path in _trainings(out):
        name, n, _ = _sample_of(path)
        for detector, scores in scores_of(dict(np.load(path))).items():
            rows.setdefault((name, n, detector), []).append(means_of(scores, FAMILIES[name]))
    for (name, n, detector), means in rows.items():
        library, benchmark = (", ".join(f"{mean[i]:.3f}" for mean in means) for i in (0, 3))
        print(f"| {name} | {n:,} | {detector} | {library} | {benchmark} |")


def families(out: Path) -> None:
    """Print the mean of each family, after the trainings on all events, as a Markdown table."""
    for name, samples in _all_detectors(out).items():
        print(f"\n| {name} | " + " | ".join(samples) + " |\n|---|" + "---|" * len(samples))
        found = [[figures_of(scores, FAMILIES[name]) for scores in each] for each in samples.values()]
        for family in FAMILIES[name]:
            means = [np.mean([np.mean(figures[family], axis=0) for figures in each], axis=0) for each in found]
            print(f"| {family} | " + " | ".join(" / ".join(f"{x:.3f}" for x in mean) for mean in means) + " |")


def against_observables(out: Path) -> None:
    """Print by how much the AUC of the default differs from the better of the two combinations, where it is least."""
    for path in _trainings(out):
        name, n, seed = _sample_of(path)
        scores = scores_of(dict(np.load(path)))
        default, _, *combined = (means_of(values, FAMILIES[name])[[0, 3]] for values in scores.values())
        library, benchmark = default - np.max(combined, axis=0)
        rows = _aucs({score: [values] for score, values in scores.items()})
        least = sorted((auc - max(others), key) for key, (auc, _, *others) in rows.items())[:4]
        worst = ", ".join(f"{key} {difference:+.3f}" for difference, key in least)
        print(f"{name} {n:7d} {seed}: library {library:+.4f}, benchmark {benchmark:+.4f}; {worst}")


def matrix(out: Path, figure: Path) -> None:
    """Draw the AUC of every signal and detector."""
    import matplotlib.pyplot as plt

    found = _all_detectors(out)
    tables = {name: _aucs(samples) for name, samples in found.items()}
    heights = [len(rows) for rows in tables.values()]
    style = {"svg.fonttype": "none", "font.size": 8}  # text as text: a tenth of the size
    with plt.rc_context(style):
        drawing, panels = plt.subplots(
            2, 1, figsize=(8, 0.17 * sum(heights) + 2), height_ratios=heights, layout="constrained"
        )
    for panel, (name, samples) in zip(panels, found.items(), strict=True):
        rows = tables[name]
        values = np.array(list(rows.values()))
        panel.imshow(values, vmin=0.5, vmax=1, cmap="viridis", aspect="auto")
        panel.set_xticks(range(len(samples)), list(samples), rotation=20, ha="right")
        panel.set_yticks(range(len(rows)), list(rows), fontsize=7)
        panel.set_title(f"{name}: AUC")
        for (i, j), value in np.ndenumerate(values):
            panel.text(j, i, f"{value:.3f}", ha="center", va="center", fontsize=6, color="w" if value < 0.85 else "k")
    with plt.rc_context(style):
        drawing.savefig(figure)


def _all_detectors(out: Path) -> dict[str, dict[str, list[dict[str, Array]]]]:
    """Scores by selection and detector after trainings on all events, one for each seed."""
    found: dict[str, dict[str, list[dict[str, Array]]]] = {}
    for name in SELECTIONS:
        largest = max(n for other, n, _ in map(_sample_of, _trainings(out)) if other == name)
        seeds = [scores_of(dict(np.load(out / f"{name}-{largest}-{seed}.npz"))) for seed in SEEDS]
        found[name] = {score: [scores[score] for scores in seeds] for score in seeds[0]}
        found[name] |= {detector: [dict(np.load(out / f"{name}-{detector}.npz"))] for detector in COMPARED}
    return found


def _aucs(samples: dict[str, list[dict[str, Array]]]) -> dict[str, list[float]]:
    """AUC of each signal, by its name, of each detector: the mean over seeds."""
    rows: dict[str, list[float]] = {}
    for each in samples.values():
        for key in sorted(each[0].keys() - {"background"}):
            aucs = [_auc(np.sort(scores["background"]), scores[key]) for scores in each]
            rows.setdefault(key, []).append(float(np.mean(aucs)))
    return rows


def _trainings(out: Path) -> list[Path]:
    return sorted((path for path in out.glob("*.npz") if path.stem[-2:] in ("-1", "-2", "-3")), key=_sample_of)


def _sample_of(path: Path) -> tuple[str, int, int]:
    name, n, seed = path.stem.rsplit("-", 2)
    return name, int(n), int(seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    functions: dict[Callable[..., None], tuple[str, ...]] = {prepare: ("data", "extract")}
    functions |= dict.fromkeys((fit, compare), ("extract", "out"))
    functions |= dict.fromkeys((table, learning_curve, p_values, families, against_observables), ("out",))
    functions |= {matrix: ("out", "figure")}
    for function, folders in functions.items():
        of_command = commands.add_parser(function.__name__)
        of_command.set_defaults(function=function)
        for folder in folders:
            of_command.add_argument(folder, type=Path)
    for command in ("fit", "compare"):
        commands.choices[command].add_argument("--n-jobs", type=int, default=1)
        commands.choices[command].add_argument("--device", default="auto")
    arguments = vars(parser.parse_args())
    del arguments["command"]
    arguments.pop("function")(**arguments)


if __name__ == "__main__":
    main()
