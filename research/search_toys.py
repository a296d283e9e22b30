"""Toy searches: are p-values uniform, do limits cover, is an injected signal measured as it is?

Usage: python research/search_toys.py BACKGROUND SIGNAL [--toys 1000] [--with-signal 200] [--out toys.json]

BACKGROUND and SIGNAL are scores files of one detector. Their events, without those that were trained on, are taken for
nature: each toy draws simulated background and data from them, independently, and searches. Running it again with more
toys continues.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from unmask.events.columns import Names
from unmask.scores.score_table import Scores, concatenate_scores, read_scores
from unmask.searches.search import search

#: Simulated background and expected data events of a toy.
N_SIMULATED, N_DATA = 40_000, 20_000
#: Expected signal events of strength 1, and the strengths that are injected.
N_SIGNAL, STRENGTHS = 20, (0.0, 1.0, 3.0)


def drawn(scores: Scores, n: int, name: str, rng: np.random.Generator) -> Scores:
    """Draw events of weight 1 as a new file."""
    some = scores[rng.integers(0, len(scores), n)]
    columns = {"row": np.arange(n), "event_id": np.arange(n), "weight": np.ones(n), "was_trained_on": None}
    return Scores(**{**vars_of(some), **columns, "file_names": Names.constant(name, n)})


def vars_of(scores: Scores) -> dict[str, Any]:
    names = ("score", "row", "event_id", "file_names", "process_names", "label", "weight", "observables")
    return {name: getattr(scores, name) for name in names}


def toy(seed: int, background: Scores, signal: Scores | None, strength: float) -> dict[str, Any]:
    """One search; p-values are drawn between those of the observed count and of the next, as counts are discrete."""
    rng = np.random.default_rng([seed, int(10 * strength), signal is not None])
    simulated = drawn(background, N_SIMULATED, "simulated", rng)
    data = drawn(background, rng.poisson(N_DATA), "data", rng)
    templates = {}
    if signal is not None:
        data = concatenate_scores([data, drawn(signal, rng.poisson(strength * N_SIGNAL), "more", rng)])
        template = drawn(signal, 4000, "signal", rng)
        templates["signal"] = Scores(**{**vars_of(template), "weight": np.full(4000, N_SIGNAL / 4000)})
    result = search(simulated, data, templates, seed=seed)
    counted = result.background.counted
    observed = np.array([one.observed for one in result.regions])
    p, following = counted.p_values(observed)[1:], counted.next_p_values(observed)[1:]
    found: dict[str, Any] = {
        "local": (following + rng.random(len(p)) * (p - following)).tolist(),
        "global": result.global_p_value,
    }
    if signal is not None:
        one = result.signals["signal"]
        found |= {"limit": one.limit.observed, "z": one.z, "strength": one.strength, "error": one.strength_error}
        found |= {"expected_limit": one.limit.expected[2], "method": result.method}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("background", type=Path)
    parser.add_argument("signal", type=Path)
    parser.add_argument("--toys", type=int, default=1000)
    parser.add_argument("--with-signal", type=int, default=200, help="toys per strength")
    parser.add_argument("--out", type=Path, default=Path("toys.json"))
    arguments = parser.parse_args()
    background, signal = read_scores(arguments.background), read_scores(arguments.signal)
    background = background[(background.label != 1) & ~background.was_trained_on]
    signal = signal[signal.label != 0]
    toys = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    wanted = [(i, None, 0.0) for i in range(arguments.toys)]
    wanted += [(i, signal, strength) for i in range(arguments.with_signal) for strength in STRENGTHS]
    for n, (i, one, strength) in enumerate(wanted):
        key = f"{'null' if one is None else strength} {i}"
        if key not in toys:
            toys[key] = toy(i, background, one, strength)
        if n % 50 == 49 or n + 1 == len(wanted):
            arguments.out.write_text(json.dumps(toys))
    show(toys, len(background))


def show(toys: dict[str, Any], n_background: int) -> None:
    null = [found for key, found in toys.items() if key.startswith("null")]
    columns = {"validation": 0} | {f"signal-{i}": i for i in range(1, len(null[0]["local"]))}
    p_values = {name: [found["local"][i] for found in null] for name, i in columns.items()}
    p_values["global"] = [found["global"] for found in null]
    print(f"{n_background:,} background events; {len(null):,} toys without signal")
    for name, p in p_values.items():
        below = ", ".join(f"{np.mean(np.array(p) <= level):.3f} at {level:g}" for level in (0.1, 0.05, 0.01))
        print(f"{name}: KS p = {stats.kstest(p, 'uniform').pvalue:.3f}; fraction {below}")
    for strength in STRENGTHS:
        some = [found for key, found in toys.items() if key.startswith(f"{strength} ")]
        limits, best = (np.array([found[name] for found in some], float) for name in ("limit", "strength"))
        pulls = (best - strength) / np.array([found["error"] for found in some], float)
        print(
            f"strength {strength:g}: {len(some)} toys, median Z {np.median([found['z'] for found in some]):.2f}, "
            f"limit covers {np.mean(limits >= strength):.3f}, mean fitted {np.nanmean(best):.3f} ± "
            f"{np.nanstd(best) / np.sqrt(len(some)):.3f}, pulls {np.nanmean(pulls):+.2f}, {np.nanstd(pulls):.2f} wide; "
            f"{np.mean([found['method'] == 'asymptotic' for found in some]):.0%} asymptotic"
        )


if __name__ == "__main__":
    main()
