"""The files of a study, and how they become training, validation, test and signal events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt

from unmask.artifacts import provenance
from unmask.errors import BadDataError, UsageError
from unmask.events.columns import Names
from unmask.events.event_set import BACKGROUND, SIGNAL, UNKNOWN, EventSet
from unmask.events.fingerprints import KnownEvents, fingerprints, is_leak, repeated_text
from unmask.events.splits import DEFAULT_FRACTIONS, SPLITS, Splitter
from unmask.io.parquet import EventsWriter
from unmask.io.read import check_is_file, read_events
from unmask.scores.intervals import n_effective
from unmask.study.stages import StudyReporter
from unmask.workflow.sources import Sources, labeled
from unmask.workflow.theories import prior_text, read_theories, theory_sources

#: Fewer validation events allow no threshold with ten events above it at ε_B = 10%.
MIN_EVENTS = 110


@dataclass(frozen=True)
class StudyFiles:
    """Files by what they hold: known background, signals to test with, and events without labels to search.

    ``background.signal_process`` names the processes that are signal, where files hold both. Events that repeat earlier
    ones are left out, unless ``keep_duplicates``.
    """

    background: Sources
    signal: Sources
    data: Sources
    keep_duplicates: bool = False
    prior: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuse files that are not there, or given twice."""
        paths = [*self.background.files, *self.signal.files, *self.data.files, *self.theories.files]
        for path in paths:
            check_is_file(path)
        for path, other in combinations(paths, 2):
            if path.samefile(other):
                raise UsageError(f"{other} is given twice; a file is background, signal, data or prior")

    @cached_property
    def theories(self) -> Sources:
        """The files of the prior."""
        sources = [sources for _, sources in theory_sources(self.prior, self.background)]
        return self.background.with_files([file for each in sources for file in each.files])

    @property
    def has_signal(self) -> bool:
        """Whether there is signal to evaluate detectors with."""
        return bool(self.signal.files or self.background.signal_process)


def write_background(
    files: StudyFiles, folder: Path, among: Sequence[Path], seed: int, reporter: StudyReporter
) -> None:
    """Split background into ``train.parquet``, ``validation.parquet`` and ``test.parquet`` of ``folder``.

    Signal among the background files goes to the file ``among``, or is an error if none is given. It is an error too if
    there are too few events, also by their weights.
    """
    sources, splitter = files.background, Splitter(seed, keep_duplicates=files.keep_duplicates)
    weights: list[list[npt.NDArray[np.float64]]] = [[] for _ in SPLITS]
    names = [file.name for file in sources.files]
    with ExitStack() as stack:
        writers = []
        for name in SPLITS:
            split = {"name": name, "seed": seed, "fractions": list(DEFAULT_FRACTIONS)}
            path, record = folder / f"{name}.parquet", provenance(files=names, split=split)
            writers.append(stack.enter_context(EventsWriter(path, provenance=record)))
        signals = [stack.enter_context(EventsWriter(path, provenance=provenance(files=names))) for path in among]
        for file, events in _stream(sources, reporter):
            background = events[events.label == BACKGROUND] if signals else labeled(file, events, BACKGROUND)
            for writer in signals:
                writer.write(events[events.label == SIGNAL])
            code = splitter.assign(background)
            for i, writer in enumerate(writers):
                part = background[code == i]
                writer.write(part)
                weights[i].append(part.weight)
        for text in splitter.notes():
            reporter.note(text)
        n_events = [writer.n_events for writer in writers]
        reporter.note("{:,} training, {:,} validation, {:,} test background events".format(*n_events))
        if min(n_events[1:]) < MIN_EVENTS:
            raise BadDataError(
                f"{sum(n_events):,} background events are too few: of every ten one is for validation and one for the "
                f"test, and {MIN_EVENTS} are needed of each"
            )
        by_split = {f"{name} background": np.concatenate(some) for name, some in zip(SPLITS, weights, strict=True)}
        _check_weights(by_split)
        n_validation = n_effective(by_split["validation background"])
        if n_validation < MIN_EVENTS:
            raise BadDataError(
                f"{sum(n_events):,} background events are too few: with their weights the validation events count as "
                f"{n_validation:.1f} of equal weight, and {MIN_EVENTS} are needed"
            )


def write_signal(
    files: StudyFiles, path: Path, among: Sequence[Path], train: EventSet, reporter: StudyReporter
) -> None:
    """Write all signal events to ``path``: those ``among`` the background files, and those of files of their own.

    A signal keeps its process names, unless another file has the same; then it is named as its file. Training events
    among them are left out; it is an error if they are many, or weights do not add up to a positive number.
    """
    chunks = {"signal of the study": [read_events(list(among))]} if among else {}
    for file, events in _stream(files.signal, reporter):
        chunks.setdefault(str(file), []).append(labeled(file, events, SIGNAL))
    parts = {name: EventSet.concatenate(some) for name, some in chunks.items()}
    known, trained_on = KnownEvents(), fingerprints(train)
    is_known = {name: np.isin(fingerprints(part), trained_on) for name, part in parts.items()}
    n_known, n_events = (sum(map(count, is_known.values())) for count in (np.count_nonzero, len))
    if is_leak(n_known, n_events):
        most = max(is_known, key=lambda name: np.count_nonzero(is_known[name]))
        raise BadDataError(
            f"{n_known:,} of {n_events:,} signal events are among the training events too, object by object (most in "
            f"{most}): the files of background and signal hold the same events"
        )
    for name, part in parts.items():
        new = part[~is_known[name]]
        if len(new) < len(part):
            reporter.note(f"{name}: {len(part) - len(new):,} training events among the signal are left out")
        parts[name] = new if files.keep_duplicates else known.new(new)
        for text in repeated_text(len(new) - len(parts[name]), len(new)):
            reporter.note(f"{name}: {text}")
    counts = {name: part.process_names.counts() for name, part in parts.items()}
    bare = {name: Path(name).name.split(".")[0] for name in parts}
    for name, part in list(parts.items())[len(among) :]:
        if any(counts[name].keys() & counts[other].keys() for other in parts if other != name):
            own = bare[name] if list(bare.values()).count(bare[name]) == 1 else name
            parts[name] = replace(part, process_names=Names.constant(own, len(part)))
    signal = EventSet.concatenate(list(parts.values()))
    if not len(signal):
        raise BadDataError("there are no signal events")
    of = signal.process_names.array()
    _check_weights({name: signal.weight[of == name] for name in signal.process_names.counts()})
    with EventsWriter(path, provenance=provenance(files=list(parts))) as writer:
        writer.write(signal)
    names = ", ".join(f"{name} {n:,}" for name, n in signal.process_names.counts().items())
    reporter.note(f"{len(signal):,} signal events: {names}")


def write_prior(files: StudyFiles, path: Path, reporter: StudyReporter) -> None:
    """Write the theories of the prior to ``path``."""
    theories = read_theories(files.prior, files.background, reporter.bar)
    with EventsWriter(path, provenance=provenance(files=list(files.prior))) as writer:
        writer.write(theories)
    reporter.note(prior_text(theories))


def write_data(files: StudyFiles, path: Path, reporter: StudyReporter) -> None:
    """Write the events to search to ``path``, without their labels."""
    known, n_events = KnownEvents(), 0
    with EventsWriter(path, provenance=provenance(files=[file.name for file in files.data.files])) as writer:
        for _, events in _stream(files.data, reporter):
            n_events += len(events)
            writer.write((events if files.keep_duplicates else known.new(events)).with_label(UNKNOWN))
    for text in repeated_text(n_events - writer.n_events, n_events):
        reporter.note(text)
    reporter.note(f"{writer.n_events:,} data events to search")


def _stream(sources: Sources, reporter: StudyReporter) -> Iterator[tuple[Path, EventSet]]:
    yield from sources.by_file(bar=reporter.bar)
    for text in sources.problems():
        reporter.note(text)


def _check_weights(weights: Mapping[str, npt.NDArray[np.float64]]) -> None:
    """Refuse weights that allow no evaluation, before anything is trained."""
    for name, weight in weights.items():
        if weight.sum() <= 0:
            raise BadDataError(f"the weights of the {name} events do not add up to a positive number")
