"""The events that ship with the package."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Literal, get_args

from unmask.errors import UsageError, nearest
from unmask.events.event_set import EventSet
from unmask.events.readers import read_events

Study = Literal["four-top", "gluino"]
STUDIES: tuple[Study, ...] = get_args(Study)


def load_sample(study: Study) -> EventSet:
    """Load a small labelled sample of one of the two studies; see the README beside the files for its origin.

    >>> load_sample("four-top")
    EventSet: ...
    """
    if study not in STUDIES:
        raise UsageError(f"there is no sample {study!r}; {nearest(study, STUDIES)}")
    with as_file(files("unmask") / "sample" / f"{study}.parquet") as path:
        return read_events(path)
