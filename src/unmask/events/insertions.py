"""Background events with something heavy added, or put in the place of jets: new physics made of background alone.

Together with :mod:`unmask.events.distortions` they are what detectors are chosen on, so that no signal is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from unmask.events.distortions import Columns, columns_of, rebuilt
from unmask.events.event_set import EventSet
from unmask.events.objects import MAX_ENERGY_MEV

LEPTON = 3
#: Tags of what can be added; a lepton becomes one of either flavour and charge.
TAGS = {"jet": 1, "b-jet": 2, "lepton": LEPTON, "photon": 7}
#: Objects are added above these, as they would be selected, by tag.
LEAST_PT_MEV = np.array([0.0, 20e3, 20e3, 15e3, 15e3, 15e3, 15e3, 20e3])
#: The antiparticle of each lepton, by tag.
_OTHER_CHARGE = np.array([0, 0, 0, 4, 3, 6, 5])
_MAX_ETA = 2.3
#: A jet's mass in units of its pT, which is what background jets have in the mean.
_JET_MASS = 0.12


@dataclass(frozen=True)
class Insertion:
    """Objects of these types with this mean pT above threshold, and an invisible particle of this mean pT."""

    n_jets: int = 0
    n_b_jets: int = 0
    n_leptons: int = 0
    n_photons: int = 0
    pt_gev: float = 60
    met_gev: float = 0

    @property
    def tags(self) -> list[int]:
        counts = (self.n_jets, self.n_b_jets, self.n_leptons, self.n_photons)
        return [tag for tag, n in zip(TAGS.values(), counts, strict=True) for _ in range(n)]


#: About what a top quark or a W adds.
LIGHT: dict[str, Insertion] = {
    "two b-jets": Insertion(n_b_jets=2, pt_gev=50),
    "two jets and two b-jets": Insertion(n_jets=2, n_b_jets=2, pt_gev=50),
    "jet and b-jet": Insertion(n_jets=1, n_b_jets=1, pt_gev=30),
    "four soft jets": Insertion(n_jets=4, pt_gev=30),
    "four jets, MET": Insertion(n_jets=4, pt_gev=100, met_gev=120),
    "two hard jets": Insertion(n_jets=2, pt_gev=200),
    "two b-jets, MET": Insertion(n_b_jets=2, pt_gev=80, met_gev=120),
    "lepton, MET": Insertion(n_leptons=1, pt_gev=50, met_gev=60),
    "two leptons": Insertion(n_leptons=2, pt_gev=40),
    "lepton and b-jet": Insertion(n_b_jets=1, n_leptons=1, pt_gev=50),
    "semileptonic top": Insertion(n_jets=2, n_b_jets=1, n_leptons=1, pt_gev=50, met_gev=50),
    "photon, MET": Insertion(n_photons=1, pt_gev=60, met_gev=80),
    "MET": Insertion(met_gev=120),
    "of everything": Insertion(n_jets=3, n_b_jets=2, n_leptons=1, pt_gev=100, met_gev=150),
}
#: What particles at the TeV scale would add.
HEAVY: dict[str, Insertion] = {
    "heavy: jets, MET": Insertion(n_jets=4, pt_gev=200, met_gev=250),
    "heavy: jets, b-jets, MET": Insertion(n_jets=2, n_b_jets=2, pt_gev=160, met_gev=200),
    "heavy: jets and four b-jets": Insertion(n_jets=4, n_b_jets=4, pt_gev=80),
    "heavy: top quarks, MET": Insertion(n_jets=4, n_b_jets=2, n_leptons=1, pt_gev=120, met_gev=200),
    "heavy: six jets": Insertion(n_jets=6, pt_gev=80),
    "heavy: b-jets, leptons, MET": Insertion(n_b_jets=2, n_leptons=2, pt_gev=80, met_gev=150),
    "heavy: jets, leptons, MET": Insertion(n_jets=2, n_leptons=2, pt_gev=120, met_gev=150),
}
INSERTIONS = LIGHT | HEAVY


def insert(events: EventSet, name: str, *, seed: int, instead: bool = False) -> EventSet:
    """Add the objects and the MET of an insertion to every event, at random in angle; labels and weights stay.

    Leptons come in pairs of opposite charge, as far as there are two. With ``instead`` as many of the softest jets
    without b-tag make way, as far as there are, so that there are other objects rather than more; MET is not balanced
    for those that go.

    >>> from unmask import load_sample
    >>> events = load_sample("gluino")[:100]
    >>> bool((insert(events, "two b-jets", seed=1).n_b_jets == events.n_b_jets + 2).all())
    True
    """
    what, rng = INSERTIONS[name], np.random.default_rng(seed)
    added = new_objects(np.tile(np.array(what.tags, np.int64), (len(events), 1)), what.pt_gev * 1e3, rng)
    of_leptons = np.flatnonzero(np.array(what.tags) == LEPTON)
    for first, second in zip(of_leptons[::2], of_leptons[1::2], strict=False):
        is_same_charge = added["tag"][:, first] % 2 == added["tag"][:, second] % 2
        other = _OTHER_CHARGE[added["tag"][:, second]]
        added["tag"][:, second] = np.where(is_same_charge, other, added["tag"][:, second])
    columns = columns_of(events)
    if instead:
        columns["tag"] = np.where(is_softest_jet(events, len(what.tags)), 0, columns["tag"])
    return put_together(events, columns, added, rng.gamma(2, what.met_gev * 500, len(events)), rng)


def new_objects(
    tag: npt.NDArray[np.int64], mean_pt_mev: float | npt.NDArray[np.float64], rng: np.random.Generator
) -> Columns:
    """Objects of these :data:`TAGS` (n_events, objects), with this mean pT above threshold, at random in angle."""
    pt = LEAST_PT_MEV[tag] + rng.exponential(mean_pt_mev, tag.shape)
    eta = np.clip(rng.normal(0, 1.1, tag.shape), -_MAX_ETA, _MAX_ETA)
    mass = np.where(tag <= TAGS["b-jet"], _JET_MASS * pt, 0)
    lepton = rng.integers(3, 7, tag.shape)  # e-, e+, mu-, mu+ alike
    return {
        "tag": np.where(tag == LEPTON, lepton, tag),
        "pt_mev": pt,
        "eta": eta,
        "phi": rng.uniform(-np.pi, np.pi, tag.shape),
        "energy_mev": np.minimum(np.hypot(pt * np.cosh(eta), mass), MAX_ENERGY_MEV),
    }


def put_together(
    events: EventSet,
    columns: Columns,
    added: Columns,
    invisible_mev: npt.NDArray[np.float64],
    rng: np.random.Generator,
    met_mev: npt.NDArray[np.floating] | None = None,
) -> EventSet:
    """Events of the objects in ``columns`` and of those ``added``, with invisible particles in random directions.

    ``met_mev`` is the MET without these, if it is another than that of ``events``.
    """
    met_mev = events.met_mev if met_mev is None else met_mev
    direction = rng.uniform(-np.pi, np.pi, len(events))
    met_x = met_mev * np.cos(events.met_phi) + invisible_mev * np.cos(direction)
    met_y = met_mev * np.sin(events.met_phi) + invisible_mev * np.sin(direction)
    columns = {
        key: np.concatenate([column, added[key].astype(column.dtype)], axis=1) for key, column in columns.items()
    }
    result = rebuilt(events, columns, met_mev=np.hypot(met_x, met_y))
    return replace(result, met_phi=np.arctan2(met_y, met_x).astype(result.met_phi.dtype))


def is_softest_jet(events: EventSet, n: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Whether each object (n_events, objects) is one of the ``n`` softest jets without b-tag of its event."""
    pt = np.where(events.tag == TAGS["jet"], events.pt_mev, np.inf)
    return np.asarray((pt.argsort(axis=1).argsort(axis=1) < np.reshape(n, (-1, 1))) & np.isfinite(pt))
