"""Read event files of any format: detect, stream, check."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np

from unmask.errors import BadDataError, UsageError, nearest
from unmask.events.build import to_event_set
from unmask.events.checks import BadEvents, check_events
from unmask.events.cuts import Cut
from unmask.events.event_set import EventSet, Label, label_code
from unmask.events.objects import MAX_OBJECTS, tags_of
from unmask.io import FILE_FORMATS, ROOT_FORMATS, FileFormat
from unmask.io.golden_json import is_certified
from unmask.io.record import FileRecord
from unmask.io.sample import resolve
from unmask.io.source import Reader, ReadOptions, Source, damaged, decompressed

#: Where some entries can be read without all that stand before them.
SEEKABLE_FORMATS: tuple[FileFormat, ...] = ("parquet", *ROOT_FORMATS)


def stream_events(
    path: str | Path,
    *,
    kind: FileFormat | None = None,
    options: ReadOptions | None = None,
    bad: BadEvents | None = None,
    record: FileRecord | None = None,
    name: str | None = None,
    progress: Callable[[float], None] = lambda _fraction: None,
) -> Iterator[EventSet]:
    """Yield the events of one file in chunks, in bounded memory.

    Parameters
    ----------
    path
        File of any kind in ``FILE_FORMATS``, text files also compressed with gzip or zstd.
    kind
        File format; detected from the content by default.
    options
        Units, process name, label and the like.
    bad
        Collects skipped events when it is ``BadEvents(skip=True)``; by default the first bad event raises.
    record
        Takes what was read, and how many events and objects each step of the selection leaves.
    name
        What the events call their file; its path as given by default.
    progress
        Called with the fraction of the file that has been read.

    Raises
    ------
    BadDataError
        With the file, the line or entry, the value and what is accepted.
    """
    name = name or str(path)
    path = resolve(path)
    options = options or ReadOptions()
    record = record or FileRecord(path)
    source = Source(path, options, bad or BadEvents(), record, progress)
    check_is_file(path)
    kind = kind or detect_kind(path)
    if kind not in ROOT_FORMATS and (options.selection or options.tree):
        raise UsageError(f"{path}: object selections and trees are for ROOT files, not {kind}")
    if kind != "fixed" and options.dataset:
        raise UsageError(f"{path}: a dataset is named in an HDF5 or NPZ file, not {kind}")
    if options.entries is not None and kind not in SEEKABLE_FORMATS:
        raise UsageError(f"{path}: some entries alone are read from {', '.join(SEEKABLE_FORMATS)} files, not {kind}")
    if options.keep and kind not in SEEKABLE_FORMATS:
        raise UsageError(f"{path}: further columns are kept of {', '.join(SEEKABLE_FORMATS)} files, not {kind}")
    if options.weight and kind not in SEEKABLE_FORMATS:
        raise UsageError(f"{path}: weights are chosen of {', '.join(SEEKABLE_FORMATS)} files, not {kind}")
    if kind not in SEEKABLE_FORMATS:
        source.further(lambda _: False, ())
    reader, record.format = _reader(kind), kind
    cut = Cut(options.cut) if options.cut else None
    max_objects = options.max_objects or MAX_OBJECTS
    n_events, n_skipped_before = 0, source.bad.n_skipped
    for chunk in reader(source):
        if kind not in ROOT_FORMATS:  # these make a selection of their own, and count
            record.count_events("in file", len(chunk.events))
        events = chunk.events
        if options.objects:
            events = events.keep_objects(np.isin(events.tag, tags_of(options.objects)))
        events = check_events(events, path=path, place=chunk.place, bad=source.bad)
        record.count_events("usable values", len(events))
        n_events += len(events)
        if not len(events):
            continue
        event_set = to_event_set(events, file=name, max_objects=chunk.max_objects or max_objects)
        if options.scale != 1:
            event_set = replace(event_set, weight=event_set.weight * options.scale)
        event_set = event_set if options.label is None else event_set.with_label(options.label)
        event_set = _selected(event_set, source, cut)
        if len(event_set):
            yield event_set
    if not n_events and source.bad.n_skipped == n_skipped_before:
        raise source.error("the file holds no events")
    progress(1.0)


def _selected(events: EventSet, source: Source, cut: Cut | None) -> EventSet:
    """The events that the options keep; what each step leaves is recorded."""
    if certified := source.options.golden_json:
        if not {"run", "luminosity_block"} <= events.further.keys():
            raise source.error(
                "no run and luminosity block for the golden JSON; accepted: events of NanoAOD or PHYSLITE"
            )
        runs = sorted(map(int, certified))
        events = events[is_certified(events.further["run"], events.further["luminosity_block"], certified)]
        source.record.count_events(f"the golden JSON of runs {runs[0]} to {runs[-1]}", len(events))
    if cut is not None:
        is_kept = np.ones(len(events), np.bool_)
        # A column of the file may be unknown in all of these events.
        unknown = dict.fromkeys(cut.columns, np.full(len(events), np.nan))
        for term, is_kept in cut.steps(replace(events, further=unknown | events.further)):
            source.record.count_events(term, int(np.count_nonzero(is_kept)))
        events = events[is_kept]
    return events


def count_entries(path: Path, *, kind: FileFormat | None = None, options: ReadOptions | None = None) -> int | None:
    """Number of entries of a file of one of ``SEEKABLE_FORMATS``; None for others, which must be read to know."""
    kind = kind or detect_kind(path)
    options = options or ReadOptions()
    if kind == "parquet":
        from unmask.io.parquet import EVENTS_TABLE
        from unmask.tables import open_table

        with open_table(path, EVENTS_TABLE) as (table, _):
            return int(table.metadata.num_rows)
    if kind in ROOT_FORMATS:
        from unmask.io.root_file import open_root, pick_tree

        with open_root(path) as file:
            return pick_tree(file, path, kind, options.tree).n_entries
    return None


def sum_of_weights(path: Path, *, kind: FileFormat | None = None, options: ReadOptions) -> tuple[float, str]:
    """Sum of the weights of a whole file, in bounded memory, and where it is from.

    Of the generator weight of NanoAOD it is that of all generated events, from the tree ``Runs``, where a file has it.
    """
    kind = kind or detect_kind(path)
    if kind in ROOT_FORMATS:
        from unmask.io.root_formats import LAYOUTS
        from unmask.io.root_objects import sum_of_weights as sum_of_root

        return sum_of_root(path, kind, LAYOUTS[kind], options)
    if kind == "parquet":
        from unmask.io.parquet import read_provenance

        before = read_provenance(path).get("options", {})
        if before.get("cut") or before.get("golden_json"):
            raise UsageError(
                f"{path}: was written with a cut, so its weights are not those of all generated events; give the cross "
                "section where the original file is converted"
            )
    whole, bad = replace(options, cut=None, golden_json={}, scale=1.0, entries=None), BadEvents(skip=True)
    return sum(float(some.weight.sum()) for some in stream_events(path, kind=kind, options=whole, bad=bad)), "weight"


def read_events(
    paths: str | Path | Sequence[str | Path],
    *,
    label: Label | int | None = None,
    kind: FileFormat | None = None,
    options: ReadOptions | None = None,
    bad: BadEvents | None = None,
) -> EventSet:
    """Read one or several files into one EventSet.

    >>> read_events("sample:gluino", label="background").label.max()
    np.int8(0)

    Parameters
    ----------
    paths
        Files of any format in ``FILE_FORMATS``, or samples such as "sample:gluino".
    label
        "background", "signal", or 0, 1 or -1 for unknown; None keeps the label of a Parquet file, else unknown.
    kind, options, bad
        As in :func:`stream_events`.
    """
    files = [paths] if isinstance(paths, (str, Path)) else list(paths)
    check_distinct(files)
    options, bad = options or ReadOptions(), bad or BadEvents()
    if label is not None:
        options = replace(options, label=label_code(label))
    return EventSet.concatenate(
        [chunk for file in files for chunk in stream_events(file, kind=kind, options=options, bad=bad)]
    )


def check_is_file(path: Path) -> None:
    """Refuse what is no regular file."""
    if path.is_dir():
        raise BadDataError("is a folder; give the files in it", path=path)
    if not path.exists():
        raise BadDataError("no such file", path=path)
    if not path.is_file():
        raise BadDataError("is not a regular file; write what it gives to disk first", path=path)


def check_distinct(paths: Sequence[str | Path]) -> None:
    """Refuse a file that is given twice: an event is known by its file and row."""
    seen: dict[Path, Path] = {}
    for path in map(Path, paths):
        if (other := seen.setdefault(path.resolve(), path)) is not path:
            raise UsageError(f"{path} is given twice" + (f", also as {other}" if other != path else ""))


def detect_kind(path: Path) -> FileFormat:
    """Detect the format of a file from its content."""
    check_is_file(path)
    with path.open("rb") as file:
        magic = file.read(8)
    if not magic:
        raise BadDataError("the file is empty", path=path)
    if magic.startswith(b"PAR1"):
        return "parquet"
    if magic.startswith(b"root"):
        from unmask.io.root_file import detect_root_kind

        return detect_root_kind(path)
    if magic.startswith((b"\x89HDF", b"PK\x03\x04")):
        return "fixed"
    return _detect_text_kind(path)


def _detect_text_kind(path: Path) -> FileFormat:
    source = Source(path, ReadOptions(), BadEvents(), FileRecord(path))
    try:
        with path.open("rb") as file:
            head = decompressed(file).read(1 << 16)
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(source, error) from None
    if not head:
        raise source.error("the file is empty")
    if b"\0" in head:
        accepted = ", ".join(FILE_FORMATS)
        line = head[: head.index(b"\0")].count(b"\n") + 1
        raise source.error(
            f"not a file of a known kind: it begins with {head[:8]!r} and has a NUL byte in line {line}, so that it is "
            f"no text; accepted: {accepted}"
        )
    first_line = next((line for line in head.splitlines() if line.strip()), b"")
    # A Dark Machines object is a comma-separated group between semicolons; the fixed layout has one separator.
    has_both = b";" in first_line and b"," in first_line
    n_fields = max(first_line.count(b";"), first_line.count(b",")) + 1
    return "fixed" if not has_both and n_fields > 60 else "darkmachines"


def _reader(kind: FileFormat) -> Reader:
    if kind not in FILE_FORMATS:
        raise UsageError(f"unknown kind of file {kind!r}; {nearest(kind, FILE_FORMATS)}")
    if kind in ROOT_FORMATS:
        from unmask.io.root_formats import LAYOUTS
        from unmask.io.root_objects import stream_root

        return partial(stream_root, kind=kind, layout=LAYOUTS[kind])
    reader: Reader = import_module(f"unmask.io.{kind.replace('-', '_')}").stream
    return reader
