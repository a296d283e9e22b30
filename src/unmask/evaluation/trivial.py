"""Scores that need no training: what a detector must beat to be worth its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

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
    surprise = -np.log(
        [upper_p_value(values, values[is_background], weight[is_background]) for values in scores.values()]
    )
    return scores | {
        FISHER: surprise.sum(axis=0),
        SMALLEST: surprise.max(axis=0),
        RANDOM: np.random.default_rng(seed).random(len(weight)),
    }


def upper_p_value(values: FloatArray, reference: FloatArray, weight: FloatArray) -> FloatArray:
    """P(this or more) for each value among weighted reference values: (1 + n) / (1 + N) in effective numbers.

    >>> upper_p_value(np.array([0.0, 2.0, 9.0]), np.array([1.0, 2.0, 3.0]), np.ones(3))
    array([1.  , 0.75, 0.25])
    """
    n_effective = weight.sum() ** 2 / (weight**2).sum()
    return np.asarray((1 + n_effective * share_at_least(values, reference, weight)) / (1 + n_effective))


def share_at_least(values: FloatArray, reference: FloatArray, weight: FloatArray) -> FloatArray:
    """Share of the reference at or above each value."""
    order = np.argsort(reference, kind="stable")
    above = np.concatenate([np.cumsum(weight[order][::-1])[::-1], [0.0]])
    return np.asarray(above[np.searchsorted(reference[order], values, side="left")] / above[0])
