"""Presets and the settings that users write."""

from pathlib import Path

import pytest

from unmask.detectors import Detector
from unmask.detectors.masked_token import MaskedTokenDetector
from unmask.errors import BadDataError, UsageError
from unmask.workflow.settings import load_settings, preset_names

# n_codes, sequence, position, FFN, dropout, rate, clip, minimum improvement: the published tables
PUBLISHED = {
    "four-top-lut-456": (456, 20, "none", 1, 0.05, 5e-5, 1000, 0.001),
    "four-top-lut-885": (885, 20, "none", 1, 0.05, 5e-5, 1000, 0.001),
    "four-top-lut-1524": (1524, 20, "rotary", 1, 0.05, 1e-3, 1000, 0.001),
    "four-top-vq-512": (512, 19, "none", 1, 0.05, 1e-3, 1000, 0.001),
    "four-top-vq-850": (850, 19, "none", 1, 0.05, 1e-3, 1000, 0.001),
    "four-top-vq-1700": (1700, 19, "rotary", 1, 0.05, 1e-3, 1000, 0.001),
    "gluino-lut-456": (456, 20, "none", 2, 0.05, 5e-5, 5, 0.0001),
    "gluino-lut-885": (885, 20, "none", 2, 0.05, 5e-5, 5, 0.0001),
    "gluino-lut-1524": (1524, 20, "none", 1, 0.05, 1e-3, 5, 0.0001),
    "gluino-vq-512": (512, 19, "sinusoidal", 1, 0.05, 1e-3, 1000, 0.0001),
    "gluino-vq-850": (850, 19, "rotary", 1, 0.05, 1e-3, 1000, 0.0001),
    "gluino-vq-1700": (1700, 19, "sinusoidal", 1, 0.10, 1e-3, 5, 0.0001),
}
# latent, hidden, heads, blocks, alpha, beta
PUBLISHED_VQVAE = {
    "four-top-vq-512": (10, 64, 2, 2, 0.4, 0.1),
    "four-top-vq-850": (10, 32, 4, 4, 0.4, 0.1),
    "four-top-vq-1700": (10, 64, 4, 3, 0.2, 0.1),
    "gluino-vq-512": (10, 64, 8, 2, 1.0, 0.1),
    "gluino-vq-850": (5, 128, 8, 2, 2.0, 0.1),
    "gluino-vq-1700": (10, 128, 4, 4, 0.5, 0.16),
}


def test_every_published_configuration_is_a_preset() -> None:
    assert set(preset_names()) >= set(PUBLISHED)


@pytest.mark.parametrize("name", sorted(set(preset_names()) - set(PUBLISHED)))
def test_every_other_preset_can_be_made(name: str) -> None:
    preset = load_settings(name)
    detector: Detector = preset.new_detector(preset.new_tokenizer() if preset.tokenizer else None)
    assert detector.kind == preset.detector["kind"]
    assert preset.description


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_hold_the_published_settings(name: str) -> None:
    preset = load_settings(name)
    tokenizer = preset.new_tokenizer()
    detector = preset.new_detector(tokenizer)
    assert isinstance(detector, MaskedTokenDetector)
    training = detector.training
    found = (
        tokenizer.n_codes,
        tokenizer.sequence_length,
        detector.position,
        detector.ffn_expansion,
        detector.dropout,
        training.learning_rate,
        training.gradient_clip,
        training.min_improvement,
    )
    assert found == PUBLISHED[name]
    assert (detector.hidden, detector.n_layers, detector.n_heads) == (64, 2, 4)
    assert (training.batch_size, training.patience, training.divergence, training.max_epochs) == (512, 5, 0.2, 100)
    if training.learning_rate == 5e-5:
        steps = (2000, 20000) if name == "four-top-lut-885" else (1000, 10000)
        assert (training.schedule, training.warmup_steps, training.total_steps) == ("warmup-cosine", *steps)
    if name in PUBLISHED_VQVAE:
        settings = tokenizer.settings()
        names = ("latent", "hidden", "n_heads", "n_blocks", "alpha", "beta")
        assert tuple(settings[key] for key in names) == PUBLISHED_VQVAE[name]
        assert settings["gamma"] == 0.25


def test_changes_reach_single_settings() -> None:
    preset = load_settings("gluino-vq-512")
    tokenizer = preset.with_changes({"tokenizer": {"beta": 0.3, "training": {"max_epochs": 3}}}, {}).new_tokenizer()
    assert tokenizer.settings()["beta"] == 0.3
    assert tokenizer.settings()["training"]["max_epochs"] == 3
    assert tokenizer.settings()["training"]["optimizer"] == "radam"
    detector = load_settings("gluino-vq-512", seed=7).new_detector(tokenizer)
    assert isinstance(detector, MaskedTokenDetector)
    assert (detector.training.seed, detector.training.gradient_clip) == (7, 1000)


def test_all_mistakes_are_listed_together() -> None:
    preset = load_settings("gluino-lut-456")
    with pytest.raises(UsageError) as caught:
        preset.with_changes({"drpout": 1, "hidden": "x", "training": {"sed": 1}}, {}).new_detector()
    message = str(caught.value)
    assert "did you mean 'dropout'?" in message
    assert "hidden is 'x'; expected a whole number" in message
    assert "training.sed: unknown setting; did you mean 'seed'?" in message


def test_unknown_names_and_files(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=f"Did you mean 'gluino-lut-456'. List all {len(preset_names())}: unmask list$"
    ):
        load_settings("gluino-lut-465")
    with pytest.raises(UsageError, match="Did you mean 'ddd-part-sm'"):
        load_settings("four-top-ddd-part-sm")
    with pytest.raises(UsageError, match="Did you mean 'gluino-lut-456'"):
        load_settings("lut-456")
    with pytest.raises(BadDataError, match="no such file"):
        load_settings(str(tmp_path / "none.toml"))
    path = tmp_path / "mine.toml"
    path.write_text("description = 'mine'\ntokenizer = ?")
    with pytest.raises(BadDataError, match=r"mine\.toml: is not TOML.*line 2"):
        load_settings(str(path))
    path.write_text('[tokeniser]\nkind = "lookup-table"')
    with pytest.raises(UsageError, match="did you mean 'tokenizer'"):
        load_settings(str(path))
    path.write_text('[tokenizer]\nkind = "look-up"\n[detector]\nkind = "masked-token"')
    with pytest.raises(UsageError, match="did you mean 'lookup-table'"):
        load_settings(str(path)).new_tokenizer()
    path.write_text('[tokenizer]\nkind = "lookup-table"\nn_bins = 3\n[detector]\nkind = "masked-token"')
    assert load_settings(str(path)).new_tokenizer().n_codes == 7 * 27 + 6


@pytest.mark.parametrize("tokenizer", [{}, {"tokenizer": {"kind": "lookup-table"}}])
def test_the_kind_of_the_detector_is_named_before_its_tokenizer(tokenizer: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="kind is 'masked-tokn'; did you mean 'masked-token'"):
        load_settings({**tokenizer, "detector": {"kind": "masked-tokn"}})


def test_a_tokenizer_is_no_detector() -> None:
    settings = load_settings("vqvae", seed=1)
    assert settings.new_tokenizer().kind == "vqvae"
    with pytest.raises(UsageError, match="vqvae is a tokenizer, not a detector; choose from contrast, masked-token"):
        settings.new_detector()
