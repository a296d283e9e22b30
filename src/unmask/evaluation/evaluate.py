"""Everything that scores of labelled events say: each detector, the trivial scores beside it, and who is better."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Literal

import numpy as np
import numpy.typing as npt

from unmask.artifacts import Json
from unmask.errors import BadDataError, UsageError
from unmask.evaluation.comparison import Difference, align, difference_of
from unmask.evaluation.metrics import Metrics, measure_ranked
from unmask.evaluation.ranked_scores import RankedScores, check_scores
from unmask.evaluation.trivial import COMBINED, RANDOM, trivial_scores
from unmask.events.event_set import BACKGROUND, SIGNAL, UNKNOWN
from unmask.scores.score_table import Scores

#: Stands for all signal processes together.
ALL_SIGNAL = "all signal"
#: Fewer events than this do not tell how much they fluctuate.
MIN_EVENTS = 10
#: A verdict on one of several signals has the differences of so many detectors, and of the others the names.
_MOST_DIFFERENCES = 3


@dataclass(frozen=True)
class Row:
    """One score against one signal process, or all of them, and all background."""

    name: str
    kind: Literal["detector", "trivial"]
    signal: str
    metrics: Metrics


@dataclass(frozen=True)
class Comparison:
    """AUC of one score less that of another on the same events: one signal process, or all, and all background."""

    name: str
    other: str
    signal: str
    difference: Difference


@dataclass(frozen=True)
class ImprovementOverSignals:
    """Smallest, median and largest total improvement over the signal processes for which it could be measured."""

    minimum: float
    median: float
    maximum: float
    n_signals: int


@dataclass(frozen=True)
class Evaluation:
    """What was measured.

    Attributes
    ----------
    rows : each score against all signal together, and against each process if there are several.
    comparisons : detectors with each other, and each detector with each trivial score; for the same signals as rows.
    improvement_over_signals : by the name of the score, where it was measured for at least one process.
    notes : what a reader must know besides the numbers.
    """

    confidence: float
    n_background: int
    signals: dict[str, int]
    rows: tuple[Row, ...]
    comparisons: tuple[Comparison, ...]
    improvement_over_signals: dict[str, ImprovementOverSignals]
    notes: tuple[str, ...]

    @property
    def selections(self) -> tuple[str, ...]:
        """All signal together, and the signal processes if there are several."""
        return tuple(dict.fromkeys(row.signal for row in self.rows))

    def rows_of(self, signal: str = ALL_SIGNAL) -> tuple[Row, ...]:
        """The rows of one signal process; by default of all together."""
        return tuple(row for row in self.rows if row.signal == signal)

    def comparisons_of(self, signal: str = ALL_SIGNAL) -> tuple[Comparison, ...]:
        """The comparisons on one signal process; by default on all together."""
        return tuple(pair for pair in self.comparisons if pair.signal == signal)

    def to_json(self) -> dict[str, Json]:
        """The same as plain values; efficiencies are keyed by text such as ``0.01``."""
        content = asdict(self)
        for row in content["rows"]:
            efficiencies = row["metrics"]["signal_efficiency"]
            row["metrics"]["signal_efficiency"] = {f"{key:g}": value for key, value in efficiencies.items()}
        return content


def evaluate(
    scores: Mapping[str, Scores],
    *,
    confidence: float = 0.95,
    n_replicas: int = 400,
    seed: int = 0,
    progress: Callable[[float], None] = lambda _: None,
) -> Evaluation:
    """Measure detectors by name, on the same labelled events, with trivial scores beside them.

    Scores of the same events in another order are put in the order of the first. ``progress`` is called with the
    fraction done.

    Raises
    ------
    BadDataError
        If events have no label, scores are not finite, or the scores are of different events.
    UsageError
        If there are no scores, or all events are of one class.
    """
    aligned = _aligned(scores)
    first = next(iter(aligned.values()))
    is_signal, weight = first.label == SIGNAL, first.weight
    notes = notes_on(aligned)
    values = {name: each.score for name, each in aligned.items()}
    scalars = {name: column for each in aligned.values() for name, column in (each.scalars or {}).items()}
    missing = [name for name in COMBINED if name not in scalars]
    if not scalars:
        notes.append("no trivial scores beside the detectors: the scores files hold no numbers of objects, HT and MET")
        trivial = {}
    else:
        if missing:
            names = " and ".join(COMBINED[name] for name in missing)
            notes.append(f"no {names} among the trivial scores: no scores file has the column {', '.join(missing)}")
        trivial = trivial_scores(scalars, first.label == BACKGROUND, weight, first.event_key, seed=seed)
        clash = sorted(trivial.keys() & values.keys())
        if clash:
            raise UsageError(f"{clash[0]!r} is the name of a trivial score; call the detector, or its file, otherwise")
    signals = {word: int(np.count_nonzero(chosen)) for word, chosen in _signal_processes(first).items()}
    rows: list[Row] = []
    comparisons: list[Comparison] = []
    ranked = {name: RankedScores.of(score, is_signal, weight) for name, score in (values | trivial).items()}
    selections = _selections(first)
    for signal, chosen in selections.items():
        some = {name: each[chosen] for name, each in ranked.items()}
        for name, each in some.items():
            kind: Literal["detector", "trivial"] = "detector" if name in values else "trivial"
            found = measure_ranked(each, confidence=confidence, n_replicas=n_replicas, seed=seed)
            rows.append(Row(name, kind, signal, found))
            progress(len(rows) / (len(ranked) * len(selections)))
        comparisons += [
            Comparison(one, other, signal, difference_of(some[one].placements, some[other].placements, confidence))
            for one, other in _pairs(values, trivial)
        ]
    n_background = int(np.count_nonzero(~is_signal))
    notes += [
        f"only {n} events of {name}: their intervals and p-values cannot be trusted"
        for name, n in (("background", n_background), *signals.items())
        if n < MIN_EVENTS
    ]
    notes += _verdicts(comparisons, trivial)
    return Evaluation(
        confidence=confidence,
        n_background=n_background,
        signals=signals,
        rows=tuple(rows),
        comparisons=tuple(comparisons),
        improvement_over_signals=_improvements(rows, list(values | trivial), len(signals)),
        notes=tuple(notes),
    )


def _aligned(scores: Mapping[str, Scores]) -> dict[str, Scores]:
    if not scores:
        raise UsageError("no scores to evaluate")
    (first_name, first), *others = scores.items()
    for name, each in scores.items():
        if not len(each):
            raise BadDataError("holds no events", path=name)
        n_unknown = np.count_nonzero(each.label == UNKNOWN)
        if n_unknown:
            raise BadDataError(
                f"{n_unknown:,} of {len(each):,} events have no label; score files with --label or --signal-process",
                path=name,
            )
        try:
            check_scores(each.score, each.label == SIGNAL, each.weight)
        except BadDataError as error:
            raise BadDataError(str(error), path=name) from None
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from None
        if ALL_SIGNAL in _signal_processes(each):
            raise UsageError(f"{name}: a process is called {ALL_SIGNAL!r}, which stands for all of them together")
    return {first_name: first} | {
        name: align(each, first, name=name, reference_name=first_name) for name, each in others
    }


def notes_on(scores: Mapping[str, Scores]) -> list[str]:
    """What must be known of scores, whether or not the events have labels."""
    notes = []
    for name, each in scores.items():
        if each.score.min() == each.score.max():
            notes.append(f"constant score: {name} gives all events the score {each.score[0]:g}")
        n_seen = 0 if each.was_trained_on is None else np.count_nonzero(each.was_trained_on)
        if n_seen:
            notes.append(f"{name} was trained on {n_seen:,} of these {len(each):,} events: its numbers are too good")
        if each.weight.min() < 0:
            notes.append(f"negative weights in {name}: only the AUC is measured")
        if each.n_repeated:
            notes.append(
                f"{each.n_repeated:,} of the {len(each):,} events of {name} are there more than once (same file name "
                "and row): its intervals are too narrow"
            )
    return notes


def _signal_processes(scores: Scores) -> dict[str, npt.NDArray[np.bool_]]:
    """Signal events by process."""
    process = scores.process_names
    found = {word: (scores.label == SIGNAL) & (process.code == i) for i, word in enumerate(process.words)}
    return {word: chosen for word, chosen in found.items() if chosen.any()}


def _selections(scores: Scores) -> dict[str, npt.NDArray[np.bool_]]:
    """All events; and if there are several signal processes, each of them with all background."""
    processes = _signal_processes(scores)
    selections = {ALL_SIGNAL: np.ones(len(scores), np.bool_)}
    if len(processes) > 1:
        selections |= {word: chosen | (scores.label == BACKGROUND) for word, chosen in processes.items()}
    return selections


def _pairs(detectors: Iterable[str], trivial: Iterable[str]) -> list[tuple[str, str]]:
    """Names of scores that are compared."""
    names = list(detectors)
    return [*combinations(names, 2), *((name, other) for name in names for other in trivial if other != RANDOM)]


def _verdicts(comparisons: Iterable[Comparison], trivial: Container[str]) -> list[str]:
    """Say for each signal which detectors are better or worse than the best trivial score, and which are neither.

    Of one of several signals nothing is said if all detectors are better.
    """
    against: dict[str, dict[str, list[Comparison]]] = {}
    for pair in comparisons:
        if pair.other in trivial:
            against.setdefault(pair.signal, {}).setdefault(pair.other, []).append(pair)
    notes = []
    for signal, by_trivial in against.items():
        best, pairs = min(by_trivial.items(), key=lambda item: item[1][0].difference.value)
        of_verdict: dict[str, list[Comparison]] = {"better": [], "no significant difference": [], "worse": []}
        for pair in pairs:
            of_verdict[_verdict(pair.difference)].append(pair)
        if signal == ALL_SIGNAL or len(of_verdict["better"]) < len(pairs):
            where = "" if signal == ALL_SIGNAL else f" for {signal}"
            words = "; ".join(f"{verdict}: {_listed(found)}" for verdict, found in of_verdict.items() if found)
            notes.append(f"difference of AUCs to the best trivial score{where}, {best!r}: {words}")
    return notes


def _verdict(difference: Difference) -> str:
    if difference.low > 0:
        return "better"
    return "worse" if difference.high < 0 else "no significant difference"


def _listed(pairs: list[Comparison]) -> str:
    """Differences in words: all of them for all signal together, the first few for one of several."""
    n_shown = len(pairs) if pairs[0].signal == ALL_SIGNAL else _MOST_DIFFERENCES
    words = [
        f"{pair.name} {pair.difference.value:+.4f} [{pair.difference.low:+.4f}, {pair.difference.high:+.4f}]"
        for pair in pairs[:n_shown]
    ]
    return ", ".join([*words, *(pair.name for pair in pairs[n_shown:])])


def _improvements(rows: list[Row], names: list[str], n_signals: int) -> dict[str, ImprovementOverSignals]:
    by_name: dict[str, ImprovementOverSignals] = {}
    for name in names:
        found = [
            row.metrics.total_improvement.value
            for row in rows
            if row.name == name and (row.signal != ALL_SIGNAL or n_signals == 1) and row.metrics.total_improvement
        ]
        if found:
            by_name[name] = ImprovementOverSignals(min(found), float(np.median(found)), max(found), len(found))
    return by_name
