"""Prior: simulated theories beside altered copies in the alternative class of the default detector."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from unmask.detectors.alterations import Alterations, AlteredCopies
from unmask.errors import BadDataError
from unmask.events.columns import Names
from unmask.events.event_set import EventSet
from unmask.networks.event_tensors import EventTensors, event_tensors

#: Between the name of a family and that of a process, in the process names of a prior.
OF_FAMILY = ": "


def family_of(process: str) -> str:
    """Family of a process of a prior; a process without one is a family of its own.

    >>> family_of("stop: stop_t__600__100"), family_of("zprime")
    ('stop', 'zprime')
    """
    return process.partition(OF_FAMILY)[0]


def in_family(events: EventSet, family: str) -> EventSet:
    """The same events with processes of this family."""
    names = events.process_names
    words = tuple(f"{family}{OF_FAMILY}{word}" for word in names.words)
    return replace(events, process_names=Names(names.code, words))


def families(events: EventSet) -> dict[str, int]:
    """Number of events of each family."""
    counts: dict[str, int] = {}
    for process, n in events.process_names.counts().items():
        counts[family_of(process)] = counts.get(family_of(process), 0) + n
    return counts


def without_families(events: EventSet, left_out: Iterable[str]) -> EventSet:
    """The events of all other families.

    Raises
    ------
    BadDataError
        If there is no such family, or none is left.
    """
    known = families(events)
    for family in left_out:
        if family not in known:
            raise BadDataError(f"the prior has no family {family!r}; it has {', '.join(known)}")
    names = events.process_names
    is_kept = np.array([family_of(word) not in set(left_out) for word in names.words], np.bool_)
    kept = events[is_kept[names.code]]
    if not len(kept):
        raise BadDataError("no theory is left in the prior")
    return kept


def probabilities(events: EventSet) -> npt.NDArray[np.float64]:
    """Probability (n_events,) of each event: families count the same, and so do the processes of a family."""
    names = events.process_names
    n_events = np.bincount(names.code, minlength=len(names.words))
    there = [word for word, n in zip(names.words, n_events, strict=True) if n]
    n_processes = {family: sum(family_of(word) == family for word in there) for family in map(family_of, there)}
    of_process = [1 / (len(n_processes) * n_processes.get(family_of(word), 1)) for word in names.words]
    return np.asarray((np.array(of_process) / np.maximum(n_events, 1))[names.code], np.float64)


class CopiesAndTheories(AlteredCopies):
    """Altered copies, and for a fraction of the events theories in their place, drawn anew each time."""

    def __init__(
        self, alterations: Alterations, train: EventTensors, cut: str | None, theories: EventSet, fraction: float
    ) -> None:
        super().__init__(alterations, train, cut)
        self.fraction, drawn_from = fraction, event_tensors(theories)
        is_selected = self.are_selected(drawn_from)
        if not is_selected.any():
            raise BadDataError("no theory of the prior passes the selection of the training background")
        self.theories = drawn_from.at(is_selected)
        self.cumulative = torch.from_numpy(np.cumsum(probabilities(theories[is_selected.numpy()])))

    def __call__(self, events: EventTensors) -> EventTensors:
        kinematics, types = super().__call__(events)
        n, device = len(types), types.device
        number = torch.rand(n, dtype=torch.float64, device=device) * self.cumulative[-1]
        theories = self.theories.at(torch.searchsorted(self.cumulative, number).clamp_max(len(self.cumulative) - 1))
        is_theory = torch.rand(n, 1, device=device) < self.fraction
        return EventTensors(
            torch.where(is_theory[..., None], theories.kinematics, kinematics),
            torch.where(is_theory, theories.types, types),
        )
