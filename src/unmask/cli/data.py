"""`unmask data`: inspect event files, convert, split and download them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.cli import options
from unmask.cli.console import note, note_problems, progress_bar, show, show_json, show_table
from unmask.errors import UsageError, nearest

if TYPE_CHECKING:
    from unmask.events.event_set import EventSet
    from unmask.workflow.sources import Sources

app = typer.Typer(no_args_is_help=True, help="Inspect event files; convert, split and download them.")


@app.command()
@options.reads_events
def inspect(
    sources: Sources,
    figure: Annotated[
        Path | None, typer.Option(help="Figure of multiplicity, pT, MET and HT: png, pdf or svg.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Count events, processes, multiplicities, MET and HT of event files; show what is read and what selections leave.

    Bad events are listed as problems; the exit code is then 3, unless --skip-bad is given.
    """
    from unmask.events.summary import summarize
    from unmask.io.record import joined

    may_be_bad, sources.bad.skip = sources.bad.skip, True
    sources.may_be_empty = True  # shown as the rest is; the exit code is then 3
    stream: Iterable[EventSet] = sources.stream(bar=progress_bar)
    if figure:
        from unmask.events.event_set import EventSet
        from unmask.report.other_figures import draw_events

        stream = list(stream)
        draw_events(EventSet.concatenate(stream)).write(figure)
        note(f"figure -> {figure}")
    summary = summarize(stream)
    for text in sources.warnings():
        note(text)
    summary |= {"n_bad_events": sources.bad.n_skipped, "problems": sources.bad.summary()}
    summary["inputs"] = joined(sources.records.values())
    if json:
        show_json({"files": [str(file) for file in sources.files], **summary})
    else:
        _show(sources.files, summary)
    if not summary["n_events"] or (summary["n_bad_events"] and not may_be_bad):
        raise typer.Exit(3)


def _title(files: Sequence[str | Path]) -> str:
    return Path(files[0]).name if len(files) == 1 else f"{len(files)} files"


def _show(files: list[Path], summary: dict[str, Any]) -> None:
    from unmask.events.observables import OBSERVABLES

    def quartiles(values: list[float]) -> str:
        return "  ".join(f"{value:.4g}" for value in values) + " GeV" if values else "-"

    show_table(
        _title(files),
        ("", "value"),
        [
            ("events", f"{summary['n_events']:,}"),
            *((f"  {label}", f"{n:,}") for label, n in summary["labels"].items()),
            ("sum of weights", f"{summary['sum_of_weights']:,.6g}"),
            *(
                (f"{one.label} quartiles", quartiles(summary[f"{name}_quartiles_gev"]))
                for name, one in OBSERVABLES.items()
                if not one.is_count
            ),
            ("events with objects cut", f"{summary['n_cut_events']:,}"),
            ("bad events", f"{summary['n_bad_events']:,}"),
        ],
    )
    for read in summary["inputs"]:
        show_table(
            f"input: {_title(read['files'])}", ("", "value"), [("format", read["format"]), *read["used"].items()]
        )
        steps = [(name, step, f"{n:,}") for name, counts in read["cutflow"].items() for step, n in counts.items()]
        show_table("cutflow", ("", "step", "left"), steps)
    mean = summary["mean_objects_per_event"]
    show_table("processes", ("process", "events"), [(name, f"{n:,}") for name, n in summary["processes"].items()])
    show_table("objects", ("object", "mean per event"), [(name, f"{value:.3f}") for name, value in mean.items()])
    multiplicity = summary["n_events_with_n_objects"]
    show_table("multiplicity", ("objects in the event", "events"), [(k, f"{n:,}") for k, n in multiplicity.items()])
    for problem in summary["problems"]:
        show(f"problem: {problem}")


@app.command()
@options.reads_events
def convert(
    sources: Sources,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write: .parquet, .csv or .csv.gz.")],
    only: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Processes to write, or labels: background, signal, unlabeled."),
    ] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Convert event files of any format into one file.

    Parquet is lossless and holds its provenance; Dark Machines CSV has no labels, run numbers and further columns.
    """
    from unmask.artifacts import provenance
    from unmask.io.darkmachines import write_csv
    from unmask.io.parquet import write_events
    from unmask.outputs import check_output

    check_output(out, ["events"], sources.files, endings=(".parquet", ".csv", ".csv.gz"), overwrite=overwrite)
    origin, stream = sources.origin(), sources.stream(bar=progress_bar)
    if only:
        stream = _only([name.strip() for name in only.split(",")], stream)
        origin["only"] = only
    if out.suffix == ".parquet":
        n_events = write_events(out, stream, provenance=provenance(**origin))
    else:
        n_events = write_csv(out, stream)
    note_problems(sources)
    show(f"{n_events:,} events -> {out}")


def _only(names: list[str], stream: Iterable[EventSet]) -> Iterator[EventSet]:
    """Events of these processes or labels; it is an error if one of them is of no event."""
    import numpy as np

    from unmask.events.event_set import LABEL_NAMES

    seen: dict[str, None] = {}
    for events in stream:
        label = np.array([LABEL_NAMES[one] for one in events.label.tolist()])
        seen |= dict.fromkeys([*events.process_names.counts(), *np.unique(label).tolist()])
        yield events[np.isin(events.process, names) | np.isin(label, names)]
    for name in names:
        if name not in seen:
            raise UsageError(f"--only {name}: no event has this process or label; {nearest(name, seen)}")


@app.command()
@options.reads_events
def split(
    sources: Sources,
    out: options.OutFolder,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split.")] = 0,
    fractions: Annotated[
        tuple[float, float, float], typer.Option(help="Fractions of training, validation and test.")
    ] = (0.8, 0.1, 0.1),
    keep_duplicates: options.KeepDuplicates = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Split events into train.parquet, validation.parquet and test.parquet.

    Stratified by process; the same for the same seed, whatever the chunking. Signal is never trained on: events
    labeled signal all go to test.
    """
    from unmask.artifacts import provenance
    from unmask.events.splits import SPLITS, Splitter
    from unmask.io.parquet import EventsWriter
    from unmask.outputs import check_output

    for name in SPLITS:
        check_output(out / f"{name}.parquet", ["events"], sources.files, overwrite=overwrite)
    splitter = Splitter(seed, fractions, keep_duplicates)
    origin = sources.origin()
    with ExitStack() as stack:
        writers = []
        for name in SPLITS:
            record = provenance(**origin, split={"name": name, "seed": seed, "fractions": list(fractions)})
            writers.append(stack.enter_context(EventsWriter(out / f"{name}.parquet", provenance=record)))
        for events in sources.stream(bar=progress_bar):
            code = splitter.assign(events)
            for i, writer in enumerate(writers):
                writer.write(events[code == i])
    numbers = ", ".join(f"{name} {writer.n_events:,}" for name, writer in zip(SPLITS, writers, strict=True))
    note_problems(sources)
    for text in splitter.notes():
        note(text)
    show(f"{numbers} events -> {out}")


@app.command()
def download(
    study: Annotated[str, typer.Argument(help="Data set: gluino, darkmachines, darkmachines-secret or -processes.")],
    directory: Annotated[
        Path | None, typer.Option(help="Folder for the files [default: UNMASK_DATA_DIR, or a cache].")
    ] = None,
    pattern: Annotated[str | None, typer.Option(help="Pattern of file names, such as `*2b*` [default: all].")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List of the files, without downloading.")] = False,
) -> None:
    """Download a Dark Machines data set by DOI, verified against the record's checksums, and cached."""
    from unmask.io.download import download_study, list_study

    if show_list:
        show_table(study, ("file", "checksum"), list_study(study, directory=directory, pattern=pattern).items())
        return
    with progress_bar("downloading") as bar:
        update = lambda _name, n_bytes, size: bar(n_bytes / max(size, 1))  # noqa: E731
        paths = download_study(study, directory=directory, pattern=pattern, progress=update)
    for path in paths:
        show(str(path))
