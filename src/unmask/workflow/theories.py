"""Theories for a prior: files of simulated signals, by family."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from unmask.detectors.prior import families, in_family
from unmask.errors import BadDataError
from unmask.events.event_set import SIGNAL, EventSet
from unmask.io.sample import SAMPLE
from unmask.workflow.sources import Bar, Sources, labeled, no_bar


def theory_sources(names: Iterable[str], like: Sources) -> list[tuple[str | None, Sources]]:
    """Sources of theories, read like others, with their families.

    Parameters
    ----------
    names
        Files, or ``FAMILY:FILE`` for files of one family.
    """
    found: list[tuple[str | None, Sources]] = []
    for name in names:
        family, colon, path = str(name).partition(":")
        if colon and family and not str(name).startswith(SAMPLE) and not Path(name).exists():
            found.append((family, like.with_files([path])))
        else:
            found.append((None, like.with_files([name])))
    return found


def read_theories(names: Sequence[str], like: Sources, bar: Bar = no_bar) -> EventSet:
    """Read theories that pass the cuts of ``like``; those without a family are, each process, a family of their own.

    Raises
    ------
    BadDataError
        If none is left.
    """
    parts: list[EventSet] = []
    for family, sources in theory_sources(names, like):
        events = EventSet.concatenate([labeled(file, some, SIGNAL) for file, some in sources.by_file(bar=bar)])
        parts.append(in_family(events, family) if family else events)
    # Their weights are of a luminosity; how often a theory is drawn does not depend on its cross section.
    theories = EventSet.concatenate(parts)
    if not len(theories):
        raise BadDataError("no theory of the prior passes the cuts")
    return replace(theories, weight=np.ones(len(theories)))


def prior_text(theories: EventSet) -> str:
    """Describe a prior in one line."""
    names = families(theories)
    return (
        f"prior: {len(theories):,} theory events of {len(names)} families ({', '.join(names)}). The detector is "
        "semi-supervised: judge it on families that are left out"
    )
