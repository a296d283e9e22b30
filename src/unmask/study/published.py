"""Studies by name, and the settings of the detectors that they train."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from unmask.errors import BadDataError, UsageError, closest, nearest
from unmask.fitted import DETECTORS
from unmask.io.sample import sample_path
from unmask.workflow.settings import GROUPS, Settings, load_settings, merged, preset_names, read_toml

#: The study of a user's own files.
DEFAULT = "default"
_FOLDER = Path(__file__).with_name("studies")


@dataclass(frozen=True)
class Study:
    """A study by name.

    Attributes
    ----------
    detectors
        Names of presets, or patterns such as ``gluino-lut-*``, in the order of the tables.
    folder
        Folder of its files, one per process, within the benchmark folder.
    published
        Published AUC, ε_S at ε_B = 1%, ε_B at ε_S = 1%, by detector.
    notes
        Remarks on the published numbers, by detector.
    channel
        Dark Machines channel.
    """

    name: str
    description: str
    detectors: Sequence[str]
    folder: str = ""
    signal_processes: Sequence[str] = ()
    published: Mapping[str, Sequence[str]] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    channel: str = ""

    def presets(self) -> dict[str, str]:
        """Names of all presets of the study by their names within it: ``lut-456`` is the preset ``gluino-lut-456``."""
        matching = [name for pattern in self.detectors for name in preset_names() if fnmatchcase(name, pattern)]
        return {name.removeprefix(f"{self.name}-"): name for name in dict.fromkeys(matching)}

    def files(self, benchmark: Path | None) -> list[Path]:
        """Find the files of the study in the benchmark folder; without one, the sample that ships with the package."""
        if benchmark is None:
            return [sample_path(self.name)]
        folder = benchmark / self.folder
        if not folder.is_dir():
            raise BadDataError(f"no such folder; expected the files of {self.name} there, one per process", path=folder)
        paths = sorted(folder.glob("*.csv.gz"))
        if not paths:
            raise BadDataError("holds no *.csv.gz files; expected one per process", path=folder)
        return paths


def study_names() -> list[str]:
    """Names of the published studies."""
    return sorted({path.stem for path in _FOLDER.glob("*.toml")} - {DEFAULT})


def load_study(name: str) -> Study:
    """Load a study by its name.

    >>> load_study("four-top").signal_processes
    ['tttt']
    """
    if name not in [*study_names(), DEFAULT]:
        raise UsageError(f"unknown study {name!r}; {nearest(name, study_names())}, or give --background files")
    return Study(name, **read_toml(_FOLDER / f"{name}.toml"))


def choose_detectors(
    study: Study, only: Sequence[str] | None = None, changes: Mapping[str, Any] | None = None, **shared: Any
) -> dict[str, Settings]:
    """Load the settings of the detectors of a study, or of those named, by the names that tables give them.

    Parameters
    ----------
    only
        Names within the study, presets, kinds of detectors, or TOML files.
    changes
        Settings that differ, of one detector alone in a table of its name.
    shared
        Settings of all trainings, such as ``seed``, ``device`` and ``max_epochs``.
    """
    known, changes = study.presets(), changes or {}
    sources: dict[str, str] = {}
    for name in only or known:
        full = known.get(name, f"{study.name}-{name}")
        close = None if name in (*preset_names(), *DETECTORS, *known) else closest(name, known)
        if close and full not in preset_names() and not name.endswith(".toml"):
            raise UsageError(f"unknown detector {name!r}. Did you mean {close!r}? List all: unmask list")
        short = Path(name).stem if name.endswith(".toml") else name.removeprefix(f"{study.name}-")
        if short in sources:
            raise UsageError(f"detector {short!r} is given twice")
        sources[short] = full if full in preset_names() else name
    everyone = {*sources, *sources.values()}
    for key, value in changes.items():
        if isinstance(value, Mapping) and key not in (*GROUPS, *everyone):
            raise UsageError(f"no detector {key!r} to change; {nearest(key, sorted(everyone))}")
        if not isinstance(value, Mapping) and key in everyone:
            raise UsageError(f"{key}={value}: {key} is a detector; expected {key}.SETTING=VALUE")
    for_all = {key: value for key, value in changes.items() if key not in everyone}
    return {
        short: load_settings(source, merged(for_all, *(changes.get(name, {}) for name in {short, source})), **shared)
        for short, source in sources.items()
    }


def with_prior(
    detectors: dict[str, Settings], leave_out: Sequence[str], shared: Mapping[str, Any]
) -> dict[str, tuple[str, ...]]:
    """Add the default with a prior, and one for each family that is left out; give what is left out by name."""
    default = detectors.get("default") or load_settings("default", **shared)
    priors: dict[str, tuple[str, ...]] = {"default-prior": ()}
    for family in leave_out:
        priors["default-prior-without-" + re.sub(r"\W+", "-", family)] = (family,)
    detectors |= dict.fromkeys(priors, default)
    return priors


def prior_notes(priors: Mapping[str, Sequence[str]]) -> list[str]:
    """Remark on each detector with a prior."""
    return [
        f"{name} is semi-supervised: trained with theories, "
        + (f"without the family {', '.join(left_out)}" if left_out else "also those of tested families")
        for name, left_out in priors.items()
    ]
