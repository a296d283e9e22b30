"""Summary of a stream of events, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.events.event_set import LABEL_NAMES, EventSet
from unmask.events.objects import COMMON_TYPES, OBJECTS, TAG_LIMIT
from unmask.events.observables import OBSERVABLES

# Quartiles come from a histogram of logarithms, so that memory does not grow with the events; a bin is 0.1% wide.
_LOG_EDGES = np.arange(np.log(1.0), np.log(1e8), 1e-3)


def summarize(chunks: Iterable[EventSet]) -> dict[str, Any]:
    """Counts, multiplicities and quartiles of events, as plain JSON values."""
    n_events, n_cut_events, sum_of_weights = 0, 0, 0.0
    processes: Counter[str] = Counter()
    labels: Counter[int] = Counter()
    multiplicity: Counter[int] = Counter()
    n_of_tag = np.zeros(TAG_LIMIT, np.int64)
    momenta = {name: one for name, one in OBSERVABLES.items() if not one.is_count}
    histograms = {name: np.zeros(len(_LOG_EDGES) + 1, np.int64) for name in momenta}
    for events in chunks:
        n_events += len(events)
        n_cut_events += events.n_cut_events
        sum_of_weights += float(events.weight.sum())
        processes.update(events.process_names.counts())
        labels.update(events.label.tolist())
        multiplicity.update(events.n_objects.tolist())
        n_of_tag += np.bincount(events.tag.ravel(), minlength=TAG_LIMIT)
        for name, observable in momenta.items():
            values = np.log(np.maximum(observable.of(events), 0.5))
            histograms[name] += np.bincount(np.searchsorted(_LOG_EDGES, values), minlength=len(_LOG_EDGES) + 1)
    return {
        "n_events": n_events,
        "processes": dict(processes),
        "labels": {LABEL_NAMES[code]: labels[code] for code in sorted(labels)},
        "sum_of_weights": sum_of_weights,
        "n_events_with_n_objects": {str(n): multiplicity[n] for n in sorted(multiplicity)},
        "mean_objects_per_event": {
            one.name: int(n_of_tag[tag]) / max(n_events, 1)
            for tag, one in OBJECTS.items()
            if n_of_tag[tag] or one.name in COMMON_TYPES
        },
        **{f"{name}_quartiles_gev": _quartiles_gev(counts) for name, counts in histograms.items()},
        "n_cut_events": n_cut_events,
    }


def _quartiles_gev(counts: npt.NDArray[np.int64]) -> list[float]:
    """Quantiles at 25%, 50% and 75% of a histogram, to 0.1%; none of no values."""
    cumulated = np.cumsum(counts)
    if not cumulated[-1]:
        return []
    bins = np.searchsorted(cumulated, cumulated[-1] * np.array([0.25, 0.5, 0.75]))
    center = np.exp(_LOG_EDGES[np.clip(bins, 1, len(_LOG_EDGES)) - 1] + 0.5e-3) / 1e3
    return [float(f"{value:.4g}") for value in np.where(bins == 0, 0.0, center)]
