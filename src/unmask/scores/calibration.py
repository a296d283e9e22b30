"""Calibration of scores with held-out background: p-values, a threshold, and the events above it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from unmask.artifacts import Artifact, Json, checked, load_artifact, provenance, save_artifact
from unmask.errors import ArtifactError, BadDataError, UsageError, damage_named
from unmask.events.event_set import SIGNAL
from unmask.scores.explanations import explained_path, read_explanations
from unmask.scores.flagged import Flagged
from unmask.scores.intervals import MIN_BACKGROUND_EVENTS, Estimate, FloatArray, check_finite, is_supported
from unmask.scores.p_values import BackgroundTail, Survival
from unmask.scores.score_table import COLUMNS, Scores, concatenate_scores, origin_of_file, stream_scores
from unmask.tables import table_files

KIND = "calibration"


@dataclass(frozen=True)
class ScoredBy:
    """Origin of the scores of a file: the hash of the model and the name of its score, where known."""

    model: str | None = None
    score: str | None = None

    @classmethod
    def of_files(cls, paths: Sequence[str | Path]) -> ScoredBy:
        """Read it from the provenance of scores files, or folders of parts; they must agree."""
        origins = {part: origin_of_file(part) for path in paths for part in table_files(path)}
        files = {cls(origin.get("model"), origin.get("score")): part for part, origin in origins.items()}
        if len(files) > 1:
            one, other = list(files.items())[:2]
            raise UsageError(f"{one[1]} and {other[1]} hold scores of different models ({one[0]} and {other[0]})")
        return next(iter(files))

    def __str__(self) -> str:
        return f"model {(self.model or 'unknown')[:12]}, score {self.score or 'unknown'}"


@dataclass(frozen=True)
class _Saved:
    """Settings in the manifest of a calibration."""

    threshold: float
    background_efficiency: dict[str, float]
    scored_by: ScoredBy


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores of held-out background: they turn any score of the same model into a p-value.

    Attributes
    ----------
    threshold
        Events with this score or more are flagged; their p-values are at most ``target``.
    target, measured
        The background efficiency that was asked for, and that of the threshold on the calibration events.
    event_key
        Keys of the calibration events (n_events,), sorted.
    observables
        Tails of the observables of these events by their columns in scores files: they tell what is unusual in an
        event that the detector does not explain.
    """

    survival: Survival
    threshold: float
    target: float
    measured: Estimate
    scored_by: ScoredBy
    event_key: npt.NDArray[np.int64]
    observables: dict[str, BackgroundTail] = field(default_factory=dict)

    def __repr__(self) -> str:
        return (
            f"Calibration(score >= {self.threshold:.6g}: background efficiency {self.measured} "
            f"on {len(self.event_key):,} events; target {self.target:g})"
        )

    def p_values(self, scores: Scores | npt.NDArray[np.float64]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """P-values (n_events,) with the lower and upper ends of their intervals; see :class:`Survival`."""
        score = scores.score if isinstance(scores, Scores) else scores
        check_finite(score)
        return self.survival.p_values(score), *self.survival.intervals(score)

    def save(self, folder: str | Path) -> None:
        """Write it to a folder."""
        settings: dict[str, Json] = {
            "threshold": self.threshold,
            "background_efficiency": {"target": self.target, **vars(self.measured)},
            "n_events": len(self.event_key),
            "n_effective": self.survival.n_effective,
            "scored_by": vars(self.scored_by),
        }
        arrays = vars(self.survival) | {"event_key": self.event_key}
        for name, tail in self.observables.items():
            arrays |= tail.arrays(name)
        save_artifact(folder, Artifact(KIND, settings, arrays, provenance()))

    @classmethod
    def load(cls, folder: str | Path) -> Calibration:
        """Read what :meth:`save` wrote, after checking it."""
        saved = load_artifact(folder, KIND)
        known = checked(_Saved, saved.settings, Path(folder))
        arrays, efficiency = saved.arrays, dict(known.background_efficiency)
        if not {part.name for part in fields(Survival)} <= arrays.keys():
            raise ArtifactError("made by another version; run unmask calibrate again", path=Path(folder))
        with damage_named(Path(folder), "does not hold a whole calibration", error=ArtifactError):
            target, key = efficiency.pop("target"), arrays["event_key"]
            survival = Survival(**{part.name: arrays[part.name] for part in fields(Survival)})
            tails = {name: BackgroundTail.from_arrays(arrays, name) for name in COLUMNS if f"{name}.value" in arrays}
            made = cls(survival, known.threshold, target, Estimate(**efficiency), known.scored_by, key, tails)
            sizes = [array.shape for array in vars(survival).values()]
            if sizes != [(n := len(survival.score),), *3 * [(n + 1,)]] or not n or key.ndim != 1:
                raise ValueError(f"arrays of shapes {sizes}")
            if not np.isfinite(np.concatenate([[known.threshold], *arrays.values()])).all():
                raise ValueError("numbers that are NaN or infinite")
            for tail in tails.values():
                tail.minus_log_p_of(np.zeros(1))
        return made

    def flag(self, scores: Scores | str | Path | Sequence[str | Path]) -> Flagged:
        """Find the events above the threshold, in memory or in scores files (these in bounded memory).

        Explanations beside the files give the reasons of their events.

        Raises
        ------
        UsageError
            If the scores are known to be of another model than the calibration, or a file is given twice.
        """
        if isinstance(scores, Scores):
            return self._flag([scores])
        paths = [scores] if isinstance(scores, str | Path) else scores
        if len({Path(path).resolve() for path in paths}) < len(paths):
            raise UsageError("a scores file is given twice")
        scored_by = ScoredBy.of_files(paths)
        for name in ("model", "score"):
            known = {getattr(each, name) for each in (scored_by, self.scored_by)} - {None}
            if len(known) > 1:
                raise UsageError(
                    f"the scores are of another model ({scored_by}) than the calibration ({self.scored_by}): "
                    "calibrate with background scored by the same model"
                )
        reasons = {
            (event.file, event.row): event.reason
            for path in map(explained_path, paths)
            if path.exists()
            for event in read_explanations(path).events
        }
        return self._flag((chunk for path in paths for chunk in stream_scores(path)), reasons)

    def _flag(self, chunks: Iterable[Scores], explained: Mapping[tuple[str, int], str] | None = None) -> Flagged:
        n_events, weight, n_known, n_trained_on = 0, 0.0, 0, 0
        kept = []
        for chunk in chunks:
            check_finite(chunk.score)
            check_finite(chunk.weight, "weights")
            n_events += len(chunk)
            weight += float(chunk.weight.sum())
            n_known += int(np.isin(chunk.event_key, self.event_key).sum())
            n_trained_on += chunk.n_trained_on
            kept.append(chunk[chunk.score >= self.threshold])
        if not kept:
            raise UsageError("the scores files hold no events")
        flagged = concatenate_scores(kept)
        flagged = flagged[np.argsort(-flagged.score, kind="stable")]
        reason = [
            (explained or {}).get((file, row)) or most_extreme
            for file, row, most_extreme in zip(
                flagged.file.tolist(), flagged.row.tolist(), self._most_extreme(flagged), strict=True
            )
        ]
        return Flagged(flagged, *self.p_values(flagged), reason, n_events, weight, n_known, n_trained_on)

    def _most_extreme(self, scores: Scores) -> list[str]:
        """The observable of each event that is least likely in background, in words; empty where none is known."""
        known = [name for name in self.observables if name in scores.observables]
        if not known:
            return [""] * len(scores)
        minus_log_p = np.stack([self.observables[name].minus_log_p_of(scores.observables[name]) for name in known])
        return [
            f"{COLUMNS[name].label}: {COLUMNS[name].text(scores.observables[name][i])}; "
            f"{self.observables[name].text(minus_log_p[place, i])}"
            for i, place in enumerate(minus_log_p.argmax(axis=0))
            for name in [known[place]]
        ]


def calibrate(
    background: Scores, *, background_efficiency: float = 0.01, scored_by: ScoredBy | None = None
) -> Calibration:
    """Choose the lowest threshold above which at most ``background_efficiency`` of held-out background lies.

    Parameters
    ----------
    background
        Scores of events labeled background, or not labeled (a control region).
    background_efficiency
        Target of the background efficiency.
    scored_by
        Model of the scores; scores of others are then refused.

    Raises
    ------
    UsageError
        If events are labeled signal, or the efficiency is not between 0 and 1.
    BadDataError
        If scores are not finite, the sum of weights is not positive, or fewer than ten events are above the threshold.
    """
    if not 0 < background_efficiency < 1:
        raise UsageError(f"background efficiency {background_efficiency:g}; expected a number between 0 and 1")
    n_signal = np.count_nonzero(background.label == SIGNAL)
    if n_signal:
        raise UsageError(f"{n_signal:,} of {len(background):,} events are labeled signal; calibrate with background")
    check_finite(background.score)
    check_finite(background.weight, "weights")
    if background.weight.sum() <= 0:
        raise BadDataError("the weights of the background events do not add up to a positive number")
    survival = Survival.of(background.score, background.weight)
    chosen = int((survival.p_value <= background_efficiency).argmax())
    # Effective number of the events above, which with weights is not their part of the effective number of all.
    efficiency, n_above = survival.efficiency[chosen], 0.0
    if efficiency > 0 and survival.p_value[chosen] <= background_efficiency:
        n_above = efficiency**2 / survival.variance[chosen]
    if not is_supported(n_above):
        raise BadDataError(
            f"only {n_above:.1f} of {survival.n_effective:,.1f} background events (effective numbers) would be above "
            f"the threshold for an efficiency of {background_efficiency:g}; at least {MIN_BACKGROUND_EVENTS} are "
            "needed: calibrate with more events, or with scores that are less often equal"
        )
    threshold = survival.score[chosen]
    low, high = survival.intervals(threshold[None])
    return Calibration(
        survival,
        threshold=float(threshold),
        target=background_efficiency,
        measured=Estimate(float(efficiency), float(low[0]), float(high[0])),
        scored_by=scored_by or ScoredBy(),
        event_key=np.sort(background.event_key),
        observables={name: BackgroundTail.of(values) for name, values in background.observables.items()},
    )
