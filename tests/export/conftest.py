"""The model that ships with the package as a graph, exported once."""

from pathlib import Path

import pytest

from tests.cli.running import running
from unmask import load_sample, write_events
from unmask.events.event_set import EventSet


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the graph ``model.onnx``, and a calibration of the model that it holds."""
    folder = tmp_path_factory.mktemp("exported")
    events = load_sample("gluino")
    write_events(folder / "background.parquet", [events[events.label == 0][::5]])
    write_events(folder / "test.parquet", [events[::12]])
    scores = folder / "background.scores.parquet"
    running("score", "sample:gluino-model", folder / "background.parquet", "--out", scores)
    running("calibrate", scores, "--out", folder / "calibration")
    result, progress = running(
        "export", "sample:gluino-model", "--calibration", folder / "calibration", "--out", folder / "model.onnx"
    )
    assert "model.onnx" in result
    assert "score: ONNX Runtime and torch agree" in progress
    return folder


@pytest.fixture(scope="session")
def some() -> EventSet:
    """Background and signal."""
    return load_sample("gluino")[::60]
