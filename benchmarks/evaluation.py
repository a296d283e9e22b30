"""Measuring five detectors on 100,000 events, against measuring each score and each pair by itself, and figures."""

from __future__ import annotations

import tempfile

import numpy as np

from benchmarks.timing import best_times
from unmask.evaluation.evaluate import ALL_SIGNAL, Evaluation, evaluate
from unmask.evaluation.metrics import measure
from unmask.evaluation.roc import RankedScores
from unmask.events.columns import Names
from unmask.report.score_figures import write_score_figures
from unmask.scores.combination import untrained_scores
from unmask.scores.score_table import Scores

N_BACKGROUND, N_SIGNAL, N_DETECTORS = 80_000, 20_000, 5


def make_scores(seed: int = 1) -> dict[str, Scores]:
    """Scores of detectors that agree in part, for background and three signals."""
    rng = np.random.default_rng(seed)
    row = np.arange(N_BACKGROUND + N_SIGNAL)
    label = (row >= N_BACKGROUND).astype(np.int8)
    shared = rng.normal(size=len(row))
    events = {
        "row": row,
        "event_id": row,
        "file_names": Names.constant("generated", len(row)),
        "process_names": Names(np.where(label, 1 + row % 3, 0).astype(np.int32), ("SM", "a", "b", "c")),
        "label": label,
        "weight": np.ones(len(row)),
        "observables": {
            "n_objects": rng.poisson(6 + 2 * label),
            "ht_mev": rng.exponential(3e5 * (1 + label)),
            "met_mev": rng.exponential(1e5 * (1 + label)),
            "n_b_jets": rng.poisson(1 + label),
        },
    }
    return {
        f"detector {i}": Scores(score=shared + rng.normal(0.5 * i * label, 1), **events) for i in range(N_DETECTORS)
    }


def run() -> dict[str, float]:
    """Seconds, and how many times as long it takes without sharing what is sorted."""
    scores = make_scores()
    found = evaluate(scores)
    with tempfile.TemporaryDirectory() as folder:
        ours, plain, figures = best_times(
            lambda: evaluate(scores),
            lambda: measure_one_by_one(scores, found),
            lambda: write_score_figures(folder, scores),
            repeats=3,
        )
    return {
        "seconds, tables": ours,
        "times as long, one by one (target at least 1.5)": plain / ours,
        "seconds, 7 figures in 3 formats": figures,
        "seconds, both (target at most 8)": ours + figures,
    }


def measure_one_by_one(scores: dict[str, Scores], evaluation: Evaluation) -> None:
    """Measure the same rows and comparisons, each from the scores alone."""
    first = next(iter(scores.values()))
    untrained = untrained_scores(first.observables, first.label == 0, first.weight, first.event_key)
    values = {name: one.score for name, one in scores.items()} | dict(untrained)
    process = first.process_names.array()
    for signal in evaluation.selections:
        chosen = (first.label == 0) | (process == signal) | (signal == ALL_SIGNAL)
        is_signal, weight = first.label[chosen] == 1, first.weight[chosen]

        def ranked(name: str) -> RankedScores:
            return RankedScores.of(values[name][chosen], is_signal, weight)  # noqa: B023

        for row in evaluation.rows_of(signal):
            assert measure(ranked(row.name)).auc == row.metrics.auc
        for pair in evaluation.comparisons:
            if pair.signal == signal:
                assert ranked(pair.name).placements - ranked(pair.other).placements == pair.difference
