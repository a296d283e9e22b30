"""`unmask data`: look at event files, convert, split and fetch them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.cli.reading import JsonOption, Reading, reads_events

if TYPE_CHECKING:
    from unmask.events.event_set import EventSet

app = typer.Typer(no_args_is_help=True, help="Look at event files; convert, split and download them.")


@app.command()
@reads_events
def inspect(
    reading: Reading,
    figure: Annotated[
        Path | None, typer.Option(help="Draw multiplicity, pT, MET and HT of the events: a png, pdf or svg file.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Say what is in event files: events, processes, multiplicities, MET and HT, cut events, problems.

    Bad events are listed as problems; the exit code is then 3, unless --skip-bad says that they are no surprise.
    """
    from unmask.cli.console import emit_json, note
    from unmask.events.summary import EventSummary

    may_be_bad, reading.bad.skip = reading.bad.skip, True
    stream: Iterable[EventSet] = reading.stream()
    if figure:
        from unmask.events.event_set import concatenate_events
        from unmask.report.other_figures import draw_events

        stream = list(stream)
        draw_events(concatenate_events(stream)).write(figure)
        note(f"figure -> {figure}")
    facts = EventSummary.of(stream).as_dict()
    facts |= {"n_bad_events": reading.bad.n_skipped, "problems": reading.bad.summary()}
    if json:
        emit_json({"files": [str(file) for file in reading.files], **facts})
    else:
        _show(reading.files, facts)
    if facts["n_bad_events"] and not may_be_bad:
        raise typer.Exit(3)


def _show(files: list[Path], facts: dict[str, Any]) -> None:
    from unmask.cli.console import out, show_table
    from unmask.events.observables import OBSERVABLES

    def quartiles(values: list[float]) -> str:
        return "  ".join(f"{value:.4g}" for value in values) + " GeV" if values else "-"

    show_table(
        files[0].name if len(files) == 1 else f"{len(files)} files",
        ("", "value"),
        [
            ("events", f"{facts['n_events']:,}"),
            *((f"  {label}", f"{n:,}") for label, n in facts["labels"].items()),
            ("sum of weights", f"{facts['sum_of_weights']:,.6g}"),
            *(
                (f"{one.label} quartiles", quartiles(facts[f"{name}_quartiles_gev"]))
                for name, one in OBSERVABLES.items()
                if not one.is_count
            ),
            ("events with objects cut", f"{facts['n_cut_events']:,}"),
            ("bad events", f"{facts['n_bad_events']:,}"),
        ],
    )
    mean = facts["mean_objects_per_event"]
    show_table("processes", ("process", "events"), [(name, f"{n:,}") for name, n in facts["processes"].items()])
    show_table("objects", ("object", "mean per event"), [(name, f"{value:.3f}") for name, value in mean.items()])
    multiplicity = facts["n_events_with_n_objects"]
    show_table("multiplicity", ("objects in the event", "events"), [(k, f"{n:,}") for k, n in multiplicity.items()])
    for problem in facts["problems"]:
        out.print(f"problem: {problem}", markup=False, highlight=False, soft_wrap=True)


@app.command()
@reads_events
def convert(
    reading: Reading,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The Parquet file to write.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")] = False,
) -> None:
    """Convert event files of any kind into one Parquet file, with its provenance inside."""
    from unmask.artifacts import provenance
    from unmask.errors import UsageError
    from unmask.io.parquet import EventsWriter

    reading.check_output(out)
    if out.exists() and not overwrite:
        raise UsageError(f"{out}: the last name is the file to write, and it exists; give --overwrite to replace it")
    counter = _Counter()
    with EventsWriter(out, provenance=provenance(**reading.sources.origin())) as writer:
        for events in counter.watch(reading.stream()):
            writer.write(events)
    _report(reading, counter, f"{counter.n_events:,} events -> {out}")


@app.command()
@reads_events
def split(
    reading: Reading,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")],
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
    fractions: Annotated[tuple[float, float, float], typer.Option(help="Shares of training, validation and test.")] = (
        0.8,
        0.1,
        0.1,
    ),
) -> None:
    """Split events into train.parquet, validation.parquet and test.parquet.

    Stratified by process; the same for the same seed, whatever the chunking. Signal is never trained on: events
    labelled signal all go to test.
    """
    from unmask.artifacts import provenance
    from unmask.events.splits import SPLITS, Splitter
    from unmask.io.parquet import EventsWriter

    for name in SPLITS:
        reading.check_output(out / f"{name}.parquet")
    splitter = Splitter(seed=seed, fractions=fractions)
    origin = reading.sources.origin()
    counter = _Counter()
    with ExitStack() as stack:
        writers = []
        for name in SPLITS:
            facts = provenance(**origin, split={"name": name, "seed": seed, "fractions": list(fractions)})
            writers.append(stack.enter_context(EventsWriter(out / f"{name}.parquet", provenance=facts)))
        for events in counter.watch(reading.stream()):
            code = splitter.assign(events)
            for i, writer in enumerate(writers):
                writer.write(events[code == i])
    shares = ", ".join(f"{name} {writer.n_events:,}" for name, writer in zip(SPLITS, writers, strict=True))
    _report(reading, counter, f"{shares} events -> {out}")


@app.command()
def download(
    study: Annotated[str, typer.Argument(help="Which data set.")],
    directory: Annotated[
        Path | None, typer.Option(help="Where files are kept (default: UNMASK_DATA_DIR, else the user's cache).")
    ] = None,
    pattern: Annotated[str | None, typer.Option(help="Only files whose names match, such as '*2b*'.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Only list the files.")] = False,
) -> None:
    """Fetch a Dark Machines data set by DOI: verified against the record's checksums, cached."""
    from unmask.cli.console import byte_bars, out, show_table
    from unmask.io.download import download_study, list_study

    if show_list:
        found = list_study(study, directory=directory, pattern=pattern)
        show_table(study, ("file", "checksum"), found.items())
        return
    with byte_bars() as update:
        paths = download_study(study, directory=directory, pattern=pattern, progress=update)
    for path in paths:
        out.print(str(path), highlight=False, soft_wrap=True)


class _Counter:
    """Counts the events that pass, and those that were cut."""

    def __init__(self) -> None:
        self.n_events = 0
        self.n_cut = 0
        self.max_objects = 0

    def watch(self, chunks: Iterable[EventSet]) -> Iterator[EventSet]:
        for events in chunks:
            self.n_events += len(events)
            self.n_cut += events.n_cut_events
            self.max_objects = events.max_objects
            yield events


def _report(reading: Reading, counter: _Counter, result: str) -> None:
    from unmask.cli.console import note, out

    reading.report_skipped()
    if counter.n_cut:
        note(f"{counter.n_cut:,} events cut to their {counter.max_objects} objects of largest pT")
    out.print(result, highlight=False, soft_wrap=True)
