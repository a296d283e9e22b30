"""Isolation forest: odd events are soon alone when events are split at random."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from unmask.artifacts import Json
from unmask.detectors.base import Detector
from unmask.detectors.event_features import EventFeatures, FeatureKind
from unmask.errors import UsageError
from unmask.events.event_set import EventSet

if TYPE_CHECKING:
    from unmask.training import Reporter

# Events that go through all trees together.
_CHUNK_EVENTS = 4096
_LEAF = -1


class Forest(NamedTuple):
    """Trees as complete binary trees: the children of node i are 2i + 1 (below the threshold) and 2i + 2.

    All arrays are (n_trees, n_nodes): the feature and threshold of a split, -1 for a leaf; and how many splits an
    event that ends there has seen, with those that would still separate it from the other events of the leaf.
    """

    feature: npt.NDArray[np.int16]
    threshold: npt.NDArray[np.float32]
    depth: npt.NDArray[np.float32]

    @classmethod
    def grow(
        cls, features: npt.NDArray[np.float32], *, n_trees: int, sample_size: int, rng: np.random.Generator
    ) -> Forest:
        """Grow each tree on a random sample of events (n_events, n_features), until they are alone or it is deep."""
        sample_size = min(sample_size, len(features))
        max_depth = int(np.ceil(np.log2(max(sample_size, 2))))
        shape = (n_trees, 2 ** (max_depth + 1) - 1)
        forest = cls(np.full(shape, _LEAF, np.int16), np.zeros(shape, np.float32), np.zeros(shape, np.float32))
        for tree in range(n_trees):
            sample = features[rng.choice(len(features), sample_size, replace=False)]
            forest._grow_node(tree, 0, 0, sample, max_depth, rng)
        return forest

    def _grow_node(
        self, tree: int, node: int, depth: int, rows: npt.NDArray[np.float32], max_depth: int, rng: np.random.Generator
    ) -> None:
        low, high = rows.min(axis=0), rows.max(axis=0)
        (varying,) = np.nonzero(high > low)
        if depth == max_depth or len(rows) == 1 or not len(varying):
            self.depth[tree, node] = depth + mean_depth(len(rows))
            return
        feature = rng.choice(varying)
        threshold = np.float32(rng.uniform(low[feature], high[feature]))
        is_above = rows[:, feature] > threshold
        if is_above.all() or not is_above.any():  # the threshold was rounded to the end of the range
            threshold, is_above = low[feature], rows[:, feature] > low[feature]
        self.feature[tree, node], self.threshold[tree, node] = feature, threshold
        for child, chosen in ((2 * node + 1, ~is_above), (2 * node + 2, is_above)):
            self._grow_node(tree, child, depth + 1, rows[chosen], max_depth, rng)

    def mean_depth_of(self, features: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Mean depth (n_events,) at which events end, over the trees."""
        n_trees, n_nodes = self.feature.shape
        event = np.arange(len(features))[:, None]
        first = np.arange(n_trees) * n_nodes
        feature, threshold = self.feature.ravel(), self.threshold.ravel()
        node = np.zeros((len(features), n_trees), np.int64)
        for _ in range(n_nodes.bit_length() - 1):
            split = feature[first + node]
            is_above = features[event, split] > threshold[first + node]  # of a leaf: any, and not used
            node = np.where(split == _LEAF, node, 2 * node + 1 + is_above)
        return np.asarray(self.depth.ravel()[first + node].mean(axis=1, dtype=np.float64))


class IsolationForestDetector(Detector):
    """Isolation forest on a fixed-length summary of the event.

    Score: 2 to the power of minus the mean depth over its expectation, from 0 to 1 (Liu, Ting and Zhou 2008).

    Parameters
    ----------
    features : "summary", or "flat" for the 92 columns; see :mod:`unmask.detectors.event_features`.
    n_trees, sample_size : trees, and events that each is grown on.
    """

    kind = "isolation-forest"
    _not_settings = ()

    def __init__(
        self, *, features: FeatureKind = "summary", n_trees: int = 200, sample_size: int = 256, seed: int = 0
    ) -> None:
        self.features: FeatureKind = features
        self.n_trees = n_trees
        self.sample_size = sample_size
        self.seed = seed

    def _fit(self, train: EventSet, validation: EventSet, run_folder: Path | None, reporter: Reporter | None) -> None:  # noqa: ARG002
        if self.n_trees < 1 or self.sample_size < 2:
            raise UsageError(f"{self.n_trees} trees of {self.sample_size} events; accepted: 1 or more of 2 or more")
        self.features_ = EventFeatures.fit(train, self.features)
        rng = np.random.default_rng(self.seed)
        self.forest_ = Forest.grow(
            self.features_.of(train), n_trees=self.n_trees, sample_size=self.sample_size, rng=rng
        )
        self.expected_depth_ = mean_depth(min(self.sample_size, len(train)))

    def score_events(self, events: EventSet, *, device: str = "auto") -> npt.NDArray[np.float64]:  # noqa: ARG002
        self._check_fitted()
        depth = [self.forest_.mean_depth_of(self.features_.of(part)) for part in events.chunks(_CHUNK_EVENTS)]
        return np.asarray(2.0 ** (-np.concatenate([np.zeros(0), *depth]) / self.expected_depth_))

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        return self.features_.arrays() | self.forest_._asdict()

    def _facts(self) -> dict[str, Json]:
        return {"expected_depth": self.expected_depth_}

    def _restore(self, arrays: dict[str, npt.NDArray[Any]], facts: dict[str, Json]) -> None:
        self.features_ = EventFeatures.take_from(arrays, self.features)
        self.forest_ = Forest(**arrays)
        self.expected_depth_ = facts["expected_depth"]


def mean_depth(n_events: int) -> float:
    """Mean number of random splits until one of ``n_events`` is alone.

    >>> mean_depth(1), mean_depth(2), round(mean_depth(256), 2)
    (0.0, 1.0, 10.24)
    """
    if n_events <= 2:
        return float(n_events - 1)
    return float(2 * (np.log(n_events - 1) + np.euler_gamma) - 2 * (n_events - 1) / n_events)
