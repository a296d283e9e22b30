"""Untrained baseline scores: global observables, two combinations of their p-values, and chance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.scores.intervals import FloatArray
from unmask.scores.p_values import COMBINE, p_values
from unmask.scores.score_table import COLUMNS

FISHER = "observables, Fisher"
MIN_P = "observables, min p"
RANDOM = "random"


def untrained_scores(
    observables: Mapping[str, npt.NDArray[Any]],
    is_background: npt.NDArray[np.bool_],
    weight: FloatArray,
    event_key: npt.NDArray[np.int64],
    *,
    seed: int = 0,
) -> dict[str, FloatArray]:
    """Baseline scores by name, from the observables that are known, by their columns.

    For the combinations each observable becomes its p-value in the background of the same events: that is what a search
    would take from its control region, and it knows nothing of the signal. Chance is that of the event (``event_key``,
    see :class:`Scores`) and the ``seed``: no order of the events, and no other event, changes it.
    """
    scores = {COLUMNS[name].label: np.asarray(observables[name], np.float64) for name in COLUMNS if name in observables}
    combined = [scores[one.label] for one in COLUMNS.values() if one.is_combined and one.label in scores]
    if combined:
        p = [p_values(values[is_background], values, weight[is_background]) for values in combined]
        minus_log_p = -np.log(p)
        scores |= {FISHER: COMBINE["product"](minus_log_p), MIN_P: COMBINE["or"](minus_log_p)}
    return scores | {RANDOM: _random_numbers(event_key, seed)}


def _random_numbers(event_key: npt.NDArray[np.int64], seed: int) -> FloatArray:
    """Numbers from 0 to 1 that look random, each made of a key and the seed: the finalizer of SplitMix64."""
    mixed = event_key.astype(np.uint64) + np.random.default_rng(seed).integers(0, 1 << 63, dtype=np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray((mixed ^ (mixed >> np.uint64(31))) / 2.0**64, np.float64)
