"""`unmask tune`: search hyper-parameters on background alone, with any number of workers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from unmask.cli.fitting import DeviceOption, SeedOption, ValidationOption, training_and_validation
from unmask.cli.reading import JsonOption, Reading, reads_events

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

    from unmask.events.event_set import EventSet
    from unmask.networks.masked_token import Padding
    from unmask.tokenizers import Tokenizer
    from unmask.tuning.scan import Pruning
    from unmask.tuning.space import Target

app = typer.Typer(no_args_is_help=True, help="Search hyper-parameters on background alone, with any number of workers.")

PresetOption = Annotated[
    str, typer.Option(help="What to start from: a published configuration (see: unmask list) or a TOML file.")
]
TrialsOption = Annotated[int, typer.Option(min=1, help="Finished trials that the study shall have in the end.")]
OutOption = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder for the journal, figures and the best preset.")
]
StorageOption = Annotated[
    str | None,
    typer.Option(
        help="Where workers share the study: a journal file, or a database such as postgresql+psycopg://... "
        "(default: OUT/journal.log)."
    ),
]
StudyOption = Annotated[str | None, typer.Option(help="Name of the study (default: made of preset and padding).")]
EpochsOption = Annotated[int | None, typer.Option(min=1, help="Most epochs of a trial (default: the preset's).")]
EventsOption = Annotated[int | None, typer.Option(min=1, help="Train on so many events only, drawn by --seed.")]
PrunerOption = Annotated[
    Literal["median", "hyperband", "none"], typer.Option(help="How trials that fall behind are stopped early.")
]
StorageArgument = Annotated[str, typer.Argument(metavar="STORAGE", help="A journal file, or the URL of a database.")]
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
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
) -> None:
    """Tune the VQ-VAE of a preset at its number of codes.

    Searched: latent, hidden, heads, blocks, alpha, beta, gamma and the learning rate. What is minimised is the
    reconstruction error of validation background. Running the same command again continues the scan.
    """
    _scan(reading, "tokenizer", preset, trials, out, storage, study, epochs, events, validation, pruner, seed, device)


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
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
) -> None:
    """Tune the masked-token detector of a preset.

    Searched: dropout, position encoding, learning rate and schedule, feed-forward expansion and gradient clipping. What
    is minimised is the cross-entropy of masked tokens of validation background. Losses with different paddings cannot
    be compared: make one study for each --padding. Running the same command again continues the scan.
    """
    _scan(
        reading, "detector", preset, trials, out, storage, study, epochs, events, validation, pruner, seed, device,
        tokenizer, padding,
    )  # fmt: skip


@app.command()
def show(
    storage: StorageArgument,
    study: ChosenStudyOption = None,
    limit: Annotated[int, typer.Option(min=1, help="How many trials, the best first.")] = 10,
    figures: Annotated[Path | None, typer.Option(help="Folder for figures of the scan.")] = None,
    format_: Annotated[str, typer.Option("--figure-format", help="png, pdf or svg.")] = "png",
    preset: Annotated[
        Path | None, typer.Option(help="TOML file for the best trial, for: unmask train --preset.")
    ] = None,
    trial: Annotated[int | None, typer.Option(help="Another trial than the best for --preset, by its number.")] = None,
    json: JsonOption = False,
) -> None:
    """Show the best trials of a scan, also while it runs; draw them, or write one as a preset."""
    _quiet_optuna()
    from unmask.cli.console import emit_json, note
    from unmask.tuning.results import best_preset, draw_figures, summary, write_preset
    from unmask.tuning.scan import find_study

    found = find_study(storage, study)
    if preset:
        best = best_preset(found, trial)
        write_preset(preset, best)
        note(f"{best.description} -> {preset}")
    if figures:
        for path in draw_figures(found, figures, format_):
            note(str(path))
    if json:
        emit_json(summary(found, limit))
    else:
        _show(found, limit)


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
    reading: Reading,
    target: Target,
    preset: str,
    n_trials: int,
    out: Path | None,
    storage: str | None,
    study: str | None,
    epochs: int | None,
    n_events: int | None,
    validation: list[Path] | None,
    pruner: Pruning,
    seed: int,
    device: str,
    tokenizer: Path | None = None,
    padding: Padding | None = None,
) -> None:
    """Run a scan and report."""
    _quiet_optuna()
    from unmask.artifacts import MANIFEST, sha256_of_file
    from unmask.events.fingerprints import fingerprint_of
    from unmask.tuning.scan import Plan, Scan, open_storage, storage_errors
    from unmask.workflow.presets import load_preset

    chosen = load_preset(preset)
    fitted = _fitted(tokenizer, chosen) if tokenizer else None
    plan = Plan(
        target=target,
        preset=chosen,
        padding=padding or chosen.detector.get("padding", "predict") if target == "detector" else None,
        max_epochs=epochs,
        tokenizer=sha256_of_file(tokenizer / MANIFEST)[:16] if tokenizer else None,
    )
    plan.check()  # before events are read
    where = _storage(storage, out)
    train, held_out = _events(reading, validation, seed, n_events)
    plan = replace(plan, data=fingerprint_of(train, held_out))
    scan = Scan(plan=plan, train=train, validation=held_out, tokenizer=fitted, seed=seed, device=device)
    with storage_errors():
        shared = scan.study(open_storage(where), study, pruner)
        scan.run(shared, n_trials, lambda trial: _say_trial(trial, shared))
        _report(shared, where, out)


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
    from unmask.tuning.results import MIN_TRIALS, best_preset, complete_trials, draw_figures, write_preset

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
