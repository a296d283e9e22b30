"""`unmask stress` as a user runs it."""

import json
from pathlib import Path

import pytest

from tests.cli.running import failing, running
from unmask import load_sample, write_events
from unmask.detectors.trivial import TrivialDetector


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A detector that counts b-jets, background that it has not seen, and signal."""
    folder = tmp_path_factory.mktemp("stress")
    sample = load_sample("gluino")
    background = sample[sample.label == 0]
    TrivialDetector("n-b-jets").fit(background[:2000], background[2000:2100]).save(folder / "model")
    write_events(folder / "background.parquet", background[3000:5000])
    write_events(folder / "signal.parquet", sample[sample.label == 1][:100])
    return folder


def test_a_row_for_each_kind_and_a_mean_for_each_group(folder: Path) -> None:
    table, _ = running("stress", folder / "model", folder / "background.parquet", "--max-odd", "200", "--seed", "1")
    for name in ("two b-jets", "heavy: six jets", "more-met", "mean: instead"):
        assert name in table
    shown, _ = running("stress", folder / "model", folder / "background.parquet", "--max-odd", "200", "--json")
    found = {result["kind"]: result["auc"]["value"] for result in json.loads(shown)}
    assert found["two b-jets"] > 0.9 > 0.6 > found["MET"]


def test_signal_is_refused(folder: Path) -> None:
    code, message = failing("stress", folder / "model", folder / "signal.parquet")
    assert code == 2
    assert "labelled signal" in message
