"""Scores that need no training: what a detector must beat to be worth its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.events.fingerprints import random_numbers
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
        RANDOM: random_numbers(event_key, seed),
    }
