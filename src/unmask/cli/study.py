"""`unmask study`: from event files to a report in one command."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import unmask
from unmask.cli import options
from unmask.cli.console import IS_ALONE, note, show, show_table
from unmask.errors import UsageError

if TYPE_CHECKING:
    from unmask.study.stages import Ledger, Stage
    from unmask.workflow.sources import Sources

app = typer.Typer(no_args_is_help=True, help="From event files to a report in one command.")


@app.command()
@functools.partial(
    options.reads_events,
    without=("files", "process", "label", "signal_process", "background", "signal", "data", "xsec"),
)
def run(
    sources: Sources,
    out: options.OutFolder,
    study: Annotated[
        str | None, typer.Argument(metavar="STUDY", help="four-top or gluino; omit it for files of your own.")
    ] = None,
    background: Annotated[
        list[Path] | None, typer.Option(help="Background events, which are split 80/10/10 (repeatable).")
    ] = None,
    signal: Annotated[list[Path] | None, typer.Option(help="Signal events, to test with (repeatable).")] = None,
    data: Annotated[list[Path] | None, typer.Option(help="Events to search for anomalies (repeatable).")] = None,
    benchmark_dir: Annotated[
        Path | None, typer.Option(help="Folder with the files of STUDY [default: the bundled sample].")
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Detectors to train, such as default,lut-456 [default: all].")
    ] = None,
    prior: options.Prior = None,
    leave_out: options.LeaveOut = None,
    keep_duplicates: options.KeepDuplicates = False,
    settings: options.Settings = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Maximum epochs per training; sets the cosine schedule's length.")
    ] = None,
    seed: options.Seed = 1,
    device: options.Device = "auto",
    style: Annotated[Literal["plain", "atlas", "cms"], typer.Option(help="Style of the figures.")] = "plain",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List of what would be done, without doing it.")] = False,
) -> None:
    """Split, tokenize, train, score, calibrate, measure, draw and report: everything, in one folder.

    On your own files: unmask study run --background bkg.csv --signal sig.csv --out my-study. A published study:
    unmask study run gluino --out gluino. What is done already is not done again: after an interruption, with another
    signal or other settings, run the same command with the same --out. Settings of one detector alone begin with its
    name: --set lut-456.dropout=0.1. Several processes may share a folder, each with an --only of its own: what one of
    them makes, the others wait for.
    """
    from unmask.cli.progress import StudyProgress
    from unmask.scores.calibration import Calibration
    from unmask.study.data import StudyFiles
    from unmask.study.published import DEFAULT, choose_detectors, load_study, with_prior
    from unmask.study.results import SUMMARY
    from unmask.study.run import StudyRun
    from unmask.study.stages import plan

    if not IS_ALONE:  # one would wait for the other's stage, that one for its training
        raise UsageError("torchrun is for unmask train; start several unmask study run with different --only instead")
    if study and background:
        raise UsageError(f"{study} has a background of its own; leave out --background, or the study's name")
    if benchmark_dir and not study:
        raise UsageError(
            "--benchmark-dir holds published studies; name one: unmask study run gluino --benchmark-dir DIR"
        )
    if not study and not background:
        raise UsageError("nothing to learn from: give --background FILE, or a study's name (four-top, gluino)")
    options.check_leave_out(prior, leave_out)
    chosen = load_study(study or DEFAULT)
    known = sources.with_files(chosen.files(benchmark_dir), chosen.signal_processes) if study else None
    files = StudyFiles(
        known or sources.with_files(background or []),
        sources.with_files(signal or []),
        sources.with_files(data or []),
        keep_duplicates,
        tuple(prior or ()),
    )
    files.check()
    names = [name.strip() for name in only.split(",")] if only is not None else None
    shared = {"seed": seed, "device": device} | ({"max_epochs": epochs} if epochs else {})
    changes = options.parse_settings(settings)
    detectors = {
        name: one.with_cut(files.background.options.cut)
        for name, one in choose_detectors(chosen, names, changes, **shared).items()
    }
    priors = with_prior(detectors, leave_out or [], shared) if prior else {}
    current = StudyRun(out, chosen, detectors, files, seed, device, StudyProgress(), style, priors)
    current.check()
    planned = plan(current.stages, current.ledger)
    note(f"{chosen.description[:1].upper()}{chosen.description[1:]}")
    if study and not benchmark_dir:
        note("bundled sample; full data: --benchmark-dir DIR")
    if dry_run:
        rows = [_row(stage, why, current.ledger) for stage, why in planned]
        show_table(f"stages of the study in {out}", ("stage", "state", "reads or scores"), rows)
        return
    n_done = sum(why is None for _, why in planned)
    if n_done == len(planned):
        note("all is done; nothing has changed")
    elif n_done:
        note(f"{n_done} of {len(planned)} stages are done already")
    current.run()
    if files.has_signal:
        show("\n" + (out / "results" / SUMMARY).read_text())
    for name in current.detectors:
        calibration = Calibration.load(current.calibration_of(name))
        value, low, high = (f"{100 * part:.2f}%" for part in vars(calibration.measured).values())
        show(f"Threshold ({name}): score ≥ {calibration.threshold:.4g}; validation ε_B = {value} [{low}, {high}]")
    for name, result in current.searches().items():
        show(f"Search ({name}): {result['summary']}")
    if chosen.published:
        show(f"Beside published numbers: {out / 'results' / 'summary.md'}")
    show(f"Report: {out / 'report.html'}")


def _row(stage: Stage, why: str | None, ledger: Ledger) -> tuple[str, str, str]:
    if why is None:
        made_by = (ledger.record(stage) or {}).get("unmask", unmask.__version__)
        return stage.name, "done" if made_by == unmask.__version__ else f"done (by unmask {made_by})", ""
    work = [f"reads {path.name}" for path in stage.reads] + [f"scores {path.stem} events" for path in stage.scores]
    return stage.name, f"{'goes on' if ledger.can_continue(stage) else 'to do'} ({why})", ", ".join(work)
