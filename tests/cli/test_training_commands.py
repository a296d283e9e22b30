"""`unmask tokenizer`, `train`, `score` and `evaluate` as a user runs them, from events to figures of merit."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.cli.running import failing, running, unmask
from unmask import EventSet, load_sample, read_events, write_events
from unmask.detectors import load_detector
from unmask.scores.score_table import read_scores
from unmask.tokenizers import load_tokenizer

PUBLISHED = ("--preset", "gluino-lut-456")
FAST = (*PUBLISHED, "--set", "training.max_epochs=2", "--set", "training.learning_rate=2e-3", "--set",
        "training.schedule=constant")  # fmt: skip


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train, validation and test events of the gluino sample."""
    folder = tmp_path_factory.mktemp("events")
    sample = load_sample("gluino")
    chosen = sample[np.sort(np.random.default_rng(1).permutation(len(sample))[:6000])]
    write_events(folder / "all.parquet", chosen)
    assert unmask("data", "split", folder / "all.parquet", "--out", folder, "--seed", "1").returncode == 0
    return folder


@pytest.fixture(scope="module")
def model(events: Path) -> Path:
    out = events / "model"
    result = unmask(
        "train", events / "train.parquet", "--validation", events / "validation.parquet", "--out", out, "--device",
        "cpu", *FAST,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert re.search(r"2 epochs in \d+ s, best validation loss", result.stdout)
    assert "epoch 2/2" in result.stderr
    return out


def test_scores_tell_gluinos_from_background(model: Path, events: Path, tmp_path: Path) -> None:
    out = tmp_path / "scores.parquet"
    result = unmask("score", model, events / "test.parquet", "--out", out, "--token-losses")
    assert result.returncode == 0, result.stderr
    scores, test = read_scores(out), read_events(events / "test.parquet")
    np.testing.assert_array_equal(scores.row, test.row)
    assert scores.token_loss is not None
    np.testing.assert_allclose(scores.score, scores.token_loss.mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(scores.score, load_detector(model).score_events(test), rtol=1e-6)
    auc = json.loads(unmask("evaluate", out, "--json").stdout)["rows"][0]["metrics"]["auc"]
    assert auc["low"] > 0.8  # a gluino pair has far more objects than a background event
    assert "AUC" in unmask("evaluate", out).stdout


def test_chunks_and_threads_do_not_change_scores(model: Path, events: Path, tmp_path: Path) -> None:
    unmask("score", model, events / "test.parquet", "--out", tmp_path / "a.parquet")
    unmask(
        "score", model, events / "test.parquet", "--out", tmp_path / "b.parquet", "--chunk-events", "77",
        environment={"OMP_NUM_THREADS": "2"},
    )  # fmt: skip
    np.testing.assert_allclose(
        read_scores(tmp_path / "a.parquet").score, read_scores(tmp_path / "b.parquet").score, atol=1e-5
    )


def test_named_scores(model: Path, events: Path, tmp_path: Path) -> None:
    found = {}
    for how in ("sum", "max", "mean-real"):
        out = tmp_path / f"{how}.parquet"
        assert unmask("score", model, events / "test.parquet", "--score", how, "--out", out).returncode == 0
        found[how] = read_scores(out).score
    assert (found["max"] <= found["sum"]).all()
    wrong = unmask("score", model, events / "test.parquet", "--score", "mode", "--out", tmp_path / "no.parquet")
    assert wrong.returncode == 2
    assert "mean-real" in wrong.stderr
    assert not (tmp_path / "no.parquet").exists()


def test_running_again_continues_and_other_settings_are_refused(model: Path, events: Path) -> None:
    arguments = ("train", events / "train.parquet", "--validation", events / "validation.parquet", "--out", model)
    again = unmask(*arguments, "--device", "cpu", *FAST)
    assert again.returncode == 0
    assert "epoch" not in again.stderr  # nothing was left to do
    other = unmask(*arguments, "--device", "cpu", *FAST, "--set", "training.batch_size=256")
    assert other.returncode == 1
    assert "batch_size 512 -> 256" in other.stderr


def test_signal_is_refused(events: Path, tmp_path: Path) -> None:
    for command in (("train",), ("tokenizer", "fit")):
        result = unmask(*command, events / "all.parquet", "--out", tmp_path / "out")
        assert result.returncode == 2
        assert "labeled signal" in result.stderr
        assert not (tmp_path / "out").exists()


def test_validation_on_training_events_is_refused(events: Path, tmp_path: Path) -> None:
    train = events / "train.parquet"
    code, message = failing("train", train, "--validation", train, "--out", tmp_path / "model")
    assert code == 2
    assert "validation events are training events too" in message
    assert not (tmp_path / "model").exists()


def test_training_leaves_out_repeated_events_and_tells(events: Path, tmp_path: Path) -> None:
    train, validation = read_events(events / "train.parquet"), events / "validation.parquet"
    write_events(tmp_path / "twice.parquet", EventSet.concatenate([train, train[:100]]))
    told = f"100 of {len(train) + 100:,} events repeat earlier ones, object by object: "
    command = ("train", tmp_path / "twice.parquet", "--preset", "untrained", "--out")
    result, notes = running(*command, tmp_path / "once")
    assert told + "left out" in notes
    _, notes = running(*command, tmp_path / "kept", "--keep-duplicates")
    assert told + "they stay in the split of the first" in notes
    result, notes = running(*command, tmp_path / "other", "--validation", validation)
    assert "100 of " in notes
    assert result.startswith(f"{len(train):,} events")


def test_a_tampered_model_is_refused(model: Path, events: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    manifest = copy / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"padding": "predict"', '"padding": "ignore"'))
    result = unmask("score", copy, events / "test.parquet", "--out", tmp_path / "scores.parquet")
    assert result.returncode == 3
    assert "changed after it was saved" in result.stderr
    missing = unmask("score", tmp_path / "nothing", events / "test.parquet")
    assert missing.returncode == 3
    assert "no manifest.json here" in missing.stderr


def test_lookup_table_from_the_command_line(events: Path, tmp_path: Path) -> None:
    tokenizer = tmp_path / "lut"
    arguments = (events / "train.parquet", "--validation", events / "validation.parquet", "--out", tokenizer)
    result = unmask("tokenizer", "fit", *arguments, "--set", "n_bins=5")
    assert "885 codes" in result.stdout
    shown = unmask("tokenizer", "show", tokenizer, "--token", "130", "--token", "0").stdout
    assert "b-jet" in shown
    assert "padding" in shown
    assert unmask("tokenizer", "show", tokenizer, "--token", "886").returncode == 2
    assert json.loads(unmask("tokenizer", "show", tokenizer, "--json").stdout)["n_codes"] == 885
    tokens = tmp_path / "tokens.parquet"
    assert unmask("tokenizer", "encode", tokenizer, events / "test.parquet", "--out", tokens).returncode == 0
    expected = load_tokenizer(tokenizer).encode(read_events(events / "test.parquet"))
    assert pq.read_table(tokens)["tokens"].to_pylist() == expected.tokens.tolist()
    drawn = unmask("tokenizer", "show", tokenizer, "--events", events / "test.parquet", "--figures", tmp_path / "f")
    assert drawn.returncode == 0, drawn.stderr
    assert {path.name for path in (tmp_path / "f").iterdir()} == {"code-usage.png", "token-occurrence.png"}


def test_vqvae_from_the_command_line(events: Path, tmp_path: Path) -> None:
    tokenizer = tmp_path / "vq"
    result = unmask(
        "tokenizer", "fit", events / "train.parquet", "--validation", events / "validation.parquet",
        "--preset", "vqvae", "--set", "n_codes=32", "--set", "hidden=16",
        "--set", "training.max_epochs=2", "--device", "cpu", "--out",
        tokenizer,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "epoch 2/2" in result.stderr
    assert "rms log pt" in result.stdout
    figures = tmp_path / "figures"
    drawn = unmask(
        "tokenizer", "show", tokenizer, "--events", events / "test.parquet", "--figures", figures, "--figure-format",
        "svg",
    )  # fmt: skip
    assert drawn.returncode == 0, drawn.stderr
    assert {path.name for path in figures.iterdir()} == {"code-usage.svg", "token-occurrence.svg", "closure.svg"}
    occurrence, closure = ((figures / f"{name}.svg").read_text() for name in ("token-occurrence", "closure"))
    assert all(text in occurrence for text in ("signal", "background", "vqvae, 32 codes"))
    assert all(text in closure for text in ("original", "reconstructed", "pT [GeV]", "MET [GeV]"))
    assert len((tmp_path / "vq.run" / "log.jsonl").read_text().splitlines()) == 2


def test_the_model_that_ships_can_be_tried_at_once(tmp_path: Path) -> None:
    out = tmp_path / "scores.parquet"
    assert unmask("score", "sample:gluino-model", "sample:gluino", "--out", out).returncode == 0
    scores = read_scores(out)
    assert len(scores) == 26_536
    assert np.median(scores.score[scores.label == 1]) > 1.5 * np.median(scores.score[scores.label == 0])
    assert scores.was_trained_on is not None
    assert scores.was_trained_on.sum() == 18_828


def test_the_default_is_trained_scored_and_explained(events: Path, tmp_path: Path) -> None:
    out, scores = tmp_path / "model", tmp_path / "scores.parquet"
    command = ("train", events / "train.parquet", "--validation", events / "validation.parquet", "--out", out,
               "--seed", "3", "--set", "training.max_epochs=2", "--device", "cpu")  # fmt: skip
    trained = unmask(*command)
    assert trained.returncode == 0, trained.stderr
    assert re.search(r"^2 epochs in .* parameters -> ", trained.stdout)
    scored = unmask("score", out, events / "test.parquet", "--out", scores, "--explain", "2")
    assert scored.returncode == 0, scored.stderr
    found = read_scores(scores)
    assert np.median(found.score[found.label == 1]) > np.quantile(found.score[found.label == 0], 0.9)
    first = json.loads((tmp_path / "scores.explained.json").read_text())["events"][0]
    assert all(isinstance(one["contribution"], float) for one in first["objects"])


def test_list_names_presets_tokenizers_and_detectors() -> None:
    shown = unmask("list").stdout
    for name in ("four-top-vq-1700", "gluino-lut-456", "lookup-table", "vqvae", "masked-token"):
        assert name in shown
    # A line each, however long, so that one can search them.
    (line,) = [line for line in shown.splitlines() if line.split()[:1] == ["deep-svdd-part-sm"]]
    assert line.endswith("DeepSVDD with a Particle Transformer with Standard Model couplings (comparison)")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("training.gradient_clip=0",), "gradient_clip is 0; expected more than 0"),
        (("training.max_epochs=0",), "max_epochs is 0"),
        (("training.learning_rate=nan",), "learning_rate is nan; expected a number"),
        (("dropout=2",), "dropout is 2"),
        (("training=5",), "training is a group"),
        (("tokenizer.training=5",), "training is a group; expected tokenizer.training.SETTING"),
        (("a=1", "a.b=2"), "a has been given a value"),
        (("drpout=0.1",), "did you mean 'dropout'"),
    ],
)
def test_wrong_settings_are_usage_errors(events: Path, tmp_path: Path, settings: tuple[str, ...], message: str) -> None:
    options = [part for setting in settings for part in ("--set", setting)]
    result = unmask("train", events / "validation.parquet", *PUBLISHED, "--out", tmp_path / "model", *options)
    assert result.returncode == 2, result.stderr
    assert message in result.stderr
    assert not (tmp_path / "model").exists()


def test_a_folder_that_is_not_ours_is_refused_before_training(events: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    result = unmask("train", events / "validation.parquet", "--out", tmp_path / "mine")
    assert result.returncode == 2
    assert "epoch" not in result.stderr
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"


def test_options_that_contradict_each_other(events: Path, model: Path, tmp_path: Path) -> None:
    data = (events / "validation.parquet", "--out", tmp_path / "out")
    fitted = unmask("train", *data, "--tokenizer", model / "tokenizer", "--set", "tokenizer.n_bins=6")
    without = unmask("train", *data, "--tokenizer", model / "tokenizer")
    figures = unmask("tokenizer", "show", model / "tokenizer", "--figures", tmp_path / "figures")
    assert [result.returncode for result in (fitted, without, figures)] == [2, 2, 2]
    assert "the detector of default has no tokenizer; choose a preset" in without.stderr


def test_the_default_notes_few_events_and_keeps_the_cut_with_the_model(events: Path, tmp_path: Path) -> None:
    quick = ("--set", "training.max_epochs=1", "--set", "size=tiny", "--set", "backbone=mlp", "--device", "cpu")
    _, said = running("train", events / "train.parquet", "--cut", "n_jets <= 3", "--out", tmp_path / "model", *quick)
    assert re.search(r"[\d,]+ training events are few: this detector finds more with 30,000 or more", said)
    detector = load_detector(tmp_path / "model")
    assert detector.settings()["cut"] == "n_jets <= 3"
    assert detector.fitted_on_ is not None
    assert detector.fitted_on_["train"]["n_events"] < 3000
