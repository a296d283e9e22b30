"""`unmask combine` as a user runs it, and `unmask train` of a detector without a network."""

from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import unmask
from unmask import load_sample, write_events
from unmask.detectors import load_detector
from unmask.detectors.combination import CombinationDetector
from unmask.detectors.scores import read_scores
from unmask.detectors.trivial import TrivialDetector


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train, validation and test events, and two trained detectors."""
    folder = tmp_path_factory.mktemp("combine")
    sample = load_sample("gluino")
    chosen = sample[np.random.default_rng(1).permutation(len(sample))]
    background = chosen[chosen.label == 0]
    for name, events in {
        "train": background[:1000],
        "validation": background[1000:1500],
        "test": chosen[-1000:],
    }.items():
        write_events(folder / f"{name}.parquet", events)
    data = (folder / "train.parquet", "--validation", folder / "validation.parquet")
    trained = unmask("train", *data, "--detector", "trivial", "--set", "score=met", "-o", folder / "a")
    assert trained.returncode == 0, trained.stderr
    TrivialDetector("ht").fit(background[:1000], background[1000:1500]).save(folder / "b")
    return folder


def test_two_detectors_become_one(folder: Path, tmp_path: Path) -> None:
    result = unmask(
        "combine", folder / "validation.parquet", "--model", folder / "a", "--model", folder / "b", "--how", "and",
        "--out", tmp_path / "both",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "and of trivial, trivial, calibrated on 500 events" in result.stdout
    detector = load_detector(tmp_path / "both")
    assert isinstance(detector, CombinationDetector)
    assert detector.how == "and"
    scored = unmask("score", tmp_path / "both", folder / "test.parquet", "--out", tmp_path / "scores.parquet")
    assert scored.returncode == 0, scored.stderr
    scores = read_scores(tmp_path / "scores.parquet")
    assert np.median(scores.score[scores.label == 1]) > np.quantile(scores.score[scores.label == 0], 0.9)


def test_mistakes_are_told(folder: Path, tmp_path: Path) -> None:
    models = ("--model", folder / "a", "--model", folder / "b", "--out", tmp_path / "no")
    seen = unmask("combine", folder / "train.parquet", *models)
    assert seen.returncode == 2
    assert "was trained on 1,000 of the 1,000 events" in seen.stderr
    made = unmask("train", folder / "train.parquet", "--detector", "combination", "--out", tmp_path / "no")
    assert made.returncode == 2
    assert "unknown detector 'combination'" in made.stderr
    assert not (tmp_path / "no").exists()
