"""Process cards: what Pythia produces, how new particles decay, and the masses that the library of theories has."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path

CARDS = Path(__file__).with_name("processes.toml")

#: Names of particles in cards; an antiparticle has a ``~``.
PARTICLES = {
    "d": 1, "u": 2, "s": 3, "c": 4, "b": 5, "t": 6, "bprime": 7, "tprime": 8,
    "e-": 11, "e+": -11, "nu_e": 12, "mu-": 13, "mu+": -13, "nu_mu": 14, "tau-": 15, "tau+": -15, "nu_tau": 16,
    "gamma": 22, "Z": 23, "W+": 24, "W-": -24, "h": 25,
    "zprime": 32, "wprime": 34, "heavy_higgs": 35, "pseudoscalar": 36, "charged_higgs": 37, "leptoquark": 42,
    "squark": 1000002, "sbottom": 1000005, "stop": 1000006, "selectron": 1000011, "smuon": 1000013, "stau": 1000015,
    "gluino": 1000021, "neutralino": 1000022, "neutralino2": 1000023, "chargino": 1000024, "gravitino": 1000039,
    "excited_e": 4000011, "excited_mu": 4000013, "graviton": 5100039,
    "heavy_nu_e": 9900012, "heavy_nu_mu": 9900014, "w_right": 9900024, "higgs_plus_plus": 9900041,
}  # fmt: skip

Decays = dict[int, list[tuple[float, list[int]]]]


def code_of(name: str) -> int:
    """PDG code of a particle by its name in cards.

    >>> code_of("t~")
    -6
    """
    bare = name.removesuffix("~")
    if bare not in PARTICLES:
        raise ValueError(f"unknown particle {name!r}; known: {', '.join(PARTICLES)}")
    return -PARTICLES[bare] if name.endswith("~") else PARTICLES[bare]


@dataclass(frozen=True)
class Process:
    """A process, with the masses in GeV of its new particles; see `processes.toml`."""

    name: str
    family: str
    description: str
    pythia: tuple[str, ...]
    decays: Decays = field(default_factory=dict)
    masses: dict[str, float] = field(default_factory=dict)
    points: tuple[tuple[float, ...], ...] = ()
    samples: tuple[str, ...] = ()

    def at(self, *masses: float) -> Process:
        """The same process at other masses, in the order of the card."""
        if len(masses) != len(self.masses):
            raise ValueError(f"{self.name} has {len(self.masses)} masses ({', '.join(self.masses)}), not {len(masses)}")
        return replace(self, masses=dict(zip(self.masses, masses, strict=True)))

    @property
    def label(self) -> str:
        """Name of the process in files: that of the card and the masses.

        >>> load()["stop_t"].at(600, 100).label
        'stop_t__600__100'
        """
        return "__".join([self.name, *(f"{mass:g}" for mass in self.masses.values())])

    def closed_decays(self) -> list[str]:
        """Decays for which the masses are too small."""
        heavy = {5: 4.8, 6: 173.0, 15: 1.78, 23: 91.2, 24: 80.4, 25: 125.0}
        mass = {PARTICLES[name]: value for name, value in self.masses.items()} | heavy
        closed = []
        for parent, channels in self.decays.items():
            for _, products in channels:
                least = sum(mass.get(abs(one), 0.0) for one in products)
                if least >= mass.get(parent, float("inf")):
                    closed.append(f"{parent} of {mass[parent]:g} GeV to {products} of {least:g} GeV")
        return closed


def load(path: Path = CARDS) -> dict[str, Process]:
    """Read the cards of a file, at their first points.

    Raises
    ------
    ValueError
        If a card has another shape, names an unknown particle, or a decay does not add up.
    """
    processes = {}
    for name, card in tomllib.loads(path.read_text()).items():
        try:
            decays = {
                code_of(parent): [
                    (fraction, [code_of(one) for one in products.split()]) for fraction, products in channels
                ]
                for parent, channels in card.pop("decays", {}).items()
            }
            names, points = card.pop("masses", []), tuple(map(tuple, card.pop("points", [])))
            settings, samples = tuple(card.pop("pythia")), tuple(card.pop("samples", []))
            process = Process(name, pythia=settings, decays=decays, points=points, samples=samples, **card)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise ValueError(f"{path}: [{name}]: not a process card ({error})") from None
        for parent, channels in decays.items():
            if abs(sum(fraction for fraction, _ in channels) - 1) > 1e-6:
                raise ValueError(f"{path}: [{name}]: branching ratios of {parent} do not add up to 1")
        first = points[0] if points else (0.0,) * len(names)
        processes[name] = replace(process, masses=dict.fromkeys(names, 0.0)).at(*first)
    return processes


def spectrum(process: Process) -> str:
    """Masses, mixings (gauge eigenstates: bino, wino, higgsinos) and decays in the SUSY Les Houches format."""
    heavy = [*range(1000001, 1000007), *range(2000001, 2000007), *range(1000011, 1000017), 2000011, 2000013, 2000015]
    others = [1000021, 1000022, 1000023, 1000024, 1000025, 1000035, 1000037, 36, 37]
    masses = dict.fromkeys(heavy + others, 10_000.0) | {25: 125.0, 35: 10_000.0, 1000039: 1e-6}
    masses |= {PARTICLES[name]: float(mass) for name, mass in process.masses.items()}
    lines = ["BLOCK MODSEL", " 1 0", "BLOCK MINPAR", " 3 10.0", "BLOCK MASS"]
    lines += [f" {code} {mass:.6e}" for code, mass in masses.items()]
    for block, size in {"NMIX": 4, "UMIX": 2, "VMIX": 2, "STOPMIX": 2, "SBOTMIX": 2, "STAUMIX": 2}.items():
        pairs = [(i + 1, j + 1) for i in range(size) for j in range(size)]
        lines += [f"BLOCK {block}", *(f" {i} {j} {float(i == j)}" for i, j in pairs)]
    lines += ["BLOCK ALPHA", " -0.1", "BLOCK HMIX Q= 1000", " 1 10000.", " 2 10.", " 3 246."]
    for code, channels in process.decays.items():
        lines.append(f"DECAY {code} {1e-3 * masses[code]:.6e}")
        lines += [f" {fraction} {len(products)} {' '.join(map(str, products))}" for fraction, products in channels]
    return "\n".join(lines) + "\n"
