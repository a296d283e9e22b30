"""Background events with something heavy added, or put in the place of jets: new physics made of background alone.

Together with :mod:`unmask.events.distortions` they are what detectors are chosen on, so that no signal is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from unmask.detectors.inputs import event_tensors
from unmask.detectors.replacer import ADDED_TAGS, LEPTON, Replacer
from unmask.events.distortions import rebuilt
from unmask.events.event_set import EventSet
from unmask.networks.backbones import ETA, LOG_ENERGY, LOG_PT, PHI


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
        return [tag for tag, n in zip(ADDED_TAGS, counts, strict=True) for _ in range(n)]


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
    """Add the objects and the MET of an insertion to every event; labels and weights stay.

    The rest of the event recoils, and new objects are not closer to others than objects of background are, nor outside
    of the limits that these have (:class:`~unmask.detectors.replacer.Replacer`); that is measured on ``events``, so
    give many. Leptons come in pairs of opposite charge, as far as there are two. With ``instead`` as many of the
    softest jets without b-tag make way, as far as there are, so that there are other objects rather than more.

    >>> from unmask import load_sample
    >>> events = load_sample("gluino")[:100]
    >>> bool((insert(events, "two b-jets", seed=1).n_b_jets > events.n_b_jets).mean() > 0.9)
    True
    """
    what, found = INSERTIONS[name], event_tensors(events)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        tags = torch.tensor(what.tags, dtype=torch.long).expand(len(events), -1)
        # Either flavour; each second lepton has the other charge, which is odd or even.
        flavour = torch.randint(2, tags.shape) * 2
        charge = torch.randint(2, (len(events), 1)) + torch.arange(tags.shape[1])
        tags = torch.where(tags == LEPTON, LEPTON + flavour + charge % 2, tags)
        n_gone = len(what.tags) if instead else 0
        odd = Replacer(found).added(found, tags, pt_gev=what.pt_gev, met_gev=what.met_gev, n_gone=n_gone)
    kinematics = odd.kinematics.numpy()
    columns = {
        "tag": odd.types[:, 1:].numpy(),
        "energy_mev": np.exp(kinematics[:, 1:, LOG_ENERGY]),
        "pt_mev": np.exp(kinematics[:, 1:, LOG_PT]),
        "eta": kinematics[:, 1:, ETA],
        "phi": kinematics[:, 1:, PHI],
    }
    result = rebuilt(events, columns, met_mev=np.exp(kinematics[:, 0, LOG_PT]))
    return replace(result, met_phi=kinematics[:, 0, PHI])
