"""`unmask combine` as a user runs it, and `unmask train` of a detector without a network."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import failing, running, unmask
from unmask import load_sample, write_events
from unmask.scores.score_table import read_scores


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scores by MET and by HT of training, validation, control, and test events."""
    folder = tmp_path_factory.mktemp("combine")
    sample = load_sample("gluino")
    chosen = sample[np.random.default_rng(1).permutation(len(sample))]
    background, signal = chosen[chosen.label == 0], chosen[chosen.label == 1]
    parts = {"train": background[:1000], "validation": background[1000:2000], "control": background[2000:4000]}
    for name, events in parts.items():
        write_events(folder / f"{name}.parquet", events)
    write_events(folder / "test.parquet", [background[4000:5000], signal[:500]])
    data = (folder / "train.parquet", "--validation", folder / "validation.parquet")
    for score in ("met", "ht"):
        trained = unmask("train", *data, "--preset", "untrained", "--set", f"score={score}", "-o", folder / score)
        assert trained.returncode == 0, trained.stderr
        for name in (*parts, "test"):
            running("score", folder / score, folder / f"{name}.parquet", "-o", folder / f"{score}-{name}.parquet")
    return folder


def both(folder: Path, name: str) -> list[Path]:
    return [folder / f"{score}-{name}.parquet" for score in ("met", "ht")]


def test_two_scores_become_one_that_is_calibrated_and_flagged(folder: Path, tmp_path: Path) -> None:
    met, ht = both(folder, "validation")
    background = ("--background", met, "--background", ht)
    out = ("--rule", "or", "--out", tmp_path / "test.parquet")
    shown, _ = running("combine", *both(folder, "test"), *background, *out)
    found = re.search(r"or of 2 scores, p-values from (\d+) background events: 1,500 events", shown)
    assert found
    shown, _ = running("combine", met, ht, "--rule", "or", "--out", tmp_path / "validation.parquet")
    assert f"p-values from {found[1]} background events: {1000 - int(found[1])} events" in shown
    scores = read_scores(tmp_path / "test.parquet")
    assert len(scores) == 1500
    assert np.median(scores.score[scores.label == 1]) > np.quantile(scores.score[scores.label == 0], 0.9)
    result, _ = running("evaluate", tmp_path / "test.parquet", folder / "met-test.parquet")
    assert re.search(r"^test +met-test +\+0", result, re.MULTILINE)
    target = ("--background-efficiency", "0.1")
    running("calibrate", tmp_path / "validation.parquet", *target, "--out", tmp_path / "calibration")
    running("flag", tmp_path / "calibration", tmp_path / "test.parquet", "--out", tmp_path / "flagged.parquet")
    running("combine", *both(folder, "test"), *background, "--rule", "and", "--out", tmp_path / "and.parquet")
    other = failing("flag", tmp_path / "calibration", tmp_path / "and.parquet", "--out", tmp_path / "no.parquet")
    assert other[0] == 2
    assert "of another model" in other[1]


def test_without_background_scores_half_of_the_background_calibrates(folder: Path, tmp_path: Path) -> None:
    shown, _ = running("combine", *both(folder, "test"), "--out", tmp_path / "both.parquet")
    scores = read_scores(tmp_path / "both.parquet")
    n_background = int((scores.label == 0).sum())
    assert f"product of 2 scores, p-values from {1000 - n_background} background events" in shown
    assert 400 < n_background < 600
    assert (scores.label == 1).sum() == 500


def test_scores_from_elsewhere_are_combined(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for name in ("a", "b"):
        lines = [f"{score:.6f},{label}" for label in (0, 1) for score in rng.normal(label, size=1000)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["score,label", *lines]) + "\n")
    running("combine", tmp_path / "a.csv", tmp_path / "b.csv", "--out", tmp_path / "both.parquet")
    assert (read_scores(tmp_path / "both.parquet").label == 1).sum() == 1000


def test_mistakes_are_told(folder: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "no.parquet")
    tested = both(folder, "test")
    met, ht = both(folder, "train")
    for command, message in (
        (
            (*tested, "--background", met, "--background", ht, *out),
            "background events are training",
        ),
        ((*tested, "--background", ht, "--background", met, *out), "hold scores of different models"),
        ((*tested, "--out", tested[0]), "which is read; choose another name"),
        ((folder / "met", tested[0], *out), "met"),
    ):
        code, text = failing("combine", *command)
        assert code != 0
        assert message in text
    assert not (tmp_path / "no.parquet").exists()
    made = failing("train", folder / "train.parquet", "--preset", "combination", *out)
    assert made[0] == 2
    assert "unknown preset 'combination'" in made[1]
