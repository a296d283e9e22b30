"""`unmask train`, `unmask score` and `unmask list`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unmask.cli import options
from unmask.cli.console import IS_FIRST_PROCESS, note, note_problems, progress_bar, show
from unmask.errors import UsageError, require

if TYPE_CHECKING:
    from unmask.workflow.score import Outcome, Scoring
    from unmask.workflow.sources import Sources


@options.reads_background
def train(
    sources: Sources,
    out: options.OutFolder,
    preset: Annotated[str, typer.Option(help="Preset, kind of detector, or TOML file (see: unmask list).")] = "default",
    tokenizer: Annotated[
        Path | None, typer.Option(help="Folder of a fitted tokenizer [default: one is fitted].")
    ] = None,
    settings: options.Settings = None,
    validation: options.Validation = None,
    prior: options.Prior = None,
    leave_out: options.LeaveOut = None,
    overwrite: options.Overwrite = False,
    keep_duplicates: options.KeepDuplicates = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
) -> None:
    """Train a detector on background events; signal is refused.

    The log and the checkpoints go to OUT.run: after an interruption run the same command again and it continues.
    On several GPUs: torchrun --nproc-per-node 4 -m unmask train ...
    Settings of the detector are changed with --set (dropout=0.1, training.max_epochs=20), those of the tokenizer with
    --set tokenizer.n_bins=5.
    """
    from unmask.artifacts import making
    from unmask.cli.progress import TrainingLine
    from unmask.fitted import DETECTORS
    from unmask.outputs import check_output
    from unmask.tokenizers import load_tokenizer
    from unmask.training.distributed import wait_for_all
    from unmask.workflow.fit import can_go_on, few_events, fit_detector, run_folder_of
    from unmask.workflow.settings import load_settings

    changes = options.parse_settings(settings)
    if tokenizer and "tokenizer" in changes:
        raise UsageError("--tokenizer is fitted already; leave out --set tokenizer...")
    chosen = load_settings(preset, changes, seed=seed, device=device).with_cut(sources.options.cut)
    if tokenizer and not chosen.tokenizer:
        raise UsageError(f"the detector of {chosen.name} has no tokenizer; choose a preset that has one: unmask list")
    fitted = load_tokenizer(tokenizer) if tokenizer else None
    detector = chosen.new_detector(fitted)  # mistakes in settings are found before events are read
    folder = run_folder_of(out)
    inputs = [*sources.files, *(validation or []), *([tokenizer] if tokenizer else [])]
    check_output(out, DETECTORS, inputs, overwrite=overwrite or can_go_on(out, detector))
    events, held_out = options.read_training_events(sources, validation, seed, keep_duplicates)
    for text in few_events(detector, events):
        note(text)
    theories = options.read_prior(prior, leave_out, sources)
    with making(out) if IS_FIRST_PROCESS else nullcontext():
        detector = fit_detector(
            chosen, events, held_out, tokenizer=fitted, prior=theories, run_folder=folder, watch=TrainingLine
        )
        if IS_FIRST_PROCESS:
            detector.save(out)
        wait_for_all()
    result = f"{len(events):,} events"
    if history := detector.history_:
        best, seconds = min(record.validation_loss for record in history), sum(record.seconds for record in history)
        result = f"{len(history)} epochs in {seconds:,.0f} s, best validation loss {best:.4f}"
        result += f", {detector.n_parameters:,} parameters"
    show(f"{result} -> {out}")


@options.reads_events
def score(
    model: options.Model,
    sources: Sources,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Parquet file; with --dask or --shard, a folder of parts.")
    ] = Path("scores.parquet"),
    token_losses: Annotated[bool, typer.Option("--token-losses", help="Loss of every token in OUT.")] = False,
    reduction: Annotated[
        str | None, typer.Option("--score", help="Reduction of token losses: mean, mean-real, sum or max.")
    ] = None,
    explain: Annotated[int, typer.Option(min=0, metavar="N", help="Number of most anomalous events to explain.")] = 0,
    device: options.Device = "auto",
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Dask cluster: tcp://HOST:8786, or local:2 for 2 processes.")
    ] = None,
    n_parts: Annotated[
        int | None, typer.Option("--parts", min=1, help="Parts with --dask [default: one per 500,000 events or file].")
    ] = None,
    shard: Annotated[str | None, typer.Option(metavar="I/N", help="Only part I of N, from 1/N to N/N.")] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Give each event an anomaly score, larger is more anomalous, in bounded memory.

    With --dask or --shard, running the command again scores only the parts that are missing. Explanations go to
    OUT.explained.json.
    """
    from unmask.io.sample import resolve
    from unmask.scores.explanations import explained_path
    from unmask.workflow.score import Parts, Scoring, parse_shard

    if explain and (dask or shard):
        raise UsageError("--explain needs all events in one process; leave out --dask and --shard")
    if bool(dask) + bool(shard) > 1 or (n_parts and not dask):
        raise UsageError("--dask, with --parts, scores all parts, and --shard one of them; give only one")
    scoring = Scoring(resolve(model).absolute(), reduction, token_losses, explain, device)
    if dask:
        require("distributed", "dask")
        from unmask.workflow.dask import connect, number_of_parts, score_parts

        parts = Parts(scoring, out.absolute(), n_parts or number_of_parts(sources))
        parts.check()
        pieces, outcomes = sources.parts(parts.n), []
        with connect(dask) as client, progress_bar(f"{parts.n:,} parts") as progress:
            for outcome in score_parts(client, parts, pieces):
                outcomes.append(outcome)
                progress(len(outcomes) / parts.n)
        note_problems(sources)
        _report(outcomes, parts.out, scoring)
    elif shard:
        i, n = parse_shard(shard)
        parts = Parts(scoring, out.absolute(), n)
        parts.check()
        outcome = parts.write(i - 1, sources.parts(n)[i - 1])
        note_problems(sources)
        _report([outcome], out, scoring)
    else:
        scoring.check_output(out, sources.files, overwrite=overwrite)
        written = scoring.write(sources.stream(bar=progress_bar), out, **sources.origin())
        note_problems(sources)
        for text in scoring.warnings([written]):
            note(text)
        show(f"{written.n_events:,} events -> {out}")
        if explain:
            note(f"explained -> {explained_path(out)}")


def _report(outcomes: list[Outcome], out: Path, scoring: Scoring) -> None:
    """Print the results of parts, and exit with 3 if some of them failed."""
    for text in [*(text for outcome in outcomes for text in outcome.problems), *scoring.warnings(outcomes)]:
        note(text)
    failures = [outcome.failure for outcome in outcomes if outcome.failure]
    n_events, n_kept = sum(outcome.n_events for outcome in outcomes), sum(outcome.is_kept for outcome in outcomes)
    show(f"{n_events:,} events in {len(outcomes) - len(failures):,} parts ({n_kept:,} there before) -> {out}")
    if failures:
        note("\n  ".join([f"{len(failures):,} parts failed:", *failures]))
        raise typer.Exit(3)


def list_() -> None:
    """List presets, tokenizers and detectors, one per line."""
    from unmask.fitted import DETECTORS, TOKENIZERS, description
    from unmask.workflow.settings import preset_descriptions

    lists = {
        "presets": preset_descriptions(),
        "tokenizers": {kind: description(kind) for kind in TOKENIZERS},
        "detectors": {kind: description(kind) for kind in DETECTORS},
    }
    width = max(len(name) for entries in lists.values() for name in entries)
    for title, entries in lists.items():
        show(f"{title} (--preset)")
        for name, text in entries.items():
            # Not a table, which would break lines: one can search these.
            show(f"  {name:<{width}}  {text}")
