"""`unmask train`, `unmask score` and `unmask list`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

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
    from unmask.networks.masked_token_scoring import EventScore


@reads_events
def train(
    reading: Reading,
    out: OutOption,
    preset: Annotated[
        str, typer.Option(help="A published configuration (see: unmask list) or a TOML file of the same shape.")
    ] = "gluino-lut-456",
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
    """Train a detector on background events; signal is refused.

    The log and the checkpoints go to OUT.run: after an interruption run the same command again and it continues.
    On several GPUs: torchrun --nproc-per-node 4 -m unmask train ...
    Settings of the detector are changed with --set (dropout=0.1, training.max_epochs=20), those of the tokenizer with
    --set tokenizer.n_bins=5.
    """
    from unmask.artifacts import check_can_save
    from unmask.cli.console import IS_FIRST_PROCESS
    from unmask.cli.console import out as console
    from unmask.cli.training_bar import TrainingBar
    from unmask.detectors.masked_token import MaskedTokenDetector
    from unmask.errors import UsageError
    from unmask.studies.presets import load_preset
    from unmask.tokenizers import load_tokenizer
    from unmask.training.distributed import leave_together

    chosen = load_preset(preset)
    changes = parse_settings(settings)
    tokenizer_changes = changes.pop("tokenizer", {})
    shared = {"seed": seed, "device": device, "deterministic": deterministic}
    if tokenizer and tokenizer_changes:
        raise UsageError("--tokenizer is fitted already; leave out --set tokenizer...")
    if tokenizer_changes.get("kind", chosen.tokenizer.get("kind")) == "vqvae":
        tokenizer_changes["training"] = shared | tokenizer_changes.get("training", {})
    changes["training"] = shared | changes.get("training", {})
    fitted = load_tokenizer(resolve(tokenizer)) if tokenizer else chosen.new_tokenizer(tokenizer_changes)
    detector = chosen.new_detector(fitted, changes)
    assert isinstance(detector, MaskedTokenDetector)
    check_can_save(out)
    events, held_out = training_and_validation(reading, validation, seed)
    run_folder = run_folder_of(out)
    if tokenizer is None:
        fit_tokenizer(fitted, events, held_out, run_folder / "tokenizer")
    board_folder = run_folder if tensorboard and IS_FIRST_PROCESS else None
    with TrainingBar("detector", detector.training.max_epochs, board_folder) as bar:
        detector.fit(events, held_out, run_folder=run_folder, reporter=bar)
    if IS_FIRST_PROCESS:
        detector.save(out)
    leave_together()
    best = min(record.validation_loss for record in detector.history_)
    facts = f"{len(detector.history_)} epochs, best validation loss {best:.4f}, {detector.n_parameters:,} parameters"
    console.print(
        f"{facts} -> {out}",
        highlight=False,
        soft_wrap=True,
    )


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
    device: DeviceOption = "auto",
    dask: DaskOption = None,
    shard: ShardOption = None,
    part_events: PartEventsOption = PART_EVENTS,
) -> None:
    """Give every event an anomaly score, larger is more anomalous, in bounded memory."""
    from unmask.artifacts import MANIFEST, provenance, sha256_of_file
    from unmask.cli.console import out as console
    from unmask.detectors import load_detector
    from unmask.detectors.masked_token import MaskedTokenDetector
    from unmask.detectors.scores import write_scores

    model = resolve(model)
    if dask or shard:
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
    assert isinstance(detector, MaskedTokenDetector)

    def scored() -> Iterator[Scores]:
        for events in reading.stream():
            yield detector.scores(
                events, how=cast("EventScore | None", how), with_token_losses=token_losses, device=device
            )

    facts = provenance(model=sha256_of_file(model / MANIFEST), score=how or detector.score, **reading.origin())
    n_events = write_scores(out, scored(), provenance=facts)
    reading.report_skipped()
    console.print(f"{n_events:,} events -> {out}", highlight=False, soft_wrap=True)


def list_() -> None:
    """List presets, tokenizers and detectors, a line each."""
    from unmask.cli.console import show_table
    from unmask.detectors import KINDS as DETECTORS
    from unmask.detectors import detector_class
    from unmask.studies.presets import load_preset, preset_names
    from unmask.tokenizers import KINDS as TOKENIZERS
    from unmask.tokenizers import tokenizer_class

    def first_line(thing: type[object]) -> str:
        return (thing.__doc__ or "").splitlines()[0]

    show_table("presets", ("name", "what"), [(name, load_preset(name).description) for name in preset_names()])
    show_table("tokenizers", ("name", "what"), [(kind, first_line(tokenizer_class(kind))) for kind in TOKENIZERS])
    show_table("detectors", ("name", "what"), [(kind, first_line(detector_class(kind))) for kind in DETECTORS])
