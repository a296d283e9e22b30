"""`unmask tokenizer`: fit one on background, encode events, see what its tokens mean."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

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
from unmask.cli.reading import JsonOption, Reading, reads_events, resolve

if TYPE_CHECKING:
    from unmask.tokenizers import Tokenizer

app = typer.Typer(no_args_is_help=True, help="Fit a tokenizer on background, encode events, show what tokens mean.")

TokenizerArgument = Annotated[Path, typer.Argument(metavar="TOKENIZER", help="Folder of a fitted tokenizer.")]


TokenizerKind = Literal["lookup", "vqvae"]
_KINDS: dict[TokenizerKind, str] = {"lookup": "lookup-table", "vqvae": "vqvae"}


@app.command()
@reads_events
def fit(
    reading: Reading,
    out: OutOption,
    kind: Annotated[
        TokenizerKind | None, typer.Option(help="A look-up table of bins (default), or a learned code book.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Take the tokenizer of a preset (see: unmask list).")] = None,
    settings: SetOption = None,
    validation: ValidationOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
) -> None:
    """Fit a tokenizer on background events; signal is refused.

    A VQ-VAE is trained: its log and checkpoints go to OUT.run, and running the same command again continues there.
    """
    from unmask.artifacts import check_can_save
    from unmask.cli.console import IS_FIRST_PROCESS
    from unmask.cli.console import out as console
    from unmask.errors import UsageError
    from unmask.workflow.presets import Preset, load_preset

    if preset and kind:
        raise UsageError("--preset says what kind of tokenizer it is; leave out --kind")
    chosen = load_preset(preset) if preset else Preset("--set", "", {"kind": _KINDS[kind or "lookup"]}, {})
    changes = parse_settings(settings)
    if changes.get("kind", chosen.tokenizer.get("kind")) == "vqvae":
        changes["training"] = {"seed": seed, "device": device} | changes.get("training", {})
    tokenizer = chosen.new_tokenizer(changes)
    check_can_save(out)
    events, held_out = training_and_validation(reading, validation, seed)
    fit_tokenizer(tokenizer, events, held_out, run_folder_of(out))
    if IS_FIRST_PROCESS:
        tokenizer.save(out)
    if tokenizer.kind == "vqvae":
        from unmask.training.distributed import wait_for_all

        wait_for_all()
    console.print(f"{tokenizer.n_codes:,} codes, sequences of {tokenizer.sequence_length} -> {out}", highlight=False)
    _show_report(tokenizer)


@app.command()
@reads_events
def encode(
    tokenizer: TokenizerArgument,
    reading: Reading,
    out: Annotated[Path, typer.Option("--out", "-o", help="Parquet file to write.")],
) -> None:
    """Turn events into tokens, in bounded memory, and write them with the events' identity."""
    from unmask.artifacts import MANIFEST, provenance, sha256_of_file
    from unmask.cli.console import out as console
    from unmask.tokenizers import load_tokenizer, write_tokens

    tokenizer = resolve(tokenizer)
    reading.check_output(out)
    fitted = load_tokenizer(tokenizer)
    facts = provenance(tokenizer=sha256_of_file(tokenizer / MANIFEST), **reading.sources.origin())
    n_events = write_tokens(out, fitted.encode_stream(reading.stream()), provenance=facts)
    reading.report_skipped()
    console.print(f"{n_events:,} events -> {out}", highlight=False, soft_wrap=True)


@app.command()
def show(
    tokenizer: TokenizerArgument,
    token: Annotated[list[int] | None, typer.Option(help="Say only what this token means (repeatable).")] = None,
    events: Annotated[
        list[Path] | None, typer.Option(help="Events to draw: labelled files, signal and background (repeatable).")
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="Folder for the figures of --events.")] = None,
    format_: Annotated[str, typer.Option("--figure-format", help="png, pdf or svg.")] = "png",
    limit: Annotated[int, typer.Option(min=1, help="Rows of the code book that are shown.")] = 20,
    json: JsonOption = False,
) -> None:
    """Show the bins or the code book, and what each token means in words.

    With --events: usage of the codes, token occurrence in signal and background with their difference and, for a
    VQ-VAE, original and reconstructed quantities side by side.
    """
    from unmask.cli.console import emit_json, out, show_table
    from unmask.errors import UsageError
    from unmask.tokenizers import load_tokenizer
    from unmask.tokenizers.lookup_table import LookupTableTokenizer

    if bool(figures) > bool(events) or (json and events):
        raise UsageError("figures are drawn of --events, and not with --json")
    tokenizer = resolve(tokenizer)
    fitted = load_tokenizer(tokenizer)
    tokens = token or list(range(1, min(limit, fitted.n_codes) + 1))
    meanings = [(str(one), fitted.describe(one)) for one in tokens]
    if json:
        facts: dict[str, Any] = {"kind": fitted.kind, "n_codes": fitted.n_codes, "settings": fitted.settings()}
        emit_json(facts | {"tokens": dict(meanings)})
        return
    if not token:
        if isinstance(fitted, LookupTableTokenizer):
            rows = [(b.variable, str(b.number), _limit(b.low), _limit(b.high), b.unit) for b in fitted.bins_table()]
            show_table("bins", ("variable", "bin", "from", "to", "unit"), rows)
        else:
            _show_report(fitted)
    show_table(f"tokens (of {fitted.n_codes:,})", ("token", "meaning"), meanings)
    if events:
        for path in _draw(fitted, events, figures or tokenizer.with_name(f"{tokenizer.name}-figures"), format_):
            out.print(str(path), highlight=False, soft_wrap=True)


def _limit(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _show_report(tokenizer: Tokenizer) -> None:
    from unmask.cli.console import show_table

    report: dict[str, float] = getattr(tokenizer, "validation_report_", {})
    if report:
        rows = [(name.replace("_", " "), f"{value:.4g}") for name, value in report.items()]
        show_table("on the validation events", ("quantity", "value"), rows)


def _draw(tokenizer: Tokenizer, files: list[Path], folder: Path, format_: str) -> list[Path]:
    from unmask.report.style import write_drawings
    from unmask.study.token_drawings import token_drawings

    return write_drawings(folder, token_drawings(tokenizer, Reading(files).stream()), [format_])
