"""Cuts while reading, from a file's branches to the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import root_events
from tests.cli.running import failing, running

from unmask.events.event_set import EventSet
from unmask.io.parquet import read_provenance, write_events
from unmask.io.read import read_events
from unmask.io.source import ReadOptions

FLAGS = {"HLT_IsoMu24": [1, 0, 1, 1, 0, 1, 1], "Flag_METFilters": [1, 1, 1, 0, 1, 1, 1]}


@pytest.fixture
def nanoaod(tmp_path: Path) -> Path:
    groups = root_events.nanoaod()
    groups[""] |= {name: np.array(values, np.bool_) for name, values in FLAGS.items()}
    return root_events.write(tmp_path / "a.root", "nanoaod", groups)


def said(message: str) -> str:
    return " ".join(message.split())


def test_cuts_on_observables_triggers_and_filters(nanoaod: Path, tmp_path: Path) -> None:
    cut = "n_objects >= 2 and met > 30 and HLT_IsoMu24 and Flag_METFilters"
    out = tmp_path / "a.parquet"
    assert "4 events" in running("data", "convert", nanoaod, "--out", out, "--cut", cut)[0]
    events = read_events(out)
    assert events.row.tolist() == [0, 2, 5, 6]
    assert read_provenance(out)["options"]["cut"] == cut
    assert json.loads(running("data", "inspect", out, "--json")[0])["inputs"][0]["used"] == {"cut at writing": cut}
    assert read_events(nanoaod, options=ReadOptions(cut=cut, chunk_events=2)).row.tolist() == events.row.tolist()
    again = ReadOptions(cut="HLT_IsoMu24 and Jet_mass[0] > 11 or luminosity_block == 90", keep=("genWeight",))
    assert read_events(nanoaod, options=again).row.tolist() == [0, 2, 3, 5]
    # Branches that were cut on are columns of the new file, on which it can be cut again.
    assert read_events(out, options=ReadOptions(cut="run > 315257 and HLT_IsoMu24")).row.tolist() == [5, 6]


@pytest.mark.parametrize(
    ("kind", "cut", "rows"),
    [
        ("delphes", "Event.Number[0] == 103 or MissingET.MET[0] > 70", [2, 4]),
        ("physlite", "EventInfoAuxDyn.runNumber == 315258 and ht > 200", [3, 5]),
        ("physlite", "run == 315258 and not luminosity_block > 5", [3, 4]),
    ],
)
@pytest.mark.parametrize("storage", ["ttree", "rntuple"])
def test_branches_of_other_formats(tmp_path: Path, kind: str, cut: str, rows: list[int], storage: Any) -> None:
    path = root_events.write(tmp_path / "a.root", kind, storage=storage)
    assert read_events(path, options=ReadOptions(cut=cut)).row.tolist() == rows


def test_a_flag_that_is_unknown_in_some_events_is_not_set(nanoaod: Path, tmp_path: Path) -> None:
    simulated = read_events(nanoaod)
    data = read_events(nanoaod, options=ReadOptions(keep=("HLT_IsoMu24",)))
    write_events(tmp_path / "both.parquet", EventSet.concatenate([data, simulated]))
    for chunk_events in (3, 7, 50):
        options = ReadOptions(cut="HLT_IsoMu24 and met > 50", chunk_events=chunk_events)
        assert read_events(tmp_path / "both.parquet", options=options).row.tolist() == [0, 2]
    # Run numbers are a column of all files, without any value where no event has one.
    delphes = read_events(root_events.write(tmp_path / "d.root", "delphes"))
    write_events(tmp_path / "delphes.parquet", delphes)
    options = ReadOptions(cut="met > 50 and not run > 2")
    assert read_events(tmp_path / "delphes.parquet", options=options).row.tolist() == [0, 2, 4]


def test_names_that_a_file_lacks(nanoaod: Path, tmp_path: Path) -> None:
    code, message = failing("data", "inspect", nanoaod, "--cut", "met > 1 and HLT_IsoMu27")
    assert code == 3
    assert (
        "a.root: cut 'met > 1 and HLT_IsoMu27', character 13: unknown name HLT_IsoMu27; did you mean 'HLT_IsoMu24'"
        in said(message)
    )
    code, message = failing("data", "inspect", nanoaod, "--cut", "met >")
    assert code == 2
    csv = tmp_path / "a.csv"
    csv.write_text("1;ttbar;1;60000;0.5;j,50000,50000,0,1\n2;ttW;1;90000;0.5;e-,50000,50000,0,1\n")
    assert read_events(csv, options=ReadOptions(cut="process == 'ttW' and n_electrons == 1")).row.tolist() == [1]
    code, message = failing("data", "inspect", csv, "--cut", "HLT_IsoMu24")
    assert code == 3
    assert "a.csv: cut 'HLT_IsoMu24', character 1: unknown name HLT_IsoMu24; choose from n_leptons" in said(message)


def test_a_cut_that_removes_everything(nanoaod: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    other = root_events.write(tmp_path / "b.root", "nanoaod")
    cut = "n_jets >= 0 and run < 400 and met > 10"
    code, message = failing("data", "convert", nanoaod, other, "--out", out, "--cut", cut)
    assert code == 3
    assert "no event is left: warning: a.root: all 7 events fail run < 400" in said(message)
    assert "b.root: all 7 events fail run < 400" in said(message)
    assert not out.exists()
    # Where another file has some left, it is a warning.
    running("data", "convert", nanoaod, "--out", tmp_path / "a.parquet", "--process", "ttW")
    found, notes = running("data", "inspect", tmp_path / "a.parquet", other, "--cut", "process == 'ttW'", "--json")
    assert json.loads(found)["n_events"] == 7
    assert said(notes) == "warning: b.root: all 7 events fail process == 'ttW'"


GOLDEN = {"315257": [[1, 1], [80, 100]], "315258": [[6, 6]]}


def golden(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("kind", ["nanoaod", "physlite"])
def test_golden_json_keeps_certified_luminosity_blocks(tmp_path: Path, kind: str) -> None:
    path = root_events.write(tmp_path / "a.root", kind)
    lumis = golden(tmp_path / "golden.json", GOLDEN)
    out = tmp_path / "a.parquet"
    running("data", "convert", path, "--out", out, "--golden-json", lumis)
    assert read_events(out).row.tolist() == [0, 2, 5]
    assert read_provenance(out)["options"]["golden_json"] == GOLDEN
    options = ReadOptions(golden_json={"315259": [[1, 4]]}, cut="met < 1e3", chunk_events=2)
    assert read_events(path, options=options).row.tolist() == [6]


def test_simulated_events_need_no_certification(tmp_path: Path) -> None:
    groups = root_events.nanoaod()
    groups[""]["run"] = np.ones(root_events.N_EVENTS, np.uint32)
    path = root_events.write(tmp_path / "a.root", "nanoaod", groups)
    assert len(read_events(path, options=ReadOptions(golden_json=GOLDEN))) == root_events.N_EVENTS
    assert len(read_events(path, options=ReadOptions(golden_json={"1": [[5, 5]]}))) == 2


def test_golden_json_that_fits_no_event(tmp_path: Path) -> None:
    path, out = root_events.write(tmp_path / "a.root", "nanoaod"), tmp_path / "a.parquet"
    other_year = golden(tmp_path / "golden.json", {"355100": [[1, 20]], "362760": [[1, 2]]})
    code, message = failing("data", "convert", path, "--out", out, "--golden-json", other_year)
    assert code == 3
    assert "no event is left: warning: a.root: all 7 events fail the golden JSON of runs 355100 to 362760" in said(
        message
    )
    assert not out.exists()
    delphes = root_events.write(tmp_path / "b.root", "delphes")
    code, message = failing("data", "inspect", delphes, "--golden-json", other_year)
    assert code == 3
    assert "b.root: no run and luminosity block for the golden JSON" in said(message)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        '{"a": [[1, 2]]}',
        '{"7": [[2, 1]]}',
        '{"%s": []}' % ("7" * 5000),
        '{"7": [1, 2]}',
        '{"7": [[1, true]]}',
    ],
)
def test_what_is_no_golden_json(tmp_path: Path, content: str) -> None:
    code, message = failing("data", "inspect", "sample:gluino", "--golden-json", golden(tmp_path / "g.json", content))
    assert code == 3
    assert "g.json: " in message
    assert "accepted: runs with ranges of luminosity blocks" in said(message)


def test_inspect_shows_what_is_read_and_the_cutflows(nanoaod: Path, tmp_path: Path) -> None:
    physlite = root_events.write(tmp_path / "p.root", "physlite")
    command = ("data", "inspect", nanoaod, physlite, "--cut", "n_jets >= 1 and met > 50")
    one, other = json.loads(running(*command, "--json")[0])["inputs"]
    assert (one["files"], one["format"]) == ([str(nanoaod)], "nanoaod")
    assert one["used"] == {"b-tag": "btagDeepFlavB > 0.2783", "MET": "MET_pt", "weight": "genWeight"}
    assert one["cutflow"]["event"] == {"in file": 7, "usable values": 7, "n_jets >= 1": 6, "met > 50": 2}
    steps = ("in file", "pT > 15 GeV", "|eta| < 2.7", "pfRelIso04_all <= 0.25", "mediumId >= 1")
    assert one["cutflow"]["muon"] == dict.fromkeys(steps, 3)
    assert (other["format"], other["used"]["b-tag"]) == ("physlite", "DL1dv01 > 2.456")
    shown = said(running(*command)[0])
    for text in ("input: p.root", "EventInfoAuxDyn.mcEventWeights[0]", "DFCommonElectronsLHMedium >= 1", "met > 50"):
        assert text in shown
    # Files that were read alike are one table.
    copy = root_events.write(tmp_path / "q.root", "physlite")
    (both,) = json.loads(running("data", "inspect", physlite, copy, "--json")[0])["inputs"]
    assert (len(both["files"]), both["cutflow"]["event"]["in file"]) == (2, 14)


def test_inspect_shows_which_cut_removes_everything(nanoaod: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, message = failing("data", "inspect", nanoaod, "--cut", "met > 1 and met > 1000")
    assert code == 3
    assert "warning: a.root: all 7 events fail met > 1000" in said(message)
    assert "met > 1000" in capsys.readouterr().out
