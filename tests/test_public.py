"""The public interface: a whole job in a few lines, and one model whatever the way to it."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

import unmask
from tests.cli.running import running
from unmask.detectors import Detector, load_detector
from unmask.errors import UsageError
from unmask.scores.score_table import read_scores
from unmask.tokenizers import Tokenizer

CHANGES = {"training": {"max_epochs": 2}}


@pytest.fixture(scope="module")
def split() -> tuple[unmask.EventSet, ...]:
    background = unmask.read_events("sample:gluino")
    return unmask.split_background(background[background.label == 0][::8], seed=1)


def test_there_are_few_public_names() -> None:
    assert len(unmask.__all__) <= 19
    signature = inspect.signature(unmask.fit)
    assert list(signature.parameters)[:3] == ["settings", "train", "validation"]


def test_a_whole_job_in_twelve_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sample = unmask.load_sample("gluino")
    unmask.write_events("background.parquet", sample[sample.label == 0][::8].with_label(-1))
    unmask.write_events("signal.parquet", sample[sample.label == 1][::8].with_label(-1))
    unmask.write_events("data.parquet", sample[1::8].with_label(-1))

    background = unmask.read_events("background.parquet", label="background")
    signal = unmask.read_events("signal.parquet", label="signal")
    train, validation, test = unmask.split_background(background, seed=1)
    detector = unmask.fit("default", train, validation, changes=CHANGES, seed=1)
    detector.save("model")
    scores = detector.scores(unmask.EventSet.concatenate([test, signal]))
    evaluation = unmask.evaluate({"default": scores})
    limit = unmask.calibrate(detector.scores(validation), background_efficiency=0.1)
    n_events = unmask.score(detector, "data.parquet", "scores.parquet", explain=50)
    limit.flag("scores.parquet").write("flagged.parquet")
    unmask.write_report(["scores.parquet"], "report.html")

    assert evaluation.rows[0].metrics.auc.value > 0.95
    assert n_events == len(read_scores("scores.parquet")) == len(sample[1::8])
    again = unmask.load("model")
    assert isinstance(again, Detector)
    np.testing.assert_array_equal(again.scores(test).score, detector.scores(test).score)
    unmask.score("model", ["data.parquet"], "again.parquet")
    np.testing.assert_array_equal(read_scores("again.parquet").score, read_scores("scores.parquet").score)
    assert Path("flagged.parquet").is_file()
    assert Path("report.html").is_file()


@pytest.mark.parametrize("name", ["default", "gluino-lut-456"])
def test_class_settings_and_command_line_give_the_same_model(
    name: str, split: tuple[unmask.EventSet, ...], tmp_path: Path
) -> None:
    train, validation, _ = split
    shared = {"max_epochs": 1, "seed": 3, "device": "cpu"}
    default = inspect.signature(unmask.ContrastDetector).parameters["training"].default
    published = unmask.TrainingSettings(
        learning_rate=5e-5, schedule="warmup-cosine", gradient_clip=5.0, min_improvement=0.0001, **shared
    )
    by_class: Detector = (
        unmask.ContrastDetector(training=type(default)(**{**vars(default), **shared}))
        if name == "default"
        else unmask.MaskedTokenDetector(unmask.LookupTableTokenizer(), ffn_expansion=2, training=published)
    )
    by_class.fit(train, validation)
    by_name = unmask.fit(name, train, validation, changes={"training": {"max_epochs": 1}}, seed=3, device="cpu")
    for part, events in (("train", train), ("validation", validation)):
        unmask.write_events(tmp_path / f"{part}.parquet", events)
    running(
        "train", tmp_path / "train.parquet", "--validation", tmp_path / "validation.parquet", "--preset", name,
        "--set", "training.max_epochs=1", "--seed", "3", "--device", "cpu", "--out", tmp_path / "command-line",
    )  # fmt: skip
    by_command = load_detector(tmp_path / "command-line")
    assert by_class.settings() == by_name.settings() == by_command.settings()
    for other in (by_name, by_command):
        np.testing.assert_array_equal(other.scores(validation).score, by_class.scores(validation).score)
    for detector, folder in ((by_class, "class"), (by_name, "name")):
        detector.save(tmp_path / folder)
    arrays = [(tmp_path / folder / "arrays.safetensors").read_bytes() for folder in ("class", "name", "command-line")]
    assert arrays[0] == arrays[1] == arrays[2]


def test_tables_and_toml_files_are_settings_too(split: tuple[unmask.EventSet, ...], tmp_path: Path) -> None:
    train, validation, _ = split
    table = {"detector": {"kind": "untrained", "score": "ht"}}
    (tmp_path / "ht.toml").write_text('[detector]\nkind = "untrained"\nscore = "ht"\n')
    one, other = (unmask.fit(settings, train, validation) for settings in (table, tmp_path / "ht.toml"))
    np.testing.assert_array_equal(one.scores(train).score, other.scores(train).score)


@pytest.mark.parametrize("wrong", ["train", "validation"])
def test_what_is_fitted_on_must_be_events(wrong: str) -> None:
    given = {"train": unmask.EventSet.empty(), "validation": unmask.EventSet.empty()} | {wrong: "sample:gluino"}
    with pytest.raises(UsageError, match=f"{wrong} is of type str; .* read files with unmask.read_events"):
        unmask.fit("default", **given)  # type: ignore[arg-type]


def test_only_files_are_scored_into_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"paths is of type EventSet; .* detector\.scores\(events\)"):
        unmask.score("model", unmask.EventSet.empty(), tmp_path / "scores.parquet")  # type: ignore[arg-type]


def test_what_ships_can_be_loaded_by_name() -> None:
    model = unmask.load("sample:gluino-model")
    assert isinstance(model, Detector)
    assert not isinstance(model, Tokenizer)
