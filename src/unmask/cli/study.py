"""`unmask study`: from event files to a report in one command."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from unmask.cli.fitting import DeviceOption, SeedOption, SetOption, parse_settings
from unmask.cli.reading import Reading, find_files, reads_named_files

if TYPE_CHECKING:
    from unmask.study.data import EventFiles
    from unmask.study.run import StudyRun
    from unmask.study.stages import Planned

app = typer.Typer(no_args_is_help=True, help="From event files to a report in one command.")


@app.command()
@reads_named_files
def run(
    reading: Reading,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the study; run again to continue there.")],
    study: Annotated[
        str | None, typer.Argument(metavar="STUDY", help="four-top or gluino; leave it out for files of your own.")
    ] = None,
    background: Annotated[
        list[Path] | None, typer.Option(help="File of background events, which are split 80/10/10 (repeatable).")
    ] = None,
    signal: Annotated[list[Path] | None, typer.Option(help="File of a signal to test with (repeatable).")] = None,
    data_file: Annotated[
        list[Path] | None, typer.Option(help="File of events to search for anomalies (repeatable).")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with four_top/*.csv.gz and channel_2b/*.csv.gz; without it STUDY runs on the sample."
        ),
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Only these configurations, such as lut-456,vq-512.")
    ] = None,
    settings: SetOption = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Epochs of all that is trained, at most; a cosine of the learning rate ends with them."
        ),
    ] = None,
    seed: SeedOption = 1,
    device: DeviceOption = "auto",
    style: Annotated[Literal["plain", "atlas", "cms"], typer.Option(help="Look of the figures.")] = "plain",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be done.")] = False,
) -> None:
    """Split, tokenize, train, score, calibrate, measure, draw and report: everything, in one folder.

    On your own files: unmask study run --background bkg.csv --signal sig.csv --out my-study. A published study:
    unmask study run gluino --out gluino. What is done already is not done again: after an interruption, with another
    signal or other settings, run the same command with the same --out. Several processes may share a folder, each with
    an --only of its own: what one of them makes, the others wait for.
    """
    from unmask.cli.console import note
    from unmask.cli.console import out as console
    from unmask.cli.study_progress import StudyProgress
    from unmask.errors import UsageError
    from unmask.study.configurations import DEFAULT, choose_configurations, load_study
    from unmask.study.results import SUMMARY
    from unmask.study.run import StudyRun

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:  # one would wait for the other's stage, that one for its training
        raise UsageError("torchrun is for unmask train; start several unmask study run with different --only instead")
    chosen = load_study(study or DEFAULT)
    files = _event_files(reading, study, data, background or [], signal or [], data_file or [])
    if study and data is None:
        note(f"without --data: on the sample of the {study} study that ships with unmask, not on the full data")
    configurations = choose_configurations(
        chosen,
        [name.strip() for name in only.split(",")] if only else None,
        changes=parse_settings(settings),
        epochs=epochs,
        seed=seed,
        device=device,
    )
    current = StudyRun(out, chosen, configurations, files, seed, device, StudyProgress(), style)
    _show_plan(current)
    if dry_run:
        return
    current.run()
    summary = out / "results" / SUMMARY
    if files.has_signal:
        console.print("\n" + summary.read_text(), highlight=False, markup=False, soft_wrap=True)
    _show_thresholds(current)
    console.print(f"report -> {out / 'report.html'}", highlight=False, markup=False, soft_wrap=True)


def _event_files(
    reading: Reading,
    study: str | None,
    data: Path | None,
    background: list[Path],
    signal: list[Path],
    data_file: list[Path],
) -> EventFiles:
    from unmask.errors import UsageError
    from unmask.study.configurations import load_study
    from unmask.study.data import EventFiles, files_of_study

    if study and background:
        raise UsageError(f"{study} has a background of its own; leave out --background, or the study's name")
    if data and not study:
        raise UsageError("--data is the folder of a published study; name it: unmask study run gluino --data ...")
    if not study and not background:
        raise UsageError("nothing to learn from: give --background FILE, or a study's name (four-top, gluino)")
    chosen = load_study(study) if study else None
    return EventFiles(
        background=files_of_study(chosen, data) if chosen else tuple(find_files(background)),
        signal=tuple(find_files(signal)),
        data=tuple(find_files(data_file)),
        signal_processes=chosen.signal_processes if chosen else (),
        kind=reading.sources.kind,
        options=reading.options,
        skip_bad=reading.bad.skip,
    )


def _show_plan(current: StudyRun) -> None:
    from unmask.cli.console import note, show_table
    from unmask.study.stages import plan

    planned = plan(current.stages, current.ledger)
    rows = [(each.stage.name, _state(current, each)) for each in planned]
    show_table(f"stages of the study in {current.out}", ("stage", "state"), rows)
    if not any(each.why for each in planned):
        note("all is done; nothing has changed")


def _state(current: StudyRun, planned: Planned) -> str:
    if planned.why is None:
        made_by = (current.ledger.record(planned.stage) or {}).get("unmask")
        return f"done (by unmask {made_by})" if made_by not in (None, version("unmask")) else "done"
    return f"goes on ({planned.why})" if current.ledger.can_continue(planned.stage) else f"to do ({planned.why})"


def _show_thresholds(current: StudyRun) -> None:
    from unmask.cli.console import show_table
    from unmask.scores.calibration import Calibration

    rows = []
    for configuration in current.configurations:
        found = Calibration.load(current.calibration_of(configuration))
        rows.append((configuration.name, f"{found.threshold:.6g}", str(found.measured)))
    show_table("thresholds", ("detector", "score", "background efficiency (validation events)"), rows)
