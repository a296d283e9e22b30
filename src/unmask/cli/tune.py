"""`unmask tune`: search hyper-parameters on background alone, with any number of workers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from unmask.cli.fitting import DeviceOption, SeedOption, ValidationOption, training_and_validation
from unmask.cli.reading import JsonOption, Reading, reads_events

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

    from unmask.events.event_set import EventSet
    from unmask.tokenizers import Tokenizer
    from unmask.tuning.plan import Plan

app = typer.Typer(no_args_is_help=True, help="Search hyper-parameters on background alone, with any number of workers.")

PresetOption = Annotated[
    str, typer.Option(help="What to start from: a published configuration (see: unmask list) or a TOML file.")
]
TrialsOption = Annotated[int, typer.Option(min=1, help="Finished trials that the study shall have in the end.")]
OutOption = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder for the journal, logs, figures and the best preset.")
]
StorageOption = Annotated[
    str | None,
    typer.Option(
        help="Where workers share the study: a journal file, postgresql+psycopg://..., grpc://host:port "
        "(default: OUT/journal.log)."
    ),
]
StudyOption = Annotated[str | None, typer.Option(help="Name of the study (default: made of preset and padding).")]
EpochsOption = Annotated[int | None, typer.Option(min=1, help="Most epochs of a trial (default: the preset's).")]
EventsOption = Annotated[int | None, typer.Option(min=1, help="Train on so many events only, drawn by --seed.")]
WorkersOption = Annotated[int, typer.Option(min=1, help="Processes to start here.")]
PrunerOption = Annotated[
    Literal["median", "hyperband", "none"], typer.Option(help="How trials that fall behind are stopped early.")
]
GraceOption = Annotated[
    float, typer.Option(min=1, help="Seconds without a sign of life after which a worker's trial is done again.")
]
AsWorkerOption = Annotated[bool, typer.Option("--as-worker", hidden=True)]
StorageArgument = Annotated[
    str, typer.Argument(metavar="STORAGE", help="A journal file, the URL of a database, or grpc://host:port.")
]
ChosenStudyOption = Annotated[str | None, typer.Option(help="Which study, where there are several.")]


@app.command()
@reads_events
def tokenizer(
    reading: Reading,
    preset: PresetOption = "gluino-vq-512",
    trials: TrialsOption = 100,
    out: OutOption = None,
    storage: StorageOption = None,
    study: StudyOption = None,
    epochs: EpochsOption = None,
    events: EventsOption = None,
    validation: ValidationOption = None,
    pruner: PrunerOption = "median",
    workers: WorkersOption = 1,
    grace: GraceOption = 120.0,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    as_worker: AsWorkerOption = False,
) -> None:
    """Tune the VQ-VAE of a preset at its number of codes.

    Searched: latent, hidden, heads, blocks, alpha, beta, gamma and the learning rate. What is minimised is the
    reconstruction error of validation background. Running the same command again continues the scan.
    """
    _quiet_optuna()
    from unmask.events.fingerprints import fingerprint_of
    from unmask.studies.presets import load_preset
    from unmask.tuning.plan import Plan

    chosen = load_preset(preset)
    Plan(target="tokenizer", preset=chosen)  # a preset that cannot be tuned is an error before events are read
    where = _storage(storage, out)
    training, held_out = _events(reading, validation, seed, events)
    data = fingerprint_of(training, held_out)
    plan = Plan(target="tokenizer", preset=chosen, max_epochs=epochs, data=data)
    options: dict[str, Any] = {"study_name": study, "pruning": pruner, "seed": seed, "device": device, "grace_s": grace}
    _scan(plan, training, held_out, trials, workers, where, out, as_worker, options)


@app.command()
@reads_events
def detector(
    reading: Reading,
    preset: PresetOption = "gluino-lut-456",
    tokenizer: Annotated[
        Path | None, typer.Option(help="Folder of the fitted tokenizer of the preset; a VQ-VAE needs it.")
    ] = None,
    padding: Annotated[
        Literal["predict", "ignore"] | None, typer.Option(help="Fixed in a study (default: the preset's).")
    ] = None,
    trials: TrialsOption = 100,
    out: OutOption = None,
    storage: StorageOption = None,
    study: StudyOption = None,
    epochs: EpochsOption = None,
    events: EventsOption = None,
    validation: ValidationOption = None,
    pruner: PrunerOption = "median",
    workers: WorkersOption = 1,
    grace: GraceOption = 120.0,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    as_worker: AsWorkerOption = False,
) -> None:
    """Tune the masked-token detector of a preset.

    Searched: dropout, position encoding, learning rate and schedule, feed-forward expansion and gradient clipping. What
    is minimised is the cross-entropy of masked tokens of validation background. Losses with different paddings cannot
    be compared: make one study for each --padding. Running the same command again continues the scan.
    """
    from unmask.artifacts import MANIFEST, sha256_of_file

    _quiet_optuna()
    from unmask.events.fingerprints import fingerprint_of
    from unmask.studies.presets import load_preset
    from unmask.tuning.plan import Plan

    chosen = load_preset(preset)
    fitted = _fitted(tokenizer, chosen) if tokenizer else None
    plan_options: dict[str, Any] = {
        "target": "detector",
        "preset": chosen,
        "padding": padding or chosen.detector.get("padding", "predict"),
        "max_epochs": epochs,
        "tokenizer": sha256_of_file(tokenizer / MANIFEST)[:16] if tokenizer else None,
    }
    Plan(**plan_options)
    where = _storage(storage, out)
    training, held_out = _events(reading, validation, seed, events)
    plan = Plan(**plan_options, data=fingerprint_of(training, held_out))
    options: dict[str, Any] = {"study_name": study, "pruning": pruner, "seed": seed, "device": device, "grace_s": grace}
    options |= {"tokenizer": fitted}
    _scan(plan, training, held_out, trials, workers, where, out, as_worker, options)


@app.command()
def show(
    storage: StorageArgument,
    study: ChosenStudyOption = None,
    limit: Annotated[int, typer.Option(min=1, help="How many trials, the best first.")] = 10,
    figures: Annotated[Path | None, typer.Option(help="Folder for figures of the scan.")] = None,
    format_: Annotated[str, typer.Option("--figure-format", help="png, pdf or svg.")] = "png",
    json: JsonOption = False,
) -> None:
    """Show the best trials of a scan, also while it runs."""
    from unmask.cli.console import emit_json, note
    from unmask.tuning.figures import draw_figures
    from unmask.tuning.results import summary
    from unmask.tuning.storages import find_study

    _quiet_optuna()
    found = find_study(storage, study)
    if figures:
        for path in draw_figures(found, figures, format_):
            note(str(path))
    if json:
        emit_json(summary(found, limit))
    else:
        _show(found, limit)


@app.command()
def export(
    storage: StorageArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="TOML file to write.")] = Path("best.toml"),
    study: ChosenStudyOption = None,
    trial: Annotated[int | None, typer.Option(help="Another trial than the best, by its number.")] = None,
) -> None:
    """Write the best trial as a preset, for: unmask train --preset best.toml."""
    from unmask.cli.console import out as console
    from unmask.tuning.results import best_preset, write_preset
    from unmask.tuning.storages import find_study

    _quiet_optuna()
    preset = best_preset(find_study(storage, study), trial)
    write_preset(out, preset)
    console.print(f"{preset.description} -> {out}", highlight=False, soft_wrap=True)


@app.command()
def serve(
    storage: Annotated[str, typer.Argument(metavar="DATABASE", help="postgresql+psycopg://... or sqlite:///FILE.")],
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 for everyone in the network.")] = "localhost",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 13000,
) -> None:
    """Let workers that cannot reach a database share it through grpc://HOST:PORT, until interrupted.

    There is no password: whoever reaches the port can read and change the studies.
    """
    from unmask.cli.console import note
    from unmask.tuning import storages

    _quiet_optuna()
    note(f"workers use: --storage grpc://{host}:{port}")
    storages.serve(storage, host=host, port=port)


def _quiet_optuna() -> None:
    from unmask.errors import require

    require("optuna", "tune")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)


def _storage(storage: str | None, out: Path | None) -> str:
    from unmask.errors import UsageError

    if storage is None and out is None:
        raise UsageError("say where the study is kept: --out FOLDER, or --storage journal.log or a URL")
    return storage or str(Path(out or "") / "journal.log")


def _events(
    reading: Reading, validation: list[Path] | None, seed: int, n_events: int | None
) -> tuple[EventSet, EventSet]:
    import numpy as np

    from unmask.cli.console import note

    training, held_out = training_and_validation(reading, validation, seed)
    if n_events is not None and n_events < len(training):
        drawn = np.random.default_rng(seed).permutation(len(training))[:n_events]
        training = training[np.sort(drawn)]
        note(f"trials learn from {n_events:,} of them")
    return training, held_out


def _fitted(folder: Path, preset: Any) -> Tokenizer:
    """Load a fitted tokenizer, which must be the preset's: the exported preset would promise another one."""
    from unmask.errors import UsageError
    from unmask.tokenizers import load_tokenizer

    fitted = load_tokenizer(folder)
    wanted = preset.new_tokenizer()
    mine, theirs = wanted.settings(), fitted.settings()
    different = [name for name in mine if name != "training" and mine[name] != theirs.get(name)]
    if fitted.kind != wanted.kind or different:
        what = ", ".join(f"{name} {theirs.get(name)!r}" for name in different) or fitted.kind
        raise UsageError(f"{folder} does not hold the tokenizer of preset {preset.name}: it has {what}")
    return fitted


def _scan(
    plan: Plan,
    training: EventSet,
    validation: EventSet,
    n_trials: int,
    n_workers: int,
    storage: str,
    out: Path | None,
    as_worker: bool,
    options: dict[str, Any],
) -> None:
    """Run a scan here, or in several processes, and report."""
    from unmask.tuning.scan import Scan
    from unmask.tuning.storages import open_storage, storage_failures

    with storage_failures(storage):
        scan = Scan(
            open_storage(storage),
            plan,
            training,
            validation,
            trials_folder=out / "trials" / (options["study_name"] or plan.study_name) if out else None,
            **options,
        )
        if n_workers > 1 and not as_worker:
            _start_workers(scan.study, n_workers, n_trials)
        else:
            scan.run(n_trials, lambda trial: _say_trial(trial, scan.study))
        if not as_worker:
            _report(scan.study, storage, out)


def _start_workers(study: Study, n_workers: int, n_trials: int) -> None:
    import sys

    from unmask.cli.console import note
    from unmask.errors import TrainingError
    from unmask.tuning.scan import n_finished
    from unmask.tuning.workers import run_workers

    for process, code in run_workers(sys.argv[1:], "--as-worker", n_workers):
        if code:
            note(f"worker process {process} ended early, with exit code {code}")
    if n_finished(study) < n_trials:
        raise TrainingError(
            f"all workers ended with {n_finished(study)} of {n_trials} trials finished; "
            "run the same command again to go on"
        )


def _say_trial(trial: FrozenTrial, study: Study) -> None:
    from unmask.cli.console import err
    from unmask.tuning.results import complete_trials

    reason = f" ({trial.user_attrs['reason']})" if trial.user_attrs.get("reason") else ""
    loss = "" if trial.value is None else f", validation loss {trial.value:.5g}"
    epochs, seconds = len(trial.intermediate_values), trial.user_attrs.get("seconds", 0.0)
    best = complete_trials(study)[:1]
    so_far = f"; best so far {best[0].value:.5g}, trial {best[0].number}" if best else ""
    err.print(
        f"trial {trial.number}: {trial.state.name.lower()}{reason}{loss}, {epochs} epochs in {seconds:.0f} s{so_far}; "
        + _words(trial.params),
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _words(parameters: dict[str, Any]) -> str:
    return ", ".join(
        f"{name.removeprefix('training.')} {f'{value:.3g}' if isinstance(value, float) else value}"
        for name, value in parameters.items()
    )


def _report(study: Study, storage: str, out: Path | None) -> None:
    from importlib.util import find_spec

    from unmask.cli.console import note
    from unmask.cli.console import out as console
    from unmask.tuning.figures import MIN_TRIALS, draw_figures
    from unmask.tuning.results import best_preset, complete_trials, write_preset

    _show(study, 5)
    n_complete = len(complete_trials(study))
    if out and n_complete:
        write_preset(out / "best.toml", best_preset(study))
        console.print(f"best preset -> {out / 'best.toml'}", highlight=False, soft_wrap=True)
    if out and n_complete >= MIN_TRIALS and find_spec("matplotlib"):
        draw_figures(study, out / "figures")
        console.print(f"figures -> {out / 'figures'}", highlight=False, soft_wrap=True)
    note(f"more: unmask tune show {storage} --study {study.study_name}")


def _show(study: Study, limit: int) -> None:
    from unmask.cli.console import show_table
    from unmask.tuning.results import summary

    facts = summary(study, limit)
    rows = [
        (str(best["trial"]), f"{best['validation_loss']:.5g}", str(best["epochs"]), _words(best["parameters"]))
        for best in facts["best"]
    ]
    states = ", ".join(f"{n} {state}" for state, n in facts["trials"].items())
    show_table(
        f"study {study.study_name}: {states or 'no trials'}", ("trial", "loss", "epochs", "hyper-parameters"), rows
    )
