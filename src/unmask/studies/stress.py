"""How well a detector finds background that was made odd in known ways: what it can be chosen on, without signal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from unmask.detectors import Detector
from unmask.detectors.insertions import HEAVY, INSERTIONS, LIGHT, insert
from unmask.errors import UsageError
from unmask.evaluation.intervals import Estimate
from unmask.evaluation.metrics import roc_auc, signal_efficiency_at
from unmask.events.distortions import DISTORTIONS, distort
from unmask.events.event_set import EventSet
from unmask.tokenizers.base import check_background

Group = Literal["light", "heavy", "instead", "distortion"]
#: How odd events of each kind are made of background.
GROUPS: dict[Group, dict[str, Callable[..., EventSet]]] = {
    "light": {name: partial(insert, name=name) for name in LIGHT},
    "heavy": {name: partial(insert, name=name) for name in HEAVY},
    "instead": {
        f"instead: {name}": partial(insert, name=name, instead=True) for name, what in INSERTIONS.items() if what.tags
    },
    "distortion": {name: partial(distort, name=name) for name in DISTORTIONS},
}


@dataclass(frozen=True)
class StressResult:
    """How well odd events of one kind are told from those they were made of."""

    kind: str
    group: Group
    auc: Estimate
    #: Share of odd events above the threshold that lets 1e-2 and 1e-3 of background through; None: too few events.
    efficiency: dict[float, Estimate | None]


def stress(
    detector: Detector, background: EventSet, *, seed: int = 0, max_odd: int = 5000, device: str = "auto"
) -> Iterator[StressResult]:
    """Yield a result for each kind of :data:`GROUPS`, made of background events that the detector was not trained on.

    Raises
    ------
    UsageError
        If there is signal among the events, or the detector was trained on more than 1 % of them.
    """
    check_background(background)
    scores = detector.scores(background, device=device)
    if scores.was_trained_on is not None and scores.was_trained_on.mean() > 0.01:
        raise UsageError(
            f"the detector was trained on {scores.was_trained_on.sum():,} of these {len(background):,} events; "
            "give background that it has not seen"
        )
    drawn = background[np.sort(np.random.default_rng(seed).permutation(len(background))[:max_odd])]
    for group, kinds in GROUPS.items():
        for kind, make_odd in kinds.items():
            odd = make_odd(drawn, seed=seed + 1)
            score = np.concatenate([scores.score, detector.score_events(odd, device=device)])
            is_odd = np.arange(len(score)) >= len(background)
            weight = np.concatenate([background.weight, odd.weight])
            yield StressResult(
                kind,
                group,
                roc_auc(score, is_odd, weight),
                {
                    share: signal_efficiency_at(score, is_odd, weight, background_efficiency=share)
                    for share in (1e-2, 1e-3)
                },
            )
