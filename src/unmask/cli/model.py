"""`unmask train`, `unmask score` and `unmask list`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unmask.cli.fitting import (
    DeviceOption,
    OutOption,
    SeedOption,
    SetOption,
    ValidationOption,
    fit_tokenizer,
    parse_settings,
    run_folder_of,
    training_and_validation,
)
from unmask.cli.reading import Reading, reads_events, resolve

if TYPE_CHECKING:
    from unmask.workflow.score import Outcome, Parts
    from unmask.workflow.sources import Sources


@reads_events
def train(
    reading: Reading,
    out: OutOption,
    preset: Annotated[
        str | None, typer.Option(help="A configuration (see: unmask list) or a TOML file of the same shape.")
    ] = None,
    detector: Annotated[str | None, typer.Option(help="A kind of detector with its default settings.")] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Folder of a fitted tokenizer; without it one is fitted first.")
    ] = None,
    settings: SetOption = None,
    validation: ValidationOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="The same result in every run on CUDA too.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard files to OUT.run.")
    ] = False,
) -> None:
    """Train a detector on background events; signal is refused. Without --preset or --detector: the preset default.

    The log and the checkpoints go to OUT.run: after an interruption run the same command again and it continues.
    On several GPUs: torchrun --nproc-per-node 4 -m unmask train ...
    Settings of the detector are changed with --set (dropout=0.1, training.max_epochs=20), those of the tokenizer with
    --set tokenizer.n_bins=5.
    """
    from unmask.artifacts import check_can_save
    from unmask.cli.console import IS_FIRST_PROCESS
    from unmask.cli.console import out as console
    from unmask.cli.training_bar import TrainingBar
    from unmask.detectors.network import NetworkDetector
    from unmask.errors import UsageError
    from unmask.tokenizers import load_tokenizer
    from unmask.training.distributed import wait_for_all
    from unmask.workflow.presets import default_preset, load_preset

    if preset and detector:
        raise UsageError("--preset names a detector already; leave out --detector, or --preset")
    chosen = default_preset(detector) if detector else load_preset(preset or "default")
    changes = parse_settings(settings)
    tokenizer_changes = changes.pop("tokenizer", {})
    shared = {"seed": seed, "device": device, "deterministic": deterministic}
    if tokenizer and tokenizer_changes:
        raise UsageError("--tokenizer is fitted already; leave out --set tokenizer...")
    if (tokenizer or tokenizer_changes) and not chosen.tokenizer:
        raise UsageError(f"the detector of {chosen.name} has no tokenizer; give --preset or --detector of one that has")
    if tokenizer_changes.get("kind", chosen.tokenizer.get("kind")) == "vqvae":
        tokenizer_changes["training"] = shared | tokenizer_changes.get("training", {})
    fitted = load_tokenizer(resolve(tokenizer)) if tokenizer else None
    if fitted is None and chosen.tokenizer:
        fitted = chosen.new_tokenizer(tokenizer_changes)
    new = chosen.new_detector(fitted, changes, shared)
    check_can_save(out)
    events, held_out = training_and_validation(reading, validation, seed)
    run_folder = run_folder_of(out)
    if tokenizer is None and fitted is not None:
        fit_tokenizer(fitted, events, held_out, run_folder / "tokenizer")

    if isinstance(new, NetworkDetector):
        board_folder = run_folder if tensorboard and IS_FIRST_PROCESS else None
        with TrainingBar("detector", new.training.max_epochs, board_folder) as bar:
            new.fit(events, held_out, run_folder=run_folder, reporter=bar)
        best = min(record.validation_loss for record in new.history_)
        seconds = sum(record.seconds for record in new.history_)
        facts = (
            f"{len(new.history_)} epochs in {seconds:,.0f} s, best validation loss {best:.4f}, "
            f"{new.n_parameters:,} parameters"
        )
    else:
        new.fit(events, held_out, run_folder=run_folder)
        facts = f"{len(events):,} events"
    if IS_FIRST_PROCESS:
        new.save(out)
    wait_for_all()
    console.print(f"{facts} -> {out}", highlight=False, soft_wrap=True)


@reads_events
def score(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Folder of a trained detector, or sample:gluino-model.")
    ],
    reading: Reading,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Parquet file to write; with --dask or --shard, a folder of parts.")
    ] = Path("scores.parquet"),
    token_losses: Annotated[
        bool, typer.Option("--token-losses", help="Also write the loss of every token: which object is odd.")
    ] = False,
    how: Annotated[
        str | None, typer.Option("--score", help="mean, mean-real, sum or max of token losses (default: the model's).")
    ] = None,
    explain: Annotated[
        int, typer.Option(min=0, metavar="N", help="Explain the N most anomalous events, in OUT.explained.json.")
    ] = 0,
    device: DeviceOption = "auto",
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Score on a Dask cluster: tcp://HOST:8786, or local:2 for two processes here. OUT is then a folder of "
            "parts, and running the command again scores only what is missing.",
        ),
    ] = None,
    n_parts: Annotated[
        int | None,
        typer.Option("--parts", min=1, help="Number of parts with --dask (default: one per 500,000 events or file)."),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Score only part I of N, from 1/N to N/N. OUT is then a folder of parts."),
    ] = None,
) -> None:
    """Give every event an anomaly score, larger is more anomalous, in bounded memory."""
    from unmask.cli.console import note
    from unmask.cli.console import out as console
    from unmask.errors import UsageError
    from unmask.scores.explanations import explained_path
    from unmask.workflow.score import Parts, Scoring, Shard

    if explain and (dask or shard):
        raise UsageError("--explain needs all events in one process; leave out --dask and --shard")
    if bool(dask) + bool(shard) > 1 or (n_parts and not dask):
        raise UsageError("--dask, with --parts, scores all parts, and --shard one of them; give only one")
    scoring = Scoring(resolve(model).absolute(), how, token_losses, explain, device)
    if dask:
        from unmask.errors import require

        require("distributed", "dask")
        from unmask.workflow.dask import number_of_parts

        parts = Parts(scoring, out.absolute(), n_parts or number_of_parts(reading.sources))
        _score_on_dask(dask, parts, reading.sources)
    elif shard:
        part = Shard.parse(shard)
        parts = Parts(scoring, out.absolute(), part.count)
        parts.check()
        _report([parts.write(part.index - 1, reading.sources.parts(part.count)[part.index - 1])], out)
    else:
        reading.check_output(out)
        n_events = scoring.write(reading.stream(), out, **reading.sources.origin())
        reading.report_skipped()
        console.print(f"{n_events:,} events -> {out}", highlight=False, soft_wrap=True)
        if explain:
            note(f"explained -> {explained_path(out)}")


def _score_on_dask(address: str, parts: Parts, sources: Sources) -> None:
    from unmask.cli.console import progress_bar
    from unmask.workflow.dask import connect, score_parts

    parts.check()
    pieces = sources.parts(parts.n)
    outcomes = []
    with connect(address) as client, progress_bar(f"{parts.n:,} parts") as progress:
        for outcome in score_parts(client, parts, pieces):
            outcomes.append(outcome)
            progress(len(outcomes) / parts.n)
    _report(outcomes, parts.out)


def _report(outcomes: list[Outcome], out: Path) -> None:
    """Say what became of parts, and exit with 3 if some of them failed."""
    from unmask.cli.console import note
    from unmask.cli.console import out as console
    from unmask.cli.reading import note_skipped
    from unmask.events.checks import BadEvents

    bad = BadEvents(skip=True)
    for outcome in outcomes:
        bad.reasons.update(outcome.bad.reasons)
        bad.examples |= outcome.bad.examples
    note_skipped(bad)
    failures = [outcome.failure for outcome in outcomes if outcome.failure]
    n_kept = sum(outcome.is_kept for outcome in outcomes)
    console.print(
        f"{sum(outcome.n_events for outcome in outcomes):,} events in {len(outcomes) - len(failures):,} parts "
        f"({n_kept:,} there before) -> {out}",
        highlight=False,
        soft_wrap=True,
    )
    if failures:
        note(f"{len(failures):,} parts failed:")
        for failure in failures:
            note(f"  {failure}")
        raise typer.Exit(3)


def list_() -> None:
    """List presets, tokenizers and detectors, a line each."""
    from unmask.cli.console import out as console
    from unmask.detectors import KINDS as DETECTORS
    from unmask.detectors import detector_class
    from unmask.tokenizers import KINDS as TOKENIZERS
    from unmask.tokenizers import tokenizer_class
    from unmask.workflow.presets import load_preset, preset_names

    def first_line(thing: type[object]) -> str:
        return (thing.__doc__ or "").splitlines()[0].replace("`", "").removesuffix(".")

    lists = {
        "presets (--preset)": {name: load_preset(name).description for name in preset_names()},
        "tokenizers": {kind: first_line(tokenizer_class(kind)) for kind in TOKENIZERS},
        "detectors (--detector)": {kind: first_line(detector_class(kind)) for kind in DETECTORS},
    }
    width = max(len(name) for entries in lists.values() for name in entries)
    for title, entries in lists.items():
        console.print(title, style="bold", highlight=False)
        for name, what in entries.items():
            # Not a table, which would break lines: one can search these.
            console.print(f"  {name:<{width}}  {what}", highlight=False, markup=False, soft_wrap=True)
