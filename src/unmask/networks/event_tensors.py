"""Events as tensors for the networks that read whole events."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unmask.events.event_set import EventSet
from unmask.events.objects import MET_TYPE, OBJECTS
from unmask.networks.kinematic_features import kinematics_of
from unmask.networks.pair_features import Force


class EventTensors(NamedTuple):
    """Events, the missing energy first and then the objects: what a network takes, one row per event.

    Attributes
    ----------
    kinematics : (n_events, 1 + max_objects, 4) float32
        log(E / MeV), log(pT / MeV), eta, phi; for the missing energy the first two are log(MET / MeV) and eta is 0.
        All are 0 at padding.
    types : (n_events, 1 + max_objects) uint8
        ``MET_TYPE`` for the missing energy, then the objects' tags; 0 for padding.
    """

    kinematics: Tensor
    types: Tensor

    def to(self, device: torch.device) -> EventTensors:
        return EventTensors(self.kinematics.to(device), self.types.to(device))

    def at(self, index: Tensor | slice) -> EventTensors:
        """Some of the events."""
        return EventTensors(self.kinematics[index], self.types[index])


def event_tensors(events: EventSet) -> EventTensors:
    """Turn events into tensors.

    >>> from unmask import load_sample
    >>> kinematics, types = event_tensors(load_sample("gluino")[:2])
    >>> kinematics.shape, types[:, 0].tolist()
    (torch.Size([2, 19, 4]), [32, 32])
    """
    found = kinematics_of(events)
    assert found.types is not None
    is_real = found.types != 0
    logarithms = [np.log(np.where(is_real, column, np.float32(1))) for column in (found.energy_mev, found.pt_mev)]
    kinematics = np.stack([*logarithms, found.eta, found.phi], axis=-1)
    return EventTensors(torch.from_numpy(kinematics), torch.from_numpy(found.types))


def forces_between() -> Tensor:
    """(33, 33): the force of the Standard Model between each two types, padding and the missing energy included.

    Strong between jets (quarks and gluons); electromagnetic between a photon and what is charged, leptons and the
    quarks of jets; weak between leptons of the same flavour and opposite charge, as from a Z.
    """
    forces = torch.full((MET_TYPE + 1, MET_TYPE + 1), int(Force.NONE))
    for one, other in product(OBJECTS.values(), OBJECTS.values()):
        if one.family == other.family == "jet":
            forces[one.tag, other.tag] = Force.STRONG
        elif (one.family == "photon") != (other.family == "photon"):
            forces[one.tag, other.tag] = Force.ELECTROMAGNETIC
        elif one.family == other.family and one.charge * other.charge < 0:
            forces[one.tag, other.tag] = Force.WEAK
    return forces
