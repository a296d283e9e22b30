"""Options that several commands share."""

from __future__ import annotations

import functools
import inspect
import re
import tomllib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from unmask.cli.console import note, note_problems, progress_bar
from unmask.errors import UsageError
from unmask.events.objects import Unit
from unmask.io import FileFormat

if TYPE_CHECKING:
    from unmask.events.event_set import EventSet
    from unmask.workflow.sources import Sources

Label = Literal["background", "signal", "unknown"]
LABELS: dict[Label, int] = {"background": 0, "signal": 1, "unknown": -1}
FIGURE_FORMATS = "Format of the figures: png, pdf or svg."

Model = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="Folder of a detector, sample:gluino-model, or a graph: model.onnx."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
OutFile = Annotated[Path, typer.Option("--out", "-o", help="Parquet file to write.")]
OutFolder = Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replacement of what is there, if it is of this kind.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Changed setting, such as training.max_epochs=20 (repeatable)."),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the split and of the training.")]
Device = Annotated[str, typer.Option(help="Device: auto, cpu or cuda.")]
Validation = Annotated[
    list[Path] | None, typer.Option(help="Validation events; by default FILE... are split 80/10/10 (repeatable).")
]

Prior = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE", help="Simulated theories to learn from: FILE or FAMILY:FILE (repeatable)."),
]
LeaveOut = Annotated[
    list[str] | None, typer.Option(metavar="FAMILY", help="Family of theories to leave out of the prior (repeatable).")
]
KeepDuplicates = Annotated[
    bool, typer.Option("--keep-duplicates", help="Events that repeat earlier ones stay, in one split.")
]


def _input(*names: str, help: str, **more: Any) -> Any:  # noqa: A002
    return typer.Option(*names, help=help, rich_help_panel="Input", **more)


def sources_of(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE...", help="Event files of any format, or sample:gluino and sample:four-top."),
    ] = None,
    *,
    background: Annotated[list[Path] | None, _input(help="Files of events labeled background (repeatable).")] = None,
    signal: Annotated[list[Path] | None, _input(help="Files of events labeled signal (repeatable).")] = None,
    data: Annotated[list[Path] | None, _input(help="Files of events without labels (repeatable).")] = None,
    file_format: Annotated[
        FileFormat | None, _input("--format", help="File format [default: detected from content].")
    ] = None,
    unit: Annotated[Unit | None, _input(help="Unit of E, pT, MET in text and array files [default: MeV].")] = None,
    process: Annotated[str | None, _input(help="Process name for all events.")] = None,
    label: Annotated[Label | None, _input(help="Label for all events [default: the file's own].")] = None,
    signal_process: Annotated[
        list[str] | None, _input(help="Process labeled signal, all others background (repeatable).")
    ] = None,
    tree: Annotated[str | None, _input(help="Tree to read, if a ROOT file has several.")] = None,
    dataset: Annotated[str | None, _input(help="Array to read, if a file has several.")] = None,
    select: Annotated[
        list[str] | None, _input(help="Changed ROOT object selection: jet.min_pt_gev=30 (repeatable).")
    ] = None,
    weight: Annotated[
        str | None, _input(metavar="NAME", help="Branch or column of the weights [default: generator weight].")
    ] = None,
    xsec: Annotated[float | None, _input(metavar="PB", help="Cross section of FILE..., to normalize to.")] = None,
    lumi: Annotated[
        float | None, _input(metavar="FB", help="Luminosity in 1/fb for cross sections [default: 1].")
    ] = None,
    samples: Annotated[Path | None, _input(help="TOML file of samples: files, xsec, k_factor, process, label.")] = None,
    keep: Annotated[
        str | None,
        _input(metavar="NAME,...", help="Further branches or columns to carry along: PuppiMET_pt,nSV."),
    ] = None,
    objects: Annotated[
        str | None,
        _input(metavar="NAME,...", help="Object types to read [ROOT default: electron,muon,photon,jet]."),
    ] = None,
    cut: Annotated[
        str | None,
        _input(metavar="CONDITION", help='Events to keep, in GeV: "n_jets > 2 and met > 50 and HLT_IsoMu24".'),
    ] = None,
    golden_json: Annotated[
        Path | None, _input("--golden-json", help="Certified luminosity blocks by run, as JSON; simulated events stay.")
    ] = None,
    skip_bad: Annotated[bool, _input("--skip-bad", help="Skip and count bad events instead of stopping.")] = False,
    chunk_events: Annotated[int, _input(min=1, help="Events held in memory at a time.")] = 50_000,
    max_objects: Annotated[
        int | None, _input(min=1, help="Objects kept per event, those of largest pT [default: 18].")
    ] = None,
) -> Sources:
    """Make the sources of a command; the signature holds the options that `reads_events` adds."""
    from unmask.io.golden_json import read_golden_json
    from unmask.io.source import ReadOptions
    from unmask.workflow.samples import Sample, Samples, read_samples
    from unmask.workflow.sources import Sources, find_files

    roles: dict[Label, list[Path] | None] = {"background": background, "signal": signal, "unknown": data}
    labels = {file.absolute(): LABELS[role] for role, some in roles.items() for file in find_files(some or [])}
    if bool(label) + bool(signal_process) + bool(labels) > 1:
        raise UsageError("--label, --signal-process and --background, --signal, --data all label; give one of them")
    has_xsec, has_lumi = xsec is not None, lumi is not None
    if (has_xsec and (samples or labels)) or (has_lumi and not (has_xsec or samples)):
        raise UsageError("--xsec is of FILE... alone; several samples need --samples. --lumi goes with one of them")
    known = read_samples(samples, lumi) if samples else Samples()
    if has_xsec:
        known = Samples((Sample(xsec=xsec),), 1.0 if lumi is None else lumi)
    given = [*(files or []), *(background or []), *(signal or []), *(data or [])]
    for text in select or []:
        if not re.fullmatch(r"[\w-]+(\.\w+){1,2}=.*", text):
            raise UsageError(
                f"--select {text!r}: expected jet.min_pt_gev=30, or with a branch muon.identification.looseId=1"
            )
    options = ReadOptions(
        unit=unit,
        process=process,
        label=LABELS[label] if label else None,
        chunk_events=chunk_events,
        max_objects=max_objects,
        tree=tree,
        dataset=dataset,
        selection=parse_settings(select),
        weight=weight,
        keep=_names(keep),
        objects=_names(objects),
        cut=cut,
        golden_json=read_golden_json(golden_json) if golden_json else {},
    )
    return Sources(given, file_format, options, signal_process or [], skip_bad=skip_bad, samples=known, labels=labels)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def reads_events(command: Callable[..., None], without: Collection[str] = ()) -> Callable[..., None]:
    """Give a command FILE... and the options of `sources_of`, except some, in place of its parameter ``sources``."""
    # Not imported: it would take numpy and pyarrow along.
    own, added = (inspect.signature(each, eval_str=True, locals={"Sources": object}) for each in (command, sources_of))
    options = dict(added.parameters)
    for name in without:
        del options[name]

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        arguments = {"files": []} | {name: given.pop(name) for name in options}
        sources = sources_of(**arguments)
        if "files" in options and not sources.files:
            raise UsageError("no event files; give FILE..., or --background, --signal or --data")
        command(sources=sources, **given)

    shown: dict[str, inspect.Parameter] = {}
    for name, parameter in own.parameters.items():  # FILE... keeps the place of ``sources``, the options come last
        shown |= {name: parameter} if name != "sources" else {"files": options["files"]} if "files" in options else {}
    shown |= options
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in shown.values()]
    wrapper.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords}
    return wrapper


def reads_background(command: Callable[..., None]) -> Callable[..., None]:
    """As :func:`reads_events`, for commands that learn from background."""
    return reads_events(command, without=("signal", "data"))


def parse_settings(texts: list[str] | None) -> dict[str, Any]:
    """Turn ``a=1 b.c=x`` into ``{"a": 1, "b": {"c": "x"}}``; values are TOML, or else words."""
    from unmask.workflow.settings import GROUPS, nested

    settings: dict[str, Any] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise UsageError(f"--set {text!r}: expected NAME=VALUE, such as n_bins=5")
        if (key := name.split(".")[-1]) in GROUPS:
            raise UsageError(f"--set {text}: {key} is a group; expected {name}.SETTING=VALUE")
        try:
            settings[name] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            settings[name] = value
    return nested(settings)


def read_training_events(
    sources: Sources, validation: Sequence[Path] | None, seed: int, keep_duplicates: bool = False
) -> tuple[EventSet, EventSet]:
    """Read the events to learn from and to validate on, and note their numbers; signal is refused."""
    from unmask.workflow.fit import training_events

    train, held_out, notes = training_events(
        sources, validation or (), seed=seed, keep_duplicates=keep_duplicates, bar=progress_bar
    )
    note_problems(sources)
    for text in [*notes, f"{len(train):,} training and {len(held_out):,} validation events"]:
        note(text)
    return train, held_out


def check_leave_out(prior: Sequence[str] | None, leave_out: Sequence[str] | None) -> None:
    """Refuse to leave a family out of nothing."""
    if leave_out and not prior:
        raise UsageError("--leave-out takes a family out of a prior; give --prior")


def read_prior(prior: Sequence[str] | None, leave_out: Sequence[str] | None, sources: Sources) -> EventSet | None:
    """Read the theories of a prior, if there is one, with the cuts of the background, and note what they are."""
    from unmask.detectors.prior import without_families
    from unmask.workflow.theories import prior_text, read_theories

    check_leave_out(prior, leave_out)
    if not prior:
        return None
    theories = without_families(read_theories(prior, sources, progress_bar), leave_out or [])
    note(prior_text(theories))
    return theories
