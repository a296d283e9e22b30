"""`unmask train`, `unmask score` and `unmask list`."""

from __future__ import annotations

from collections.abc import Iterator
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
from unmask.cli.parts import PART_EVENTS, DaskOption, PartEventsOption, ShardOption, run_in_parts
from unmask.cli.reading import Reading, reads_events, resolve

if TYPE_CHECKING:
    from unmask.detectors.scores import Scores


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
    from unmask.studies.presets import default_preset, load_preset
    from unmask.tokenizers import load_tokenizer
    from unmask.training.distributed import wait_for_all

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
    dask: DaskOption = None,
    shard: ShardOption = None,
    part_events: PartEventsOption = PART_EVENTS,
) -> None:
    """Give every event an anomaly score, larger is more anomalous, in bounded memory."""
    from unmask.artifacts import MANIFEST, provenance, sha256_of_file
    from unmask.cli.console import note
    from unmask.cli.console import out as console
    from unmask.detectors import load_detector
    from unmask.detectors.explanations import MostAnomalous, write_explanations
    from unmask.detectors.scores import write_scores
    from unmask.errors import UsageError
    from unmask.events.event_set import EventSet

    model = resolve(model)
    if dask or shard:
        if explain:
            raise UsageError("--explain looks at all events in one process; leave out --dask and --shard")
        run_in_parts(
            reading,
            "score",
            out,
            dask=dask,
            shard=shard,
            part_events=part_events,
            model=model,
            how=how,
            token_losses=token_losses,
            device=device,
        )
        return
    reading.check_output(out)
    detector = load_detector(model)
    most = MostAnomalous(explain)
    if explain:
        detector.explain(EventSet.empty())  # one that cannot explain says so now, not after hours

    def scored() -> Iterator[Scores]:
        for events in reading.stream():
            scores = detector.scores(events, how=how, with_token_losses=token_losses, device=device)
            most.add(events, scores.score)
            yield scores

    digest = sha256_of_file(model / MANIFEST)
    facts = provenance(**detector.origin_of_scores(digest, how), **reading.origin())
    n_events = write_scores(out, scored(), provenance=facts)
    reading.report_skipped()
    console.print(f"{n_events:,} events -> {out}", highlight=False, soft_wrap=True)
    if explain:
        note(f"explained -> {write_explanations(out, most, detector, device=device, provenance=facts)}")


def list_() -> None:
    """List presets, tokenizers and detectors, a line each."""
    from unmask.cli.console import out as console
    from unmask.detectors import KINDS as DETECTORS
    from unmask.detectors import detector_class
    from unmask.studies.presets import load_preset, preset_names
    from unmask.tokenizers import KINDS as TOKENIZERS
    from unmask.tokenizers import tokenizer_class

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
