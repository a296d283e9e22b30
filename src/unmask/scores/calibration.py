"""From scores to background p-values: the scores of held-out background, a threshold, and what lies above it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unmask.artifacts import Artifact, Json, load_artifact, provenance, save_artifact
from unmask.errors import BadDataError, UsageError
from unmask.evaluation.comparison import select
from unmask.evaluation.intervals import Estimate, clopper_pearson
from unmask.evaluation.ranked_scores import FloatArray
from unmask.evaluation.roc import MIN_BACKGROUND_EVENTS
from unmask.events.columns import IDENTITY_TYPES, identity_to_arrow
from unmask.events.event_set import SIGNAL
from unmask.scores.score_table import Scores, concatenate_scores, origin_of_file, stream_scores
from unmask.tables import TableKind, TableWriter, table_files

KIND = "calibration"
_P_VALUES = ("p_value", "p_value_low", "p_value_high")
FLAGGED_TABLE = TableKind(
    "flagged events",
    version=1,
    columns=IDENTITY_TYPES | dict.fromkeys(("score", *_P_VALUES), pa.float64()),
    dictionaries=("file", "process", "label", "weight"),
)


@dataclass(frozen=True)
class ScoredBy:
    """What made the scores of a file: the hash of the model and the way its losses became a score, where known."""

    model: str | None = None
    score: str | None = None

    @classmethod
    def of_files(cls, paths: Sequence[str | Path]) -> ScoredBy:
        """Read it from the provenance of scores files, or folders of parts; they must agree."""
        found = {}
        for path in paths:
            for part in table_files(path):
                origin = origin_of_file(part)
                found[cls(origin.get("model"), origin.get("score"))] = part
        if len(found) > 1:
            one, other = list(found.items())[:2]
            raise UsageError(f"{one[1]} and {other[1]} hold scores of different models ({one[0]} and {other[0]})")
        return next(iter(found))

    def __str__(self) -> str:
        return f"model {(self.model or 'unknown')[:12]}, score {self.score or 'unknown'}"


@dataclass(frozen=True, eq=False)
class Calibration:
    """The scores of background events, which turn any score of the same model into a p-value.

    Attributes
    ----------
    score : (n_values,), the distinct scores, rising.
    share_above : (n_values,), share of the background with this score or more.
    variance_above : (n_values,), sum of the squared weights there, of weights that add up to 1.
    threshold : events with this score or more are flagged; their p-values are at most ``wanted``.
    wanted : the background efficiency that was asked for.
    achieved : the share of the calibration events above the threshold, with its interval.
    scored_by : the model that the scores are of.
    event_key : (n_events,), by which the events are known again.
    """

    score: FloatArray
    share_above: FloatArray
    variance_above: FloatArray
    threshold: float
    wanted: float
    achieved: Estimate
    scored_by: ScoredBy
    event_key: npt.NDArray[np.int64]

    @property
    def n_effective(self) -> float:
        """Effective number of background events."""
        return float(1 / self.variance_above[0])

    def p_values(self, score: npt.NDArray[np.float64], *, confidence: float = 0.95) -> tuple[FloatArray, ...]:
        """P-values with the lower and upper ends of their intervals, each (n_events,).

        A p-value is (1 + n) / (1 + N): n of N background events have this score or more. Being never zero it is valid
        for any N; the interval (Clopper and Pearson) says how well the share of all background is known.
        """
        _check_finite(score)
        place = np.searchsorted(self.score, score, side="left")
        share, variance = (np.append(column, 0.0)[place] for column in (self.share_above, self.variance_above))
        value = (1 + self.n_effective * share) / (1 + self.n_effective)
        return (value, *_interval_of_share(share, variance, self.variance_above[0], confidence))

    @property
    def n_repeated(self) -> int:
        """How many of its events (file name and row) it was given before."""
        keys = np.sort(self.event_key)
        return int(np.count_nonzero(keys[1:] == keys[:-1]))

    def n_known(self, scores: Scores) -> int:
        """How many events are among those that the calibration was made with."""
        return int(np.isin(scores.event_key, self.event_key).sum())

    def save(self, folder: str | Path) -> None:
        """Write it to a folder."""
        settings: dict[str, Json] = {
            "threshold": self.threshold,
            "background_efficiency": self.wanted,
            "achieved": vars(self.achieved),
            "n_events": len(self.event_key),
            "n_effective": self.n_effective,
            "scored_by": vars(self.scored_by),
        }
        names = ("score", "share_above", "variance_above", "event_key")
        arrays = {name: getattr(self, name) for name in names}
        save_artifact(folder, Artifact(KIND, settings, arrays, provenance()))

    @classmethod
    def load(cls, folder: str | Path) -> Calibration:
        """Read what :meth:`save` wrote, after checking it."""
        saved = load_artifact(folder, KIND)
        return cls(
            **saved.arrays,
            threshold=saved.settings["threshold"],
            wanted=saved.settings["background_efficiency"],
            achieved=Estimate(**saved.settings["achieved"]),
            scored_by=ScoredBy(**saved.settings["scored_by"]),
        )


def calibrate(
    background: Scores,
    *,
    background_efficiency: float,
    scored_by: ScoredBy | None = None,
    confidence: float = 0.95,
) -> Calibration:
    """Find the threshold above which at most ``background_efficiency`` of held-out background lies.

    Events labelled background, or not labelled (a control region), are accepted. With negative weights the share above
    a score can fall below that above a higher one; then the larger of the two counts, so that a p-value never grows
    with the score and is rather too large than too small.

    Raises
    ------
    UsageError
        If events are labelled signal, or the efficiency is not between 0 and 1.
    BadDataError
        If scores are not finite, the sum of weights is not positive, or fewer than ten events are above the threshold.
    """
    if not 0 < background_efficiency < 1:
        raise UsageError(f"background efficiency {background_efficiency:g}: must be between 0 and 1")
    n_signal = np.count_nonzero(background.label == SIGNAL)
    if n_signal:
        raise UsageError(f"{n_signal:,} of {len(background):,} events are labelled signal; calibrate with background")
    _check_finite(background.score)
    _check_finite(background.weight, "weights")
    if background.weight.sum() <= 0:
        raise BadDataError("the weights of the background events do not add up to a positive number")
    weight = background.weight / background.weight.sum()
    values, code = np.unique(background.score, return_inverse=True)
    sums = [np.bincount(code, weight**power) for power in (1, 2)]
    share, variance = (np.asarray(np.cumsum(each[::-1])[::-1], np.float64) for each in sums)
    share = np.clip(np.maximum.accumulate(share[::-1])[::-1], 0.0, 1.0)
    share[0] = 1.0  # whatever was rounded on the way
    n_effective = 1 / variance[0]
    fits = (1 + n_effective * share) / (1 + n_effective) <= background_efficiency
    n_above = share**2 / variance
    if not fits.any() or n_above[fits.argmax()] < MIN_BACKGROUND_EVENTS * (1 - 1e-9):
        n_found = n_above[fits.argmax()] if fits.any() else 0
        raise BadDataError(
            f"only {n_found:.1f} of {n_effective:,.1f} background events (effective numbers) would be above the "
            f"threshold for an efficiency of {background_efficiency:g}; at least {MIN_BACKGROUND_EVENTS} are needed: "
            "calibrate with more events, or with scores that are less often equal"
        )
    chosen = int(fits.argmax())
    low, high = _interval_of_share(share[[chosen]], variance[[chosen]], variance[0], confidence)
    return Calibration(
        score=values,
        share_above=share,
        variance_above=variance,
        threshold=float(values[chosen]),
        wanted=background_efficiency,
        achieved=Estimate(float(share[chosen]), float(low[0]), float(high[0])),
        scored_by=scored_by or ScoredBy(),
        event_key=np.sort(background.event_key),
    )


@dataclass(frozen=True, eq=False)
class Flagged:
    """Events above the threshold, the least likely first.

    Attributes
    ----------
    n_events, weight : number and sum of weights of all events, flagged or not.
    n_known : how many of all events are those that the calibration was made with.
    n_trained_on : how many of all events the detector has learnt from, as far as that is known.
    """

    scores: Scores
    p_value: FloatArray
    low: FloatArray
    high: FloatArray
    n_events: int
    weight: float
    n_known: int
    n_trained_on: int

    @property
    def notes(self) -> list[str]:
        """Why p-values are not what they should be."""
        reasons = {
            "are those of the calibration: their p-values say nothing new": self.n_known,
            "were in the training of the detector: their p-values are too large": self.n_trained_on,
        }
        return [f"{n:,} of {self.n_events:,} events {reason}" for reason, n in reasons.items() if n]

    def write(self, path: str | Path, *, facts: dict[str, Json] | None = None) -> None:
        """Write them as a Parquet table."""
        with TableWriter(path, FLAGGED_TABLE, {"provenance": facts or {}}) as writer:
            writer.write(self.columns())

    def columns(self) -> dict[str, pa.Array]:
        """The columns of the table."""
        numbers = zip(("score", *_P_VALUES), (self.scores.score, self.p_value, self.low, self.high), strict=True)
        return identity_to_arrow(self.scores) | {name: pa.array(values) for name, values in numbers}


def flag(calibration: Calibration, paths: Sequence[str | Path]) -> Flagged:
    """Find the events of scores files that lie above the threshold, in bounded memory.

    Raises
    ------
    UsageError
        If the scores are known to be of another model than the calibration, or a file is given twice.
    """
    if len({Path(path).resolve() for path in paths}) < len(paths):
        raise UsageError("a scores file is given twice")
    scored_by = ScoredBy.of_files(paths)
    for fact in ("model", "score"):
        known = {getattr(each, fact) for each in (scored_by, calibration.scored_by)} - {None}
        if len(known) > 1:
            raise UsageError(
                f"the scores are of another model ({scored_by}) than the calibration ({calibration.scored_by}): "
                "calibrate with background scored by the same model"
            )
    n_events, weight, n_known, n_trained_on = 0, 0.0, 0, 0
    kept = []
    for chunk in _chunks(paths):
        n_events += len(chunk)
        weight += float(chunk.weight.sum())
        n_known += calibration.n_known(chunk)
        n_trained_on += 0 if chunk.was_trained_on is None else int(chunk.was_trained_on.sum())
        _check_finite(chunk.score)
        _check_finite(chunk.weight, "weights")
        kept.append(select(chunk, chunk.score >= calibration.threshold))
    if not kept:
        raise UsageError("the scores files hold no events")
    flagged = concatenate_scores(kept)
    flagged = select(flagged, np.argsort(-flagged.score, kind="stable"))
    value, low, high = calibration.p_values(flagged.score)
    return Flagged(flagged, value, low, high, n_events, weight, n_known, n_trained_on)


def _check_finite(values: npt.NDArray[np.float64], name: str = "scores") -> None:
    n_bad = np.count_nonzero(~np.isfinite(values))
    if n_bad:
        raise BadDataError(f"{n_bad:,} of {len(values):,} {name} are NaN or infinite")


def _chunks(paths: Sequence[str | Path]) -> Iterator[Scores]:
    for path in paths:
        yield from stream_scores(path)


def _interval_of_share(
    share: FloatArray, square: FloatArray, all_squares: float, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Clopper and Pearson's interval of a weighted share, with as many events as give its variance."""
    spread = square * (1 - share) ** 2 + (all_squares - square) * share**2
    binomial = share * (1 - share)
    n_events = np.divide(binomial, spread, out=np.full_like(share, 1 / all_squares), where=spread > 0)
    return clopper_pearson(n_events * share, n_events, confidence)
