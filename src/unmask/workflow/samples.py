"""Samples: files of one process, whose weights are normalized to its cross section and a luminosity."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from unmask.artifacts import Json
from unmask.errors import UsageError, nearest
from unmask.events.event_set import LABEL_NAMES, label_code

_PB_PER_FB = 1e3


@dataclass(frozen=True)
class Sample:
    """Properties of the files that match a pattern.

    Attributes
    ----------
    files
        Pattern of their names, such as ``ttbar_*.root`` or ``mc/ttbar/*``.
    xsec
        Cross section in pb; None keeps the weights.
    k_factor
        Multiplies the cross section.
    process, label
        Of all events; None keeps those of the files.
    """

    files: str = "*"
    xsec: float | None = None
    k_factor: float = 1.0
    process: str | None = None
    label: str | None = None

    def changes(self) -> dict[str, Json]:
        """The options of reading that differ for these files."""
        known = {"process": self.process, "label": None if self.label is None else label_code(self.label)}
        return {name: value for name, value in known.items() if value is not None}


@dataclass(frozen=True)
class Samples:
    """Samples and the luminosity in 1/fb that they are normalized to; without any, files stay as they are."""

    samples: tuple[Sample, ...] = ()
    lumi: float = 1.0
    path: Path | None = None

    def of(self, file: Path) -> Sample:
        """The one sample that a file is of."""
        matching = [sample for sample in self.samples if file.match(sample.files)]
        if len(matching) != 1:
            found = " and ".join(repr(sample.files) for sample in matching) or "none of the samples"
            fix = f"give each file one [[sample]], such as files = {file.name!r}; without xsec its weights stay"
            raise UsageError(f"{self.path}: {file} matches {found}: {fix}")
        return matching[0]

    def scale(self, sample: Sample, sum_of_weights: float) -> float:
        """Factor of the weights of a sample."""
        return self.lumi * _PB_PER_FB * (sample.xsec or 0) * sample.k_factor / sum_of_weights


def read_samples(path: Path, lumi: float | None = None) -> Samples:
    """Read a TOML file: ``lumi``, and tables ``[[sample]]`` with the fields of :class:`Sample`."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not TOML ({error})") from None
    _check_names(path, content, ("lumi", "sample"))
    tables = content.get("sample", [])
    if not tables or not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise UsageError(f"{path}: no samples; expected [[sample]] with files = 'ttbar_*.root' and xsec = 831.8 (pb)")
    samples = tuple(_sample(f"{path}, sample {i}", table) for i, table in enumerate(tables, start=1))
    return Samples(samples, positive(f"{path}: lumi", content.get("lumi", 1.0)) if lumi is None else lumi, path)


def _sample(where: str, table: Mapping[str, Any]) -> Sample:
    _check_names(where, table, [one.name for one in fields(Sample)])
    for name in ("files", "process", "label"):
        if not isinstance(value := table.get(name, "" if name == "files" else "-"), str) or not value:
            raise UsageError(f"{where}: {name} is {value!r}; expected a text" + (", a pattern" * (name == "files")))
    if (label := table.get("label", "unknown")) not in (*LABEL_NAMES.values(), "unknown"):
        raise UsageError(f"{where}: label is {label!r}; expected background, signal or unknown")
    numbers = {name: positive(f"{where}: {name}", table[name]) for name in ("xsec", "k_factor") if name in table}
    return Sample(**{**table, **numbers})


def _check_names(where: object, table: Mapping[str, Any], known: Any) -> None:
    for name in table:
        if name not in known:
            raise UsageError(f"{where}: unknown {name!r}; {nearest(name, known)}")


def positive(where: str, value: Any) -> float:
    """A positive number, or an error that says where another value is."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise UsageError(f"{where} is {value!r}; expected a positive number")
    return float(value)
