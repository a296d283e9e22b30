"""Options that every command which reads events shares."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from unmask.cli.console import note, progress_bar
from unmask.events.objects import Unit
from unmask.io import FileFormat

if TYPE_CHECKING:
    from unmask.events.checks import BadEvents
    from unmask.events.event_set import EventSet

Label = Literal["background", "signal", "unknown"]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

LABELS: dict[Label, int] = {"background": 0, "signal": 1, "unknown": -1}


class Reading:
    """The files of one command and how to read them; its signature is what `reads_events` adds to a command."""

    def __init__(
        self,
        files: Annotated[
            list[Path],
            typer.Argument(
                metavar="FILE...",
                help="Dark Machines CSV (plain, gzip, zstd), 92-column CSV/HDF5/NPZ, ROOT or Parquet files; "
                "sample:gluino and sample:four-top are those that ship with unmask.",
            ),
        ],
        *,
        file_format: Annotated[
            FileFormat | None, typer.Option("--format", help="What the files are; by default their content tells.")
        ] = None,
        unit: Annotated[
            Unit | None, typer.Option(help="Unit of E, pT and MET in text and array files (default MeV).")
        ] = None,
        process: Annotated[str | None, typer.Option(help="Process name for all events, not the file's own.")] = None,
        label: Annotated[
            Label | None, typer.Option(help="Label for all events; by default the file's own, or unknown.")
        ] = None,
        signal_process: Annotated[
            list[str] | None, typer.Option(help="Label this process signal, all others background (repeatable).")
        ] = None,
        tree: Annotated[str | None, typer.Option(help="Name of the tree, where a ROOT file has several.")] = None,
        dataset: Annotated[str | None, typer.Option(help="Name of the array, where a file has several.")] = None,
        select: Annotated[
            list[str] | None, typer.Option(help="Change a ROOT object selection: jet.min_pt_gev=30 (repeatable).")
        ] = None,
        skip_bad: Annotated[
            bool, typer.Option("--skip-bad", help="Skip, count and report bad events instead of stopping.")
        ] = False,
        chunk_events: Annotated[int, typer.Option(min=1, help="Events held in memory at a time.")] = 50_000,
        max_objects: Annotated[
            int | None, typer.Option(min=1, help="Objects kept per event, those of largest pT (default 18).")
        ] = None,
    ) -> None:
        from unmask.errors import UsageError
        from unmask.io.read import ReadOptions
        from unmask.workflow.sources import Sources

        if label and signal_process:
            raise UsageError("--label and --signal-process both say what is signal; give one of them")
        options = ReadOptions(
            unit=unit,
            process=process,
            label=LABELS[label] if label else None,
            chunk_events=chunk_events,
            max_objects=max_objects,
            tree=tree,
            dataset=dataset,
            selection=parse_selection(select or []),
        )
        self.sources = Sources(find_files(files), file_format, options, signal_process or [], skip_bad=skip_bad)
        self.files, self.options, self.bad = self.sources.files, self.sources.options, self.sources.bad

    def stream(self, files: Sequence[Path] | None = None) -> Iterator[EventSet]:
        """Yield all events of all files (or of other ``files``, read the same way), with a bar for each file."""
        return self.sources.stream(find_files(files) if files else None, progress_bar)

    def check_output(self, out: Path) -> None:
        """Refuse, before any work, to write a Parquet file over an input or under another ending."""
        from unmask.errors import UsageError

        if out.suffix != ".parquet":
            raise UsageError(f"{out}: the file to write must end in .parquet")
        if out.is_dir():
            raise UsageError(f"{out}: is a folder; name a file to write")
        if out.resolve() in [file.resolve() for file in self.files]:
            raise UsageError(f"{out}: would replace a file that is read; choose another name")

    def report_skipped(self) -> None:
        """Say what was skipped."""
        note_skipped(self.bad)


def note_skipped(bad: BadEvents) -> None:
    """Say which events were skipped."""
    if bad.n_skipped:
        note(f"skipped {bad.n_skipped:,} bad events:")
        for line in bad.summary():
            note(f"  {line}")


def reads_events(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, in place of its parameter ``reading``, the files and all options of `Reading`."""
    return _with_options(command, "reading", _reading_parameters(), Reading)


def reads_named_files(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that names and labels files in its own ways, in place of ``reading``, how to read them.

    It is given a `Reading` of no files, with all the other options.
    """
    own = ("files", "process", "label", "signal_process")
    options = [parameter for parameter in _reading_parameters() if parameter.name not in own]
    return _with_options(command, "reading", options, functools.partial(Reading, []))


def _reading_parameters() -> list[inspect.Parameter]:
    return list(inspect.signature(Reading, eval_str=True).parameters.values())


def _with_options(
    command: Callable[..., None], place: str, added: Sequence[inspect.Parameter], make: Callable[..., Reading]
) -> Callable[..., None]:
    """Give a command what ``make`` makes of the ``added`` options; an argument among them keeps the place."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())
    i = [parameter.name for parameter in own].index(place)
    arguments = [parameter for parameter in added if parameter.name == "files"]
    options = [parameter for parameter in added if parameter.name != "files"]

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        reading = make(**{parameter.name: given.pop(parameter.name) for parameter in added})
        command(**{place: reading}, **given)

    shown = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in (*own[:i], *arguments, *own[i + 1 :], *options)
    ]
    wrapper.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return wrapper


def resolve(path: Path) -> Path:
    """Turn ``sample:gluino`` into the path of the sample; any other path stays."""
    from unmask.io import sample

    return sample.resolve(path)


def find_files(paths: Iterable[Path]) -> list[Path]:
    """Turn the names of samples, and quoted patterns such as ``*.csv``, into the files that they stand for."""
    from unmask.errors import UsageError

    files: list[Path] = []
    for path in map(resolve, paths):
        if path.exists() or not any(mark in str(path) for mark in "*?["):
            files.append(path)
            continue
        found = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
        if not found:
            raise UsageError(f"no file matches {str(path)!r}")
        files += found
    return files


def parse_selection(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Turn ``jet.min_pt_gev=30`` into ``{"jet": {"min_pt_gev": 30}}``."""
    from unmask.errors import UsageError

    selection: dict[str, dict[str, Any]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        obj, dot, key = name.partition(".")
        if not (equals and dot and obj and key):
            raise UsageError(f"--select {text!r}: write OBJECT.CUT=VALUE, such as jet.min_pt_gev=30")
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = value
        selection.setdefault(obj, {})[key] = parsed
    return selection
