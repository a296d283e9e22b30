"""What every detector promises; a new kind needs a line in DETECTORS."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from unmask import fitted as fitted_kinds
from unmask import load_sample
from unmask.detectors import Detector, load_detector
from unmask.detectors.contrast import ContrastDetector
from unmask.detectors.ddd import DDDDetector
from unmask.detectors.deep_svdd import DeepSVDDDetector
from unmask.detectors.drocc import DROCCDetector
from unmask.detectors.masked_token import MaskedTokenDetector
from unmask.detectors.untrained import UntrainedDetector
from unmask.errors import NotFittedError, TrainingError, UsageError
from unmask.events.distributions import differences
from unmask.events.event_set import EventSet
from unmask.scores.score_table import read_scores, write_scores
from unmask.tokenizers.lookup_table import LookupTableTokenizer
from unmask.training import TrainingSettings

TRAINING = TrainingSettings(max_epochs=2, batch_size=128, learning_rate=3e-3, device="cpu")
DETECTORS: dict[str, Callable[[int], Detector]] = {
    "contrast": lambda seed: ContrastDetector(size="tiny", tail_weight=0.1, training=TRAINING, seed=seed),
    "masked-token, padding predicted": lambda seed: MaskedTokenDetector(
        LookupTableTokenizer(3), hidden=16, n_heads=2, training=TRAINING, seed=seed
    ),
    "masked-token, padding ignored": lambda seed: MaskedTokenDetector(
        LookupTableTokenizer(3), hidden=16, n_heads=2, padding="ignore", position="rotary", training=TRAINING, seed=seed
    ),
    "ddd, mlp": lambda seed: DDDDetector(backbone="mlp", size="tiny", training=TRAINING, seed=seed),
    "ddd, part-sm": lambda seed: DDDDetector(backbone="part-sm", size="tiny", training=TRAINING, seed=seed),
    "deep-svdd, mlp": lambda seed: DeepSVDDDetector(backbone="mlp", size="tiny", training=TRAINING, seed=seed),
    "deep-svdd, part-noint": lambda seed: DeepSVDDDetector(
        backbone="part-noint", size="tiny", training=TRAINING, seed=seed
    ),
    "drocc, mlp": lambda seed: DROCCDetector(backbone="mlp", size="tiny", training=TRAINING, seed=seed),
    "drocc, transformer": lambda seed: DROCCDetector(
        backbone="transformer", size="tiny", n_ascent_steps=2, training=TRAINING, seed=seed
    ),
    "untrained, n-objects": lambda _: UntrainedDetector("n-objects"),
    "untrained, product": lambda _: UntrainedDetector("product"),
    "untrained, random": lambda seed: UntrainedDetector("random", seed=seed),
}
DISCRETE = {"untrained, n-objects"}
WITHOUT_RANDOMNESS = {"untrained, n-objects", "untrained, product"}
#: Those that can find an anomaly which has no more objects or energy than background.
#: (Of the baselines with a choice of networks the quickest is enough.)
LEARNING = [
    name
    for name in DETECTORS
    # Photons are no more of anything that the untrained scores look at.
    if not name.startswith("untrained") and not name.endswith(("part-sm", "noint", "transformer"))
]


@pytest.fixture(scope="module")
def sample() -> tuple[EventSet, EventSet, EventSet]:
    """Training, validation and test events; the last with signal."""
    events = load_sample("gluino")
    events = events[np.random.default_rng(0).permutation(len(events))[:2500]]
    background, signal = events[events.label == 0], events[events.label == 1]
    assert len(signal) > 100
    return background[:1500], background[1500:1800], events[-500:]


@pytest.fixture(scope="module", params=DETECTORS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def fitted(name: str, sample: tuple[EventSet, EventSet, EventSet]) -> Detector:
    return DETECTORS[name](1).fit(sample[0], sample[1])


def test_every_kind_is_here() -> None:
    assert {name.split(",")[0] for name in DETECTORS} == set(fitted_kinds.DETECTORS)


def test_one_finite_number_an_event(name: str, fitted: Detector, sample: tuple[EventSet, EventSet, EventSet]) -> None:
    scores = fitted.score_events(sample[2])
    assert scores.shape == (500,)
    assert scores.dtype == np.float64
    assert np.isfinite(scores).all()
    assert len(np.unique(scores)) > (1 if name in DISCRETE else 400)
    assert fitted.score_events(sample[2][:0]).shape == (0,)


def test_same_seed_same_scores(name: str, fitted: Detector, sample: tuple[EventSet, EventSet, EventSet]) -> None:
    state = torch.random.get_rng_state()
    again, other = (DETECTORS[name](seed).fit(sample[0], sample[1]) for seed in (1, 2))
    assert torch.equal(torch.random.get_rng_state(), state)  # the caller's random numbers are not touched
    np.testing.assert_array_equal(again.score_events(sample[2]), fitted.score_events(sample[2]))
    is_same = np.array_equal(other.score_events(sample[2]), fitted.score_events(sample[2]))
    assert is_same == (name in WITHOUT_RANDOMNESS)


def test_settings_of_torch_are_what_they_were(sample: tuple[EventSet, EventSet, EventSet]) -> None:
    training = replace(TRAINING, max_epochs=1, deterministic=True, precision="tf32")
    ContrastDetector(size="tiny", training=training, seed=1).fit(sample[0][:200], sample[1][:100])
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cuda.matmul.allow_tf32


def test_saved_and_loaded_it_scores_the_same(
    fitted: Detector, sample: tuple[EventSet, EventSet, EventSet], tmp_path: Path
) -> None:
    fitted.save(tmp_path / "model")
    loaded = load_detector(tmp_path / "model")
    np.testing.assert_array_equal(loaded.score_events(sample[2]), fitted.score_events(sample[2]))
    assert loaded.fitted_on_ == fitted.fitted_on_
    (compared,) = differences(loaded.background_, fitted.background_)
    assert {"score", "MET [GeV]", "leading b-jet pT [GeV]"} <= {one.variable for one in compared}
    assert max(one.distance for one in compared) == 0
    assert not list((tmp_path / "model").rglob("*.pkl"))
    (tmp_path / "plain").touch()
    modes = {path.stat().st_mode for path in (tmp_path / "model").rglob("*") if path.is_file()}
    assert modes == {(tmp_path / "plain").stat().st_mode}  # whoever may read other files may read a model


def test_a_score_does_not_depend_on_other_events(fitted: Detector, sample: tuple[EventSet, EventSet, EventSet]) -> None:
    whole = fitted.score_events(sample[2])
    parts = np.concatenate([fitted.score_events(part) for part in sample[2].chunks(77)])
    np.testing.assert_allclose(parts, whole, rtol=1e-5, atol=1e-5)
    order = np.random.default_rng(3).permutation(500)
    np.testing.assert_allclose(fitted.score_events(sample[2][order]), whole[order], rtol=1e-5, atol=1e-5)


def test_content_of_padding_never_matters(fitted: Detector, sample: tuple[EventSet, EventSet, EventSet]) -> None:
    events = sample[2]
    junk = {
        column: np.where(events.is_object, getattr(events, column), np.float32(7e4))
        for column in ("energy_mev", "pt_mev", "eta", "phi")
    }
    np.testing.assert_array_equal(fitted.score_events(replace(events, **junk)), fitted.score_events(events))


def test_signal_is_refused(name: str, sample: tuple[EventSet, EventSet, EventSet]) -> None:
    for train, validation in ((sample[2], sample[1]), (sample[0], sample[2])):
        with pytest.raises(UsageError, match="labeled signal"):
            DETECTORS[name](1).fit(train, validation)
    with pytest.raises(UsageError, match="one of them has none"):
        DETECTORS[name](1).fit(sample[0], sample[1][:0])


def test_not_fitted_is_a_clear_error(name: str, sample: tuple[EventSet, EventSet, EventSet], tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match="not been fitted"):
        DETECTORS[name](1).score_events(sample[2])
    with pytest.raises(NotFittedError, match="not been fitted"):
        DETECTORS[name](1).save(tmp_path / "model")


@pytest.mark.parametrize("name", LEARNING)
def test_it_finds_a_toy_anomaly(name: str, sample: tuple[EventSet, EventSet, EventSet]) -> None:
    """Events in which every object has become a photon, which background hardly has."""
    from tests.evaluation.toy_scores import roc_auc

    detector = DETECTORS[name](1)
    if detector.max_epochs:
        detector.set_params(training=replace(TRAINING, max_epochs=40))
    detector.fit(sample[0], sample[1])
    background = sample[1]
    photons = replace(background, tag=np.where(background.is_object, 7, 0).astype(np.uint8))
    score = np.concatenate([detector.score_events(background), detector.score_events(photons)])
    assert roc_auc(score, np.arange(len(score)) >= len(background)).value > 0.85


@pytest.mark.parametrize("kind", ["contrast", "ddd, mlp"])
def test_a_run_is_continued_where_logarithms_are_rounded_otherwise(
    kind: str, sample: tuple[EventSet, EventSet, EventSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DETECTORS[kind](1).fit(sample[0], sample[1], run_folder=tmp_path)
    log = np.log
    monkeypatch.setattr(np, "log", lambda x, **options: np.nextafter(log(x, **options), 0))
    detector = DETECTORS[kind](1)
    detector.fit(sample[0], sample[1], run_folder=tmp_path)
    assert len(detector.history_ or []) == TRAINING.max_epochs
    with pytest.raises(TrainingError, match="other settings"):
        DETECTORS[kind](1).fit(sample[0][1:], sample[1], run_folder=tmp_path)


def test_a_run_is_not_continued_by_another_network(sample: tuple[EventSet, EventSet, EventSet], tmp_path: Path) -> None:
    tokenizer = LookupTableTokenizer(3).fit(sample[0], sample[1])
    detectors = [MaskedTokenDetector(tokenizer, hidden=16, n_heads=n, training=TRAINING) for n in (2, 4)]
    detectors[0].fit(sample[0], sample[1], run_folder=tmp_path)
    with pytest.raises(TrainingError, match="other settings"):
        detectors[1].fit(sample[0], sample[1], run_folder=tmp_path)


def test_training_events_are_known_again(
    fitted: Detector, sample: tuple[EventSet, EventSet, EventSet], tmp_path: Path
) -> None:
    fitted.save(tmp_path / "model")
    loaded = load_detector(tmp_path / "model")
    known, new = loaded.scores(sample[0]).was_trained_on, loaded.scores(sample[1]).was_trained_on
    assert known is not None
    assert new is not None
    assert known.all()
    assert not new.any()


def test_scores_carry_what_anyone_can_compute(
    fitted: Detector, sample: tuple[EventSet, EventSet, EventSet], tmp_path: Path
) -> None:
    write_scores(tmp_path / "scores.parquet", [fitted.scores(part) for part in sample[2].chunks(100)])
    scores = read_scores(tmp_path / "scores.parquet")
    np.testing.assert_array_equal(scores.observables["n_b_jets"], (sample[2].tag == 2).sum(1))
    np.testing.assert_array_equal(scores.observables["met_mev"], sample[2].met_mev)
