"""Scores that need no training: what a detector must beat to be worth its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.detectors.p_values import p_values

FloatArray = npt.NDArray[np.float64]

#: Column of a scores file -> name of the score.
SCALAR_NAMES = {
    "n_objects": "number of objects",
    "ht_mev": "HT",
    "met_mev": "MET",
    "n_b_jets": "number of b-jets",
}
FISHER = "trivial four (Fisher)"
SMALLEST = "trivial four (smallest)"
RANDOM = "random"


def trivial_scores(
    scalars: Mapping[str, npt.NDArray[Any]],
    is_background: npt.NDArray[np.bool_],
    weight: FloatArray,
    *,
    seed: int = 0,
) -> dict[str, FloatArray]:
    """Scores by name: four numbers an event has, two combinations of these, and chance.

    For the combinations each number becomes a background p-value, P(this or more). Fisher's score is the sum of
    -log p, the other that of the smallest p alone. The p-values come from the background of the same events: that is
    what a search would take from its control region, and it knows nothing of the signal.
    """
    scores = {name: np.asarray(scalars[column], np.float64) for column, name in SCALAR_NAMES.items()}
    surprise = -np.log([p_values(values[is_background], values, weight[is_background]) for values in scores.values()])
    return scores | {
        FISHER: surprise.sum(axis=0),
        SMALLEST: surprise.max(axis=0),
        RANDOM: np.random.default_rng(seed).random(len(weight)),
    }
