"""Settings of what is trained: presets, TOML files and tables, with changes, checked against the constructors."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unmask.detectors import Detector
from unmask.errors import BadDataError, UsageError, closest, nearest
from unmask.fitted import DETECTORS, KINDS, TOKENIZERS, class_of
from unmask.parameters import arguments_of
from unmask.tokenizers import Tokenizer

#: Tables within the settings of a detector.
GROUPS = ("training", "tokenizer")
_FOLDER = Path(__file__).with_name("presets")


@dataclass(frozen=True)
class Settings:
    """Tables of settings of a tokenizer and of a detector; that of the tokenizer is empty for a detector without one.

    >>> load_settings("gluino-lut-456").description
    'gluino study, look-up table with 4 bins per variable (published configuration)'
    """

    name: str
    description: str
    tokenizer: Mapping[str, Any]
    detector: Mapping[str, Any]

    def with_changes(self, changes: Mapping[str, Any], shared: Mapping[str, Any]) -> Settings:
        """Change settings: first to those that all trainings share, where there are such, then to ``changes``."""
        changes = dict(changes)
        of_tokenizer = changes.pop("tokenizer", {})
        if of_tokenizer and not self.tokenizer:
            raise UsageError(f"the detector of {self.name} has no tokenizer; choose a preset that has one: unmask list")

        def changed(table: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
            parameters = _parameters(merged(table, change))
            taken = {key: value for key, value in shared.items() if key in parameters}
            return merged(table, {"training": shared} if "training" in parameters else taken, change)

        return replace(self, tokenizer=changed(self.tokenizer, of_tokenizer), detector=changed(self.detector, changes))

    def with_cut(self, cut: str | None) -> Settings:
        """Give a detector that takes one, and has none yet, the condition that its events are selected with."""
        if not cut or self.detector.get("cut") or "cut" not in _parameters(self.detector):
            return self
        return replace(self, detector={**self.detector, "cut": cut})

    def new_tokenizer(self) -> Tokenizer:
        """Make the tokenizer, not fitted yet."""
        if not self.tokenizer:
            raise UsageError(f"the {self.detector.get('kind')} detector of {self.name} has no tokenizer")
        made: Tokenizer = _new(TOKENIZERS, self.tokenizer, f"{self.name}, [tokenizer]")
        return made

    def new_detector(self, tokenizer: Tokenizer | None = None) -> Detector:
        """Make the detector, not fitted yet, with its own tokenizer or another."""
        if not self.detector:
            raise UsageError(
                f"{self.name} is a tokenizer, not a detector; choose from {', '.join(DETECTORS)}, or a preset: "
                "unmask list"
            )
        parts = {"tokenizer": tokenizer or self.new_tokenizer()} if self.tokenizer else {}
        made: Detector = _new(DETECTORS, {**self.detector, **parts}, f"{self.name}, [detector]")
        return made


def preset_names() -> list[str]:
    """Names of the presets that ship with the package."""
    names = [path.stem for path in _FOLDER.glob("*.toml")]
    # Numbers by their value: lut-885 before lut-1524.
    return sorted(names, key=lambda name: [part.zfill(6) if part.isdigit() else part for part in name.split("-")])


def load_settings(
    source: str | Path | Mapping[str, Any], changes: Mapping[str, Any] | None = None, **shared: Any
) -> Settings:
    """Load settings and change some.

    Parameters
    ----------
    source
        Name of a preset, kind of a detector or tokenizer, path of a TOML file, or the tables of one.
    changes
        Settings of the detector by name; those of its tokenizer in a table ``tokenizer``.
    shared
        Settings of all trainings, such as ``seed`` and ``device``; they give way to ``changes``.

    Raises
    ------
    UsageError
        If there is no such preset, or a table or setting does not exist.
    """
    return _load(source).with_changes(changes or {}, shared)


def _load(source: str | Path | Mapping[str, Any]) -> Settings:
    if isinstance(source, Mapping):
        return _from_tables("settings", source)
    name = str(source)
    if name.endswith(".toml"):
        return _from_tables(name, read_toml(Path(name)))
    if name in preset_names():
        return _from_tables(name, read_toml(_FOLDER / f"{name}.toml"))
    if name in TOKENIZERS:
        return Settings(name, "", {"kind": name}, {})
    if name in DETECTORS:
        takes_tokenizer = "tokenizer" in _parameters({"kind": name})
        return Settings(name, "", {"kind": "lookup-table"} if takes_tokenizer else {}, {"kind": name})
    close = closest(name, [*preset_names(), *KINDS])
    hint = f"Did you mean {close!r}? " if close else ""
    raise UsageError(f"unknown preset {name!r}. {hint}List all {len(preset_names())}: unmask list")


def _from_tables(where: str, content: Mapping[str, Any]) -> Settings:
    known = ("description", "tokenizer", "detector")
    for key in content:
        if key not in known:
            raise UsageError(f"{where}: unknown entry {key!r}; {nearest(key, known)}")
    tokenizer, detector = content.get("tokenizer", {}), content.get("detector")
    if not isinstance(detector, Mapping):
        raise UsageError(f"{where}: there is no table [detector]")
    _check_kind(DETECTORS, detector.get("kind"), f"{where}, [detector]")
    for name, table in content.items():
        if isinstance(table, Mapping) and not isinstance(table.get("training", {}), Mapping):
            raise UsageError(f"{where}, [{name}]: training is {table['training']!r}; expected a table of settings")
    if not isinstance(tokenizer, Mapping) or ("tokenizer" in _parameters(detector)) != bool(tokenizer):
        verdict = "must not be a" if tokenizer else "is no"
        raise UsageError(f"{where}: there {verdict} table [tokenizer] for this kind of detector")
    return Settings(Path(where).stem, str(content.get("description", "")), tokenizer, detector)


def preset_descriptions() -> dict[str, str]:
    """Description of each preset, without making anything."""
    return {name: read_toml(_FOLDER / f"{name}.toml").get("description", "") for name in preset_names()}


def merged(*tables: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables, within tables one entry at a time; the later ones win.

    >>> merged({"a": 1, "training": {"seed": 0, "device": "cpu"}}, {"a": 2, "training": {"seed": 1}})
    {'a': 2, 'training': {'seed': 1, 'device': 'cpu'}}
    """
    result: dict[str, Any] = {}
    for table in tables:
        for key, value in table.items():
            inner = result.get(key)
            is_table = isinstance(value, Mapping)
            result[key] = merged(inner if isinstance(inner, Mapping) else {}, value) if is_table else value
    return result


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Turn dotted names into tables.

    >>> nested({"dropout": 0.1, "training.seed": 1, "training.device": "cpu"})
    {'dropout': 0.1, 'training': {'seed': 1, 'device': 'cpu'}}
    """
    result: dict[str, Any] = {}
    for name, value in flat.items():
        *tables, key = name.split(".")
        table = result
        for part in tables:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise UsageError(f"{name}={value}: {part} has been given a value of its own")
        table[key] = value
    return result


def flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn tables into dotted names.

    >>> flat({"dropout": 0.1, "training": {"seed": 1}})
    {'dropout': 0.1, 'training.seed': 1}
    """
    result: dict[str, Any] = {}
    for key, value in tables.items():
        result |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return result


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise BadDataError("no such file", path=path) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadDataError(f"is not TOML: {error}", path=path) from None


def _parameters(table: Mapping[str, Any]) -> Mapping[str, object]:
    """Arguments of what a table makes; none if its kind is not known."""
    kind = table.get("kind")
    return inspect.signature(class_of(kind)).parameters if kind in KINDS else {}


def _check_kind(kinds: Iterable[str], kind: object, where: str) -> None:
    if kind not in tuple(kinds):
        raise UsageError(f"{where}: kind is {kind!r}; {nearest(str(kind), kinds)}")


def _new(kinds: Iterable[str], table: Mapping[str, Any], where: str) -> Any:
    """Make what a table describes, after checking every entry; an error names all mistakes."""
    settings = dict(table)
    kind = settings.pop("kind", None)
    _check_kind(kinds, kind, where)
    arguments, mistakes = arguments_of(class_of(kind), settings)
    if mistakes:
        raise UsageError(f"{where}: " + "; ".join(mistakes))
    new = class_of(kind)(**arguments)
    new.check()
    return new
