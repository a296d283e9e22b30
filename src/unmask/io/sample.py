"""The events and the model that ship with the package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from unmask.errors import UsageError, nearest

if TYPE_CHECKING:
    from unmask.events.event_set import EventSet

Study = Literal["four-top", "gluino"]
STUDIES: tuple[Study, ...] = get_args(Study)
#: A detector trained on the training fraction of the gluino sample.
MODEL = "gluino-model"
#: Stands before the name of a sample in place of a path.
SAMPLE = "sample:"


def load_sample(study: Study) -> EventSet:
    """Load a small labeled sample of one of the two studies; see the README beside the files for its origin.

    >>> load_sample("four-top")
    EventSet: 17,000 events (3,400 signal, 13,600 background)
    ...
    """
    from unmask.io.read import read_events

    return read_events(sample_path(study))


def sample_path(name: str) -> Path:
    """Where something that ships with the package is: the events of a study, or the model ``gluino-model``."""
    if name not in (known := (*STUDIES, MODEL)):
        raise UsageError(f"there is no sample {name!r}; {nearest(name, known)}")
    return Path(str(files("unmask"))) / "sample" / (f"{name}.parquet" if name in STUDIES else name)


def resolve(path: str | Path) -> Path:
    """The path of a sample such as ``sample:gluino``; any other path stays."""
    name = str(path)
    return sample_path(name.removeprefix(SAMPLE)) if name.startswith(SAMPLE) else Path(path)
