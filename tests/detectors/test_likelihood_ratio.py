"""Quantities of any size against background."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from unmask import concatenate_events, load_detector
from unmask.detectors.broad_alternative import BroadAlternative
from unmask.detectors.insertions import insert
from unmask.detectors.likelihood_ratio import LikelihoodRatioDetector, ScoreName
from unmask.detectors.tail_bins import TailBins
from unmask.errors import TrainingError, UsageError
from unmask.evaluation.metrics import roc_auc
from unmask.events.event_set import EventSet, Names
from unmask.training import TrainingSettings

TRAINING = TrainingSettings(max_epochs=6, batch_size=256, learning_rate=3e-3, device="cpu")


@pytest.fixture(scope="module")
def detector(background: EventSet) -> LikelihoodRatioDetector:
    detector = LikelihoodRatioDetector(hidden=16, n_heads=2, training=TRAINING, seed=1)
    return detector.fit(background[:6000], background[6000:7000])


def scored_as(detector: LikelihoodRatioDetector, score: ScoreName, folder: Path) -> LikelihoodRatioDetector:
    """The same network with another score."""
    detector.save(folder)
    other = load_detector(folder)
    assert isinstance(other, LikelihoodRatioDetector)
    other.score = score
    return other


def separation(detector: LikelihoodRatioDetector, usual: EventSet, odd: EventSet) -> float:
    is_odd = np.arange(len(usual) + len(odd)) >= len(usual)
    return roc_auc(detector.score_events(concatenate_events([usual, odd])), is_odd).value


@pytest.mark.parametrize("score", ["root-ratio", "mean-ratio", "joint-ratio", "improbability"])
def test_beyond_every_bin_the_further_out_the_more_anomalous(
    detector: LikelihoodRatioDetector, background: EventSet, score: ScoreName, tmp_path: Path
) -> None:
    events = background[7000:7100]
    detector = scored_as(detector, score, tmp_path / "model")
    beyond = [replace(events, met_mev=np.full_like(events.met_mev, mev)) for mev in (2e6, 4e6, 8e6, 5e8)]
    scores = [detector.score_events(one) for one in beyond]
    assert all((b > a + 0.5).all() for a, b in pairwise(scores))
    assert np.isfinite(scores[-1]).all()


def test_beyond_every_bin_more_objects_are_more_anomalous(background: EventSet) -> None:
    only = LikelihoodRatioDetector(quantities=("n_b_jets",), hidden=8, n_heads=2, training=TRAINING, seed=1)
    only.fit(background[:3000], background[3000:4000])
    crowded = replace(background[:7], tag=np.where(np.arange(18) < np.arange(12, 19)[:, None], 2, 0).astype(np.uint8))
    assert (np.diff(only.score_events(crowded)) > 0.05).all()


def test_it_finds_what_is_added_and_ignores_what_is_missing(
    detector: LikelihoodRatioDetector, background: EventSet, tmp_path: Path
) -> None:
    test = background[7000:]
    assert separation(detector, test, insert(test, "two b-jets, MET", seed=1)) > 0.85
    softer = replace(test, met_mev=test.met_mev * 0.5)
    assert separation(detector, test, softer) < 0.5
    without_alternative = scored_as(detector, "improbability", tmp_path / "model")
    assert separation(without_alternative, test, softer) > separation(detector, test, softer)


def test_scores_differ_as_they_say(detector: LikelihoodRatioDetector, background: EventSet, tmp_path: Path) -> None:
    events = background[7000:7300]
    surprises = detector._surprises(events, "cpu")
    expected: dict[ScoreName, npt.NDArray[np.float64]] = {
        "root-ratio": 2 * np.log(np.exp(surprises / 2).mean(axis=1)),
        "mean-ratio": surprises.mean(axis=1),
        "joint-ratio": surprises[:, -1],
    }
    for score, values in expected.items():
        scored = scored_as(detector, score, tmp_path / score)
        np.testing.assert_allclose(scored.score_events(events), values)
    np.testing.assert_allclose(detector.score_events(events), expected["root-ratio"])  # the default
    with pytest.raises(UsageError, match="accepted: root-ratio, mean-ratio, joint-ratio, improbability"):
        LikelihoodRatioDetector(score="ratio", training=TRAINING).fit(background[:200], background[200:300])  # type: ignore[arg-type]


def test_the_score_is_a_setting_that_is_saved(background: EventSet, tmp_path: Path) -> None:
    fitted = LikelihoodRatioDetector(
        quantities=("met", "lepton_charge"), score="improbability", hidden=8, n_heads=2, training=TRAINING
    ).fit(background[:1000], background[1000:1500])
    fitted.save(tmp_path / "model")
    loaded = load_detector(tmp_path / "model")
    assert loaded.settings()["score"] == "improbability"
    np.testing.assert_array_equal(loaded.score_events(background[:300]), fitted.score_events(background[:300]))


def test_it_says_which_quantities_made_an_event_stand_out(
    detector: LikelihoodRatioDetector, background: EventSet, tmp_path: Path
) -> None:
    event = background[7000:7001]
    n = int(event.n_objects[0])
    loud = replace(event, met_mev=np.array([2e6], event.met_mev.dtype))
    terms = detector.explain(loud)[0].terms
    assert "MET 2000 GeV" in terms[0].text
    assert terms[0].surprise == max(term.surprise for term in terms)
    alone = {term.name: term for term in terms if "," not in term.name}
    assert alone["MET"].value == pytest.approx(2e6)
    assert alone["MET"].text.startswith("MET 2000 GeV: ")
    assert alone["MET"].text.endswith(" times as likely if of any size as in background")
    assert float(alone["MET"].text.split()[3]) == pytest.approx(np.exp(alone["MET"].surprise), rel=0.1)
    together = scored_as(detector, "joint-ratio", tmp_path / "a").explain(event)[0].terms[0]
    assert together.text.startswith(f"objects {n} and b-jets ")
    assert together.text.endswith(" times as likely if independent and of any size as in background")
    assert "together: " in together.text
    improbable = scored_as(detector, "improbability", tmp_path / "b").explain(event)[0].terms
    assert improbable[1].text.startswith(f"objects {n}: 0.")
    assert improbable[1].text.endswith(" of background")
    far = replace(event, met_mev=np.array([5e9], event.met_mev.dtype))
    assert "1e+" in detector.explain(far)[0].terms[0].text


def exponential_background() -> np.ndarray:
    return np.random.default_rng(0).exponential(10, 50_000)


def test_the_alternative_of_a_continuous_quantity_is_a_density_of_total_one() -> None:
    values = exponential_background()
    bins = TailBins.fit(values, is_count=False)
    alternative = BroadAlternative.fit(bins, values)
    edges = np.concatenate([[bins.lowest], bins.edges])
    inside = 0.0
    for low, high in pairwise(edges):  # the unit is the mean density of the bin
        middle = low + (np.arange(400) + 0.5) / 400 * (high - low)
        inside += float(np.exp(alternative.log_probability(middle)).mean())
    # In the last bin it is the density at the edge. It falls as 1/x^2, so far that logarithmic steps are needed.
    excess = np.concatenate([np.linspace(0, 1, 2000), np.geomspace(1, 1e5, 20_000)[1:]])
    density = np.exp(alternative.log_probability(edges[-1] + excess * bins.tail_scale))
    beyond = float(np.trapezoid(density, excess))
    assert beyond > 0.1  # more than a tenth of it is where there is hardly any background
    assert inside + beyond == pytest.approx(1, abs=3e-3)


def test_the_alternative_of_a_count_adds_up_to_one_and_never_falls_within_the_bins() -> None:
    values = np.repeat([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [200, 500, 250, 45, 4, 1])
    alternative = BroadAlternative.fit(TailBins.fit(values, is_count=True), values)
    probability = np.exp(alternative.log_probability(np.arange(1.0, 100.0)))
    assert probability.sum() == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(probability[1:3], probability[1])
    assert probability[0] == pytest.approx(0.4 * probability[1], rel=0.01)
    assert probability[3:].sum() == pytest.approx(probability[1])


def test_where_there_is_little_the_alternative_is_like_background() -> None:
    values = exponential_background()
    alternative = BroadAlternative.fit(TailBins.fit(values, is_count=False), values)
    asked = np.array([0.0, 0.01, 10.0, 50.0, 100.0, 1e6])
    background = np.log(alternative.background)[alternative.bins.bin_of(asked)] + alternative.bins.log_share_at(asked)
    ratio = alternative.log_probability(asked) - background
    assert ratio[:2] == pytest.approx([np.log(0.5)] * 2, abs=0.01)
    assert (np.diff(ratio) > -1e-3).all()
    assert ratio[-1] > 1e4


def test_shares_within_the_last_bin_add_up() -> None:
    counts = TailBins.fit(np.repeat([2.0, 3.0, 4.0, 5.0], [700, 250, 45, 5]), is_count=True)
    for stretch in (1.0, 2.0):
        shares = np.exp(counts.log_share_at(np.arange(4.0, 60.0), stretch=stretch))
        assert shares.sum() == pytest.approx(1)
    assert counts.log_share_at(np.array([2.0, 3.0])).tolist() == [0, 0]
    continuous = TailBins.fit(exponential_background(), is_count=False)
    excess = np.linspace(0, 40, 4001)
    shares = np.exp(continuous.log_share_at(continuous.edges[-1] + excess * continuous.tail_scale, stretch=2.0))
    assert np.trapezoid(shares, excess) == pytest.approx(1, abs=1e-3)


def test_rare_processes_that_are_known_can_be_found_less_odd(background: EventSet, tmp_path: Path) -> None:
    many = background.n_objects >= np.quantile(background.n_objects, 0.98)

    def fitted(events: EventSet, power: float, validation: EventSet | None = None) -> LikelihoodRatioDetector:
        new = LikelihoodRatioDetector(hidden=16, n_heads=2, process_power=power, training=TRAINING, seed=1)
        folder = None if power == 1 or validation else tmp_path / events.process_names.words[0]
        return new.fit(events[:6000], validation or events[6000:7000], run_folder=folder)

    named = replace(background, process_names=Names.of(np.where(many, "rare", "usual")))
    usual, known = fitted(named, 1.0), fitted(named, 0.3)
    as_it_comes, less_odd = (each.score_events(background[many]).mean() for each in (usual, known))
    assert less_odd < as_it_comes - 0.3
    # Of one process there is nothing to balance.
    one = replace(background, process_names=Names.constant("all", len(background)))
    # The best epoch is chosen with weights too.
    unweighted = fitted(named, 0.3, one[6000:7000]).history_[0]
    assert unweighted.training_loss == known.history_[0].training_loss
    assert unweighted.validation_loss != pytest.approx(known.history_[0].validation_loss, abs=0.01)
    same = [fitted(one, power).score_events(background[:50]) for power in (1.0, 0.3)]
    np.testing.assert_array_equal(*same)
    with pytest.raises(TrainingError, match="a run with other settings"):
        fitted(named, 0.6)
    with pytest.raises(UsageError, match=r"process_power is 1\.5; accepted: 0 to 1"):
        fitted(named, 1.5)
