"""`unmask monitor`, and the warning of `unmask score`: does a model apply to these events?"""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import failing, running
from unmask import EventSet, load, load_sample, write_events
from unmask.detectors import Detector
from unmask.workflow.score import Scoring
from unmask.workflow.sources import Sources

MODEL = "sample:gluino-model"


@pytest.fixture(scope="module")
def background() -> EventSet:
    events = load_sample("gluino")
    events = events[events.label == 0]
    return events[np.random.default_rng(1).permutation(len(events))[:1500]]


@pytest.fixture(scope="module")
def files(background: EventSet, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Background, and the same with something wrong."""
    folder = tmp_path_factory.mktemp("monitor")
    is_hard = background.pt_mev > 35e3
    changed = {
        "as-trained": background,
        "other-met": replace(background, met_mev=background.met_mev * np.float32(3)),
        "hard-objects": replace(
            background,
            **{
                name: np.where(is_hard, getattr(background, name), 0)
                for name in ("tag", "pt_mev", "energy_mev", "eta", "phi")
            },
        ),
        "few": background[:8],
    }
    for name, events in changed.items():
        write_events(folder / f"{name}.parquet", events)
    return {name: folder / f"{name}.parquet" for name in changed}


def test_scoring_warns_of_what_differs_and_only_then(files: dict[str, Path], tmp_path: Path) -> None:
    for name, text in (
        ("as-trained", ""),
        ("few", ""),
        ("other-met", r"mean MET \[GeV\] 2\d\d\.\d instead of \d\d\.\d+ \(p < 1e-99\)"),
        ("hard-objects", r"mean number of objects 3\.\d+ instead of 4\.\d+"),
    ):
        _, said = running("score", MODEL, files[name], "--out", tmp_path / f"{name}.parquet", "--device", "cpu")
        said = " ".join(said.split())
        assert ("do not look like the training background" in said) == bool(text), said
        assert re.search(text, said)


def test_signal_is_not_compared_when_labeled(tmp_path: Path) -> None:
    events = load_sample("gluino")
    write_events(tmp_path / "signal.parquet", events[events.label == 1][:500])
    arguments = ("score", MODEL, tmp_path / "signal.parquet", "--out", tmp_path / "scores.parquet", "--device", "cpu")
    assert "do not look like" not in running(*arguments)[1]
    assert "do not look like" in running(*arguments, "--label", "unknown", "--overwrite")[1]


def test_parts_are_compared_together(files: dict[str, Path], tmp_path: Path) -> None:
    """Each part alone has too few events to tell."""
    detector = load(MODEL)
    assert isinstance(detector, Detector)
    scoring, pieces = Scoring(detector, device="cpu"), Sources([files["other-met"]]).parts(200)[:16]
    outcomes = [scoring.write(piece.stream(), tmp_path / f"{i}.parquet") for i, piece in enumerate(pieces)]
    assert all(scoring.warnings([outcome]) == [] for outcome in outcomes)
    assert "MET" in scoring.warnings(outcomes)[0]


def test_monitor_shows_a_series_of_files(files: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "series"
    table, _ = running("monitor", MODEL, *files.values(), "--out", out, "--device", "cpu")
    assert re.search(r"MET \[GeV\] +│ +\d\d\.\d+ │ +\d\d\.\d+ │ +2\d\d\.\d+ \* │", table), table
    result = json.loads((out / "monitor.json").read_text())["files"]
    smallest = {
        name: min(each["variables"].items(), key=lambda item: item[1]["p_value"]) for name, each in result.items()
    }
    assert smallest["as-trained.parquet"][1]["p_value"] > 0.01
    assert smallest["few.parquet"][1]["p_value"] == 1
    assert smallest["other-met.parquet"][0] in ("MET [GeV]", "score")
    assert result["other-met.parquet"]["variables"]["MET [GeV]"]["distance"] > 0.5
    assert result["other-met.parquet"]["variables"]["HT [GeV]"]["p_value"] > 0.01
    assert result["hard-objects.parquet"]["variables"]["number of jets"]["p_value"] < 1e-10
    drawn = (out / "distributions.svg").read_text()
    assert "leading b-jet pT [GeV]" in drawn
    assert "other-met.parquet" in drawn
    code, message = failing("monitor", MODEL, files["few"], "--out", out)
    assert code == 2
    assert "--overwrite" in message
    assert json.loads(running("monitor", MODEL, files["few"], "--json")[0])["files"]["few.parquet"]["variables"]


def test_monitor_refuses_no_events_and_to_replace_something_else(background: EventSet, tmp_path: Path) -> None:
    write_events(tmp_path / "none.parquet", background[:0])
    code, message = failing("monitor", MODEL, tmp_path / "none.parquet", "--out", tmp_path / "out")
    assert code == 3
    assert "no events" in message
    assert not (tmp_path / "out").exists()
    code, message = failing("monitor", MODEL, tmp_path / "none.parquet", "--out", tmp_path)
    assert code == 2
    assert "would replace" in message
