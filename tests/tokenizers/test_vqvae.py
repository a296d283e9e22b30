"""The VQ-VAE tokenizer beyond what every tokenizer must do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.tokenizers.contract import make_events, tiny_vqvae
from unmask.artifacts import load_artifact, save_artifact
from unmask.errors import ArtifactError, BadDataError, TrainingError, UsageError
from unmask.events.event_set import EventSet
from unmask.events.objects import MET_TYPE
from unmask.networks.event_tensors import FeatureScale, Kinematics, kinematics_of
from unmask.tokenizers import vqvae
from unmask.tokenizers.vqvae import VQVAE_TRAINING, VQVAETokenizer
from unmask.tokenizers.vqvae_training import CodeStatistics
from unmask.training import Reporter

TRAIN, VALIDATION = make_events(300, seed=1), make_events(100, seed=2)
TRAINING = replace(VQVAE_TRAINING, max_epochs=3, batch_size=50, device="cpu")


def tiny(**changes: object) -> VQVAETokenizer:
    sizes = {"n_codes": 16, "latent": 4, "hidden": 8, "n_heads": 2, "n_blocks": 1, "training": TRAINING}
    return VQVAETokenizer(**{**sizes, **changes})


@pytest.fixture(scope="module")
def fitted() -> VQVAETokenizer:
    return tiny_vqvae().fit(TRAIN, VALIDATION)


@pytest.fixture(scope="module")
def trained() -> VQVAETokenizer:
    """Trained long enough to have learnt something."""
    training = replace(VQVAE_TRAINING, max_epochs=8, batch_size=64, learning_rate=3e-3, device="cpu")
    tokenizer = VQVAETokenizer(64, latent=6, hidden=32, n_heads=2, n_blocks=1, training=training)
    return tokenizer.fit(make_events(1500, seed=5), VALIDATION)


def rms(error: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(error.astype(np.float64)))))


def test_it_learns_to_reconstruct_with_all_its_codes(trained: VQVAETokenizer) -> None:
    report = trained.validation_report_
    assert report["usage"] >= 0.95
    assert report["perplexity"] > 0.8 * 64
    # Without any information the errors would be 0.7, 1.3 and 1.8.
    assert report["rms_log_pt"] < 0.35
    assert report["rms_eta"] < 0.6
    assert report["rms_phi"] < 0.9
    assert trained.history_[-1].further["usage"] >= 0.95


def test_the_report_is_about_the_reconstruction(trained: VQVAETokenizer) -> None:
    decoded, report, is_object = trained.reconstruct(VALIDATION), trained.validation_report_, VALIDATION.is_object
    pt = decoded.pt_mev[:, 1:][is_object]
    assert report["rms_pt_gev"] == pytest.approx(rms(pt - VALIDATION.pt_mev[is_object]) / 1e3)
    assert report["rms_log_pt"] == pytest.approx(rms(np.log(pt / VALIDATION.pt_mev[is_object])), rel=1e-5)
    assert report["rms_met_gev"] == pytest.approx(rms(decoded.pt_mev[:, 0] - VALIDATION.met_mev) / 1e3)
    tokens = trained.encode(VALIDATION).tokens
    assert report["usage"] == len(np.unique(tokens[tokens > 0])) / 64
    assert report["n_events"] == 100


def test_reconstruction_is_decoding_of_tokens(fitted: VQVAETokenizer) -> None:
    tokens = fitted.encode(VALIDATION)
    decoded = fitted.decode(tokens)
    for mine, other, array in zip(
        decoded[:4], fitted.reconstruct(VALIDATION)[:4], fitted.decode(tokens.tokens)[:4], strict=True
    ):
        np.testing.assert_array_equal(mine, other)
        np.testing.assert_array_equal(mine, array)
        assert mine.shape == (100, 19)
        assert np.isfinite(mine).all()
        assert not mine[~tokens.is_real].any()
    assert np.abs(decoded.phi).max() <= np.float32(np.pi)


def test_the_first_position_is_the_met(fitted: VQVAETokenizer) -> None:
    events = make_events(50, seed=3, n_objects=0)
    tokens = fitted.encode(events).tokens
    assert (tokens[:, 0] > 0).all()
    assert not tokens[:, 1:].any()
    harder = fitted.encode(replace(events, met_mev=events.met_mev * 20)).tokens
    assert (harder[:, 0] != tokens[:, 0]).any()


def test_no_met_is_a_small_met(fitted: VQVAETokenizer) -> None:
    nothing = replace(VALIDATION, met_mev=np.zeros(100, np.float32))
    small = replace(VALIDATION, met_mev=np.full(100, 500, np.float32))
    assert fitted.encode(nothing).equals(fitted.encode(small))
    assert np.isfinite(fitted.reconstruct(nothing).pt_mev).all()
    tiny().fit(replace(TRAIN, met_mev=np.zeros(300, np.float32)), nothing)


def test_features_and_physical_values_are_inverse() -> None:
    scale = FeatureScale.fit(TRAIN)
    features, is_real = scale.features_of(TRAIN)
    np.testing.assert_allclose(features[is_real].mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(features[is_real].std(axis=0), 1, atol=1e-4)
    assert not features[~is_real].any()
    for mine, true in zip(scale.kinematics(features, is_real)[:4], kinematics_of(TRAIN)[:4], strict=True):
        np.testing.assert_allclose(mine, true, rtol=1e-4, atol=1e-5)


def test_chunks_do_not_change_tokens(fitted: VQVAETokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fitted.encode(VALIDATION)
    monkeypatch.setattr(vqvae, "CHUNK_EVENTS", 13)
    assert fitted.encode(VALIDATION).equals(whole)


def test_tokens_of_the_published_network_do_not_depend_on_other_events() -> None:
    training = replace(TRAINING, max_epochs=1, learning_rate=0.0)
    tokenizer = VQVAETokenizer(512, latent=10, hidden=64, n_heads=2, n_blocks=2, training=training).fit(TRAIN)
    events = make_events(1000, seed=8)
    whole = tokenizer.encode(events)
    order = np.random.default_rng(0).permutation(1000)
    assert tokenizer.encode(events[order]).equals(whole[order])
    assert tokenizer.encode(events[700:701]).equals(whole[700:701])


def test_the_same_seed_gives_the_same_tokenizer_and_another_another() -> None:
    first, second = tiny().fit(TRAIN, VALIDATION), tiny().fit(TRAIN, VALIDATION)
    other = tiny(training=replace(TRAINING, seed=1)).fit(TRAIN, VALIDATION)
    assert first.encode(VALIDATION).equals(second.encode(VALIDATION))
    assert first.validation_report_ == second.validation_report_
    assert not first.encode(VALIDATION).equals(other.encode(VALIDATION))


class StoppedError(Exception):
    """Stands for an interruption."""


class StopInThirdEpoch(Reporter):
    def epoch_started(self, epoch: int, n_steps: int) -> None:
        if epoch == 2:
            raise StoppedError


def test_an_interrupted_fit_goes_on_to_the_same_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        tiny().fit(TRAIN, VALIDATION, run_folder=tmp_path, reporter=StopInThirdEpoch())
    resumed = tiny().fit(TRAIN, VALIDATION, run_folder=tmp_path)
    whole = tiny().fit(TRAIN, VALIDATION)
    for name, array in whole.arrays().items():
        np.testing.assert_array_equal(resumed.arrays()[name], array, err_msg=name)
    with pytest.raises(TrainingError, match=r"other settings .data and network"):
        tiny().fit(VALIDATION, TRAIN, run_folder=tmp_path)
    with pytest.raises(TrainingError, match=r"other settings .data and network"):
        tiny(alpha=1.0).fit(TRAIN, VALIDATION, run_folder=tmp_path)


def test_a_loss_that_explodes_is_an_error() -> None:
    with pytest.raises(TrainingError, match="NaN or infinite"):
        tiny(training=replace(TRAINING, learning_rate=1e30)).fit(TRAIN, VALIDATION)


def test_too_few_objects_for_the_codes_are_refused() -> None:
    with pytest.raises(UsageError, match=r"3 events have \d+ objects and METs, too few for 512 codes"):
        VQVAETokenizer().fit(TRAIN[:3], VALIDATION)
    with pytest.raises(UsageError, match="0 events have 0 objects"):
        VQVAETokenizer().fit(EventSet.empty(), VALIDATION)


def test_columns_that_never_change_are_refused() -> None:
    no_eta = replace(TRAIN, eta=np.zeros_like(TRAIN.eta))
    with pytest.raises(BadDataError, match=r"eta of all objects and MET is the same number in 300 events"):
        tiny().fit(no_eta, VALIDATION)
    no_phi = replace(TRAIN, phi=np.zeros_like(TRAIN.phi), met_phi=np.zeros_like(TRAIN.met_phi))
    with pytest.raises(BadDataError, match=r"phi of all"):
        tiny().fit(no_phi, VALIDATION)


@pytest.mark.parametrize("token", [-1, 17])
def test_tokens_that_do_not_exist_are_not_decoded(fitted: VQVAETokenizer, token: int) -> None:
    tokens = np.ones((2, 19), np.int32)
    tokens[1, 4] = token
    with pytest.raises(UsageError, match=f"no token {token}: .* 1 to 16"):
        fitted.decode(tokens)


@pytest.mark.parametrize("tokens", [np.ones((2, 20), np.int32), np.ones(19, np.int32), np.ones((2, 19))])
def test_other_arrays_are_not_decoded(fitted: VQVAETokenizer, tokens: np.ndarray) -> None:
    with pytest.raises(UsageError, match=r"expected whole numbers \(n_events, 19\)"):
        fitted.decode(tokens)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_codes": 1}, "n_codes is 1; expected 2 or more"),
        ({"latent": 2.5}, "latent is 2.5"),
        ({"hidden": 10, "n_heads": 4}, "hidden width of 10 is no multiple of 4 heads"),
        ({"beta": -0.1}, "beta is -0.1; expected 0 or more"),
        ({"gamma": float("nan")}, "gamma is nan"),
    ],
)
def test_impossible_arguments_are_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        VQVAETokenizer(**arguments).check()


def test_the_report_and_the_network_are_saved(trained: VQVAETokenizer, tmp_path: Path) -> None:
    trained.save(tmp_path / "tokenizer")
    loaded = VQVAETokenizer.load(tmp_path / "tokenizer")
    assert loaded.validation_report_ == trained.validation_report_
    assert loaded.training == trained.training
    assert loaded.history_ == trained.history_
    assert [loaded.describe(token) for token in range(1, 65)] == [trained.describe(token) for token in range(1, 65)]
    for mine, theirs in zip(loaded.reconstruct(VALIDATION)[:4], trained.reconstruct(VALIDATION)[:4], strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_network_of_other_sizes_is_refused(fitted: VQVAETokenizer, tmp_path: Path) -> None:
    fitted.save(tmp_path / "tokenizer")
    artifact = load_artifact(tmp_path / "tokenizer")
    save_artifact(tmp_path / "tokenizer", replace(artifact, settings=artifact.settings | {"hidden": 16}))
    with pytest.raises(ArtifactError, match=r"does not hold a whole vqvae .*size mismatch"):
        VQVAETokenizer.load(tmp_path / "tokenizer")


def test_description_gives_what_background_had_the_code(trained: VQVAETokenizer) -> None:
    train = make_events(1500, seed=5)
    tokens = trained.encode(train).tokens
    counts = np.bincount(tokens[:, 1:][tokens[:, 1:] > 0], minlength=65)
    token = int(np.argmax(counts))
    has_it = tokens[:, 1:] == token
    words = trained.describe(token)
    low, median, high = np.quantile(train.pt_mev[has_it] / 1e3, (0.16, 0.5, 0.84))
    assert f"pT {median:.1f} ({low:.1f} to {high:.1f}) GeV" in words
    assert f"eta {np.median(train.eta[has_it]):.2f} (" in words
    met_token = int(np.argmax(np.bincount(tokens[:, 0], minlength=65)))
    assert "MET (" in trained.describe(met_token)


def test_statistics_of_codes_by_hand() -> None:
    # Code 1: three jets on both sides of phi = pi; code 2: a MET; code 3: nothing.
    def row(*values: float) -> np.ndarray:
        return np.array([[*values, *[0] * (19 - len(values))]], np.float32)

    kinematics = Kinematics(
        energy_mev=row(5e4, 1e5, 1e5, 1e5),
        pt_mev=row(5e4, 2e4, 3e4, 4e4),
        eta=row(0, -1, 0.5, 2),
        phi=row(1, 3.0, 3.1, -3.1),
    )
    types, tokens = row(MET_TYPE, 1, 1, 2).astype(np.uint8), row(2, 1, 1, 1).astype(np.int32)
    statistics = CodeStatistics.measure(kinematics, types, tokens, 3)
    assert statistics.describe(1) == (
        "jet (67%) or b-jet (33%), pT 30.0 (23.2 to 36.8) GeV, eta 0.50 (-0.52 to 1.52), phi 3.10 (3.03 to 3.16); "
        "75.00% of background"
    )
    assert (
        statistics.describe(2)
        == "MET (100%), MET 50.0 (50.0 to 50.0) GeV, phi 1.00 (1.00 to 1.00); 25.00% of background"
    )
    assert statistics.describe(3) == "a code that no background object had in training"


def test_the_device_can_be_chosen(fitted: VQVAETokenizer) -> None:
    assert fitted.to("cpu").encode(VALIDATION).equals(fitted.to("auto").to("cpu").encode(VALIDATION))
    with pytest.raises(UsageError, match="unknown device 'abacus'"):
        fitted.to("abacus")
