"""`unmask tokenizer`: fit one on background, encode events, show what its tokens mean."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unmask.cli import options
from unmask.cli.console import IS_FIRST_PROCESS, note_problems, progress_bar, show, show_json, show_table
from unmask.errors import UsageError

if TYPE_CHECKING:
    from unmask.tokenizers import Tokenizer
    from unmask.workflow.sources import Sources

app = typer.Typer(no_args_is_help=True, help="Fit a tokenizer on background, encode events, show what tokens mean.")
TokenizerArgument = Annotated[Path, typer.Argument(metavar="TOKENIZER", help="Folder of a fitted tokenizer.")]


@app.command()
@options.reads_background
def fit(
    sources: Sources,
    out: options.OutFolder,
    preset: Annotated[
        str, typer.Option(help="Preset, lookup-table or vqvae, or TOML file (see: unmask list).")
    ] = "lookup-table",
    settings: options.Settings = None,
    validation: options.Validation = None,
    overwrite: options.Overwrite = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
) -> None:
    """Fit a tokenizer on background events; signal is refused.

    A VQ-VAE is trained: its log and checkpoints go to OUT.run, and running the same command again continues there.
    """
    from unmask.artifacts import making
    from unmask.cli.progress import TrainingLine
    from unmask.fitted import TOKENIZERS
    from unmask.outputs import check_output
    from unmask.workflow.fit import can_go_on, fit_tokenizer, run_folder_of
    from unmask.workflow.settings import load_settings

    chosen = load_settings(preset, {"tokenizer": options.parse_settings(settings)}, seed=seed, device=device)
    new = chosen.new_tokenizer()  # mistakes in settings are found before events are read
    folder = run_folder_of(out)
    inputs = [*sources.files, *(validation or [])]
    check_output(out, TOKENIZERS, inputs, overwrite=overwrite or can_go_on(out, new))
    events = options.read_training_events(sources, validation, seed)
    with making(out) if IS_FIRST_PROCESS else nullcontext():
        tokenizer = fit_tokenizer(chosen, *events, run_folder=folder, watch=TrainingLine)
        if IS_FIRST_PROCESS:
            tokenizer.save(out)
    if tokenizer.kind == "vqvae":
        from unmask.training.distributed import wait_for_all

        wait_for_all()
    show(f"{tokenizer.n_codes:,} codes, sequences of {tokenizer.sequence_length} -> {out}")
    _show_report(tokenizer)


@app.command()
@options.reads_events
def encode(
    tokenizer: TokenizerArgument, sources: Sources, out: options.OutFile, overwrite: options.Overwrite = False
) -> None:
    """Turn events into tokens, in bounded memory, and write them with the events' identity."""
    from unmask.artifacts import MANIFEST, provenance, sha256_of_file
    from unmask.io.sample import resolve
    from unmask.outputs import check_output
    from unmask.tokenizers import load_tokenizer, write_tokens

    tokenizer = resolve(tokenizer)
    check_output(out, ["tokens"], [tokenizer, *sources.files], endings=(".parquet",), overwrite=overwrite)
    fitted = load_tokenizer(tokenizer)
    record = provenance(tokenizer=sha256_of_file(tokenizer / MANIFEST), **sources.origin())
    n_events = write_tokens(out, map(fitted.encode, sources.stream(bar=progress_bar)), provenance=record)
    note_problems(sources)
    show(f"{n_events:,} events -> {out}")


@app.command("show")
def show_(
    tokenizer: TokenizerArgument,
    token: Annotated[list[int] | None, typer.Option(help="Token to explain, alone (repeatable).")] = None,
    events: Annotated[
        list[Path] | None, typer.Option(help="Labeled signal and background events to draw (repeatable).")
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="Folder for the figures of --events.")] = None,
    format_: Annotated[str, typer.Option("--figure-format", help=options.FIGURE_FORMATS)] = "png",
    limit: Annotated[int, typer.Option(min=1, help="Number of tokens to show.")] = 20,
    json: options.Json = False,
) -> None:
    """Show the bins or the codebook, and what each token means in words.

    With --events: usage of the codes, token occurrence in signal and background with their difference and, for a
    VQ-VAE, original and reconstructed observables side by side.
    """
    from unmask.io.sample import resolve
    from unmask.report.style import write_drawings
    from unmask.study.token_drawings import token_drawings
    from unmask.tokenizers import load_tokenizer
    from unmask.workflow.sources import Sources

    if bool(figures) > bool(events) or (json and events):
        raise UsageError("figures are drawn of --events, and not with --json")
    tokenizer = resolve(tokenizer)
    fitted = load_tokenizer(tokenizer)
    meanings = [(str(one), fitted.describe(one)) for one in token or range(1, min(limit, fitted.n_codes) + 1)]
    if json:
        known = {"kind": fitted.kind, "n_codes": fitted.n_codes, "settings": fitted.settings()}
        show_json(known | {"tokens": dict(meanings)})
        return
    if not token:
        if bins := fitted.bins_table():
            limits = [["" if limit is None else f"{limit:.4g}" for limit in (b.low, b.high)] for b in bins]
            rows = [(b.variable, str(b.number), *pair, b.unit) for b, pair in zip(bins, limits, strict=True)]
            show_table("bins", ("variable", "bin", "from", "to", "unit"), rows)
        _show_report(fitted)
    show_table(f"tokens (of {fitted.n_codes:,})", ("token", "meaning"), meanings)
    if events:
        drawings = token_drawings(fitted, Sources(events).stream(bar=progress_bar))
        for path in write_drawings(figures or tokenizer.with_name(f"{tokenizer.name}-figures"), drawings, [format_]):
            show(str(path))


def _show_report(tokenizer: Tokenizer) -> None:
    if report := tokenizer.validation_report_:
        rows = [(name.replace("_", " "), f"{value:.4g}") for name, value in report.items()]
        show_table("on the validation events", ("variable", "value"), rows)
