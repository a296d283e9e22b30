"""Settings by name: the published configurations, or a TOML file of the same shape."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from unmask.detectors import KINDS as DETECTORS
from unmask.detectors import Detector, detector_class
from unmask.errors import UsageError, nearest
from unmask.tokenizers import KINDS as TOKENIZERS
from unmask.tokenizers import Tokenizer, tokenizer_class
from unmask.workflow.settings import GROUPS, checked_arguments, read_toml

_FOLDER = files("unmask") / "workflow" / "presets"


@dataclass(frozen=True)
class Preset:
    """What to train: a description, a table for the tokenizer (empty for a detector without) and for the detector."""

    name: str
    description: str
    tokenizer: Mapping[str, Any]
    detector: Mapping[str, Any]

    def new_tokenizer(self, changes: Mapping[str, Any] | None = None) -> Tokenizer:
        """Make the tokenizer, not fitted yet; ``changes`` override settings."""
        where = f"{self.name}, [tokenizer]"
        if not self.tokenizer:
            raise UsageError(f"the {self.detector.get('kind')} detector of {self.name} has no tokenizer")
        kind, settings = _kind_and_settings(self.tokenizer, changes or {}, TOKENIZERS, where)
        chosen = tokenizer_class(kind)
        return chosen(**checked_arguments(chosen, settings, where=where))

    def new_detector(
        self,
        tokenizer: Tokenizer | None = None,
        changes: Mapping[str, Any] | None = None,
        shared: Mapping[str, Any] | None = None,
    ) -> Detector:
        """Make the detector, not fitted yet; ``changes`` override settings, ``shared`` is for :meth:`with_shared`."""
        where = f"{self.name}, [detector]"
        changes = self.with_shared(changes or {}, shared or {})
        kind, settings = _kind_and_settings(self.detector, changes, DETECTORS, where)
        chosen = detector_class(kind)
        given = {} if tokenizer is None else {"tokenizer": tokenizer}
        return chosen(**checked_arguments(chosen, settings | given, where=where))

    def with_shared(self, changes: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
        """Changes, and what all trainings share, such as a seed, where the detector takes it and they do not say it."""
        if self.detector_takes("training"):
            training = {**shared, **changes.get("training", {})}
            return {**changes} | ({"training": training} if training else {})
        takes_seed = "seed" in shared and self.detector_takes("seed")
        return ({"seed": shared["seed"]} if takes_seed else {}) | {**changes}

    def detector_takes(self, name: str) -> bool:
        """Whether the detector has a setting or a part of this name."""
        kind = self.detector.get("kind")
        return kind in DETECTORS and name in inspect.signature(detector_class(kind)).parameters


def preset_names() -> list[str]:
    """Names of the presets that ship with the package."""
    names = [entry.name.removesuffix(".toml") for entry in _FOLDER.iterdir() if entry.name.endswith(".toml")]
    # Numbers by their value: lut-885 before lut-1524.
    return sorted(names, key=lambda name: [part.zfill(6) if part.isdigit() else part for part in name.split("-")])


def default_preset(detector: str) -> Preset:
    """A detector of a kind with its default settings."""
    if detector not in DETECTORS:
        raise UsageError(f"unknown detector {detector!r}; {nearest(detector, DETECTORS)}")
    preset = Preset(detector, "", {}, {"kind": detector})
    return replace(preset, tokenizer={"kind": "lookup-table"}) if preset.detector_takes("tokenizer") else preset


def changes_for(names: Collection[str], changes: Mapping[str, Any], everyone: Collection[str]) -> dict[str, Any]:
    """Of changes for several detectors those for one: what is for all of them, then what is in tables of its names.

    >>> changes_for(["a"], {"dropout": 0.1, "a": {"dropout": 0.2}, "b": {"size": "light"}}, ["a", "b"])
    {'dropout': 0.2}
    """
    for key, value in changes.items():
        if isinstance(value, Mapping) and key not in (*GROUPS, *everyone):
            raise UsageError(f"no detector {key!r} to change; {nearest(key, everyone)}")
    found = {key: value for key, value in changes.items() if key not in everyone}
    for name in names:
        own = changes.get(name, {})
        if not isinstance(own, Mapping):
            raise UsageError(f"{name}={own}: {name} is a detector; write {name}.SETTING=VALUE")
        found = _merged(found, own)
    return found


def load_preset(name: str) -> Preset:
    """Load a preset by its name, or by the path of a TOML file of the same shape.

    >>> load_preset("gluino-lut-456").description
    'gluino study, look-up table with 4 bins per variable (published configuration)'
    """
    is_file = name.endswith(".toml")
    if not is_file and name not in preset_names():
        raise UsageError(f"unknown preset {name!r}; {nearest(name, preset_names())}, or give the path of a .toml file")
    path = Path(name) if is_file else Path(str(_FOLDER / f"{name}.toml"))
    content = read_toml(path)
    known = ("description", "tokenizer", "detector")
    for key in content:
        if key not in known:
            raise UsageError(f"{path}: unknown entry {key!r}; {nearest(key, known)}")
    if not isinstance(content.get("detector"), dict):
        raise UsageError(f"{path}: there is no table [detector]")
    preset = Preset(path.stem, str(content.get("description", "")), content.get("tokenizer", {}), content["detector"])
    if not isinstance(preset.tokenizer, dict) or preset.detector_takes("tokenizer") != bool(preset.tokenizer):
        verdict = "must not be a" if preset.tokenizer else "is no"
        raise UsageError(f"{path}: there {verdict} table [tokenizer] for this kind of detector")
    return preset


def _kind_and_settings(
    table: Mapping[str, Any], changes: Mapping[str, Any], known: tuple[str, ...], where: str
) -> tuple[str, dict[str, Any]]:
    settings = _merged(table, changes)
    kind = settings.pop("kind", None)
    if kind not in known:
        raise UsageError(f"{where}: kind is {kind!r}; {nearest(str(kind), known)}")
    return kind, settings


def _merged(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Take over ``changes``, within tables one entry at a time."""
    merged = dict(table)
    for key, value in changes.items():
        inner = merged.get(key)
        merged[key] = _merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return merged
