"""The joint upper tail of global quantities."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from unmask.detectors.insertions import insert
from unmask.detectors.joint_tail import JointTailDetector, _minus_log_gamma_tail
from unmask.detectors.tail_bins import TailBins
from unmask.errors import UsageError
from unmask.evaluation.metrics import roc_auc
from unmask.events.event_set import EventSet
from unmask.training import TrainingSettings

TRAINING = TrainingSettings(max_epochs=6, batch_size=256, learning_rate=3e-3, device="cpu")


@pytest.fixture(scope="module")
def detector(background: EventSet) -> JointTailDetector:
    return JointTailDetector(training=TRAINING, seed=1).fit(background[:6000], background[6000:7000])


def test_more_of_a_quantity_is_never_less_anomalous(detector: JointTailDetector, background: EventSet) -> None:
    events = background[7000:7300]
    scores = [detector.score_events(replace(events, met_mev=events.met_mev * f)) for f in (1, 2, 4, 8, 30)]
    # Bins of the bulk may be out of order by the noise of a short training; far out there is no doubt.
    assert all((b > a - 0.3).all() for a, b in pairwise(scores))
    assert (scores[4] > scores[3] + 1).all()


def test_it_finds_what_is_added_and_ignores_what_is_missing(detector: JointTailDetector, background: EventSet) -> None:
    test = background[7000:]
    odd = insert(test, "two b-jets, MET", seed=1)
    is_odd = np.arange(2 * len(test)) >= len(test)
    assert roc_auc(detector.score_events(_both(test, odd)), is_odd).value > 0.85
    softer = replace(test, met_mev=test.met_mev * 0.5)
    assert roc_auc(detector.score_events(_both(test, softer)), is_odd).value < 0.5


def _both(a: EventSet, b: EventSet) -> EventSet:
    from unmask import concatenate_events

    return concatenate_events([a, b])


def test_it_says_which_quantities_made_an_event_stand_out(detector: JointTailDetector, background: EventSet) -> None:
    event = background[7000:7001]
    loud = replace(event, met_mev=np.array([2e6], event.met_mev.dtype))
    terms = detector.explain(loud)[0].terms
    assert "MET" in terms[0].name
    assert "MET 2000 GeV or more" in terms[0].text
    alone = {term.name: term for term in terms if "," not in term.name}
    assert alone["MET"].value == pytest.approx(2e6)
    assert alone["MET"].surprise == max(term.surprise for term in alone.values())
    assert alone["objects"].text.startswith(f"objects {event.n_objects[0]} or more: ")


def test_quantities_are_checked(background: EventSet) -> None:
    with pytest.raises(UsageError, match="each once"):
        JointTailDetector(quantities=("met", "met"), training=TRAINING).fit(background[:200], background[200:300])


def test_gamma_tails_go_on_where_numbers_end() -> None:
    from scipy.stats import gamma

    values, shape = np.array([0.0, 1.0, 5.0, 50.0]), np.array([2.5])
    np.testing.assert_allclose(_minus_log_gamma_tail(values, shape), -gamma.logsf(values, 2.5), rtol=1e-10)
    near, far = _minus_log_gamma_tail(np.array([660.0, 680.0]), shape)
    assert 19 < far - near < 20.1


def test_bins_stay_fine_in_the_tail_and_go_on_beyond() -> None:
    values = np.random.default_rng(0).exponential(10, 50_000)
    bins = TailBins.fit(values, is_count=False)
    assert bins.n_bins == 48
    share_in_last = (values >= bins.edges[-1]).mean()
    assert share_in_last == pytest.approx(0.0007, abs=1e-4)
    # The tail of an exponential: three lengths further out e^-3 of it is left.
    beyond = bins.log_share_above(np.array([bins.edges[-1] + 30.0]))
    assert beyond[0] == pytest.approx(-3, rel=0.5)
    inside = bins.log_share_above(np.array([(bins.edges[3] + bins.edges[4]) / 2]))
    assert np.exp(inside[0]) == pytest.approx(0.5)
    assert bins.log_share_above(np.array([-5.0]))[0] == 0


def test_counts_have_a_bin_each_as_long_as_background_has_enough_of_them() -> None:
    values = np.repeat([2.0, 3.0, 4.0, 5.0, 6.0], [700, 250, 45, 4, 1])
    bins = TailBins.fit(values, is_count=True)
    assert bins.edges.tolist() == [3, 4]
    np.testing.assert_allclose(bins.log_share_above(np.array([2.0, 3.0, 4.0])), 0)
    assert bins.log_share_above(np.array([7.0]))[0] == pytest.approx(-3)
    assert TailBins.fit(np.full(100, 2.0), is_count=True).n_bins == 1
    # What background never has is not taken for what it often has.
    assert TailBins.fit(np.repeat([0.0, 2.0], [900, 100]), is_count=True).bin_of(np.arange(4.0)).tolist() == [
        0,
        1,
        2,
        2,
    ]
