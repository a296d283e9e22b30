"""Evaluation of scores of labeled events: metrics of each detector and baseline, paired comparisons, verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from unmask.artifacts import Json
from unmask.errors import BadDataError, UsageError
from unmask.evaluation.intervals import Difference, Placements
from unmask.evaluation.measurement import AUC, EPS_B, REJECTIONS, Measurement, eps_s, sic
from unmask.evaluation.metrics import BACKGROUND_EFFICIENCIES, LOOSER_EFFICIENCIES, TOO_FEW, measure
from unmask.evaluation.roc import RankedScores, check_scores
from unmask.evaluation.table import Row, Table
from unmask.events.event_set import BACKGROUND, SIGNAL, UNKNOWN
from unmask.scores.combination import RANDOM, untrained_scores
from unmask.scores.intervals import CONFIDENCE, n_effective
from unmask.scores.score_table import COLUMNS, Scores, align

#: Stands for all signal processes together.
ALL_SIGNAL = "all signal"
#: Fewer events than this do not tell how much they fluctuate.
MIN_EVENTS = 10


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


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Metrics of detectors and untrained baselines.

    Attributes
    ----------
    rows
        Each score against all signal together, and against each process if there are several.
    comparisons
        Detectors with each other, and each detector with each untrained score; for the same signals as rows.
    improvement_over_signals
        By the name of the score, where it was measured for at least one process.
    notes
        What a reader must know besides the numbers.
    """

    confidence: float
    n_background: int
    signals: dict[str, int]
    rows: tuple[Measurement, ...]
    comparisons: tuple[Comparison, ...]
    improvement_over_signals: dict[str, ImprovementOverSignals]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n\n".join(table.terminal() for table in (self.table(self.short), *self.verdict_tables()[:1]))

    @property
    def selections(self) -> tuple[str, ...]:
        """All signal together, and the signal processes if there are several."""
        return tuple(dict.fromkeys(row.signal for row in self.rows))

    def rows_of(self, signal: str = ALL_SIGNAL) -> tuple[Measurement, ...]:
        """The rows of one signal process; by default of all together."""
        return tuple(row for row in self.rows if row.signal == signal)

    @property
    def working_points(self) -> tuple[float, ...]:
        """Background efficiencies of the tables: those of 1e-2, 1e-3 and 1e-4 that the events support.

        Where they support none of them, the tightest that they do support for all scores.
        """
        measured = [{at for at, one in row.metrics.signal_efficiency.items() if one} for row in self.rows_of()]
        supported = [at for at in BACKGROUND_EFFICIENCIES if any(at in some for some in measured)]
        looser = [at for at in LOOSER_EFFICIENCIES if all(at in some for some in measured)]
        return tuple(supported or looser[:1] or BACKGROUND_EFFICIENCIES[:1])

    @property
    def short(self) -> tuple[str, str]:
        """Columns of the terminal's tables."""
        return AUC, eps_s(self.working_points[0])

    @property
    def main(self) -> tuple[str, ...]:
        """Columns of the main tables."""
        return (*self.short, *REJECTIONS)

    def verdicts(self, signal: str = ALL_SIGNAL) -> tuple[Comparison, ...]:
        """Comparison of each detector with the best untrained score of a signal; empty if there is none."""
        untrained = [row for row in self.rows_of(signal) if row.kind == "untrained" and row.name != RANDOM]
        best = max(untrained, key=lambda row: row.metrics.auc.value, default=None)
        return tuple(pair for pair in self.comparisons if best and (pair.signal, pair.other) == (signal, best.name))

    def table(self, columns: Sequence[str] = (), signal: str = ALL_SIGNAL) -> Table:
        """Some metrics, by default all at the working points, against one signal process, or all together."""
        cells = {(row.name, row.kind): row.cells() for row in self.rows_of(signal)}
        points, *_ = (row.metrics.signal_efficiency for row in self.rows_of(signal))
        left_out = {EPS_B, *(head(at) for at in points if at not in self.working_points for head in (eps_s, sic))}
        columns = columns or [name for name in next(iter(cells.values())) if name not in left_out]
        lines = (
            Row(name, tuple(row.get(column, TOO_FEW) for column in columns), kind == "untrained")
            for (name, kind), row in cells.items()
        )
        return Table(f"{signal} against background ({self.confidence:.0%} CL)", tuple(columns), tuple(lines))

    def verdict_tables(self) -> list[Table]:
        """Verdicts on all signal together, and on each of several processes where not all detectors are better."""
        tables = []
        for signal in self.selections:
            pairs = self.verdicts(signal)
            if pairs and (signal == ALL_SIGNAL or any(pair.difference.verdict != "better" for pair in pairs)):
                of = "" if signal == ALL_SIGNAL else f", {signal}"
                title = f"Verdict{of}: ΔAUC to the best untrained score ({pairs[0].other})"
                rows = (Row(pair.name, (pair.difference, pair.difference.verdict)) for pair in pairs)
                tables.append(Table(title, ("ΔAUC", "verdict"), tuple(rows)))
        return tables

    def tables(self, columns: Sequence[str] = ()) -> list[Table]:
        """All tables: metrics (some ``columns`` of them) against each signal, verdicts, improvements, differences."""
        tables = [*(self.table(columns, signal) for signal in self.selections), *self.verdict_tables()]
        kinds = {row.name: row.kind for row in self.rows}
        if len(self.signals) > 1:
            columns = ("smallest", "median", "largest", "signals with enough events")
            rows = (
                Row(
                    name,
                    (*(f"{value:.3g}" for value in (one.minimum, one.median, one.maximum)), str(one.n_signals)),
                    kinds[name] == "untrained",
                )
                for name, one in self.improvement_over_signals.items()
            )
            tables.append(Table("Total improvement over the signals", columns, tuple(rows)))
        pairs = [pair for pair in self.comparisons if pair.signal == ALL_SIGNAL and kinds[pair.other] == "detector"]
        if pairs:
            rows = (Row(pair.name, (pair.other, pair.difference, pair.difference.p_value_text)) for pair in pairs)
            title = f"Paired differences of detectors, all signal ({self.confidence:.0%} CL)"
            tables.append(Table(title, ("less", "ΔAUC", "p-value"), tuple(rows)))
        return tables

    def to_json(self) -> dict[str, Json]:
        """The same as plain values; efficiencies are keyed by text such as ``0.01``."""
        content = asdict(self)
        for row in content["rows"]:
            for name, values in row["metrics"].items():
                if isinstance(values, dict):
                    row["metrics"][name] = {k if isinstance(k, str) else f"{k:g}": v for k, v in values.items()}
        content["verdicts"] = [
            {"name": pair.name, "other": pair.other, "signal": signal, "verdict": pair.difference.verdict}
            for signal in self.selections
            for pair in self.verdicts(signal)
        ]
        return content


def evaluate(
    scores: Mapping[str, Scores],
    *,
    n_replicas: int = 400,
    seed: int = 0,
    progress: Callable[[float], None] = lambda _: None,
) -> Evaluation:
    """Measure detectors on the same labeled events, with untrained baseline scores beside them.

    Parameters
    ----------
    scores
        By the names of the detectors; the same events in another order are put in the order of the first.
    n_replicas, seed
        Bootstrap replicas for intervals, and the seed of these and of the random score.
    progress
        Called with the fraction done.

    Raises
    ------
    BadDataError
        If events have no label, scores are not finite, or the scores are of different events.
    UsageError
        If there are no scores, or all events are of one class.
    """
    aligned = _aligned(scores)
    first = next(iter(aligned.values()))
    is_background, weight = first.label == BACKGROUND, first.weight
    notes = notes_on(aligned)
    values = {name: each.score for name, each in aligned.items()}
    observables = {name: column for each in aligned.values() for name, column in each.observables.items()}
    missing = [name for name in COLUMNS if name not in observables]
    if missing:
        what = f"no {' and no '.join(COLUMNS[name].label for name in missing)} among" if observables else "no"
        notes.append(f"{what} untrained scores: no scores file has the column {' or '.join(missing)}")
    ranked = {name: RankedScores.of(score, ~is_background, weight) for name, score in values.items()}
    if observables:
        for name, score in untrained_scores(observables, is_background, weight, first.event_key, seed=seed):
            if name in values:
                raise UsageError(f"{name!r} is the name of an untrained score; give the detector, or its file, another")
            ranked[name] = RankedScores.of(score, ~is_background, weight)
    processes = _signal_processes(first)
    signals = {name: int(np.count_nonzero(chosen)) for name, chosen in processes.items()}
    selections: dict[str, slice | npt.NDArray[np.bool_]] = {ALL_SIGNAL: slice(None)}
    if len(processes) > 1:
        selections |= {k: of | is_background for k, of in processes.items() if weight[of].sum() > 0}
        nothing = [name for name in processes if name not in selections]
        notes += [f"no metrics of {name}: its weights do not add up to a positive number" for name in nothing]
    rows: list[Measurement] = []
    comparisons: list[Comparison] = []
    for signal, chosen in selections.items():
        detectors: dict[str, Placements] = {}
        for name, each in ranked.items():
            some = each[chosen]
            metrics = measure(some, n_replicas=n_replicas, seed=seed)
            rows.append(Measurement(name, "detector" if name in values else "untrained", signal, metrics))
            if name != RANDOM:
                comparisons += [
                    Comparison(one, name, signal, placements - some.placements) for one, placements in detectors.items()
                ]
            if name in values:
                detectors[name] = some.placements
            progress(len(rows) / (len(ranked) * len(selections)))
    n_background = int(np.count_nonzero(is_background))
    for name, n in (("background", n_background), *signals.items()):
        if n < MIN_EVENTS:
            notes.append(f"only {n} events of {name}: their intervals and p-values cannot be trusted")
    text = _effective_sizes({"background": weight[is_background]} | {k: weight[of] for k, of in processes.items()})
    notes += [text] if text else []
    improvements = _improvements(rows, len(signals))
    return Evaluation(CONFIDENCE, n_background, signals, tuple(rows), tuple(comparisons), improvements, tuple(notes))


def _aligned(scores: Mapping[str, Scores]) -> dict[str, Scores]:
    if not isinstance(scores, Mapping):
        raise UsageError(f"scores is of type {type(scores).__name__}; expected scores by name: {{'detector': scores}}")
    if not scores:
        raise UsageError("no scores to evaluate")
    (first_name, first), *others = scores.items()
    for name, each in scores.items():
        if not len(each):
            raise BadDataError("holds no events", path=name)
        n_unknown = np.count_nonzero(each.label == UNKNOWN)
        if n_unknown:
            raise BadDataError(
                f"{n_unknown:,} of {len(each):,} events have no label; score files as --background and --signal",
                path=name,
            )
        try:
            check_scores(each.score, each.label == SIGNAL, each.weight)
        except (BadDataError, UsageError) as error:
            raise type(error)(f"{name}: {error}") from None
        if ALL_SIGNAL in _signal_processes(each):
            raise UsageError(f"{name}: a process is called {ALL_SIGNAL!r}, which stands for all of them together")
    aligned = {name: align(each, first, name=name, reference_name=first_name) for name, each in others}
    return {first_name: first} | aligned


def notes_on(scores: Mapping[str, Scores]) -> list[str]:
    """Remarks on scores, whether or not the events have labels."""
    notes = []
    for name, each in scores.items():
        if each.score.min() == each.score.max():
            notes.append(f"constant score: {name} gives all events the score {each.score[0]:g}")
        if each.n_trained_on:
            notes.append(
                f"{name} was trained on {each.n_trained_on:,} of these {len(each):,} events: its numbers are too good"
            )
        if each.n_repeated:
            notes.append(
                f"{each.n_repeated:,} of the {len(each):,} events of {name} are there more than once (same file name "
                "and row): its intervals are too narrow"
            )
    return notes


def _effective_sizes(weights: Mapping[str, npt.NDArray[np.float64]]) -> str:
    """Classes of events that unequal weights make count as fewer, by more than 10%; empty if there are none."""
    sizes = {name: (len(weight), n_effective(weight)) for name, weight in weights.items() if weight.sum() > 0}
    fewer = [f"{n:,} of {name} as {n_eff:,.0f}" for name, (n, n_eff) in sizes.items() if n_eff < 0.9 * n]
    return f"weighted events count as fewer of equal weight: {', '.join(fewer)}" if fewer else ""


def _signal_processes(scores: Scores) -> dict[str, npt.NDArray[np.bool_]]:
    """Signal events by process."""
    process = scores.process_names
    by_process = {name: (scores.label == SIGNAL) & (process.code == i) for i, name in enumerate(process.words)}
    return {name: chosen for name, chosen in by_process.items() if chosen.any()}


def _improvements(rows: list[Measurement], n_signals: int) -> dict[str, ImprovementOverSignals]:
    by_name: dict[str, list[float]] = {}
    for row in rows:
        if (row.signal != ALL_SIGNAL or n_signals == 1) and row.metrics.total_improvement:
            by_name.setdefault(row.name, []).append(row.metrics.total_improvement.value)
    return {
        name: ImprovementOverSignals(min(values), float(np.median(values)), max(values), len(values))
        for name, values in by_name.items()
    }
