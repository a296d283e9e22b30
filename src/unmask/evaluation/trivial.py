"""Scores that need no training: what a detector must beat to be worth its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.events.observables import OBSERVABLES
from unmask.scores.p_values import p_values

FloatArray = npt.NDArray[np.float64]

#: Column of a scores file -> name of the score.
SCALAR_NAMES = {one.column: one.label for one in OBSERVABLES.values()}
#: Those that the combinations are made of.
COMBINED = {one.column: one.label for one in OBSERVABLES.values() if one.is_combined}
FISHER = "trivial four (Fisher)"
SMALLEST = "trivial four (smallest)"
RANDOM = "random"


def trivial_scores(
    scalars: Mapping[str, npt.NDArray[Any]],
    is_background: npt.NDArray[np.bool_],
    weight: FloatArray,
    event_key: npt.NDArray[np.int64],
    *,
    seed: int = 0,
) -> dict[str, FloatArray]:
    """Scores by name: observables of the event that are known, two combinations of four of them, and chance.

    For the combinations each of the four becomes a background p-value, P(this or more). Fisher's score is the sum of
    -log p, the other that of the smallest p alone. The p-values come from the background of the same events: that is
    what a search would take from its control region, and it knows nothing of the signal. Chance is that of the event
    (``event_key``, see :class:`Scores`) and the ``seed``: no order of the events, and no other event, changes it.
    """
    scores = {
        name: np.asarray(scalars[column], np.float64) for column, name in SCALAR_NAMES.items() if column in scalars
    }

    def p_value(values: FloatArray) -> FloatArray:
        distinct, place = np.unique(values, return_inverse=True)  # sorted, they are looked up several times as fast
        return p_values(values[is_background], distinct, weight[is_background])[place]

    used = [p_value(scores[name]) for name in COMBINED.values() if name in scores]
    surprise = -np.log(used or np.ones((1, len(event_key))))
    return scores | {
        FISHER: surprise.sum(axis=0),
        SMALLEST: surprise.max(axis=0),
        RANDOM: _random_numbers(event_key, seed),
    }


def _random_numbers(event_key: npt.NDArray[np.int64], seed: int) -> FloatArray:
    """Numbers from 0 to 1 that look random, each made of a key and the seed: the finaliser of SplitMix64."""
    mixed = event_key.astype(np.uint64) + np.random.default_rng(seed).integers(0, 1 << 63, dtype=np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray((mixed ^ (mixed >> np.uint64(31))) / 2.0**64, np.float64)
