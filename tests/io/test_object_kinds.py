"""Which objects are read: hadronic taus and large-R jets beside the default ones, from ROOT files to scores."""

from __future__ import annotations

import json
from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import root_events
from tests.cli.running import failing, running

from unmask.errors import UsageError
from unmask.io.read import read_events
from unmask.io.source import ReadOptions

ALL = ("electron", "muon", "photon", "jet", "tau", "large-R-jet")


def tags(path: Path, *objects: str, **selection: dict[str, object]) -> list[list[int]]:
    events = read_events(path, options=ReadOptions(objects=objects, selection=selection))
    return [[int(tag) for tag in event if tag] for event in events.tag]


@pytest.mark.parametrize("storage", ["ttree", "rntuple"])
@pytest.mark.parametrize("kind", ["delphes", "nanoaod", "physlite"])
def test_taus_and_large_r_jets_take_the_place_of_jets(tmp_path: Path, kind: str, storage: root_events.Storage) -> None:
    path = root_events.write(tmp_path / "a.root", kind, storage=storage)
    assert tags(path) == root_events.TAGS
    assert tags(path, *ALL) == root_events.TAGS_WITH_ALL
    assert tags(path, "jet", "large-R-jet", **{"large-R-jet": {"min_delta_r": 0.1}})[3] == [1, 2, 9]
    events = read_events(path, options=ReadOptions(objects=ALL, cut="n_large_r_jets == 1 and n_taus == 0"))
    assert events.row.tolist() == [3, 5]
    np.testing.assert_allclose(events.pt_mev[0][events.tag[0] == 9], 260e3, rtol=1e-6)
    np.testing.assert_allclose(events.met_mev, root_events.MET_GEV[[3, 5]] * 1e3, rtol=1e-5)
    energy = np.hypot(260e3 * np.cosh(0.1), 80e3)
    np.testing.assert_allclose(events.energy_mev[0][events.tag[0] == 9], energy, rtol=1e-6)
    np.testing.assert_allclose(events.ht_mev, [90e3, 50e3], rtol=1e-6)


def test_any_types_can_be_left_out(tmp_path: Path) -> None:
    path = root_events.write(tmp_path / "a.root", "nanoaod")
    assert tags(path, "b-jet", "positron") == [[2, 2], [], [4], [2], [], [2, 2], [4]]
    running("data", "convert", path, "--out", tmp_path / "a.parquet", "--objects", ",".join(ALL))
    again = tmp_path / "a.parquet"
    assert tags(again) == root_events.TAGS_WITH_ALL
    assert tags(again, "jet", "tau")[:4] == [[2, 2, 8], [1], [], [2]]
    csv = tmp_path / "a.csv"
    csv.write_text("1;ttbar;1;60000;0.5;j,50000,50000,0,1;tau-,70000,70000,0,1;fj,350000,350000,0,2\n")
    assert tags(csv) == [[1, 8, 9]]
    assert tags(csv, "jet", "large-R-jet") == [[1, 9]]
    with pytest.raises(UsageError, match="unknown object 'taus'; did you mean 'tau'"):
        ReadOptions(objects=("taus",))
    groups = root_events.nanoaod()
    del groups["Tau"]
    code, message = failing("data", "inspect", root_events.write(path, "nanoaod", groups), "--objects", "jet,tau")
    assert code == 3
    assert "the branch Tau_pt is missing" in message


def _random_file(path: Path, n_events: int, seed: int) -> Path:
    """A NanoAOD file with two to four jets, a tau and a large-R jet per event, apart from each other."""
    rng = np.random.default_rng(seed)

    def objects(n: np.ndarray, low: float, high: float, eta: tuple[float, float]) -> dict[str, ak.Array]:
        columns = {"pt": (low, high), "eta": eta, "phi": (-3.1, 3.1), "mass": (1, 20)}
        return {name: ak.unflatten(rng.uniform(*limits, n.sum()), n) for name, limits in columns.items()}

    one, few = np.ones(n_events, np.int64), rng.integers(2, 5, n_events)
    groups = root_events.nanoaod()
    groups[""] = {"event": np.arange(n_events), "genWeight": np.ones(n_events)}
    groups["MET"] = groups["PuppiMET"] = {"pt": rng.uniform(10, 300, n_events), "phi": rng.uniform(-3, 3, n_events)}
    jet = objects(few, 30, 400, (0, 0.6))
    groups["Jet"] = jet | {"btagDeepFlavB": ak.unflatten(rng.uniform(0, 0.5, few.sum()), few)}
    groups["Tau"] = objects(one, 30, 90, (1.2, 1.4)) | {"idDeepTau2018v2p5VSjet": ak.unflatten(one * 5, one)}
    groups["FatJet"] = objects(one, 250, 600, (-2.3, -1.0))
    for name in ("Electron", "Muon", "Photon"):
        groups[name] = {key: ak.unflatten(ak.flatten(column)[:0], one * 0) for key, column in groups[name].items()}
    return root_events.write(path, "nanoaod", groups)


def test_taus_and_large_r_jets_go_through_the_default(tmp_path: Path) -> None:
    train, validation, data = (_random_file(tmp_path / f"{i}.root", n, i) for i, n in enumerate((200, 50, 30)))
    model, scores, objects = tmp_path / "model", tmp_path / "scores.parquet", ("--objects", ",".join(ALL))
    settings = ("--set", "training.max_epochs=1", "--set", "size=tiny", "--device", "cpu")
    running("train", train, "--validation", validation, "--out", model, *objects, *settings)
    running("score", model, data, "--out", scores, "--explain", "3", *objects)
    explained = json.loads(scores.with_suffix(".explained.json").read_text())
    names = {one["name"] for event in explained["events"] for one in event["objects"]}
    assert {"jet", "tau", "large-R-jet"} <= names
    code, message = failing("score", "sample:gluino-model", data, "--out", tmp_path / "no.parquet", *objects)
    assert code == 2
    assert "30 of 30 events hold tau, large-R-jet; this" in " ".join(message.split())
