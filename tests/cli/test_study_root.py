"""A study on files of the experiments: run numbers, negative weights, taus and repeated events, to a pick list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.cli.running import running
from tests.io import root_events
from unmask import read_events

MET = {
    "delphes": ("MissingET", "MET"),
    "nanoaod": ("MET", "pt"),
    "physlite": ("MET_Core_AnalysisMETAuxDyn", "mpx"),
}
WEIGHT = {
    "delphes": ("Event", "Weight"),
    "nanoaod": ("", "genWeight"),
    "physlite": ("EventInfoAuxDyn", "mcEventWeights"),
}
EVENT = {"delphes": ("Event", "Number"), "nanoaod": ("", "event"), "physlite": ("EventInfoAuxDyn", "eventNumber")}


def tiled(column: Any, n: int) -> Any:
    return ak.concatenate([column] * n) if isinstance(column, ak.Array) else np.concatenate([column] * n)


def write(path: Path, kind: str, n: int, seed: int, scale: float = 1.0, n_repeated: int = 0) -> Path:
    """Write the seven events ``n`` times, each time with another MET and event number; the last repeat the first."""
    rng = np.random.default_rng(seed)
    groups = {
        group: {name: tiled(column, n) for name, column in columns.items()}
        for group, columns in root_events.GROUPS[kind]().items()
    }
    group, name = MET[kind]
    factor = scale * rng.permutation(np.linspace(0.5, 2, n * root_events.N_EVENTS))
    factor[len(factor) - n_repeated :] = factor[:n_repeated]
    groups[group][name] = groups[group][name] * factor
    group, name = WEIGHT[kind]
    groups[group][name] = groups[group][name][rng.permutation(len(factor))]
    group, name = EVENT[kind]
    number = np.arange(1000 * seed, 1000 * seed + len(factor))
    old = groups[group][name]
    groups[group][name] = ak.unflatten(number, ak.num(old)) if kind == "delphes" else number.astype(np.uint64)
    return root_events.write(path, kind, groups)


@pytest.mark.parametrize("kind", ["delphes", "nanoaod", "physlite"])
def test_files_of_the_experiments_end_in_a_report_and_a_pick_list(kind: str, tmp_path: Path) -> None:
    background = write(tmp_path / "background.root", kind, 600, 1, n_repeated=70)
    signal = write(tmp_path / "signal.root", kind, 40, 5, scale=4)
    data = write(tmp_path / "data.root", kind, 60, 9)
    (tmp_path / "met.toml").write_text("[detector]\nkind = 'untrained'\nscore = 'met'\n")
    out = tmp_path / "study"
    files = ("--background", background, "--signal", signal, "--data", data)
    objects = ("--objects", "electron,muon,photon,jet,tau")
    _, notes = running("study", "run", *files, *objects, "--only", tmp_path / "met.toml", "--out", out)
    assert "70 of 4,200 events repeat earlier ones" in notes
    assert "600 of 4,200 events have negative weights" in notes
    assert (out / "report.html").exists()
    (row,) = (row for row in json.loads((out / "results" / "metrics.json").read_text())["rows"] if row["name"] == "met")
    assert 0.6 < row["metrics"]["auc"]["value"] < 1
    assert any(row["metrics"]["signal_efficiency"].values())
    assert 8 in np.unique(read_events(out / "events" / "train.parquet").tag)
    flagged = pq.read_table(out / "flagged" / "met.parquet").to_pydict()
    assert flagged["event_id"]
    assert set(flagged["event_id"]) <= set(range(9000, 9420))
    assert set(flagged["file"]) == {str(data)}
    picked = out / "flagged" / "met.run-lumi-event.txt"
    if kind == "delphes":  # without run numbers
        assert not picked.exists()
        return
    run, block = (np.tile(column, 60) for column in (root_events.RUN, root_events.LUMINOSITY_BLOCK))
    lines = [line for line in picked.read_text().splitlines() if not line.startswith("#")]
    places = np.array(flagged["event_id"]) - 9000
    assert sorted(lines) == sorted(f"{run[i]}:{block[i]}:{9000 + i}" for i in places)
