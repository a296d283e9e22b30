"""`unmask tune`: search hyper-parameters on background alone, with any number of workers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from unmask.cli import options
from unmask.cli.console import note, show, show_table
from unmask.errors import UsageError, require

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from unmask.workflow.sources import Sources

#: Presets to start from.
_PRESETS = {"tokenizer": "gluino-vq-512", "detector": "gluino-lut-456"}
_N_SHOWN = 10


@options.reads_background
def tune(
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
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the journal and the best preset.")] = None,
    storage: Annotated[
        str | None, typer.Option(help="Journal file, or URL of a database [default: OUT/journal.log].")
    ] = None,
    study: Annotated[str | None, typer.Option(help="Name of the study [default: from target and preset].")] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Maximum epochs of a trial [default: the preset's].")
    ] = None,
    events: Annotated[int | None, typer.Option(min=1, help="Training events to use, drawn by --seed.")] = None,
    validation: options.Validation = None,
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
    require("optuna", "tune")
    from unmask.outputs import check_output

    if out:
        inputs: list[str | Path] = [*sources.files, *(validation or []), *([preset] if preset else [])]
        check_output(out / "best.toml", ["tuned preset"], inputs, overwrite=True)  # the same command goes on
    import numpy as np
    import optuna

    from unmask.tokenizers import load_tokenizer
    from unmask.tuning.scan import Scan, check_target, complete_trials, open_storage, storage_errors
    from unmask.workflow.settings import load_settings

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    chosen = load_settings(preset or _PRESETS[target], options.parse_settings(settings))
    fitted = load_tokenizer(tokenizer) if tokenizer else None
    check_target(target, chosen, fitted)  # before events are read
    if storage is None and out is None:
        raise UsageError("no place for the study: give --out FOLDER, or --storage journal.log or a URL")
    train, held_out = options.read_training_events(sources, validation, seed)
    if events is not None and events < len(train):
        train = train[np.sort(np.random.default_rng(seed).permutation(len(train))[:events])]
        note(f"{events:,} of the training events are used")
    scan = Scan(
        target=target,
        settings=chosen,
        train=train,
        validation=held_out,
        max_epochs=epochs,
        tokenizer=fitted,
        seed=seed,
        device=device,
    )
    with storage_errors():
        shared = scan.study(open_storage(storage or str(Path(out or "") / "journal.log")), study)
        scan.run(shared, trials, _note_trial)
        complete = complete_trials(shared)
        rows = [(*_cells(trial), str(len(trial.intermediate_values)), _text(trial.params)) for trial in complete]
        n_trials = f"{len(shared.get_trials(deepcopy=False))} trials, {len(complete)} complete"
        columns = ("trial", "loss", "epochs", "hyper-parameters")
        show_table(f"study {shared.study_name}: {n_trials}", columns, rows[:_N_SHOWN])
        if out and complete:
            scan.write_best(shared, out / "best.toml")
            show(f"best preset -> {out / 'best.toml'}")


def _note_trial(trial: FrozenTrial) -> None:
    number, loss = _cells(trial)
    reason = trial.user_attrs.get("reason", f"validation loss {loss}")
    epochs, seconds = len(trial.intermediate_values), trial.user_attrs["seconds"]
    state = f"trial {number}: {trial.state.name.lower()}, {reason}, {epochs} epochs in {seconds:.0f} s"
    note(f"{state}; {_text(trial.params)}")


def _cells(trial: FrozenTrial) -> tuple[str, str]:
    return str(trial.number), "" if trial.value is None else f"{trial.value:.5g}"


def _text(parameters: dict[str, Any]) -> str:
    return ", ".join(
        f"{name.removeprefix('training.')} {f'{value:.3g}' if isinstance(value, float) else value}"
        for name, value in parameters.items()
    )
