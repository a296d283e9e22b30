"""Detectors measured without signal."""

import numpy as np
import pytest

from unmask import load_sample
from unmask.detectors.trivial import TrivialDetector
from unmask.errors import UsageError
from unmask.events.event_set import EventSet
from unmask.studies.stress import GROUPS, stress


@pytest.fixture(scope="module")
def background() -> EventSet:
    events = load_sample("gluino")
    return events[events.label == 0]


def test_each_kind_is_found_by_the_number_that_it_raises(background: EventSet) -> None:
    by_met, by_b_jets, by_objects = (
        {
            result.kind: result
            for result in stress(
                TrivialDetector(name).fit(background[:3000], background[3000:3100]), background[4000:7000], max_odd=500
            )
        }
        for name in ("met", "n-b-jets", "n-objects")
    )
    assert list(by_met) == [kind for kinds in GROUPS.values() for kind in kinds]
    assert by_met["MET"].auc.value > 0.6
    assert by_b_jets["MET"].auc.low < 0.5 < by_b_jets["MET"].auc.high
    assert by_b_jets["two b-jets"].auc.value > 0.9
    assert by_met["two b-jets"].auc.value < 0.56  # they are balanced
    assert by_objects["instead: two b-jets"].auc.high < by_objects["two b-jets"].auc.low  # two jets, if any, are gone
    assert by_met["MET"].efficiency[1e-3] is None  # 3 of 3,000 background events do not support it
    assert by_met["MET"].efficiency[1e-2] is not None


def test_signal_and_training_events_are_refused(background: EventSet) -> None:
    detector = TrivialDetector("met").fit(background[:3000], background[3000:3100])
    with pytest.raises(UsageError, match="trained on 2,000 of these 2,000"):
        next(stress(detector, background[:2000]))
    with pytest.raises(UsageError, match="labelled signal"):
        next(stress(detector, load_sample("gluino")))


def test_the_seed_decides(background: EventSet) -> None:
    detector = TrivialDetector("ht").fit(background[:3000], background[3000:3100])
    first, again, other = (
        [r.auc.value for r in stress(detector, background[4000:5000], seed=seed, max_odd=300)] for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert first != other
