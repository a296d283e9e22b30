"""What is in a stream of events, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.events.event_set import LABEL_NAMES, EventSet
from unmask.events.objects import OBJECTS, TAG_LIMIT
from unmask.events.observables import OBSERVABLES

# Quartiles come from a histogram of logarithms, so that memory does not grow with the events; a bin is 0.1 % wide.
_LOG_EDGES = np.arange(np.log(1.0), np.log(1e8), 1e-3)


@dataclass
class _Quartiles:
    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(_LOG_EDGES) + 1, np.int64))

    def add(self, values_mev: npt.NDArray[Any]) -> None:
        bins = np.searchsorted(_LOG_EDGES, np.log(np.maximum(values_mev, 0.5)))
        self.counts += np.bincount(bins, minlength=len(self.counts))

    def in_gev(self) -> list[float]:
        """25 %, 50 % and 75 % quantiles, to 0.1 %."""
        cumulated = np.cumsum(self.counts)
        bins = np.searchsorted(cumulated, cumulated[-1] * np.array([0.25, 0.5, 0.75]))
        centre = np.exp(_LOG_EDGES[np.clip(bins, 1, len(_LOG_EDGES)) - 1] + 0.5e-3) / 1e3
        return [float(f"{value:.4g}") for value in np.where(bins == 0, 0.0, centre)]


@dataclass
class EventSummary:
    """Counts, multiplicities and quartiles of events that were added chunk by chunk."""

    n_events: int = 0
    n_cut_events: int = 0
    processes: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    sum_of_weights: float = 0.0
    multiplicity: Counter[int] = field(default_factory=Counter)
    n_of_tag: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(TAG_LIMIT, np.int64))
    quartiles: dict[str, _Quartiles] = field(
        default_factory=lambda: {name: _Quartiles() for name, one in OBSERVABLES.items() if not one.is_count}
    )

    @classmethod
    def of(cls, chunks: Iterable[EventSet]) -> EventSummary:
        summary = cls()
        for events in chunks:
            summary.add(events)
        return summary

    def add(self, events: EventSet) -> None:
        """Count ``events`` in."""
        self.n_events += len(events)
        self.n_cut_events += events.n_cut_events
        self.processes.update(events.process_names.counts())
        labels, n = np.unique(events.label, return_counts=True)
        self.labels.update({LABEL_NAMES[int(label)]: int(k) for label, k in zip(labels, n, strict=True)})
        self.sum_of_weights += float(events.weight.sum())
        self.multiplicity.update(Counter(events.n_objects.tolist()))
        self.n_of_tag += np.bincount(events.tag.ravel(), minlength=len(self.n_of_tag))
        for name, quartiles in self.quartiles.items():
            quartiles.add(OBSERVABLES[name].of(events))

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values."""
        n = max(self.n_events, 1)
        return {
            "n_events": self.n_events,
            "processes": dict(self.processes),
            "labels": dict(self.labels),
            "sum_of_weights": self.sum_of_weights,
            "n_events_with_n_objects": {str(k): self.multiplicity[k] for k in sorted(self.multiplicity)},
            "mean_objects_per_event": {one.name: int(self.n_of_tag[tag]) / n for tag, one in OBJECTS.items()},
            **{f"{name}_quartiles_gev": one.in_gev() if self.n_events else [] for name, one in self.quartiles.items()},
            "n_cut_events": self.n_cut_events,
        }
