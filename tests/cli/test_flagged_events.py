"""Flagged events are found again in the files that they came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.cli.running import failing, running
from tests.io import root_events
from unmask import load_sample, read_events, write_events
from unmask.io.sample import sample_path
from unmask.scores.score_table import read_scores
from unmask.study.data import StudyFiles, write_data
from unmask.study.stages import StudyReporter
from unmask.workflow.sources import Sources

#: Beyond what a double, or a number of a spreadsheet, holds exactly.
LARGE = 2**53 + 1 + 2 * np.arange(root_events.N_EVENTS)


def groups_with_large_ids(kind: str) -> root_events.Groups:
    groups = root_events.GROUPS[kind]()
    group, name = {
        "delphes": ("Event", "Number"),
        "nanoaod": ("", "event"),
        "physlite": ("EventInfoAuxDyn", "eventNumber"),
    }[kind]
    ids: Any = LARGE if kind == "delphes" else LARGE.astype(np.uint64)
    groups[group][name] = ak.unflatten(ids, np.ones(len(ids), np.int64)) if kind == "delphes" else ids
    return groups


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A threshold that almost all events pass."""
    folder = tmp_path_factory.mktemp("calibration")
    sample = load_sample("gluino")
    write_events(folder / "background.parquet", sample[sample.label == 0][::60])
    running("score", "sample:gluino-model", folder / "background.parquet", "-o", folder / "scores.parquet")
    running("calibrate", folder / "scores.parquet", "--background-efficiency", "0.999", "--out", folder / "calibration")
    return folder / "calibration"


@pytest.mark.parametrize("kind", ["delphes", "nanoaod", "physlite"])
def test_numbers_of_events_reach_the_flagged_ones(kind: str, calibration: Path, tmp_path: Path) -> None:
    path = root_events.write(tmp_path / "a.root", kind, groups_with_large_ids(kind))
    running("data", "convert", path, "-o", tmp_path / "a.parquet")
    running("data", "split", tmp_path / "a.parquet", "-o", tmp_path / "events", "--keep-duplicates")
    files = [tmp_path / "events" / f"{name}.parquet" for name in ("train", "validation", "test")]
    files = [file for file in files if pq.read_metadata(file).num_rows]
    running("score", "sample:gluino-model", *files, "-o", tmp_path / "scores.parquet", "--explain", "2")
    scores = read_scores(tmp_path / "scores.parquet")
    assert dict(zip(scores.row.tolist(), scores.event_id.tolist(), strict=True)) == dict(enumerate(LARGE.tolist()))
    _, notes = running("flag", calibration, tmp_path / "scores.parquet", "-o", tmp_path / "flagged.parquet", "--csv")
    flagged = pq.read_table(tmp_path / "flagged.parquet").to_pydict()
    n = len(flagged["row"])
    assert n >= 5
    assert flagged["event_id"] == LARGE[flagged["row"]].tolist()
    assert set(flagged["file"]) == {str(path)}
    assert str(flagged["event_id"][0]) in (tmp_path / "flagged.csv").read_text()
    events = read_events(path)[np.array(flagged["row"])]
    for name, expected in (("met_mev", events.met_mev), ("ht_mev", events.ht_mev)):
        np.testing.assert_allclose(flagged[name], expected)
    assert dict(zip(flagged["row"], flagged["leading_objects"], strict=True))[0].startswith("b-jet 120 GeV, jet 60 GeV")
    assert all(" GeV" in reason for reason in flagged["reason"][:2])  # of the explanations
    assert all(": " in reason and "p = " in reason for reason in flagged["reason"][2:])
    lists = [tmp_path / f"flagged.{name}.txt" for name in ("run-lumi-event", "run-event")]
    if kind == "delphes":
        assert "no pick list" in notes
        assert not any(path.exists() for path in lists)
        assert set(flagged["run"]) == {None}
        return
    rows = flagged["row"]
    run, block, event = (column[rows].tolist() for column in (root_events.RUN, root_events.LUMINOSITY_BLOCK, LARGE))
    assert [flagged["run"], flagged["luminosity_block"]] == [run, block]
    expected_lists = [zip(run, block, event, strict=True), zip(run, event, strict=True)]
    for path, expected, mark in zip(lists, expected_lists, ":\x20", strict=True):
        assert path.read_text().splitlines() == [mark.join(map(str, numbers)) for numbers in expected]
        assert str(path) in notes
    again = ("flag", calibration, tmp_path / "scores.parquet", "-o", tmp_path / "flagged.parquet")
    assert "give --overwrite" in failing(*again)[1]
    running(*again, "--overwrite")
    lists[0].write_text("not a list\n")
    (tmp_path / "flagged.parquet").unlink()
    assert "flagged.run-lumi-event.txt: is not something" in failing(*again)[1]


def test_a_study_keeps_the_numbers_of_events(tmp_path: Path) -> None:
    path = root_events.write(tmp_path / "a.root", "nanoaod", groups_with_large_ids("nanoaod"))
    files = StudyFiles(Sources([]), Sources([]), Sources([path]))
    write_data(files, tmp_path / "data.parquet", StudyReporter())
    events = read_events(tmp_path / "data.parquet")
    assert events.event_id.tolist() == LARGE.tolist()
    assert events.further["run"].tolist() == root_events.RUN.tolist()


def test_reasons_of_events_that_are_not_explained_are_observables(calibration: Path, tmp_path: Path) -> None:
    sample = load_sample("gluino")
    events = sample[sample.label == 1][:200]
    write_events(tmp_path / "signal.parquet", events)
    running("score", sample_path("gluino-model"), tmp_path / "signal.parquet", "-o", tmp_path / "scores.parquet")
    running("flag", calibration, tmp_path / "scores.parquet", "-o", tmp_path / "flagged.parquet")
    reasons = pq.read_table(tmp_path / "flagged.parquet")["reason"].to_pylist()
    assert sum("beyond all background" in reason for reason in reasons) > 20  # gluinos
    named = {reason.split(":")[0] for reason in reasons}
    assert {"MET", "sum of pT of all objects"} & named
