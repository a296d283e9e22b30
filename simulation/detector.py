"""A parametrized detector: particles in, reconstructed objects and missing transverse momentum out.

Tracks bend in a solenoid and reach electromagnetic and hadronic towers; leptons and photons have an efficiency, a
resolution and an isolation; anti-kT jets have b-tags with mistags. All numbers are in a card, ``detectors/*.toml``.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import awkward as ak
import fastjet
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
Table = list[list[float]]

CARDS = Path(__file__).with_name("detectors")
JET_PT = 20.0  # GeV, before the energy scale
FLAVOR_CONE, FLAVOR_PT, FLAVOR_ETA = 0.5, 1.0, 2.5  # quarks that give a jet its flavor
NAMES = {"j": ("j", "b"), "e": ("e+", "e-"), "m": ("m+", "m-"), "g": ("g", "g")}  # the second for codes above 0
MASS = {"e": 0.000511, "m": 0.10566, "g": 0.0}
LEFT_RIGHT = (9900012, 9900014, 9900016, 9900023, 9900024, 9900041, 9900042)  # not hadrons, for all their numbers
INVISIBLE = (12, 14, 16, 1000022, 1000039)
CHARGED = (211, 321, 2212, 3222, -11, -13, -3112, -3312, -3334)  # stable particles of charge +1


@dataclass(frozen=True)
class Card:
    """Constants of a detector; `detectors/atlas.toml` explains them."""

    description: str
    field: float
    radius: float
    half_length: float
    hadron_tracking: Table
    electron_tracking: Table
    muon_tracking: Table
    tracking_knee: dict[str, float]
    hadron_resolution: Table
    electron_resolution: Table
    muon_resolution: Table
    ecal_edges: list[float]
    ecal_further: list[float]
    ecal_phi: Table
    hcal_edges: list[float]
    hcal_further: list[float]
    hcal_phi: Table
    ecal_resolution: Table
    hcal_resolution: Table
    tower_minimum: dict[str, float]
    tower_significance: float
    identification: Table
    cone: float
    cone_min_pt: float
    isolation: dict[str, float]
    jet_radius: float
    jet_scale: list[float]
    b_tag: dict[str, list[float]]
    acceptance: dict[str, list[float]]

    @classmethod
    def load(cls, name: str | Path) -> Card:
        """Read a card of this folder by its name, or any TOML file."""
        path = Path(name) if str(name).endswith(".toml") else CARDS / f"{name}.toml"
        if not path.is_file():
            known = ", ".join(sorted(one.stem for one in CARDS.glob("*.toml")))
            raise ValueError(f"unknown detector {str(name)!r}; known: {known}, or a TOML file like theirs")
        try:
            return cls(**tomllib.loads(path.read_text()))
        except (tomllib.TOMLDecodeError, TypeError) as error:
            raise ValueError(f"{path}: not a card of a detector ({error})") from None

    @cached_property
    def layers(self) -> dict[str, Layer]:
        """Edges of towers in |eta|, numbers of towers in phi, resolution and least energy, by layer."""
        return {
            name: Layer(np.append(np.arange(*edges), further), phi, resolution, self.tower_minimum[name])
            for name, edges, further, phi, resolution in (
                ("ecal", self.ecal_edges, self.ecal_further, self.ecal_phi, self.ecal_resolution),
                ("hcal", self.hcal_edges, self.hcal_further, self.hcal_phi, self.hcal_resolution),
            )
        }

    def energy_scale(self, pt: Array, eta: Array) -> Array:
        """Correction of the momentum of jets."""
        constant, slope = self.jet_scale
        return np.sqrt((constant - slope * np.abs(eta)) ** 2 / pt + 1.0)

    def tag_probability(self, pt: Array, flavor: Integers) -> Array:
        """Probability of a b-tag for jets of b, c and other flavor."""
        bottom, charm = (
            plateau * np.tanh(rise * pt) / (1 + slope * pt)
            for plateau, rise, slope in (self.b_tag["bottom"], self.b_tag["charm"])
        )
        constant, slope = self.b_tag["light"]
        return np.where(flavor == 5, bottom, np.where(flavor == 4, charm, constant + slope * pt))


@dataclass(frozen=True)
class Layer:
    """One layer of towers: edges in |eta|, number of towers in phi, resolution of the energy, least energy."""

    edges: Array
    n_phi: Table
    resolution: Table
    minimum: float


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
            hadron = ((kind > 100) & (kind < 1_000_000)) | ((kind > 9_000_000) & ~np.isin(kind, LEFT_RIGHT))
            prompt &= ~(inside & hadron)
            ancestor = np.where(inside, self.mother[ancestor], ancestor)
        return prompt


def impact(card: Card, particles: Objects) -> tuple[Array, Array]:
    """Eta and phi where particles from the origin leave the solenoid."""
    charge = np.isin(particles.code, CHARGED).astype(int) - np.isin(-particles.code, CHARGED)
    pt = np.maximum(particles.pt, 1e-9)
    curvature = 0.3 * card.field * np.abs(charge) / pt + 1e-9
    slope = np.maximum(np.abs(np.sinh(particles.eta)), 1e-9)
    to_side = np.where(
        card.radius * curvature < 2, 2 / curvature * np.arcsin(np.minimum(card.radius * curvature / 2, 1)), np.inf
    )
    path = np.minimum(to_side, card.half_length / slope)
    distance = np.abs(2 / curvature * np.sin(path * curvature / 2))
    eta = np.arcsinh(np.sign(particles.eta) * path * slope / np.maximum(distance, 1e-9))
    return eta, np.mod(particles.phi - charge * path * curvature / 2 + np.pi, 2 * np.pi) - np.pi


def track_resolution(tracks: Objects, table: Table) -> Array:
    return np.hypot(look_up(table, tracks.eta), look_up(table, tracks.eta, 2) * tracks.pt)


class Calorimeter:
    """One layer of towers with the energies that particles leave in it."""

    def __init__(self, rng: np.random.Generator, card: Card, layer: str, particles: Objects, energy: Array) -> None:
        self.card, self.layer = card, card.layers[layer]
        self.edges = np.concatenate([-self.layer.edges[:0:-1], self.layer.edges])
        self.centers = (self.edges[1:] + self.edges[:-1]) / 2
        self.n_phi = look_up(self.layer.n_phi, self.centers).astype(np.int64)
        cells, inside = self.cells_of(particles)
        self.cells, towers = np.unique(cells[inside], return_inverse=True)
        event, ring, column = self.cells // (360 * len(self.centers)), self.ring, self.cells % 360
        true_energy = np.bincount(towers, energy[inside], len(self.cells))
        measured = log_normal(rng, true_energy, self.sigma(true_energy))
        self.energy = measured * (
            measured >= np.maximum(self.layer.minimum, card.tower_significance * self.sigma(measured))
        )
        eta = rng.uniform(self.edges[ring], self.edges[ring + 1])
        phi = 2 * np.pi * (column + rng.uniform(size=len(column))) / self.n_phi[ring] - np.pi
        index = np.arange(len(event))
        self.towers = Objects(event, self.energy / np.cosh(eta), eta, phi, np.full(len(event), 22), index)

    @property
    def ring(self) -> Integers:
        return self.cells // 360 % len(self.centers)

    def cells_of(self, particles: Objects) -> tuple[Integers, Mask]:
        """Number of the cell that each particle hits, and whether there is one."""
        eta, phi = impact(self.card, particles)
        ring = np.searchsorted(self.edges, eta) - 1
        inside = (ring >= 0) & (ring < len(self.centers))
        ring = ring.clip(0, len(self.centers) - 1)
        column = ((phi + np.pi) / (2 * np.pi) * self.n_phi[ring]).astype(np.int64).clip(0, self.n_phi[ring] - 1)
        return (particles.event * len(self.centers) + ring) * 360 + column, inside

    def sigma(self, energy: Array) -> Array:
        constant, stochastic, noise = (look_up(self.layer.resolution, self.centers[self.ring], k) for k in (1, 2, 3))
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
        significant = (excess > self.layer.minimum) & (excess > self.card.tower_significance * np.sqrt(own + variance))
        best = (total * own + self.energy * variance) / np.maximum(own + variance, 1e-12)
        scale = np.where(significant, 1.0, best / np.maximum(total, 1e-9))[tower]
        neutral = replace(self.towers, pt=excess / np.cosh(self.towers.eta))[significant]
        best_pt = np.where(inside, tracks.pt * scale, tracks.pt)
        return neutral, replace(tracks, pt=best_pt, row=np.where(inside, tower, -1))


def isolated(card: Card, candidates: Objects, flow: Objects, letter: str) -> Mask:
    """Which candidates have little flow around them; a photon's own tower does not count."""
    kept = np.zeros(len(candidates), bool)
    first, last = (np.searchsorted(flow.event, candidates.event, side) for side in ("left", "right"))
    for i in range(len(candidates)):
        near = flow[first[i] : last[i]]
        counted = separation(near.eta, near.phi, candidates.eta[i], candidates.phi[i]) < card.cone
        counted &= (near.pt > card.cone_min_pt) & ((letter != "g") | (near.row != candidates.row[i]))
        kept[i] = near.pt[counted].sum() < card.isolation[letter] * candidates.pt[i]
    return kept


def find_jets(
    rng: np.random.Generator, card: Card, truth: Truth, towers: Objects, taken: Mask
) -> tuple[Objects, Array]:
    """Cluster towers to jets without those that hold a taken tower; tag them; return them and their energies."""
    counts = np.bincount(towers.event, minlength=truth.n_events)
    momenta = {"px": towers.pt * np.cos(towers.phi), "py": towers.pt * np.sin(towers.phi)}
    momenta |= {"pz": towers.pt * np.sinh(towers.eta), "E": towers.pt * np.cosh(towers.eta)}
    by_event = ak.unflatten(ak.zip(momenta, with_name="Momentum4D"), counts)
    cluster = fastjet.ClusterSequence(by_event, fastjet.JetDefinition(fastjet.antikt_algorithm, card.jet_radius))
    found, members = cluster.inclusive_jets(min_pt=JET_PT), cluster.constituent_index(min_pt=JET_PT)
    event = np.repeat(np.arange(truth.n_events), ak.to_numpy(ak.num(found.px)))
    jet = np.repeat(np.arange(len(event)), ak.to_numpy(ak.flatten(ak.num(members, axis=2))))
    rows = ak.to_numpy(ak.flatten(members, axis=None)) + (np.cumsum(counts) - counts)[event[jet]]
    free = np.bincount(jet, taken[rows], len(event)) == 0
    px, py, pz, energy = (flat(found, name) for name in ("px", "py", "pz", "E"))
    pt = np.hypot(px, py)
    eta, phi = np.arcsinh(pz / pt), np.arctan2(py, px)
    scale = card.energy_scale(pt, eta)
    flavor = np.zeros(len(event), np.int64)
    for kind in (4, 5):
        near = (truth.kind == kind) & (truth.all.pt > FLAVOR_PT) & (np.abs(truth.all.eta) < FLAVOR_ETA)
        quarks = truth.all[near]
        first, last = (np.searchsorted(quarks.event, event, side) for side in ("left", "right"))
        for i in range(len(event)):
            at = slice(first[i], last[i])
            if np.any(separation(quarks.eta[at], quarks.phi[at], eta[i], phi[i]) < FLAVOR_CONE):
                flavor[i] = kind
    tagged = rng.uniform(size=len(event)) < card.tag_probability(pt * scale, flavor)
    jets = Objects(event, pt * scale, eta, phi, tagged.astype(np.int64), np.arange(len(event)))
    return jets[free], (energy * scale)[free]


Found = dict[str, list[tuple[str, float, float, float, float]]]  # name, energy, pT, eta, phi by letter


def detect(rng: np.random.Generator, card: Card, truth: Truth) -> list[tuple[float, float, Found]]:
    """Simulate the detector on a batch: missing momentum and objects of each event."""
    rows = np.flatnonzero(truth.stable & ~np.isin(truth.kind, INVISIBLE))
    visible, kind, energy = truth.all[rows], truth.kind[rows], truth.energy[rows]
    eta, pt, hadron = visible.eta, visible.pt, np.isin(kind, np.abs(CHARGED)) & (kind > 100)

    def tracks_of(chosen: Mask, name: str) -> Objects:
        efficiency, table = getattr(card, f"{name}_tracking"), getattr(card, f"{name}_resolution")
        knee = card.tracking_knee[name]
        probability = np.where(pt > knee, look_up(efficiency, eta, 2), look_up(efficiency, eta))
        tracks = visible[chosen & (pt > 0.1) & (rng.uniform(size=len(pt)) < probability)]
        return replace(tracks, pt=log_normal(rng, tracks.pt, tracks.pt * track_resolution(tracks, table)))

    electrons = tracks_of(kind == 11, "electron")
    muons = tracks_of(kind == 13, "muon")
    hadrons = tracks_of(hadron, "hadron")
    share = np.where(np.isin(kind, (11, 22)), 1.0, np.where(np.isin(kind, (310, 3122)), 0.3, 0.0))
    light, heavy = share > 0, (share < 1) & (kind != 13)
    ecal = Calorimeter(rng, card, "ecal", visible[light], (energy * share)[light])
    hcal = Calorimeter(rng, card, "hcal", visible[heavy], (energy * (1 - share))[heavy])
    prompt = truth.prompt(electrons.row)
    photons, electrons = ecal.flow(electrons, truth.all[electrons.row], card.electron_resolution)
    neutral, hadrons = hcal.flow(hadrons, truth.all[hadrons.row], card.hadron_resolution)
    for objects in (neutral, hadrons, hcal.towers):
        objects.row[:] = -1
    flow = stack(photons, neutral, hadrons)
    found = {"e": electrons[prompt], "m": muons[truth.prompt(muons.row)], "g": photons}
    for letter, objects in found.items():
        kept = (objects.pt > 10) & (rng.uniform(size=len(objects)) < look_up(card.identification, objects.eta))
        found[letter] = objects[kept][isolated(card, objects[kept], flow, letter)]
    towers = stack(ecal.towers, hcal.towers)
    towers = towers[towers.pt > 0]
    taken = (towers.row >= 0) & np.isin(towers.row, np.concatenate([found["e"].row, found["g"].row]))
    found["j"], jet_energy = find_jets(rng, card, truth, towers, taken)

    seen = stack(towers, muons)
    sum_x, sum_y = (np.bincount(seen.event, seen.pt * f(seen.phi), truth.n_events) for f in (np.cos, np.sin))
    met, met_phi = np.hypot(sum_x, sum_y), np.arctan2(-sum_y, -sum_x)
    events: list[Found] = [{letter: [] for letter in "jemg"} for _ in range(truth.n_events)]
    for letter, objects in found.items():
        energies = jet_energy if letter == "j" else np.hypot(objects.pt * np.cosh(objects.eta), MASS[letter])
        least, largest = card.acceptance[letter]
        for i in np.flatnonzero((objects.pt > least) & (np.abs(objects.eta) < largest)):
            name = NAMES[letter][int(objects.code[i] > 0)]
            entry = (name, energies[i], objects.pt[i], objects.eta[i], objects.phi[i])
            events[objects.event[i]][letter].append(entry)
    for event in events:
        for listed in event.values():
            listed.sort(key=lambda entry: -entry[2])
    return list(zip(met, met_phi, events, strict=True))
