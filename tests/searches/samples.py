"""Background, data and signal of a search whose truth is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.evaluation.toy_scores import toy_scores
from unmask.events.columns import Names
from unmask.scores.score_table import Scores


def background(n: int, seed: int = 0, **columns: Any) -> Scores:
    """Simulated background; its p-value is exp(-score)."""
    return toy_scores(np.random.default_rng(seed).exponential(size=n), np.zeros(n), **columns)


def signal(n: int, seed: int = 1, strength: float = 50.0) -> Scores:
    """A signal of ``strength`` expected events, nearly all of which are more anomalous than background."""
    score = 4 + np.random.default_rng(seed).exponential(size=n)
    return toy_scores(score, np.ones(n), weight=np.full(n, strength / n), file_names=Names.constant("signal.csv", n))


def data(n: int, seed: int = 2, n_signal: int = 0, signal_from: float = 4) -> Scores:
    """Data: a Poisson number of background events about ``n``, and signal events."""
    rng = np.random.default_rng(seed)
    score = np.concatenate([rng.exponential(size=rng.poisson(n)), signal_from + rng.exponential(size=n_signal)])
    run = {"run": np.full(len(score), 315257)}
    return toy_scores(score, np.full(len(score), -1), file_names=Names.constant("data.csv", len(score)), further=run)
