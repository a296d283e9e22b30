"""The files of a study, and how they become training, validation, test and signal events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from unmask.artifacts import Json, provenance
from unmask.errors import BadDataError, UsageError
from unmask.events.checks import BadEvents
from unmask.events.columns import Names
from unmask.events.event_set import BACKGROUND, LABEL_NAMES, SIGNAL, UNKNOWN, EventSet, concatenate_events
from unmask.events.fingerprints import fingerprints, is_leak
from unmask.events.splits import DEFAULT_FRACTIONS, SPLITS, Splitter
from unmask.io import FileFormat
from unmask.io.parquet import EventsWriter
from unmask.io.read import ReadOptions, check_distinct_names, check_is_file, stream_events
from unmask.io.sample import STUDIES, sample_path
from unmask.scores.intervals import n_effective
from unmask.study.configurations import Study
from unmask.study.stages import StudyReporter

#: Without as many validation events no threshold can be chosen that ten of them are above, and one in ten at most.
MIN_EVENTS = 110


@dataclass(frozen=True)
class EventFiles:
    """Files by what they are, and how to read them.

    Attributes
    ----------
    background, signal, data : files of known background, of signals, and of events to search, which have no label.
    signal_processes : processes that are signal among the ``background`` files, where these hold both.
    """

    background: tuple[Path, ...]
    signal: tuple[Path, ...] = ()
    data: tuple[Path, ...] = ()
    signal_processes: tuple[str, ...] = ()
    kind: FileFormat | None = None
    options: ReadOptions = field(default_factory=ReadOptions)
    skip_bad: bool = False

    def __post_init__(self) -> None:
        files = (*self.background, *self.signal, *self.data)
        for path in files:
            check_is_file(path)
        for i, path in enumerate(files):
            if any(path.samefile(other) for other in files[:i]):
                raise UsageError(f"{path} is given twice; a file is background, signal or data")
        check_distinct_names(files)

    @property
    def has_signal(self) -> bool:
        """Whether there is anything to measure a detector with."""
        return bool(self.signal or self.signal_processes)

    def reading_settings(self) -> dict[str, Json]:
        """All that the events depend on besides the files."""
        options = asdict(self.options)
        del options["chunk_events"]
        return {
            "kind": self.kind,
            "options": options,
            "skip_bad": self.skip_bad,
            "signal_processes": list(self.signal_processes),
        }


def files_of_study(study: Study, data: Path | None) -> tuple[Path, ...]:
    """The files of a study in a folder of data; without one, the sample that ships with the package.

    Raises
    ------
    BadDataError
        If the folder or files in it are not there.
    """
    if data is None:
        return (sample_path(next(name for name in STUDIES if name == study.name)),)
    folder = data / study.folder
    if not folder.is_dir():
        raise BadDataError(f"no such folder; the files of {study.name}, one a process, are expected there", path=folder)
    found = tuple(sorted(folder.glob("*.csv.gz")))
    if not found:
        raise BadDataError("holds no *.csv.gz files, one a process", path=folder)
    return found


@dataclass(frozen=True)
class EventReader:
    """Reads the files of a study and writes its events."""

    files: EventFiles
    seed: int
    reporter: StudyReporter

    def write_background(self, folder: Path) -> None:
        """Split background into ``train.parquet``, ``validation.parquet`` and ``test.parquet``.

        Raises
        ------
        UsageError
            If events are labelled signal.
        BadDataError
            If there are too few events, or weights make too few of them, or many training events are among the others
            too.
        """
        splitter = Splitter(seed=self.seed)
        known: list[list[npt.NDArray[np.uint64]]] = [[] for _ in SPLITS]
        weights: list[list[npt.NDArray[np.float64]]] = [[] for _ in SPLITS]
        with ExitStack() as stack:
            writers = []
            for name in SPLITS:
                split = {"name": name, "seed": self.seed, "fractions": list(DEFAULT_FRACTIONS)}
                facts = provenance(files=[path.name for path in self.files.background], split=split)
                writers.append(stack.enter_context(EventsWriter(folder / f"{name}.parquet", provenance=facts)))
            for path, events in self._stream(self.files.background):
                background = self._labelled(path, events, BACKGROUND)
                code = splitter.assign(background)
                for i, writer in enumerate(writers):
                    part = background[code == i]
                    writer.write(part)
                    known[i].append(fingerprints(part))
                    weights[i].append(part.weight)
            n_events = dict(zip(SPLITS, (writer.n_events for writer in writers), strict=True))
            self.reporter.note("background: " + ", ".join(f"{name} {n:,}" for name, n in n_events.items()) + " events")
            if min(n_events["validation"], n_events["test"]) < MIN_EVENTS:
                raise BadDataError(
                    f"{sum(n_events.values()):,} background events are too few: of every ten one is for validation "
                    f"and one for the test, and {MIN_EVENTS} are needed of each"
                )
            by_split = {name: np.concatenate(parts) for name, parts in zip(SPLITS, weights, strict=True)}
            self._check_weights({f"{name} background": weight for name, weight in by_split.items()})
            n_validation = n_effective(by_split["validation"])
            if n_validation < MIN_EVENTS:
                raise BadDataError(
                    f"{sum(n_events.values()):,} background events are too few: with their weights the validation "
                    f"events count as {n_validation:.1f} of equal weight, and {MIN_EVENTS} are needed"
                )
            train, *others = (np.concatenate(parts) for parts in known)
            for name, other in zip(SPLITS[1:], others, strict=True):
                check_not_trained_on(np.isin(other, train), f"{name} events of the background")

    def write_signal(self, path: Path, train: Path) -> None:
        """Write all signal events to ``path``.

        A signal keeps its process names, unless another file has the same; then it is called as its file.

        Raises
        ------
        UsageError
            If events are labelled background, or there are none of a process that should be signal.
        BadDataError
            If many of the events are among the training events too, or twice among the signal, or weights do not add up
            to a positive number.
        """
        parts = [self._signals_among_background()] if self.files.signal_processes else []
        parts += [
            concatenate_events([self._labelled(file, events, SIGNAL) for _, events in self._stream([file])])
            for file in self.files.signal
        ]
        counts = [part.process_names.counts() for part in parts]
        names = [None] * (len(parts) - len(self.files.signal)) + [file.name.split(".")[0] for file in self.files.signal]
        for i, name in enumerate(names):
            shared = any(counts[i].keys() & counts[j].keys() for j in range(len(parts)) if j != i)
            if shared and name is not None:
                parts[i] = replace(parts[i], process_names=Names.constant(name, len(parts[i])))
        signal = concatenate_events(parts)
        if not len(signal):
            raise BadDataError("there are no signal events")
        given = ["signal of the study"] * (len(parts) - len(self.files.signal)) + [*map(str, self.files.signal)]
        check_given_once(dict(zip(given, parts, strict=True)))
        of = signal.process_names.array()
        self._check_weights({name: signal.weight[of == name] for name in signal.process_names.counts()})
        seen = np.concatenate([fingerprints(events) for events in stream_events(train)])
        check_not_trained_on(np.isin(fingerprints(signal), seen), "signal events")
        facts = provenance(files=[file.name for file in (*self.files.background, *self.files.signal)])
        with EventsWriter(path, provenance=facts) as writer:
            writer.write(signal)
        counts_in_words = ", ".join(f"{name} {n:,}" for name, n in signal.process_names.counts().items())
        self.reporter.note(f"signal: {counts_in_words} events")

    def write_data(self, path: Path) -> None:
        """Write the events to search to ``path``; labels that they may have are left aside."""
        with EventsWriter(path, provenance=provenance(files=[file.name for file in self.files.data])) as writer:
            for _, events in self._stream(self.files.data):
                writer.write(events.with_label(UNKNOWN))
        self.reporter.note(f"data to search: {writer.n_events:,} events")

    def _signals_among_background(self) -> EventSet:
        wanted = self.files.signal_processes
        found = []
        for _, events in self._stream(self.files.background):
            labelled = events.with_signal(wanted)
            found.append(labelled[labelled.label == SIGNAL])
        signal = concatenate_events(found)
        for name in wanted:
            if name not in signal.process_names.counts():
                raise BadDataError(
                    f"no event is of the signal process {name!r}, in the files of {self.files.background[0].parent}"
                )
        return signal

    def _labelled(self, path: Path, events: EventSet, label: int) -> EventSet:
        """Label events, after making sure that the file does not say otherwise."""
        if label == BACKGROUND and self.files.signal_processes:
            labelled = events.with_signal(self.files.signal_processes)
            return labelled[labelled.label == BACKGROUND]
        other = SIGNAL if label == BACKGROUND else BACKGROUND
        n_other = int(np.count_nonzero(events.label == other))
        if n_other:
            raise UsageError(
                f"{path}: given as {LABEL_NAMES[label]}, but {n_other:,} of {len(events):,} events are labelled "
                f"{LABEL_NAMES[other]} in the file; give it as what it is, or split it first"
            )
        return events.with_label(label)

    def _check_weights(self, weights: Mapping[str, npt.NDArray[np.float64]]) -> None:
        """Refuse what cannot be measured, before anything is trained, and say what negative weights mean."""
        for name, weight in weights.items():
            if weight.sum() <= 0:
                raise BadDataError(f"the weights of the {name} events do not add up to a positive number")
        n_negative = sum(int(np.count_nonzero(weight < 0)) for weight in weights.values())
        if n_negative:
            self.reporter.note(
                f"warning: {n_negative:,} of these {sum(map(len, weights.values())):,} events have negative weights: "
                "besides the AUC and thresholds nothing is measured, there are no ROC curves, and in training all "
                "events count alike"
            )

    def _stream(self, paths: Iterable[Path]) -> Iterator[tuple[Path, EventSet]]:
        files, bad, n_cut, max_objects = self.files, BadEvents(skip=self.files.skip_bad), 0, 0
        for path in paths:
            with self.reporter.reading(path) as progress:
                for events in stream_events(path, kind=files.kind, options=files.options, bad=bad, progress=progress):
                    n_cut, max_objects = n_cut + events.n_cut_events, events.max_objects
                    yield path, events
        if n_cut:
            self.reporter.note(f"{n_cut:,} events cut to their {max_objects} objects of largest pT")
        if bad.n_skipped:
            self.reporter.note("\n  ".join([f"skipped {bad.n_skipped:,} bad events:", *bad.summary()]))


def check_given_once(signals: Mapping[str, EventSet]) -> None:
    """Refuse signals, by the files they come from, of which more than one event in a hundred is there a second time.

    Raises
    ------
    BadDataError
        If there are that many, object by object.
    """
    seen = np.zeros(0, np.uint64)
    for file, events in sorted(signals.items(), key=lambda item: -len(item[1])):  # few again in many are many in few
        found = fingerprints(events)
        new = np.setdiff1d(found, seen)
        n_again = len(found) - len(new)
        if is_leak(n_again, len(found)):
            n_there = int(np.isin(found, seen).sum())
            where = f"{n_there:,} of them in other files" if n_there else "all of them in this file"
            raise BadDataError(
                f"{n_again:,} of {len(found):,} signal events are there a second time, object by object ({where}): "
                "they would count twice in all signal together; leave them out, or study them in another folder",
                path=file,
            )
        seen = np.union1d(seen, new)


def check_not_trained_on(is_known: npt.NDArray[np.bool_], what: str) -> None:
    """Refuse events of which more than one in a hundred has been trained on.

    Raises
    ------
    BadDataError
        If there are that many.
    """
    n_known = int(np.count_nonzero(is_known))
    if is_leak(n_known, len(is_known)):
        raise BadDataError(
            f"{n_known:,} of {len(is_known):,} {what} are among the training events too, object by object: "
            "the files hold the same events several times"
        )
