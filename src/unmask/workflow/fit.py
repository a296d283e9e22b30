"""From settings and background events to a fitted model: the one way, for commands, studies, scans and Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from unmask import fitted
from unmask.detectors import Detector
from unmask.errors import UsageError
from unmask.events.event_set import EventSet
from unmask.events.fingerprints import KnownEvents, TrainingFingerprints, is_leak, repeated_text
from unmask.events.splits import TEST, TRAIN, VALIDATION, Splitter
from unmask.export.onnx_detector import GRAPH, OnnxDetector
from unmask.io.sample import resolve
from unmask.outputs import kind_of
from unmask.tokenizers import Tokenizer
from unmask.workflow.settings import Settings, load_settings
from unmask.workflow.sources import Bar, Sources, no_bar

#: Shows a training: called with its title and its epochs at most, for a reporter of its progress.
Watch = Callable[[str, int], AbstractContextManager[fitted.Reporter | None]]


def unwatched(_title: str, _max_epochs: int) -> AbstractContextManager[None]:
    """Show nothing."""
    return nullcontext()


def fit(
    settings: str | Path | Mapping[str, Any],
    train: EventSet,
    validation: EventSet,
    *,
    prior: EventSet | None = None,
    changes: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "auto",
    run_folder: str | Path | None = None,
) -> Detector:
    """Fit a detector on background events.

    Parameters
    ----------
    settings
        Name of a preset, path of a TOML file, or the tables of one: ``{"detector": {"kind": "contrast"}}``.
    train, validation
        Background events; signal is refused.
    prior
        Simulated theories, which make the default semi-supervised; a process ``stop: stop_600`` is of the family stop.
    changes
        Settings that differ, such as ``{"training": {"max_epochs": 5}}``.
    seed, device
        Of all that is trained, unless ``changes`` give others.
    run_folder
        Folder for logs and checkpoints; an interrupted training continues there.
    """
    for name, events in (("train", train), ("validation", validation), *([] if prior is None else [("prior", prior)])):
        if not isinstance(events, EventSet):
            raise UsageError(
                f"{name} is of type {type(events).__name__}; expected an EventSet; read files with unmask.read_events"
            )
    chosen = load_settings(settings, changes, seed=seed, device=device)
    folder = None if run_folder is None else Path(run_folder)
    return fit_detector(chosen, train, validation, prior=prior, run_folder=folder)


def fit_detector(
    settings: Settings,
    train: EventSet,
    validation: EventSet,
    *,
    tokenizer: Tokenizer | None = None,
    prior: EventSet | None = None,
    run_folder: Path | None = None,
    watch: Watch = unwatched,
    title: str = "detector",
) -> Detector:
    """Fit the tokenizer, unless there is none or a fitted one is given, and the detector."""
    detector = settings.new_detector(tokenizer)
    if tokenizer is None and settings.tokenizer:
        inner = None if run_folder is None else run_folder / "tokenizer"
        tokenizer = fit_tokenizer(settings, train, validation, run_folder=inner, watch=watch)
        detector = settings.new_detector(tokenizer)
    with watch(title, detector.max_epochs) as reporter:
        return detector.fit(train, validation, prior=prior, run_folder=run_folder, reporter=reporter)


def fit_tokenizer(
    settings: Settings,
    train: EventSet,
    validation: EventSet,
    *,
    run_folder: Path | None = None,
    watch: Watch = unwatched,
    title: str = "tokenizer",
) -> Tokenizer:
    """Fit the tokenizer of settings."""
    tokenizer = settings.new_tokenizer()
    if not tokenizer.max_epochs:
        return tokenizer.fit(train, validation)
    with watch(title, tokenizer.max_epochs) as reporter:
        return tokenizer.fit(train, validation, run_folder=run_folder, reporter=reporter)


def training_events(
    sources: Sources,
    validation: Sequence[Path] = (),
    *,
    seed: int = 0,
    keep_duplicates: bool = False,
    bar: Bar = no_bar,
) -> tuple[EventSet, EventSet, list[str]]:
    """Read training and validation events, and name those that are left aside; signal is refused.

    Without ``validation`` files the events are split 80/10/10 by the seed.
    """
    events = EventSet.concatenate(list(sources.stream(bar=bar)))
    fitted.check_background(events)
    if not validation:
        splitter = Splitter(seed, keep_duplicates=keep_duplicates)
        split = splitter.assign(events)
        train, held_out, test = (events[split == code] for code in (TRAIN, VALIDATION, TEST))
        return train, held_out, [*splitter.notes(), f"{len(test):,} test events are left aside (split by seed {seed})"]
    held_out = EventSet.concatenate(list(sources.stream(validation, bar)))
    n_shared = int(TrainingFingerprints.of(events).contains(held_out).sum())
    if is_leak(n_shared, len(held_out)):
        raise UsageError(
            f"{n_shared:,} of {len(held_out):,} validation events are training events too, so early stopping cannot "
            "detect overfitting; pass disjoint events or omit --validation"
        )
    if keep_duplicates:
        return events, held_out, []
    known, n_events = KnownEvents(), len(events) + len(held_out)
    events, held_out = known.new(events), known.new(held_out)
    return events, held_out, repeated_text(n_events - len(events) - len(held_out), n_events)


def few_events(fitted_one: fitted.Fitted, train: EventSet) -> list[str]:
    """Note that there are fewer training events than a detector wants."""
    wanted = fitted_one.events_wanted
    if len(train) >= wanted:
        return []
    return [f"{len(train):,} training events are few: this detector finds more with {wanted:,} or more"]


def run_folder_of(folder: Path) -> Path:
    """Folder for the log and the checkpoints of what is saved in ``folder``."""
    return folder.with_name(folder.name + ".run")


def can_go_on(folder: Path, new: Tokenizer | Detector) -> bool:
    """Whether the training of what is saved in a folder goes on there: one of other settings or data is refused."""
    return run_folder_of(folder).exists() and new.max_epochs > 0 and kind_of(folder) == new.kind


def load(folder: str | Path) -> Detector | Tokenizer:
    """Load a saved detector or tokenizer, or a graph (``model.onnx``).

    ``sample:gluino-model`` is the detector that ships with the package.
    """
    if Path(folder).suffix == GRAPH:
        return OnnxDetector.load(folder)
    loaded: Detector | Tokenizer = fitted.load(resolve(folder))
    return loaded
