"""Files of events, or some of their entries, and how they are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from unmask.artifacts import Json, sha256_of_file, stamp
from unmask.errors import BadDataError, UsageError, nearest
from unmask.events.checks import BadEvents
from unmask.events.event_set import LABEL_NAMES, EventSet
from unmask.io import FileFormat
from unmask.io.read import check_distinct, check_is_file, count_entries, detect_kind, stream_events, sum_of_weights
from unmask.io.record import FileRecord
from unmask.io.sample import resolve
from unmask.io.source import ReadOptions
from unmask.workflow.samples import Sample, Samples

#: A file, the name that its events give it, and the entries of it that are read; None reads all.
Piece = tuple[Path, str, tuple[int, int] | None]
#: Shows a text while a block runs, and is called with the fraction done.
Bar = Callable[[str], AbstractContextManager[Callable[[float], None]]]


def no_bar(_text: str) -> AbstractContextManager[Callable[[float], None]]:
    """Show nothing."""
    return nullcontext(lambda _fraction: None)


def find_files(paths: Iterable[str | Path]) -> list[Path]:
    """Turn names of samples, and patterns such as ``*.csv``, into the files that they stand for."""
    files: list[Path] = []
    for path in map(resolve, paths):
        if path.exists() or not any(mark in str(path) for mark in "*?["):
            files.append(path)
            continue
        matching = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
        if not matching:
            raise UsageError(f"no file matches {str(path)!r}")
        files += matching
    return files


class Sources:
    """Files and the options they are read with.

    Attributes
    ----------
    files
        In the order they are read; names of samples and patterns are resolved.
    kind
        File format; None detects it from the content.
    signal_process
        Processes that are labeled signal, all others background; empty keeps the labels.
    bad
        Collects skipped events.
    records
        What was read of each file.
    may_be_empty
        Whether it is no error if a selection leaves no event of any file.
    samples
        Process, label and cross section by file.
    labels
        Label by file, for files that are given as background, signal or data.
    """

    def __init__(
        self,
        files: Iterable[str | Path],
        kind: FileFormat | None = None,
        options: ReadOptions | None = None,
        signal_process: Sequence[str] = (),
        *,
        skip_bad: bool = False,
        samples: Samples | None = None,
        labels: Mapping[Path, int] | None = None,
    ) -> None:
        self.files = find_files(files)
        check_distinct(self.files)
        self.kind = kind
        self.options = options or ReadOptions()
        self.signal_process = list(signal_process)
        self.bad = BadEvents(skip=skip_bad)
        self.n_cut, self.max_objects = 0, 0
        self.records: dict[Path, FileRecord] = {}
        self.may_be_empty = False
        #: Files as they were when they were hashed or first read.
        self._stamps: dict[Path, list[int]] = {}
        self.samples, self.labels = samples or Samples(), dict(labels or {})
        self.n_negative, self.n_read = 0, 0
        #: Options by absolute path of files that are of a sample, and how their weights are normalized.
        self.options_of: dict[Path, ReadOptions] = {}
        self._normalized: list[str] = []

    def with_files(self, files: Iterable[str | Path], signal_process: Sequence[str] = ()) -> Sources:
        """Make sources of other files, read the same way."""
        skip, samples, labels = self.bad.skip, self.samples, self.labels
        return Sources(files, self.kind, self.options, signal_process, skip_bad=skip, samples=samples, labels=labels)

    def stream(self, files: Sequence[Path] | None = None, bar: Bar = no_bar) -> Iterator[EventSet]:
        """Yield all events of all files (or of other ``files``, read the same way); see :meth:`by_file`."""
        for _, events in self.by_file(files, bar):
            yield events

    def by_file(self, files: Sequence[Path] | None = None, bar: Bar = no_bar) -> Iterator[tuple[Path, EventSet]]:
        """Yield the file and the events of each chunk; it is an error if no file holds one of the signal processes."""
        processes: dict[str, None] = {}
        n_events = 0
        chosen = self.files if files is None else find_files(files)
        self._prepare(chosen, bar)
        for file in chosen:
            for events in self._stream_piece((file, str(file), None), bar):
                processes |= dict.fromkeys(events.process_names.counts())
                n_events += len(events)
                yield file, events
        reasons = [text for file in chosen for text in self.records[file].warnings("event")]
        if reasons and not n_events and not self.may_be_empty:
            raise BadDataError("\n  ".join(["no event is left:", *reasons]))
        for name in self.signal_process:
            if name not in processes:
                raise UsageError(f"signal process {name!r} is in none of the files; {nearest(name, processes)}")

    def _prepare(self, files: Sequence[Path], bar: Bar = no_bar) -> None:
        """Find the options of files that are of a sample; the weights of all its files add up to its cross section."""
        by_sample: dict[Sample, list[Path]] = {}
        for file in files if self.samples.samples else ():
            if file.absolute() not in self.options_of:
                by_sample.setdefault(self.samples.of(file), []).append(file)
        for sample, some in by_sample.items():
            options = replace(self.options, **sample.changes())
            if sample.xsec is not None:
                total, used = 0.0, dict[str, None]()
                with bar("summing weights") as progress:
                    for i, file in enumerate(some, start=1):
                        value, name = sum_of_weights(file, kind=self.kind, options=options)
                        total, used = total + value, used | {name: None}
                        progress(i / len(some))
                if not 0 < total < math.inf:
                    raise BadDataError(
                        f"the weights ({', '.join(used)}) of sample {sample.files!r} add up to {total:g}; accepted: a "
                        "positive sum, to normalize by",
                        path=some[0],
                    )
                scale = self.samples.scale(sample, total)
                options = replace(options, scale=scale)
                self._normalized.append(
                    f"{some[0].name if len(some) == 1 else f'{len(some)} files of {sample.files}'}: weights times "
                    f"{scale:.4g}, for {sample.xsec:g} pb{f' x {sample.k_factor:g}' if sample.k_factor != 1 else ''}, "
                    f"{self.samples.lumi:g}/fb and a sum of {total:.6g} ({', '.join(used)})"
                )
            self.options_of |= {file.absolute(): options for file in some}

    def _stream_piece(self, piece: Piece, bar: Bar = no_bar) -> Iterator[EventSet]:
        file, name, entries = piece
        options = replace(self.options_of.get(file.absolute(), self.options), entries=entries)
        record = FileRecord(file)
        if entries is None:  # of a part, a selection may well leave nothing
            self.records[file] = record
        check_is_file(file)
        before = self._stamps.setdefault(file, stamp(file))
        with bar(f"reading {file.name}") as progress:
            for events in stream_events(
                file, kind=self.kind, options=options, bad=self.bad, record=record, name=name, progress=progress
            ):
                self.n_cut, self.max_objects = self.n_cut + events.n_cut_events, events.max_objects
                self.n_read += len(events)
                self.n_negative += int(np.count_nonzero(events.weight < 0))
                if (label := self.labels.get(file.absolute())) is not None:
                    events = labeled(file, events, label)
                yield events.with_signal(self.signal_process) if self.signal_process else events
        if stamp(file) != before:
            raise BadDataError("changed while it was read; run it again when nothing writes to it", path=file)

    def warnings(self) -> list[str]:
        """Name the selections that left nothing of what there was."""
        return [text for record in self.records.values() for text in record.warnings()]

    def problems(self) -> list[str]:
        """Describe which events were cut or skipped so far, after the warnings."""
        negative = [f"{self.n_negative:,} of {self.n_read:,} events have negative weights"] if self.n_negative else []
        cut = [f"{self.n_cut:,} events cut to their {self.max_objects} objects of largest pT"] if self.n_cut else []
        skipped = [f"skipped {self.bad.n_skipped:,} bad events:", *self.bad.summary()]
        known = [*self.warnings(), *self._normalized, *negative, *cut]
        return [*known, *(["\n  ".join(skipped)] if self.bad.n_skipped else [])]

    def origin(self) -> dict[str, Json]:
        """Hashes of the files and the options that they are read with, for the provenance of what is written.

        What cannot be read is an error here, before anything is written.
        """
        for file in self.files:
            if self.kind is None:
                detect_kind(file)
            self._stamps[file] = stamp(file)
        inputs = [{"file": file.name, "sha256": sha256_of_file(file)} for file in self.files]
        return {"inputs": inputs, "options": self.settings()}

    def settings(self) -> dict[str, Json]:
        """The options, as JSON can hold them."""
        more: dict[str, Json] = {"format": self.kind, "signal_process": self.signal_process, "skip_bad": self.bad.skip}
        more |= {"samples": [asdict(sample) for sample in self.samples.samples], "lumi": self.samples.lumi}
        more |= {"labels": {str(file): label for file, label in self.labels.items()}}
        return asdict(self.options) | more

    def lengths(self) -> list[int] | None:
        """Numbers of entries of the files, or None if one of them cannot be read from the middle."""
        lengths: list[int] = []
        for file in self.files:
            n_entries = count_entries(file, kind=self.kind, options=self.options)
            if n_entries is None:
                return None
            lengths.append(n_entries)
        return lengths

    def parts(self, n: int) -> list[Part]:
        """Cut into ``n`` parts, which together hold all events in their order; their paths are absolute.

        Parquet and ROOT files are cut into ranges of entries, for parts of equal size. Text and array files cannot be
        read from the middle: with such a file among them, all files stay whole.
        """
        self._prepare(self.files)
        lengths = self.lengths()
        sizes = [1] * len(self.files) if lengths is None else lengths
        parts: list[list[Piece]] = []
        for first, last in pairwise(i * sum(sizes) // n for i in range(n + 1)):
            parts.append([])
            for file, size, end in zip(self.files, sizes, accumulate(sizes), strict=True):
                entries = max(first - end + size, 0), min(last - end + size, size)
                if entries[0] < entries[1]:
                    parts[-1].append((file, str(file), None if lengths is None else entries))
        return [Part(self, pieces) for pieces in parts]


def labeled(file: Path, events: EventSet, label: int) -> EventSet:
    """Label events, unless their file labels them otherwise; to search, they lose their labels."""
    n_other = int(np.count_nonzero((events.label >= 0) & (events.label != label))) if label >= 0 else 0
    if n_other:
        other = LABEL_NAMES[1 - label]
        raise UsageError(
            f"{file}: given as {LABEL_NAMES[label]}, but {n_other:,} of {len(events):,} events are labeled "
            f"{other} in the file; give it as {other}, or split it first"
        )
    return events.with_label(label)


class Part(Sources):
    """Some whole files of others, or some of their entries; possibly none."""

    def __init__(self, whole: Sources, pieces: Sequence[Piece]) -> None:
        self.pieces = [(file.absolute(), name, entries) for file, name, entries in pieces]
        vars(self).update(vars(whole.with_files([file for file, *_ in self.pieces], whole.signal_process)))
        self.options_of = whole.options_of

    def stream(self, files: Sequence[Path] | None = None, bar: Bar = no_bar) -> Iterator[EventSet]:
        """Yield the events; first none, so that a part without any can be written too."""
        assert files is None, "a part is of its own files"
        yield EventSet.empty()
        for piece in self.pieces:
            yield from self._stream_piece(piece, bar)

    def origin(self) -> dict[str, Json]:
        """Which entries of which files; these are known by size and time, as hashing reads all of them."""
        inputs = []
        for file, _, entries in self.pieces:
            size, mtime_s = file.stat().st_size, int(file.stat().st_mtime)
            scale = self.options_of.get(file, self.options).scale  # of a sample, which other files change too
            inputs.append({"file": str(file), "size": size, "mtime_s": mtime_s, "entries": entries, "scale": scale})
        return {"inputs": inputs, "options": self.settings()}
