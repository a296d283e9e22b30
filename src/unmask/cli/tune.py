"""`unmask tune`: search hyper-parameters on background alone, with any number of workers."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from unmask.cli import options
from unmask.cli.console import note, show, show_json, show_table
from unmask.errors import UsageError, require

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

    from unmask.tokenizers import Tokenizer
    from unmask.workflow.settings import Settings
    from unmask.workflow.sources import Sources

app = typer.Typer(no_args_is_help=True, help="Search hyper-parameters on background alone, with any number of workers.")

#: Presets to start from.
_PRESETS = {"tokenizer": "gluino-vq-512", "detector": "gluino-lut-456"}


@app.command()
@options.reads_events
def run(
    target: Annotated[Literal["tokenizer", "detector"], typer.Argument(help="Part of the preset to tune.")],
    sources: Sources,
    preset: Annotated[
        str | None, typer.Option(help="Preset or TOML file [default: gluino-vq-512 or gluino-lut-456].")
    ] = None,
    settings: options.Settings = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Folder of the preset's fitted tokenizer; a VQ-VAE needs it.")
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Finished trials of the study, of all workers together.")] = 100,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the journal, figures and the best preset.")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="Journal file, or URL of a database [default: OUT/journal.log].")
    ] = None,
    study: Annotated[str | None, typer.Option(help="Name of the study [default: from target and preset].")] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Maximum epochs of a trial [default: the preset's].")
    ] = None,
    events: Annotated[int | None, typer.Option(min=1, help="Training events to use, drawn by --seed.")] = None,
    validation: options.Validation = None,
    pruner: Annotated[
        Literal["median", "hyperband", "none"], typer.Option(help="Rule to stop trials that fall behind.")
    ] = "median",
    seed: options.Seed = 0,
    device: options.Device = "auto",
) -> None:
    """Tune the VQ-VAE tokenizer or the masked-token detector of a preset.

    Searched for a tokenizer: latent, hidden, heads, blocks, alpha, beta, gamma and the learning rate, by the
    reconstruction error of validation background. For a detector: dropout, position encoding, learning rate and
    schedule, feed-forward expansion and gradient clipping, by the cross-entropy of masked tokens; losses with different
    padding (--set padding=ignore) cannot be compared. Running the same command again continues the scan; several may
    run at once.
    """
    _quiet_optuna()
    from unmask.artifacts import MANIFEST, sha256_of_file
    from unmask.events.fingerprints import fingerprint_of
    from unmask.tuning.results import MIN_TRIALS, best_settings, complete_trials, draw_figures, write_settings
    from unmask.tuning.scan import Plan, Scan, open_storage, storage_errors
    from unmask.workflow.settings import load_settings

    chosen = load_settings(preset or _PRESETS[target], options.parse_settings(settings))
    fitted = _fitted(tokenizer, chosen) if tokenizer else None
    digest = sha256_of_file(tokenizer / MANIFEST)[:16] if tokenizer else None
    plan = Plan(target=target, settings=chosen, max_epochs=epochs, tokenizer=digest)
    plan.check()  # before events are read
    if storage is None and out is None:
        raise UsageError("no place for the study: give --out FOLDER, or --storage journal.log or a URL")
    where = storage or str(Path(out or "") / "journal.log")
    train, held_out = options.read_training_events(sources, validation, seed)
    if events is not None and events < len(train):
        import numpy as np

        train = train[np.sort(np.random.default_rng(seed).permutation(len(train))[:events])]
        note(f"{events:,} of the training events are used")
    plan = replace(plan, data=fingerprint_of(train, held_out))
    scan = Scan(plan=plan, train=train, validation=held_out, tokenizer=fitted, seed=seed, device=device)
    with storage_errors():
        shared = scan.study(open_storage(where), study, pruner)
        scan.run(shared, trials, lambda trial: _note_trial(trial, shared))
        _show(shared, 5)
        n_complete = len(complete_trials(shared))
        if out and n_complete:
            write_settings(out / "best.toml", best_settings(shared))
            show(f"best preset -> {out / 'best.toml'}")
        if out and n_complete >= MIN_TRIALS and find_spec("matplotlib"):
            draw_figures(shared, out / "figures")
            show(f"figures -> {out / 'figures'}")
    note(f"more: unmask tune show {where} --study {shared.study_name}")


@app.command("show")
def show_(
    storage: Annotated[str, typer.Argument(metavar="STORAGE", help="Journal file, or URL of a database.")],
    study: Annotated[str | None, typer.Option(help="Name of the study, if there are several.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Number of trials, the best first.")] = 10,
    figures: Annotated[Path | None, typer.Option(help="Folder for figures of the scan.")] = None,
    format_: Annotated[str, typer.Option("--figure-format", help=options.FIGURE_FORMATS)] = "png",
    preset: Annotated[
        Path | None, typer.Option(help="TOML file for the best trial, for: unmask train --preset.")
    ] = None,
    trial: Annotated[int | None, typer.Option(help="Number of a trial for --preset [default: the best].")] = None,
    json: options.Json = False,
) -> None:
    """Show the best trials of a scan, also while it runs; draw them, or write one as a preset."""
    _quiet_optuna()
    from unmask.tuning.results import best_settings, draw_figures, summary, write_settings
    from unmask.tuning.scan import find_study

    chosen = find_study(storage, study)
    if preset:
        best = best_settings(chosen, trial)
        write_settings(preset, best)
        note(f"{best.description} -> {preset}")
    if figures:
        for path in draw_figures(chosen, figures, format_):
            note(str(path))
    if json:
        show_json(summary(chosen, limit))
    else:
        _show(chosen, limit)


def _quiet_optuna() -> None:
    require("optuna", "tune")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)


def _fitted(folder: Path, settings: Settings) -> Tokenizer:
    """Load a fitted tokenizer, which must be that of the settings: the best preset would promise another one."""
    from unmask.tokenizers import load_tokenizer

    fitted, promised = load_tokenizer(folder), settings.new_tokenizer()
    known, expected = fitted.settings(), promised.settings()
    different = [name for name in expected if name != "training" and expected[name] != known.get(name)]
    if fitted.kind != promised.kind or different:
        given = ", ".join(f"{name} {known.get(name)!r}" for name in different) or fitted.kind
        raise UsageError(f"{folder} does not hold the tokenizer of preset {settings.name}: it has {given}")
    return fitted


def _note_trial(trial: FrozenTrial, study: Study) -> None:
    from unmask.tuning.results import complete_trials

    reason = f" ({trial.user_attrs['reason']})" if "reason" in trial.user_attrs else ""
    loss = "" if trial.value is None else f", validation loss {trial.value:.5g}"
    epochs, seconds = len(trial.intermediate_values), trial.user_attrs.get("seconds", 0.0)
    so_far = "".join(f"; best so far {best.value:.5g}, trial {best.number}" for best in complete_trials(study)[:1])
    state = f"trial {trial.number}: {trial.state.name.lower()}{reason}{loss}, {epochs} epochs in {seconds:.0f} s"
    note(f"{state}{so_far}; {_text(trial.params)}")


def _text(parameters: dict[str, Any]) -> str:
    return ", ".join(
        f"{name.removeprefix('training.')} {f'{value:.3g}' if isinstance(value, float) else value}"
        for name, value in parameters.items()
    )


def _show(study: Study, limit: int) -> None:
    from unmask.tuning.results import summary

    known = summary(study, limit)
    rows = [
        (str(best["trial"]), f"{best['validation_loss']:.5g}", str(best["epochs"]), _text(best["parameters"]))
        for best in known["best"]
    ]
    states = ", ".join(f"{n} {state}" for state, n in known["trials"].items()) or "no trials"
    show_table(f"study {study.study_name}: {states}", ("trial", "loss", "epochs", "hyper-parameters"), rows)
