"""Which of two detectors is better, on the same events: aligned by file and row, differences paired."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from unmask.errors import BadDataError, UsageError
from unmask.evaluation.intervals import Estimate
from unmask.evaluation.ranked_scores import Placements, RankedScores
from unmask.events.columns import Names
from unmask.scores.score_table import Scores

_WHAT_TO_DO = "score the same files with both, or evaluate them one by one"


@dataclass(frozen=True)
class Difference(Estimate):
    """A difference, its interval, and the p-value (two-sided) of there being none."""

    p_value: float


def auc_difference(
    score: npt.NDArray[Any],
    other: npt.NDArray[Any],
    is_signal: npt.NDArray[np.bool_],
    weight: npt.NDArray[Any] | None = None,
    *,
    confidence: float = 0.95,
) -> Difference:
    """AUC of ``score`` less that of ``other`` on the same events, with DeLong's interval for paired samples.

    >>> auc_difference(np.array([1, 2, 3, 4]), np.array([4, 2, 3, 1]), np.array([False, False, True, True])).value
    0.75
    """
    one, two = (RankedScores.of(each, is_signal, weight).placements for each in (score, other))
    return difference_of(one, two, confidence)


def difference_of(one: Placements, other: Placements, confidence: float) -> Difference:
    """The difference of two areas; both must be of the same events in the same order."""
    if len(one.signal) != len(other.signal) or len(one.background) != len(other.background):
        raise UsageError("scores of different events cannot be compared in pairs")
    paired = Placements(
        one.signal - other.signal, one.background - other.background, one.signal_weight, one.background_weight
    )
    value, error = paired.mean(), float(np.sqrt(paired.variance()))
    half = float(ndtri((1 + confidence) / 2)) * error
    p_value = float(2 * ndtr(-abs(value) / error)) if error else float(value == 0)
    return Difference(value, value - half, value + half, p_value)


def align(scores: Scores, reference: Scores, *, name: str, reference_name: str) -> Scores:
    """Give ``scores`` in the order of ``reference``; events are known by file name and row.

    Raises
    ------
    BadDataError
        If they hold other events, known by their trivial scores too, or the same with other labels or weights.
    """
    both = f"{name} and {reference_name}"
    keys, reference_keys = _keys(scores, reference)
    order, reference_order = (np.argsort(each, kind="stable") for each in (keys, reference_keys))
    if not np.array_equal(keys[order], reference_keys[reference_order]):
        n_missing = np.count_nonzero(~np.isin(reference_keys, keys))
        raise BadDataError(
            f"{both} hold scores of different events ({len(scores):,} and {len(reference):,}; {n_missing:,} of "
            f"{reference_name} are not in {name}): {_WHAT_TO_DO}"
        )
    place = np.empty_like(order)
    place[reference_order] = order
    aligned = select(scores, place)
    for column in ("event_id", "label", "weight"):
        n_other = np.count_nonzero(getattr(aligned, column) != getattr(reference, column))
        if n_other:
            raise BadDataError(f"{both}: the {column} of {n_other:,} events is not the same in both")
    n_other_content = _n_other_content(aligned, reference)
    if n_other_content:
        raise BadDataError(
            f"{both} hold scores of different events ({n_other_content:,} of {len(reference):,} have the same file "
            f"name and row but other content: number of objects, HT, MET or number of b-jets): {_WHAT_TO_DO}"
        )
    return aligned


def _n_other_content(aligned: Scores, reference: Scores) -> int:
    """How many events have other trivial scores, of those that both have."""
    is_other = np.zeros(len(reference), np.bool_)
    columns, others = aligned.scalars or {}, reference.scalars or {}
    for name in columns.keys() & others.keys():
        one, other = (np.asarray(column, np.float64) for column in (columns[name], others[name]))
        is_other |= (one != other) & ~(np.isnan(one) & np.isnan(other))
    return int(np.count_nonzero(is_other))


def select(scores: Scores, chosen: npt.NDArray[Any]) -> Scores:
    """Some of the events, in a chosen order."""
    picked: dict[str, Any] = {}
    for field in fields(scores):
        value = getattr(scores, field.name)
        if isinstance(value, Names):
            picked[field.name] = Names(value.code[chosen], value.words)
        elif isinstance(value, dict):
            picked[field.name] = {key: column[chosen] for key, column in value.items()}
        else:
            picked[field.name] = None if value is None else value[chosen]
    return Scores(**picked)


def _keys(*each: Scores) -> list[npt.NDArray[np.int64]]:
    """A number for every (file, row), the same in all of the scores."""
    files = Names.concatenate([scores.file_names for scores in each])
    # The place among all rows: event ids, of any size and sign, may stand for rows.
    values, rows = np.unique(np.concatenate([scores.row for scores in each]), return_inverse=True)
    keys = files.code.astype(np.int64) * len(values) + rows
    return np.split(keys, np.cumsum([len(scores) for scores in each])[:-1])
