"""The simulation of signals: its events are what it says, and of the selection that it names."""

from __future__ import annotations

import gzip
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from unmask import EventSet, read_events

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module", autouse=True)
def _needs_pythia() -> None:
    pytest.importorskip("pythia8mc", reason="needs the extra sim")
    pytest.importorskip("fastjet", reason="needs the extra sim")


def simulation(*arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "simulation", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=environment)


def simulated(out: Path, process: str, *arguments: object) -> EventSet:
    done = simulation("run", process, "--out", out, *arguments)
    assert done.returncode == 0, done.stderr
    return read_events(out)


def lepton_charge(events: EventSet) -> np.ndarray:
    return ((events.tag == 4) | (events.tag == 6)).sum(axis=1) - ((events.tag == 3) | (events.tag == 5)).sum(axis=1)


@pytest.mark.parametrize("mass", [1000, 500])
def test_a_stop_becomes_a_b_quark_and_a_lepton_of_its_mass(mass: int, tmp_path: Path) -> None:
    out = tmp_path / "stop.csv.gz"
    events = simulated(out, "stop_bl", "--masses", mass, "--events", 120, "--selection", "2b")
    assert events.process_names.counts() == {f"stop_bl__{mass}": 120}
    is_lepton = (events.tag >= 3) & (events.tag <= 6)
    is_jet = (events.tag == 1) | (events.tag == 2)
    assert (is_lepton.sum(axis=1) >= 2).all()
    assert (events.met_mev >= 50e3).all()
    assert (np.where(is_jet, events.pt_mev, 0).sum(axis=1) >= 50e3).all()
    masses = [best_mass(events, i) for i in np.flatnonzero(is_jet.sum(axis=1) >= 2)]
    assert 0.85 * mass < np.median(masses) < 1.05 * mass  # a little is lost from the jets
    record = json.loads((tmp_path / "stop.json").read_text())
    assert record["written"] == 120 <= record["selected"] < record["generated"]
    # At leading order: https://arxiv.org/abs/1006.4771 gives the size; heavier ones are rarer by far.
    low, high = {1000: (1e-3, 1e-2), 500: (0.1, 0.6)}[mass]
    assert low < record["cross_section_pb"] < high


def best_mass(events: EventSet, i: int) -> float:
    """Mean mass, in GeV, of the hardest jets and leptons in two pairs that are as alike as can be."""
    pt, eta, phi, tag = events.pt_mev[i], events.eta[i], events.phi[i], events.tag[i]
    momenta = np.stack([events.energy_mev[i], pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)]) / 1e3
    first, second = hardest_two(pt, (tag == 1) | (tag == 2))
    one, other = hardest_two(pt, (tag >= 3) & (tag <= 6))

    def mass(jet: int, lepton: int) -> float:
        energy, *momentum = momenta[:, jet] + momenta[:, lepton]
        return float(np.sqrt(energy**2 - np.square(momentum).sum()))

    pairs = [(mass(first, one), mass(second, other)), (mass(first, other), mass(second, one))]
    return float(np.mean(min(pairs, key=lambda pair: abs(pair[0] - pair[1]))))


def hardest_two(pt: np.ndarray, among: np.ndarray) -> np.ndarray:
    return np.argsort(np.where(among, -pt, np.inf))[:2]


def test_same_sign_events_have_leptons_of_one_charge_and_many_jets(tmp_path: Path) -> None:
    events = simulated(
        tmp_path / "bprime.csv.gz", "bprime_tw", "--masses", 700, "--events", 4, "--selection", "four-top"
    )
    is_lepton = (events.tag >= 3) & (events.tag <= 6)
    assert ((np.abs(lepton_charge(events)) == 2) | (is_lepton.sum(axis=1) >= 3)).all()
    lepton_pt = np.where(is_lepton, events.pt_mev, 0)
    assert (lepton_pt.max(axis=1) > 28e3).all()
    assert (events.pt_mev.sum(axis=1) >= 500e3).all()
    assert (((events.tag == 1) | (events.tag == 2)).sum(axis=1) >= 6).all()
    assert (events.n_b_jets >= 2).all()


def test_a_seed_gives_the_same_file_again_and_another_seed_or_detector_does_not(tmp_path: Path) -> None:
    options = {"first": ("--seed", 7), "again": ("--seed", 7), "other": ("--seed", 8), "cms": ("--detector", "cms")}
    for name, more in options.items():
        simulated(tmp_path / f"{name}.csv.gz", "ttbar", "--events", 10, *more)
    first, again, other, cms = (gzip.decompress((tmp_path / f"{name}.csv.gz").read_bytes()) for name in options)
    assert first == again
    assert len({first, other, cms}) == 3


def test_leptons_have_their_charge(tmp_path: Path) -> None:
    charge = lepton_charge(simulated(tmp_path / "wprime.csv.gz", "wprime_wz", "--masses", 1000, "--events", 200))
    assert (charge > 0).sum() > 1.3 * (charge < 0).sum() > 0  # there are more up than down quarks in protons


LHE = """<LesHouchesEvents version="1.0">
<init>
2212 2212 6500.0 6500.0 0 0 247000 247000 3 1
1.0 0.0 1.0 1
</init>
{events}
</LesHouchesEvents>
"""
DRELL_YAN = """<event>
5 1 1.0 400.0 0.0078 0.118
2 -1 0 0 501 0 0.0 0.0 200.0 200.0 0.0 0.0 9.0
-2 -1 0 0 0 501 0.0 0.0 -200.0 200.0 0.0 0.0 9.0
32 2 1 2 0 0 0.0 0.0 0.0 400.0 400.0 0.0 9.0
-13 1 3 3 0 0 200.0 0.0 0.0 200.0 0.0 0.0 9.0
13 1 3 3 0 0 -200.0 0.0 0.0 200.0 0.0 0.0 9.0
</event>"""


def test_hard_processes_come_from_a_les_houches_file_until_it_ends(tmp_path: Path) -> None:
    (tmp_path / "z.lhe").write_text(LHE.format(events="\n".join([DRELL_YAN] * 30)))
    events = simulated(
        tmp_path / "z.csv.gz", "zprime_ll", "--masses", 400, "--lhe", tmp_path / "z.lhe", "--events", 100
    )
    assert 10 < len(events) <= 30
    hardest = np.where((events.tag == 5) | (events.tag == 6), events.pt_mev, 0).max(axis=1)
    assert 180e3 < np.median(hardest) < 240e3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "leptogluon"], "simulation list"),
        (["run", "ttbar", "--events", "0"], "1 or more"),
        (["run", "ttbar", "--seed", "0"], "1 to 900000000"),  # Pythia would take the clock
        (["run", "ttbar", "--out", "nowhere/ttbar.csv.gz"], "lies in no folder"),
        (["run", "ttbar", "--out", "."], "is a folder"),
        (["run", "ttbar", "--detector", "lhcb"], "known: atlas, cms"),
        (["run", "stop_t", "--masses", "600"], "has 2 masses (stop, neutralino)"),
        (["run", "stop_t", "--masses", "200,100"], "a decay is closed"),
        (["run", "ttbar", "--lhe", "short.lhe"], "truncated"),
        (["--cards", "cards.toml", "list"], "unknown particle 'selection'"),
    ],
)
def test_mistakes_are_named_before_anything_is_made(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "short.lhe").write_text(LHE.format(events=DRELL_YAN)[:400])
    card = "[x]\nfamily = 'x'\ndescription = 'x'\npythia = []\ndecays.stop = [[1.0, 'selection t']]\n"
    (tmp_path / "cards.toml").write_text(card)
    given = sorted(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["simulation", *arguments])
    with pytest.raises(SystemExit, match=re.escape(message)):
        runpy.run_module("simulation", run_name="__main__")
    assert sorted(tmp_path.iterdir()) == given


def test_decays_conserve_charge_and_are_open() -> None:
    pythia8mc = pytest.importorskip("pythia8mc")
    from simulation.processes import load

    known = pythia8mc.Pythia("", False).particleData
    for name, process in load().items():
        for parent, channels in process.decays.items():
            for _, products in channels:
                charge = sum(map(known.charge, products))
                assert charge == pytest.approx(known.charge(parent)), (name, products)
        for point in process.points:
            assert not process.at(*point).closed_decays()


def test_the_library_has_families_of_each_selection() -> None:
    from simulation.processes import load

    for selection in ("dilepton", "same-sign"):
        families = {one.family: len(one.points) for one in load().values() if selection in one.samples}
        assert len(families) >= 16
        assert min(families.values()) >= 4
