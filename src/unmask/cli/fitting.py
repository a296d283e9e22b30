"""What the commands that learn from events share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.cli.reading import Reading

if TYPE_CHECKING:
    from unmask.events.event_set import EventSet
    from unmask.tokenizers import Tokenizer

OutOption = Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Change a setting: n_bins=5, training.max_epochs=20; in a study of one detector alone: "
        "lut-456.training.max_epochs=20 (repeatable).",
    ),
]
SeedOption = Annotated[int, typer.Option(help="Seed of the split and of the training.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
ValidationOption = Annotated[
    list[Path] | None,
    typer.Option(
        help="Validation events (repeatable); without them FILE... are split 80/10/10 by --seed and the test share is "
        "left alone."
    ),
]


def parse_settings(texts: list[str] | None) -> dict[str, Any]:
    """Turn ``a=1 b.c=x`` into ``{"a": 1, "b": {"c": "x"}}``; values are TOML, or else words."""
    import tomllib

    from unmask.errors import UsageError

    settings: dict[str, Any] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise UsageError(f"--set {text!r}: write NAME=VALUE, such as n_bins=5")
        try:
            parsed = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            parsed = value
        *tables, key = name.split(".")
        table = settings
        for part in tables:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise UsageError(f"--set {text!r}: {part} has been given a value of its own")
        table[key] = parsed
    _check_groups(settings)
    return settings


def _check_groups(settings: dict[str, Any], within: str = "") -> None:
    from unmask.errors import UsageError
    from unmask.workflow.settings import GROUPS

    for name, value in settings.items():
        if isinstance(value, dict):
            _check_groups(value, f"{within}{name}.")
        elif name in GROUPS:
            raise UsageError(f"--set {within}{name}={value}: {name} is a group; write {within}{name}.SETTING=VALUE")


def training_and_validation(
    reading: Reading, validation_files: list[Path] | None, seed: int
) -> tuple[EventSet, EventSet]:
    """Read the events to learn from, and those to validate on; signal is refused."""
    from unmask.cli.console import note
    from unmask.errors import UsageError
    from unmask.events.event_set import concatenate_events
    from unmask.events.fingerprints import TrainingFingerprints, is_leak
    from unmask.events.splits import split_background
    from unmask.tokenizers.base import check_background

    events = concatenate_events(list(reading.stream()))
    check_background(events)
    if validation_files:
        training, validation = events, concatenate_events(list(reading.stream(validation_files)))
        n_shared = int(TrainingFingerprints.of(training).contains(validation).sum())
        if is_leak(n_shared, len(validation)):
            raise UsageError(
                f"{n_shared:,} of the {len(validation):,} validation events are training events too, so nothing would "
                "stop a training that learns them by heart; give others, or leave out --validation"
            )
    else:
        training, validation, test = split_background(events, seed=seed)
        note(f"split by seed {seed}: {len(test):,} test events are left alone")
    reading.report_skipped()
    note(f"learning from {len(training):,} events, validating on {len(validation):,}")
    return training, validation


def fit_tokenizer(tokenizer: Tokenizer, training: EventSet, validation: EventSet, run_folder: Path) -> None:
    """Fit a tokenizer of any kind, showing the training of one that has a network."""
    from unmask.tokenizers.lookup_table import LookupTableTokenizer

    if isinstance(tokenizer, LookupTableTokenizer):
        tokenizer.fit(training, validation)
        return
    from unmask.cli.training_bar import TrainingBar
    from unmask.tokenizers.vqvae import VQVAETokenizer

    assert isinstance(tokenizer, VQVAETokenizer)
    with TrainingBar("tokenizer", tokenizer.training.max_epochs) as bar:
        tokenizer.fit(training, validation, run_folder=run_folder, reporter=bar)


def run_folder_of(out: Path) -> Path:
    """Where the training of what is saved as ``out`` is logged."""
    return out.with_name(out.name + ".run")
