"""The script that simulates signals: its events are what it says, and of the selection that it names."""

from __future__ import annotations

import gzip
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from unmask import EventSet, read_events

SCRIPT = Path(__file__).parents[1] / "scripts" / "simulate_signals.py"


def simulated(out: Path, name: str, n_events: int, seed: int = 1, *further: str) -> EventSet:
    arguments = [name, "--events", str(n_events), "--seed", str(seed), "--out", str(out), *further]
    subprocess.run([sys.executable, str(SCRIPT), *arguments], check=True, capture_output=True)
    return read_events(out)


def lepton_charge(events: EventSet) -> np.ndarray:
    return ((events.tag == 4) | (events.tag == 6)).sum(axis=1) - ((events.tag == 3) | (events.tag == 5)).sum(axis=1)


@pytest.fixture(scope="module", autouse=True)
def _needs_pythia() -> None:
    pytest.importorskip("pythia8mc", reason="needs the extra sim")
    pytest.importorskip("fastjet", reason="needs the extra sim")


@pytest.mark.parametrize("mass", [1000, 500])
def test_a_stop_becomes_a_b_quark_and_a_lepton_of_its_mass(mass: int, tmp_path: Path) -> None:
    events = simulated(tmp_path / "stop.csv.gz", "stop_rpv_1000", 120, 1, "--mass", f"stop={mass}", "--name", "rpv")
    assert events.process_names.counts() == {"rpv": 120}
    is_lepton = (events.tag >= 3) & (events.tag <= 6)
    is_jet = (events.tag == 1) | (events.tag == 2)
    assert (is_lepton.sum(axis=1) >= 2).all()
    assert (events.met_mev >= 50e3).all()
    assert (np.where(is_jet, events.pt_mev, 0).sum(axis=1) >= 50e3).all()
    masses = [best_mass(events, i) for i in np.flatnonzero(is_jet.sum(axis=1) >= 2)]
    assert 0.85 * mass < np.median(masses) < 1.05 * mass  # a little is lost from the jets


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
    events = simulated(tmp_path / "bprime.csv.gz", "bprime_700_ss", 4)
    is_lepton = (events.tag >= 3) & (events.tag <= 6)
    assert ((np.abs(lepton_charge(events)) == 2) | (is_lepton.sum(axis=1) >= 3)).all()
    lepton_pt = np.where(is_lepton, events.pt_mev, 0)
    assert (lepton_pt.max(axis=1) > 28e3).all()
    assert (events.pt_mev.sum(axis=1) >= 500e3).all()
    assert (((events.tag == 1) | (events.tag == 2)).sum(axis=1) >= 6).all()
    assert (events.n_b_jets >= 2).all()


def test_a_seed_gives_the_same_file_again_and_another_does_not(tmp_path: Path) -> None:
    for name, seed in {"first": 7, "again": 7, "other": 8}.items():
        simulated(tmp_path / name, "ttbar", 10, seed)
    first, again, other = (gzip.decompress((tmp_path / name).read_bytes()) for name in ("first", "again", "other"))
    assert first == again
    assert first != other


def test_leptons_have_their_charge(tmp_path: Path) -> None:
    charge = lepton_charge(simulated(tmp_path / "wprime.csv.gz", "wprime_wz_1000", 200))
    assert (charge > 0).sum() > 1.3 * (charge < 0).sum() > 0  # there are more up than down quarks in protons


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["graviton"], "stop_600_1"),
        ([], "--list"),
        (["ttbar", "--events", "0"], "1 or more"),
        (["ttbar", "--seed", "0"], "1 to 900000000"),  # Pythia would take the clock
        (["ttbar", "--out", "nowhere/ttbar.csv.gz"], "lies in no folder"),
        (["ttbar", "--out", "."], "is a folder"),
        (["stop_600_1", "--mass", "gluino=900"], "accepted: stop=GEV, neutralino=GEV"),
    ],
)
def test_mistakes_are_told_before_anything_is_made(arguments: list[str], said: str, tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_decays_conserve_charge_and_are_all_there_is() -> None:
    spec = spec_from_file_location("simulate_signals", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = module_from_spec(spec)
    sys.modules[spec.name] = script  # dataclasses look it up
    spec.loader.exec_module(script)
    known = script.pythia8mc.Pythia("", False).particleData
    for name, process in script.PROCESSES.items():
        masses = {script.PARTICLES[particle]: mass for particle, mass in process.masses.items()}
        for code, channels in (process.decays or {}).items():
            assert sum(share for share, _ in channels) == pytest.approx(1), name
            for _, products in channels:
                assert sum(map(known.charge, products)) == pytest.approx(known.charge(code)), (name, products)
                assert sum(masses.get(abs(one), known.m0(one)) for one in products) < masses[code]
