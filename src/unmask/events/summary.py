"""Summary of a stream of events, in bounded memory."""

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

# Quartiles come from a histogram of logarithms, so that memory does not grow with the events; a bin is 0.1% wide.
_LOG_EDGES = np.arange(np.log(1.0), np.log(1e8), 1e-3)


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
    histogram: dict[str, npt.NDArray[np.int64]] = field(
        default_factory=lambda: {
            name: np.zeros(len(_LOG_EDGES) + 1, np.int64) for name, one in OBSERVABLES.items() if not one.is_count
        }
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
        for name, counts in self.histogram.items():
            values = np.log(np.maximum(OBSERVABLES[name].of(events), 0.5))
            counts += np.bincount(np.searchsorted(_LOG_EDGES, values), minlength=len(counts))

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
            **{f"{name}_quartiles_gev": _quartiles_gev(counts) for name, counts in self.histogram.items()},
            "n_cut_events": self.n_cut_events,
        }


def _quartiles_gev(counts: npt.NDArray[np.int64]) -> list[float]:
    """Quantiles at 25%, 50% and 75% of a histogram, to 0.1%; none of no values."""
    cumulated = np.cumsum(counts)
    if not cumulated[-1]:
        return []
    bins = np.searchsorted(cumulated, cumulated[-1] * np.array([0.25, 0.5, 0.75]))
    center = np.exp(_LOG_EDGES[np.clip(bins, 1, len(_LOG_EDGES)) - 1] + 0.5e-3) / 1e3
    return [float(f"{value:.4g}") for value in np.where(bins == 0, 0.0, center)]
