"""Simulate LHC signals in the Dark Machines CSV format: `python scripts/simulate_signals.py SIGNAL --events N --out F`.

Proton-proton collisions at 13 TeV from Pythia 8 (leading order, multiple interactions off) go through a parametrised
ATLAS-like detector: tracks bent in a solenoid, electromagnetic and hadronic towers, efficiency, resolution and
isolation of leptons and photons, anti-kT jets of R = 0.6, b-tags with mistags, missing momentum of towers and muons.
Electrons and muons from hadrons are left out. The constants follow the public Delphes card of ATLAS; with them the
top pairs of the benchmark data set are hardly told from those made here (research/2026-11-power-before.md). N counts
selected events.

It needs `pip install '.[sim]'` in a clone.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

try:
    import awkward as ak
    import fastjet
    import pythia8mc
except ImportError as error:
    sys.exit(f"error: {error.name} is not installed; in a clone: pip install '.[sim]'")

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
Table = tuple[tuple[float, ...], ...]

# Detector. Energies in GeV, lengths in metres; a table holds (upper edge of |eta|, value), with 0 above the last edge.
FIELD, RADIUS, HALF_LENGTH = 2.0, 1.15, 3.51  # solenoid in tesla and the cylinder where the calorimeter starts
HADRON_TRACKING = ((1.5, 0.70, 0.95), (2.5, 0.60, 0.85))  # efficiency at pT 0.1 to 1 and above
ELECTRON_TRACKING = ((1.5, 0.95, 0.99), (2.5, 0.83, 0.90))  # efficiency at pT 1 to 100 and above
MUON_TRACKING = ((1.5, 0.75, 0.99), (2.5, 0.70, 0.98))  # as for hadrons
HADRON_RESOLUTION = ((0.5, 0.06, 1.3e-3), (1.5, 0.10, 1.7e-3), (2.5, 0.25, 3.1e-3))  # of pT: constant (+) slope * pT
ELECTRON_RESOLUTION = ((0.5, 0.03, 1.3e-3), (1.5, 0.05, 1.7e-3), (2.5, 0.15, 3.1e-3))
MUON_RESOLUTION = ((0.5, 0.01, 1.0e-4), (1.5, 0.015, 1.5e-4), (2.5, 0.025, 3.5e-4))
IDENTIFICATION = ((1.5, 0.95), (2.5, 0.85))  # electrons, muons and photons above 10 GeV
ECAL_EDGES = np.concatenate([np.arange(171) * 0.0174, [3.125, 3.3, 3.475, 3.65, 3.825, 4, 4.175, 4.35, 4.525, 4.7, 5]])
HCAL_EDGES = np.concatenate([np.arange(26) * 0.1, [2.6, 2.8, 3.0, 3.2, 3.5, 3.7, 3.9, 4.1, 4.3, 4.5, 4.7, 4.9]])
ECAL_PHI, HCAL_PHI = ((2.958, 360), (5.0, 36)), ((2.6, 36), (5.0, 18))  # number of towers in phi
ECAL_RESOLUTION = ((3.2, 0.0017, 0.101, 0.0), (4.9, 0.035, 0.285, 0.0))  # constant, stochastic, noise
HCAL_RESOLUTION = ((1.7, 0.0302, 0.5205, 1.59), (3.2, 0.05, 0.706, 0.0), (4.9, 0.0942, 1.0, 0.0))
ECAL_MINIMUM, HCAL_MINIMUM, SIGNIFICANCE = 0.5, 1.0, 2.0  # least energy of a tower, and in standard deviations
ECAL = (ECAL_EDGES, ECAL_PHI, ECAL_RESOLUTION, ECAL_MINIMUM)
HCAL = (HCAL_EDGES, HCAL_PHI, HCAL_RESOLUTION, HCAL_MINIMUM)
CONE, CONE_PT = 0.5, 0.5  # isolation: radius, least pT of what counts
ISOLATION = {"e": 0.12, "m": 0.25, "g": 0.12}  # most pT in the cone, relative
JET_RADIUS, JET_PT = 0.6, 20.0  # the least pT is before the energy scale
FLAVOUR_CONE, FLAVOUR_PT, FLAVOUR_ETA = 0.5, 1.0, 2.5  # quarks that give a jet its flavour
ACCEPTANCE = {"j": (20.0, 2.8), "e": (15.0, 2.47), "m": (15.0, 2.7), "g": (20.0, 2.37)}  # least pT, largest |eta|
NAMES = {"j": ("j", "b"), "e": ("e+", "e-"), "m": ("m+", "m-"), "g": ("g", "g")}  # the second for codes above 0
MASS = {"e": 0.000511, "m": 0.10566, "g": 0.0}
MAX_SEED = 900_000_000  # Pythia's
INVISIBLE = (12, 14, 16, 1000022)
CHARGED = (211, 321, 2212, 3222, -11, -13, -3112, -3312, -3334)  # stable particles of charge +1


def energy_scale(pt: Array, eta: Array) -> Array:
    return np.sqrt((3.0 - 0.2 * np.abs(eta)) ** 2 / pt + 1.0)


def tag_probability(pt: Array, flavour: Integers) -> Array:
    """Probability of a b-tag for jets of b, c and other flavour."""
    bottom = 0.80 * np.tanh(0.003 * pt) * 30 / (1 + 0.086 * pt)
    charm = 0.20 * np.tanh(0.02 * pt) / (1 + 0.0034 * pt)
    return np.where(flavour == 5, bottom, np.where(flavour == 4, charm, 0.002 + 7.3e-6 * pt))


# Processes. A spectrum gives the masses and decays of supersymmetric particles; all others are out of reach.
PARTICLES = {
    "gluino": 1000021, "stop": 1000006, "sbottom": 1000005, "selectron": 1000011, "smuon": 1000013,
    "chargino": 1000024, "neutralino": 1000022, "neutralino2": 1000023,
    "bprime": 7, "tprime": 8, "zprime": 32, "wprime": 34, "leptoquark": 42,
}  # fmt: skip
GLUINO, STOP, SBOTTOM, SELECTRON, SMUON, CHARGINO, NEUTRALINO, NEUTRALINO_2, *_ = PARTICLES.values()
Decays = dict[int, tuple[tuple[float, tuple[int, ...]], ...]]


@dataclass(frozen=True)
class Process:
    description: str
    settings: tuple[str, ...]
    decays: Decays | None = None
    selection: str = "2b"
    masses: dict[str, int] = field(default_factory=dict)

    def at(self, selection: str, **masses: int) -> Process:
        """The same with a selection, and with masses in GeV."""
        return replace(self, selection=selection, masses=masses)

    def __str__(self) -> str:
        return self.description.format_map({name: f"{mass} GeV" for name, mass in self.masses.items()})


GLUINOS = ("SUSY:gg2gluinogluino = on", "SUSY:qqbar2gluinogluino = on")
SQUARKS = ("SUSY:gg2squarkantisquark = on", "SUSY:qqbar2squarkantisquark = on")
STOPS = (*SQUARKS, f"SUSY:idA = {STOP}", f"SUSY:idB = {STOP}")
SBOTTOMS = (*SQUARKS, f"SUSY:idA = {SBOTTOM}", f"SUSY:idB = {SBOTTOM}")
CHARGINOS = ("SUSY:qqbar2chi+chi- = on", f"SUSY:idA = {CHARGINO}", f"SUSY:idB = {CHARGINO}")
CHARGINO_NEUTRALINO = ("SUSY:qqbar2chi+-chi0 = on", f"SUSY:idA = {CHARGINO}", f"SUSY:idB = {NEUTRALINO_2}")
TO_W: Decays = {CHARGINO: ((1.0, (NEUTRALINO, 24)),)}
LIGHT_W = tuple((0.25, (sign * CHARGINO, sign * down, -sign * (down + 1))) for sign in (1, -1) for down in (1, 3))

TOP_PAIRS = Process("top pairs", ("Top:gg2ttbar = on", "Top:qqbar2ttbar = on"))
GLUINO_TO_TOPS = Process(
    "gluino pairs ({gluino}), each to t tbar neutralino ({neutralino})", GLUINOS,
    {GLUINO: ((1.0, (NEUTRALINO, 6, -6)),)},
)  # fmt: skip
GLUINO_TO_W = Process(
    "gluino pairs ({gluino}), each to two light quarks and a chargino ({chargino}) to W neutralino ({neutralino})",
    GLUINOS, {**TO_W, GLUINO: LIGHT_W},
)  # fmt: skip
GLUINO_TO_TBW = Process(
    "gluino pairs ({gluino}), each to t b and a chargino ({chargino}) to W neutralino ({neutralino})", GLUINOS,
    {**TO_W, GLUINO: ((0.5, (CHARGINO, 5, -6)), (0.5, (-CHARGINO, -5, 6)))},
)  # fmt: skip
GLUINO_RPV = Process(
    "gluino pairs ({gluino}), each to t b s or its antiparticles", GLUINOS,
    {GLUINO: ((0.5, (6, 5, 3)), (0.5, (-6, -5, -3)))},
)  # fmt: skip
STOP_TO_TOP = Process(
    "stop pairs ({stop}), each to t neutralino ({neutralino})", STOPS, {STOP: ((1.0, (NEUTRALINO, 6)),)}
)
STOP_TO_W = Process(
    "stop pairs ({stop}), each to b and a chargino ({chargino}) to W neutralino ({neutralino})", STOPS,
    {**TO_W, STOP: ((1.0, (CHARGINO, 5)),)},
)  # fmt: skip
STOP_RPV = Process("stop pairs ({stop}), each to b and e or mu", STOPS, {STOP: ((0.5, (5, -11)), (0.5, (5, -13)))})
SBOTTOM_TO_TOP = Process(
    "sbottom pairs ({sbottom}), each to t and a chargino ({chargino}) to W neutralino ({neutralino})", SBOTTOMS,
    {**TO_W, SBOTTOM: ((1.0, (-CHARGINO, 6)),)},
)  # fmt: skip
CHARGINO_TO_W = Process("chargino pairs ({chargino}), each to W neutralino ({neutralino})", CHARGINOS, TO_W)
CHARGINO_TO_WZ = Process(
    "chargino ({chargino}) and second neutralino ({neutralino2}) to W, Z and neutralinos ({neutralino})",
    CHARGINO_NEUTRALINO, {**TO_W, NEUTRALINO_2: ((1.0, (NEUTRALINO, 23)),)},
)  # fmt: skip
SLEPTONS = Process(
    "pairs of selectrons ({selectron}) or smuons ({smuon}), each to e or mu and a neutralino ({neutralino})",
    ("SUSY:qqbar2sleptonantislepton = on",),
    {SELECTRON: ((1.0, (NEUTRALINO, 11)),), SMUON: ((1.0, (NEUTRALINO, 13)),)},
)
BPRIMES = Process(
    "pairs of b' ({bprime}), each to t W",
    ("FourthBottom:gg2bPrimebPrimebar = on", "FourthBottom:qqbar2bPrimebPrimebar = on",
     "8:m0 = 3000", "7:onMode = off", "7:onIfAny = 6"),
)  # fmt: skip
TPRIMES = Process(
    "pairs of t' ({tprime}), each to b W",
    ("FourthTop:gg2tPrimetPrimebar = on", "FourthTop:qqbar2tPrimetPrimebar = on",
     "7:m0 = 3000", "8:onMode = off", "8:onIfAny = 5"),
)  # fmt: skip
ZPRIME = Process(
    "Z' ({zprime}) to t tbar",
    ("NewGaugeBoson:ffbar2gmZZprime = on", "Zprime:gmZmode = 3", "32:onMode = off", "32:onIfAny = 6"),
)
WPRIME = Process(
    "W' ({wprime}) to W Z",
    ("NewGaugeBoson:ffbar2Wprime = on", "Wprime:coup2WZ = 1", "34:onMode = off", "34:onIfAll = 23 24"),
)
LEPTOQUARKS = Process(
    "leptoquark pairs ({leptoquark}), each to c mu",
    ("LeptoQuark:gg2LQLQbar = on", "LeptoQuark:qqbar2LQLQbar = on", "42:0:products = 4 13"),
)
PROCESSES = {
    "ttbar": TOP_PAIRS.at("2b"),
    "gluino_1000_1": GLUINO_TO_TOPS.at("2b", gluino=1000, neutralino=1),
    "stop_600_1": STOP_TO_TOP.at("2b", stop=600, neutralino=1),
    "chargino_300_140": CHARGINO_TO_W.at("2b", chargino=300, neutralino=140),
    "wz_300_100": CHARGINO_TO_WZ.at("2b", chargino=300, neutralino2=300, neutralino=100),
    "gluino_1000_500_w": GLUINO_TO_W.at("2b", gluino=1000, chargino=750, neutralino=500),
    "stop_rpv_1000": STOP_RPV.at("2b", stop=1000),
    "zprime_tt_1500": ZPRIME.at("2b", zprime=1500),
    "bprime_700": BPRIMES.at("2b", bprime=700),
    "slepton_400_1": SLEPTONS.at("2b", selectron=400, smuon=400, neutralino=1),
    "chargino_500_1": CHARGINO_TO_W.at("2b", chargino=500, neutralino=1),
    "stop_500_w": STOP_TO_W.at("2b", stop=500, chargino=250, neutralino=100),
    "gluino_1100_500": GLUINO_TO_TOPS.at("2b", gluino=1100, neutralino=500),
    "leptoquark_900": LEPTOQUARKS.at("2b", leptoquark=900),
    "wprime_wz_1000": WPRIME.at("2b", wprime=1000),
    "tprime_800": TPRIMES.at("2b", tprime=800),
    "gluino_1200_1_ss": GLUINO_TO_TOPS.at("four-top", gluino=1200, neutralino=1),
    "gluino_rpv_1000_ss": GLUINO_RPV.at("four-top", gluino=1000),
    "bprime_700_ss": BPRIMES.at("four-top", bprime=700),
    "sbottom_600_ss": SBOTTOM_TO_TOP.at("four-top", sbottom=600, chargino=200, neutralino=50),
    "gluino_1100_500_ss": GLUINO_TO_TOPS.at("four-top", gluino=1100, neutralino=500),
    "gluino_tbw_1000_ss": GLUINO_TO_TBW.at("four-top", gluino=1000, chargino=200, neutralino=50),
    "bprime_1000_ss": BPRIMES.at("four-top", bprime=1000),
    "sbottom_800_ss": SBOTTOM_TO_TOP.at("four-top", sbottom=800, chargino=400, neutralino=50),
}


def spectrum(process: Process) -> str:
    """Write masses, mixings (gauge eigenstates: bino, wino, higgsinos) and decays in the SUSY Les Houches format."""
    heavy = [*range(1000001, 1000007), *range(2000001, 2000007), *range(1000011, 1000017), 2000011, 2000013, 2000015]
    others = [1000021, 1000022, 1000023, 1000024, 1000025, 1000035, 1000037, 36, 37]
    masses = dict.fromkeys(heavy + others, 10_000.0) | {25: 125.0, 35: 10_000.0}
    masses |= {PARTICLES[name]: float(mass) for name, mass in process.masses.items()}
    lines = ["BLOCK MODSEL", " 1 0", "BLOCK MINPAR", " 3 10.0", "BLOCK MASS"]
    lines += [f" {code} {mass:.6e}" for code, mass in masses.items()]
    for block, size in {"NMIX": 4, "UMIX": 2, "VMIX": 2, "STOPMIX": 2, "SBOTMIX": 2, "STAUMIX": 2}.items():
        pairs = [(i + 1, j + 1) for i in range(size) for j in range(size)]
        lines += [f"BLOCK {block}", *(f" {i} {j} {float(i == j)}" for i, j in pairs)]
    lines += ["BLOCK ALPHA", " -0.1", "BLOCK HMIX Q= 1000", " 1 10000.", " 2 10.", " 3 246."]
    for code, channels in (process.decays or {}).items():
        lines.append(f"DECAY {code} {1e-3 * masses[code]:.6e}")
        lines += [f" {share} {len(products)} {' '.join(map(str, products))}" for share, products in channels]
    return "\n".join(lines) + "\n"


class LeptonVeto(pythia8mc.UserHooks):
    """Stop, before its shower, an event that hardly can be selected: its hard process has too few charged leptons."""

    def __init__(self, same_sign: bool) -> None:
        super().__init__()
        self.same_sign, self.generated = same_sign, 0

    def canVetoProcessLevel(self) -> bool:  # noqa: N802
        return True

    def doVetoProcessLevel(self, process: pythia8mc.Event) -> bool:  # noqa: N802
        self.generated += 1
        charges = [p.charge() for p in process if p.isFinal() and p.idAbs() in (11, 13, 15)]
        return len(charges) < 2 or (self.same_sign and len(charges) == 2 and sum(charges) == 0)


def start(process: Process, seed: int) -> tuple[pythia8mc.Pythia, LeptonVeto]:
    pythia = pythia8mc.Pythia("", False)
    settings = ["Print:quiet = on", "Beams:eCM = 13000", "PartonLevel:MPI = off", "Random:setSeed = on"]
    settings += [f"Random:seed = {seed}", *process.settings]
    if not process.decays:
        settings += [f"{PARTICLES[name]}:m0 = {mass}" for name, mass in process.masses.items()]
    with tempfile.TemporaryDirectory() as folder:
        if process.decays:
            (Path(folder) / "spectrum.slha").write_text(spectrum(process))
            settings += [f"SLHA:file = {folder}/spectrum.slha", "SLHA:verbose = 0"]
        for line in settings:
            if not pythia.readString(line):
                raise ValueError(f"Pythia does not know the setting {line!r}")
        veto = LeptonVeto(process.selection == "four-top")
        pythia.setUserHooksPtr(veto)
        if not pythia.init():
            raise RuntimeError("Pythia did not start")
    return pythia, veto


def look_up(table: Table, eta: Array, column: int = 1) -> Array:
    """Value of a table of the detector at ``eta``."""
    return np.array([*(row[column] for row in table), 0.0])[np.searchsorted([row[0] for row in table], np.abs(eta))]


def log_normal(rng: np.random.Generator, mean: Array, sigma: Array) -> Array:
    width = np.sqrt(np.log1p((sigma / np.maximum(mean, 1e-9)) ** 2))
    return mean * np.exp(width * rng.standard_normal(len(mean)) - width**2 / 2)


def separation(eta: Array, phi: Array, other_eta: Array, other_phi: Array) -> Array:
    return np.hypot(eta - other_eta, np.mod(phi - other_phi + np.pi, 2 * np.pi) - np.pi)


@dataclass
class Objects:
    """Columns of particles, tracks, towers or what is found, event after event."""

    event: Integers
    pt: Array
    eta: Array
    phi: Array
    code: Integers
    row: Integers  # place among all particles, or number of the electromagnetic tower

    def __getitem__(self, chosen: Mask | Integers | slice) -> Objects:
        return Objects(*(column[chosen] for column in vars(self).values()))

    def __len__(self) -> int:
        return len(self.event)


def stack(*parts: Objects) -> Objects:
    """All parts, sorted by event."""
    joined = Objects(*map(np.concatenate, zip(*(vars(part).values() for part in parts), strict=True)))
    return joined[np.argsort(joined.event, kind="stable")]


def flat(particles: ak.Array, name: str) -> Array:
    return ak.to_numpy(ak.flatten(particles[name]))


class Truth:
    """All particles of a batch of events."""

    def __init__(self, batch: ak.Array) -> None:
        counts = ak.to_numpy(ak.num(batch.prt.id))
        self.n_events = len(counts)
        first = np.repeat(np.cumsum(counts) - counts, counts)
        self.mother, self.place = flat(batch.prt, "mother1") + first, np.arange(len(first)) - first
        px, py, pz, self.energy = (flat(batch.prt.p, name) for name in ("px", "py", "pz", "e"))
        pt, event = np.hypot(px, py), np.repeat(np.arange(len(counts)), counts)
        eta, code = np.arcsinh(pz / np.maximum(pt, 1e-9)), flat(batch.prt, "id").astype(np.int64)
        self.all = Objects(event, pt, eta, np.arctan2(py, px), code, np.arange(len(first)))
        self.kind, self.stable = np.abs(code), flat(batch.prt, "status") > 0

    def prompt(self, rows: Integers) -> Mask:
        """Which of ``rows`` have no hadron among their ancestors."""
        prompt, ancestor = np.ones(len(rows), bool), self.mother[rows]
        while np.any(inside := self.place[ancestor] > 2):  # below are the beams
            kind = self.kind[ancestor]
            prompt &= ~(inside & (((kind > 100) & (kind < 1_000_000)) | (kind > 9_000_000)))
            ancestor = np.where(inside, self.mother[ancestor], ancestor)
        return prompt


def impact(particles: Objects) -> tuple[Array, Array]:
    """Eta and phi where particles from the origin leave the solenoid."""
    charge = np.isin(particles.code, CHARGED).astype(int) - np.isin(-particles.code, CHARGED)
    pt = np.maximum(particles.pt, 1e-9)
    curvature = 0.3 * FIELD * np.abs(charge) / pt + 1e-9
    slope = np.maximum(np.abs(np.sinh(particles.eta)), 1e-9)
    to_side = np.where(RADIUS * curvature < 2, 2 / curvature * np.arcsin(np.minimum(RADIUS * curvature / 2, 1)), np.inf)
    path = np.minimum(to_side, HALF_LENGTH / slope)
    distance = np.abs(2 / curvature * np.sin(path * curvature / 2))
    eta = np.arcsinh(np.sign(particles.eta) * path * slope / np.maximum(distance, 1e-9))
    return eta, np.mod(particles.phi - charge * path * curvature / 2 + np.pi, 2 * np.pi) - np.pi


def track_resolution(tracks: Objects, table: Table) -> Array:
    return np.hypot(look_up(table, tracks.eta), look_up(table, tracks.eta, 2) * tracks.pt)


class Calorimeter:
    """One layer of towers with the energies that particles leave in it."""

    def __init__(self, rng: np.random.Generator, layer: tuple, particles: Objects, energy: Array) -> None:
        edges, phi_bins, self.resolution, self.minimum = layer
        self.edges = np.concatenate([-edges[:0:-1], edges])
        self.centres = (self.edges[1:] + self.edges[:-1]) / 2
        self.n_phi = look_up(phi_bins, self.centres).astype(np.int64)
        cells, inside = self.cells_of(particles)
        self.cells, towers = np.unique(cells[inside], return_inverse=True)
        event, ring, column = self.cells // (360 * len(self.centres)), self.ring, self.cells % 360
        true_energy = np.bincount(towers, energy[inside], len(self.cells))
        measured = log_normal(rng, true_energy, self.sigma(true_energy))
        self.energy = measured * (measured >= np.maximum(self.minimum, SIGNIFICANCE * self.sigma(measured)))
        eta = rng.uniform(self.edges[ring], self.edges[ring + 1])
        phi = 2 * np.pi * (column + rng.uniform(size=len(column))) / self.n_phi[ring] - np.pi
        index = np.arange(len(event))
        self.towers = Objects(event, self.energy / np.cosh(eta), eta, phi, np.full(len(event), 22), index)

    @property
    def ring(self) -> Integers:
        return self.cells // 360 % len(self.centres)

    def cells_of(self, particles: Objects) -> tuple[Integers, Mask]:
        """Number of the cell that each particle hits, and whether there is one."""
        eta, phi = impact(particles)
        ring = np.searchsorted(self.edges, eta) - 1
        inside = (ring >= 0) & (ring < len(self.centres))
        ring = ring.clip(0, len(self.centres) - 1)
        column = ((phi + np.pi) / (2 * np.pi) * self.n_phi[ring]).astype(np.int64).clip(0, self.n_phi[ring] - 1)
        return (particles.event * len(self.centres) + ring) * 360 + column, inside

    def sigma(self, energy: Array) -> Array:
        constant, stochastic, noise = (look_up(self.resolution, self.centres[self.ring], k) for k in (1, 2, 3))
        return np.sqrt((constant * energy) ** 2 + stochastic**2 * energy + noise**2)

    def flow(self, tracks: Objects, true_tracks: Objects, table: Table) -> tuple[Objects, Objects]:
        """Where towers exceed their tracks, the excess; and tracks, elsewhere at the best of both energies."""
        cells, inside = self.cells_of(true_tracks)
        tower = np.searchsorted(self.cells, cells).clip(max=len(self.cells) - 1)
        inside &= self.cells[tower] == cells
        energy = tracks.pt * np.cosh(tracks.eta)
        spread = track_resolution(true_tracks, table) * energy
        total, variance = (np.bincount(tower[inside], x[inside], len(self.cells)) for x in (energy, spread**2))
        excess, own = np.maximum(self.energy - total, 0.0), self.sigma(self.energy) ** 2
        significant = (excess > self.minimum) & (excess > SIGNIFICANCE * np.sqrt(own + variance))
        best = (total * own + self.energy * variance) / np.maximum(own + variance, 1e-12)
        scale = np.where(significant, 1.0, best / np.maximum(total, 1e-9))[tower]
        neutral = replace(self.towers, pt=excess / np.cosh(self.towers.eta))[significant]
        best_pt = np.where(inside, tracks.pt * scale, tracks.pt)
        return neutral, replace(tracks, pt=best_pt, row=np.where(inside, tower, -1))


def isolated(candidates: Objects, flow: Objects, letter: str) -> Mask:
    """Which candidates have little flow around them; a photon's own tower does not count."""
    kept = np.zeros(len(candidates), bool)
    first, last = (np.searchsorted(flow.event, candidates.event, side) for side in ("left", "right"))
    for i in range(len(candidates)):
        near = flow[first[i] : last[i]]
        counted = separation(near.eta, near.phi, candidates.eta[i], candidates.phi[i]) < CONE
        counted &= (near.pt > CONE_PT) & ((letter != "g") | (near.row != candidates.row[i]))
        kept[i] = near.pt[counted].sum() < ISOLATION[letter] * candidates.pt[i]
    return kept


def find_jets(rng: np.random.Generator, truth: Truth, towers: Objects, taken: Mask) -> tuple[Objects, Array]:
    """Cluster towers to jets without those that hold a taken tower; tag them; return them and their energies."""
    counts = np.bincount(towers.event, minlength=truth.n_events)
    momenta = {"px": towers.pt * np.cos(towers.phi), "py": towers.pt * np.sin(towers.phi)}
    momenta |= {"pz": towers.pt * np.sinh(towers.eta), "E": towers.pt * np.cosh(towers.eta)}
    by_event = ak.unflatten(ak.zip(momenta, with_name="Momentum4D"), counts)
    cluster = fastjet.ClusterSequence(by_event, fastjet.JetDefinition(fastjet.antikt_algorithm, JET_RADIUS))
    found, members = cluster.inclusive_jets(min_pt=JET_PT), cluster.constituent_index(min_pt=JET_PT)
    event = np.repeat(np.arange(truth.n_events), ak.to_numpy(ak.num(found.px)))
    jet = np.repeat(np.arange(len(event)), ak.to_numpy(ak.flatten(ak.num(members, axis=2))))
    rows = ak.to_numpy(ak.flatten(members, axis=None)) + (np.cumsum(counts) - counts)[event[jet]]
    free = np.bincount(jet, taken[rows], len(event)) == 0
    px, py, pz, energy = (flat(found, name) for name in ("px", "py", "pz", "E"))
    pt = np.hypot(px, py)
    eta, phi = np.arcsinh(pz / pt), np.arctan2(py, px)
    scale = energy_scale(pt, eta)
    flavour = np.zeros(len(event), np.int64)
    for kind in (4, 5):
        near = (truth.kind == kind) & (truth.all.pt > FLAVOUR_PT) & (np.abs(truth.all.eta) < FLAVOUR_ETA)
        quarks = truth.all[near]
        first, last = (np.searchsorted(quarks.event, event, side) for side in ("left", "right"))
        for i in range(len(event)):
            at = slice(first[i], last[i])
            if np.any(separation(quarks.eta[at], quarks.phi[at], eta[i], phi[i]) < FLAVOUR_CONE):
                flavour[i] = kind
    tagged = rng.uniform(size=len(event)) < tag_probability(pt * scale, flavour)
    jets = Objects(event, pt * scale, eta, phi, tagged.astype(np.int64), np.arange(len(event)))
    return jets[free], (energy * scale)[free]


Found = dict[str, list[tuple[str, float, float, float, float]]]  # name, energy, pT, eta, phi by letter


def detect(rng: np.random.Generator, truth: Truth) -> list[tuple[float, float, Found]]:
    """Simulate the detector on a batch: missing momentum and objects of each event."""
    rows = np.flatnonzero(truth.stable & ~np.isin(truth.kind, INVISIBLE))
    visible, kind, energy = truth.all[rows], truth.kind[rows], truth.energy[rows]
    eta, pt, hadron = visible.eta, visible.pt, np.isin(kind, np.abs(CHARGED)) & (kind > 100)

    def tracks_of(chosen: Mask, efficiency: Table, knee: float, table: Table) -> Objects:
        probability = np.where(pt > knee, look_up(efficiency, eta, 2), look_up(efficiency, eta))
        tracks = visible[chosen & (pt > 0.1) & (rng.uniform(size=len(pt)) < probability)]
        return replace(tracks, pt=log_normal(rng, tracks.pt, tracks.pt * track_resolution(tracks, table)))

    electrons = tracks_of(kind == 11, ELECTRON_TRACKING, 100, ELECTRON_RESOLUTION)
    muons = tracks_of(kind == 13, MUON_TRACKING, 1, MUON_RESOLUTION)
    hadrons = tracks_of(hadron, HADRON_TRACKING, 1, HADRON_RESOLUTION)
    share = np.where(np.isin(kind, (11, 22)), 1.0, np.where(np.isin(kind, (310, 3122)), 0.3, 0.0))
    light, heavy = share > 0, (share < 1) & (kind != 13)
    ecal = Calorimeter(rng, ECAL, visible[light], (energy * share)[light])
    hcal = Calorimeter(rng, HCAL, visible[heavy], (energy * (1 - share))[heavy])
    prompt = truth.prompt(electrons.row)
    photons, electrons = ecal.flow(electrons, truth.all[electrons.row], ELECTRON_RESOLUTION)
    neutral, hadrons = hcal.flow(hadrons, truth.all[hadrons.row], HADRON_RESOLUTION)
    for objects in (neutral, hadrons, hcal.towers):
        objects.row[:] = -1
    flow = stack(photons, neutral, hadrons)
    found = {"e": electrons[prompt], "m": muons[truth.prompt(muons.row)], "g": photons}
    for letter, objects in found.items():
        kept = (objects.pt > 10) & (rng.uniform(size=len(objects)) < look_up(IDENTIFICATION, objects.eta))
        found[letter] = objects[kept][isolated(objects[kept], flow, letter)]
    towers = stack(ecal.towers, hcal.towers)
    towers = towers[towers.pt > 0]
    taken = (towers.row >= 0) & np.isin(towers.row, np.concatenate([found["e"].row, found["g"].row]))
    found["j"], jet_energy = find_jets(rng, truth, towers, taken)

    seen = stack(towers, muons)
    sum_x, sum_y = (np.bincount(seen.event, seen.pt * f(seen.phi), truth.n_events) for f in (np.cos, np.sin))
    met, met_phi = np.hypot(sum_x, sum_y), np.arctan2(-sum_y, -sum_x)
    events: list[Found] = [{letter: [] for letter in "jemg"} for _ in range(truth.n_events)]
    for letter, objects in found.items():
        energies = jet_energy if letter == "j" else np.hypot(objects.pt * np.cosh(objects.eta), MASS[letter])
        least, largest = ACCEPTANCE[letter]
        for i in np.flatnonzero((objects.pt > least) & (np.abs(objects.eta) < largest)):
            name = NAMES[letter][int(objects.code[i] > 0)]
            entry = (name, energies[i], objects.pt[i], objects.eta[i], objects.phi[i])
            events[objects.event[i]][letter].append(entry)
    for event in events:
        for listed in event.values():
            listed.sort(key=lambda entry: -entry[2])
    return list(zip(met, met_phi, events, strict=True))


def selected(met: float, found: Found, selection: str) -> bool:
    """The two selections: missing momentum and two leptons, or many jets and leptons of one sign or three."""
    leptons = sorted(found["e"] + found["m"], key=lambda lepton: -lepton[2])
    ht = sum(jet[2] for jet in found["j"])
    if selection == "2b":
        return met >= 50 and ht >= 50 and len(leptons) >= 2
    if len(leptons) < 2 or leptons[0][2] < 28 or leptons[1][2] < 20:
        return False
    same_sign = leptons[0][0][1] == leptons[1][0][1]
    tags = sum(jet[0] == "b" for jet in found["j"])
    ht += sum(lepton[2] for lepton in leptons)
    return len(found["j"]) >= 6 and tags >= 2 and ht >= 500 and (same_sign or len(leptons) >= 3)


def line_of(number: int, name: str, met: float, met_phi: float, found: Found) -> str:
    entries = [f"{number};{name};1;{met * 1e3:.6g};{met_phi:.6g}"]
    for listed in found.values():
        entries += [f"{o},{e * 1e3:.6g},{pt * 1e3:.6g},{eta:.6g},{phi:.6g}" for o, e, pt, eta, phi in listed]
    return ";".join(entries) + ";\n"


def in_reach(batch: ak.Array) -> ak.Array:
    """Leave out, before the detector, events without two prompt leptons that it could find."""
    truth = Truth(batch)
    hard = truth.stable & np.isin(truth.kind, (11, 13)) & (truth.all.pt > 10) & (np.abs(truth.all.eta) < 2.6)
    rows = np.flatnonzero(hard)
    leptons = truth.all[rows[truth.prompt(rows)]]
    return batch[np.bincount(leptons.event, minlength=truth.n_events) >= 2]


def simulate(process: Process, name: str, n_events: int, seed: int, out: Path) -> None:
    """Write ``n_events`` selected events of a process to ``out``, where it has this name, or nothing."""
    partial = out.with_name(out.name + ".part")
    try:
        with gzip.open(partial, "wt") as file:
            file.writelines(lines_of(process, name, n_events, seed))
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)


def lines_of(process: Process, name: str, n_events: int, seed: int) -> Iterator[str]:
    rng = np.random.default_rng(seed)
    pythia, veto = start(process, seed)
    begin, written = time.monotonic(), 0
    while written < n_events:
        events = detect(rng, Truth(in_reach(pythia.nextBatch(500))))
        chosen = [event for event in events if selected(event[0], event[2], process.selection)]
        for event in chosen[: n_events - written]:
            written += 1
            yield line_of(written, name, *event)
        rate = written / (time.monotonic() - begin)
        print(f"{name}: {written} selected of {veto.generated}, {rate:.0f} per second", file=sys.stderr)


def with_masses(process: Process, changes: list[str]) -> Process:
    """The process with other masses, given as in ``gluino=1300``."""
    masses = dict(process.masses)
    for change in changes:
        name, _, value = change.partition("=")
        if name not in masses or not value.isdigit():
            raise ValueError(f"--mass {change}; accepted: {', '.join(f'{one}=GEV' for one in masses) or 'none here'}")
        masses[name] = int(value)
    return process.at(process.selection, **masses)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("signal", nargs="?", choices=PROCESSES, metavar="SIGNAL")
    parser.add_argument("--list", action="store_true", help="print the signals and stop")
    parser.add_argument("--events", type=int, default=1000, help="selected events wanted (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of Pythia and of the detector (default: %(default)s)")
    parser.add_argument("--mass", action="append", default=[], metavar="NAME=GEV", help="another mass (repeatable)")
    parser.add_argument("--name", help="of the process in the file, SIGNAL by default")
    parser.add_argument("--out", type=Path, help="file to write, NAME.csv.gz by default")
    arguments = parser.parse_args()
    if arguments.list:
        for name, process in PROCESSES.items():
            print(f"{name:20} {process.selection:9} {process}")
        return
    if arguments.signal is None:
        parser.error("name a SIGNAL, or ask for the --list")
    if arguments.events < 1:
        parser.error(f"--events is {arguments.events}; accepted: 1 or more")
    if not 1 <= arguments.seed <= MAX_SEED:
        parser.error(f"--seed is {arguments.seed}; accepted: 1 to {MAX_SEED}")
    name = arguments.name or arguments.signal
    out = arguments.out or Path(f"{name}.csv.gz")
    if out.is_dir() or not out.parent.is_dir():
        parser.error(f"--out {out}: {'is a' if out.is_dir() else 'lies in no'} folder")
    try:
        process = with_masses(PROCESSES[arguments.signal], arguments.mass)
    except ValueError as error:
        parser.error(str(error))
    try:
        simulate(process, name, arguments.events, arguments.seed, out)
    except KeyboardInterrupt:
        sys.exit("stopped; nothing was written")


if __name__ == "__main__":
    main()
