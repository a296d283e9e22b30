"""Samples: files of one process, whose weights are normalized to its cross section and a luminosity."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from unmask.artifacts import Json
from unmask.errors import UsageError
from unmask.events.event_set import Label, label_code
from unmask.parameters import Positive, arguments_of, mistakes_in
from unmask.workflow.settings import read_toml

_PB_PER_FB = 1e3


@dataclass(frozen=True)
class Sample:
    """The files that match a pattern, such as ``ttbar_*.root`` or ``mc/ttbar/*``, and what they hold.

    Attributes
    ----------
    xsec, k_factor
        Cross section in pb, and what it is multiplied by; without one, weights are kept.
    process, label
        Of all events; None keeps those of the files.
    """

    files: str = "*"
    xsec: Positive | None = None
    k_factor: Positive = 1.0
    process: str | None = None
    label: Label | None = None

    def __post_init__(self) -> None:
        if mistakes := mistakes_in(type(self), vars(self)):
            raise UsageError("; ".join(mistakes))

    def changes(self) -> dict[str, Json]:
        """The options of reading that differ for these files."""
        known = {"process": self.process, "label": None if self.label is None else label_code(self.label)}
        return {name: value for name, value in known.items() if value is not None}


@dataclass(frozen=True)
class Samples:
    """Samples and the luminosity in 1/fb that they are normalized to; without any, files stay as they are."""

    samples: tuple[Sample, ...] = ()
    lumi: Positive = 1.0
    path: Path | None = None

    def __post_init__(self) -> None:
        if mistakes := mistakes_in(type(self), vars(self)):
            raise UsageError("; ".join(mistakes))

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
    content = read_toml(path)
    tables = content.pop("sample", [])
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise UsageError(f"{path}: no samples; expected [[sample]] with files = 'ttbar_*.root' and xsec = 831.8 (pb)")
    rest, mistakes = arguments_of(Samples, content)
    samples = []
    for i, table in enumerate(tables, start=1):
        arguments, wrong = arguments_of(Sample, table)
        mistakes += [f"sample {i}: {text}" for text in wrong]
        samples.append(arguments)
    if mistakes:
        raise UsageError(f"{path}: {'; '.join(mistakes)}")
    more = rest if lumi is None else rest | {"lumi": lumi}
    return Samples(**more | {"samples": tuple(Sample(**one) for one in samples), "path": path})
