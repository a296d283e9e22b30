"""What a study trains: the studies by name, and their configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any

from unmask.artifacts import Json
from unmask.detectors import Detector
from unmask.errors import UsageError, nearest
from unmask.tokenizers import Tokenizer
from unmask.workflow.presets import Preset, changes_for, load_preset, preset_names
from unmask.workflow.settings import checked_arguments, read_toml

#: The study of a user's own files.
DEFAULT = "default"
_FOLDER = files("unmask") / "study" / "studies"


@dataclass(frozen=True)
class Study:
    """A study by name.

    Attributes
    ----------
    folder : of its files, one a process, within a folder of data.
    signal_processes : these are signal, all others are background.
    configurations : names of presets, or patterns such as ``gluino-lut-*``, in the order of the tables.
    published : by configuration what the paper reports: AUC, eps_S at eps_B = 1 %, eps_B at eps_S = 1 %.
    notes : by configuration what is to be known of its published numbers.
    channel : the Dark Machines channel.
    """

    name: str
    description: str
    configurations: tuple[str, ...]
    folder: str = ""
    signal_processes: tuple[str, ...] = ()
    published: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    channel: str = ""

    def presets(self) -> dict[str, str]:
        """Names of all presets of the study by their names within it: ``lut-456`` is the preset ``gluino-lut-456``."""
        matching = [name for pattern in self.configurations for name in preset_names() if fnmatchcase(name, pattern)]
        return {name.removeprefix(f"{self.name}-"): name for name in dict.fromkeys(matching)}


def study_names() -> list[str]:
    """The published studies."""
    names = [entry.name.removesuffix(".toml") for entry in _FOLDER.iterdir() if entry.name.endswith(".toml")]
    return sorted(set(names) - {DEFAULT})


def load_study(name: str) -> Study:
    """Load a study by its name.

    >>> load_study("four-top").signal_processes
    ('tttt',)
    """
    if name not in [*study_names(), DEFAULT]:
        raise UsageError(f"unknown study {name!r}; {nearest(name, study_names())}, or give --background files")
    content = read_toml(Path(str(_FOLDER / f"{name}.toml")))
    return Study(**checked_arguments(Study, {"name": name} | content, where=f"study {name}"))


@dataclass(frozen=True)
class Configuration:
    """A tokenizer, where there is one, and a detector to be trained, under the name that tables give them."""

    name: str
    preset: Preset
    tokenizer_changes: Mapping[str, Any] = field(default_factory=dict)
    detector_changes: Mapping[str, Any] = field(default_factory=dict)

    def new_tokenizer(self) -> Tokenizer | None:
        """Make the tokenizer, not fitted yet; None for a detector without."""
        return self.preset.new_tokenizer(self.tokenizer_changes) if self.preset.tokenizer else None

    def new_detector(self, tokenizer: Tokenizer | None) -> Detector:
        """Make the detector, not fitted yet."""
        return self.preset.new_detector(tokenizer, self.detector_changes)

    def tokenizer_settings(self) -> dict[str, Json] | None:
        """All that the tokenizer depends on besides the events."""
        tokenizer = self.new_tokenizer()
        return None if tokenizer is None else {"kind": tokenizer.kind} | _without_device(tokenizer.settings())

    def detector_settings(self) -> dict[str, Json]:
        """All that the detector depends on besides its tokenizer and the events."""
        detector = self.new_detector(self.new_tokenizer())
        return {"kind": detector.kind} | _without_device(detector.settings())


def _without_device(settings: dict[str, Json]) -> dict[str, Json]:
    """Where something is trained is no property of it."""
    if "training" not in settings:
        return settings
    training = {key: value for key, value in settings["training"].items() if key != "device"}
    return settings | {"training": training}


def choose_configurations(
    study: Study,
    only: Sequence[str] | None = None,
    *,
    changes: Mapping[str, Any] | None = None,
    epochs: int | None = None,
    seed: int = 0,
    device: str = "auto",
) -> list[Configuration]:
    """The configurations of a study, or those named: of the study, any other preset, or a TOML file of that shape.

    Parameters
    ----------
    changes : settings of all that is trained that differ from those of the presets, those of the tokenizer in a table
        ``tokenizer``, those of one configuration alone in a table of its name.
    epochs : at most that many for everything that is trained.

    Raises
    ------
    UsageError
        If a name is not known or given twice, or a setting does not exist.
    """
    known = study.presets()
    shared: dict[str, Any] = {"seed": seed, "device": device} | ({"max_epochs": epochs} if epochs else {})
    chosen: dict[str, Preset] = {}
    for name in only or known:
        short, preset = _named(name, study)
        if short in chosen:
            raise UsageError(f"configuration {short!r} is given twice")
        chosen[short] = preset
    everyone = [name for short, preset in chosen.items() for name in dict.fromkeys((short, preset.name))]
    return [
        _configuration(short, preset, changes_for((short, preset.name), changes or {}, everyone), shared)
        for short, preset in chosen.items()
    ]


def _named(name: str, study: Study) -> tuple[str, Preset]:
    """A preset, of the study or any other, or a TOML file, with the name that tables give it."""
    known, prefixed = study.presets(), f"{study.name}-{name}"
    preset = known.get(name, prefixed if prefixed in preset_names() else name)
    if preset not in preset_names() and not name.endswith(".toml"):
        raise UsageError(
            f"no configuration {name!r}; {nearest(name, known)}; or any preset of unmask list, or a .toml file"
        )
    short = Path(name).stem if name.endswith(".toml") else name.removeprefix(f"{study.name}-")
    return short, load_preset(preset)


def _configuration(name: str, preset: Preset, changes: Mapping[str, Any], shared: Mapping[str, Any]) -> Configuration:
    detector_changes = dict(changes)
    tokenizer_changes = dict(detector_changes.pop("tokenizer", {}))
    if tokenizer_changes and not preset.tokenizer:
        raise UsageError(f"the detector of {name} has no tokenizer to change")
    if tokenizer_changes.get("kind", preset.tokenizer.get("kind")) == "vqvae":
        tokenizer_changes["training"] = {**shared, **tokenizer_changes.get("training", {})}
    return Configuration(name, preset, tokenizer_changes, preset.with_shared(detector_changes, shared))
