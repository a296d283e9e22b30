"""Scores from the p-values of others: several detectors combined, and untrained baselines from observables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.errors import BadDataError, UsageError, nearest
from unmask.events.event_set import BACKGROUND, SIGNAL
from unmask.events.fingerprints import is_leak, random_numbers
from unmask.scores.p_values import COMBINE, Array, BackgroundTail, Rule, p_values
from unmask.scores.score_table import COLUMNS, Scores, align

#: Names of untrained scores that are not observables.
PRODUCT = "observables, product"
MIN_P = "observables, min p"
RANDOM = "random"


def combine(
    scores: Mapping[str, Scores], background: Mapping[str, Scores] | None = None, *, rule: Rule = "product"
) -> Scores:
    """Combine scores of the same events; each becomes minus the logarithm of its p-value first.

    Parameters
    ----------
    scores
        Two or more, by names for messages.
    background
        For each of them, in the same order, scores by the same detector of background events that are neither training
        events nor among ``scores``; by default the events of ``scores`` that are labeled background. Half of them (see
        :func:`gives_terms`) give the p-values and are left out of the result. The others, combined, calibrate the
        combination.
    rule
        "average" of the p-values; "and": the largest, so that all scores must be high; "or": the smallest, so that one
        is enough; "product". A combination is no p-value itself, and the product follows no chi-square distribution:
        scores of one event are correlated.
    """
    if rule not in COMBINE:
        raise UsageError(f"unknown rule {rule!r}; {nearest(rule, COMBINE)}")
    if len(scores) < 2 or len(background or scores) != len(scores):
        raise UsageError(
            f"{len(scores)} scores and {len(background or {})} background scores; expected two or more scores, and "
            "background scores for all or for none"
        )
    first, reference = next(iter(scores.items()))
    aligned = [
        reference if one is reference else align(one, reference, name=name, reference_name=first)
        for name, one in scores.items()
    ]
    halves = {name: one[gives_terms(one)] for name, one in background.items()} if background else {}
    if not background:
        in_half = gives_terms(reference) & (reference.label == BACKGROUND)
        halves = {name: one[in_half] for name, one in zip(scores, aligned, strict=True)}
        aligned = [one[~in_half] for one in aligned]
    tails = [_tail(name, each, one) for (name, each), one in zip(halves.items(), aligned, strict=True)]
    minus_log_p = np.stack([tail.minus_log_p_of(one.score) for tail, one in zip(tails, aligned, strict=True)])
    known = [one.was_trained_on for one in aligned if one.was_trained_on is not None]
    trained_on = np.logical_or.reduce(known) if known else None
    return replace(aligned[0], score=COMBINE[rule](minus_log_p), token_loss=None, was_trained_on=trained_on)


def gives_terms(scores: Scores) -> npt.NDArray[np.bool_]:
    """Which events, of held-out background, give the p-values that are combined: about half of them, by file and row.

    The others are for the calibration of the combined score. Were they the same, each would count among those that its
    own terms are compared with, so that it were less extreme than a new event, and small p-values came too often.
    """
    key = scores.key_with([PurePath(file).name for file in scores.file_names.words])
    return np.asarray(key >> 40 & 1 == 0)  # the key of an event is a random number


def _tail(name: str, background: Scores, scores: Scores) -> BackgroundTail:
    """The p-values of one detector, from background that it was not trained on and that is not scored."""
    n = len(background)
    if not n:
        raise UsageError(f"{name}: no background events for p-values; give scores of some with --background")
    if (background.label == SIGNAL).any():
        raise UsageError(f"{name}: some events are labeled signal; p-values need background events alone")
    if not np.isfinite(background.score).all() or not np.isfinite(scores.score).all():
        raise BadDataError(f"{name}: some scores are NaN or infinite")
    # Without a file name, as in files that unmask did not write, a row says nothing of what the event is.
    has_file = np.array([word != "" for word in background.file_names.words])[background.file_names.code]
    n_tested = int(np.count_nonzero(has_file & np.isin(background.event_key, scores.event_key)))
    for n_known, what in ((background.n_trained_on, "training events of the detector"), (n_tested, "also scored")):
        if is_leak(n_known, n):
            raise UsageError(
                f"{name}: {n_known:,} of {n:,} background events are {what}; p-values need others, such as validation "
                "events"
            )
    return BackgroundTail.of(background.score)


def untrained_scores(
    observables: Mapping[str, npt.NDArray[Any]],
    is_background: npt.NDArray[np.bool_],
    weight: Array,
    event_key: npt.NDArray[np.int64],
    *,
    seed: int = 0,
) -> Iterator[tuple[str, Array]]:
    """Give names and baseline scores one after the other, from the observables that are known, by their columns.

    For the combinations each observable becomes its p-value in the background of the same events: that is what a search
    would take from its control region, and it knows nothing of the signal. Chance is that of the event (``event_key``,
    see :class:`Scores`) and the ``seed``: no order of the events, and no other event, changes it.
    """
    combined: list[Array] = []
    for name in (name for name in COLUMNS if name in observables):
        score = np.asarray(observables[name], np.float64)
        yield COLUMNS[name].label, score
        if COLUMNS[name].is_combined:
            minus_log_p = -np.log(p_values(score[is_background], score, weight[is_background]))
            product, largest = combined or (np.zeros(len(score)), np.zeros(len(score)))
            combined = [product + minus_log_p, np.maximum(largest, minus_log_p)]
    yield from zip((PRODUCT, MIN_P), combined, strict=False)
    yield RANDOM, random_numbers(event_key, seed)
