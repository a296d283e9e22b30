"""Scores to test with."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.evaluation.roc import RankedScores, Roc
from unmask.events.columns import Names
from unmask.scores.intervals import Estimate
from unmask.scores.score_table import Scores


def toy_scores(score: npt.ArrayLike, label: npt.ArrayLike, **columns: Any) -> Scores:
    """Scores of the first events of one file; signal of one process, everything else of another."""
    score, label = np.asarray(score, np.float64), np.asarray(label, np.int8)
    n = len(score)
    known: dict[str, Any] = {
        "row": np.arange(n),
        "event_id": np.arange(n) * 7,
        "file_names": Names.constant("events.csv", n),
        "process_names": Names.of("signal" if one == 1 else "background" for one in label),
        "weight": np.ones(n),
    }
    return Scores(score=score, label=label, **known | columns)


def roc_curve(*scored: Any) -> Roc:
    """The curve of scores, whether they are of signal and, if given, their weights."""
    return Roc.of(RankedScores.of(*scored))


def roc_auc(*scored: Any) -> Estimate:
    """The area under that curve."""
    return RankedScores.of(*scored).placements.auc()


def toy_observables(label: npt.NDArray[np.int8], seed: int = 0) -> dict[str, npt.NDArray[Any]]:
    """Numbers an event has; signal has more of everything, mostly of HT."""
    rng = np.random.default_rng(seed)
    return {
        "n_objects": rng.poisson(6 + label),
        "ht_mev": rng.exponential(2e5 * (1 + 2 * label)),
        "met_mev": rng.exponential(5e4 * (1 + label)),
        "n_b_jets": rng.poisson(1 + 0.5 * label),
        "n_jets": rng.poisson(4 + label),
        "sum_pt_mev": rng.exponential(2e5 * (1 + label)),
    }
