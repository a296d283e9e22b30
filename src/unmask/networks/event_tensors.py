"""Events as numbers for networks: tensors of whole events, and standardized features that can be turned back."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unmask.errors import BadDataError
from unmask.events.event_set import EventSet
from unmask.events.objects import MET_TYPE, MIN_PT_MEV, OBJECTS
from unmask.kinematics import wrap_phi
from unmask.networks.particle_transformer import Coupling

#: MET has no lower bound and its logarithm none either; below this it is noise in any detector.
MET_FLOOR_MEV = MIN_PT_MEV
# Nothing at a collider has an energy of e^20 MeV; a network can still give it.
_MAX_LOG_MEV = 20.0
_FEATURES = ("log energy", "log pT", "eta", "phi")
N_FEATURES = len(_FEATURES)

FloatArray = npt.NDArray[np.float32]


class EventTensors(NamedTuple):
    """Input of a network, one row per event: the MET first and then the objects.

    Attributes
    ----------
    kinematics
        (n_events, 1 + max_objects, 4) float32: log(E / MeV), log(pT / MeV), eta, phi; for the MET the first two are
        log(MET / MeV) and eta is 0. All are 0 at padding.
    types
        (n_events, 1 + max_objects) uint8: ``MET_TYPE``, then the objects' tags; 0 for padding.
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
    types = types_of(events)
    return EventTensors(torch.from_numpy(kinematics_of(events).features(types != 0)), torch.from_numpy(types))


def couplings_of_types() -> Tensor:
    """(33, 33): the coupling of the Standard Model between each two types, padding and MET included.

    Strong between jets (quarks and gluons); electromagnetic between a photon and charged particles, leptons and the
    quarks of jets; weak between leptons of the same flavor and opposite charge, as from a Z.
    """
    couplings = torch.full((MET_TYPE + 1, MET_TYPE + 1), int(Coupling.NONE))
    for one, other in product(OBJECTS.values(), OBJECTS.values()):
        if one.family == other.family == "jet":
            couplings[one.tag, other.tag] = Coupling.STRONG
        elif (one.family == "photon") != (other.family == "photon"):
            couplings[one.tag, other.tag] = Coupling.ELECTROMAGNETIC
        elif one.family == other.family and one.charge * other.charge < 0:
            couplings[one.tag, other.tag] = Coupling.WEAK
    return couplings


class Kinematics(NamedTuple):
    """Physical features of positions: the MET of an event (energy and pT both MET, eta 0), then its objects.

    All arrays are (n_events, 1 + max_objects), zero at padding.
    """

    energy_mev: FloatArray
    pt_mev: FloatArray
    eta: FloatArray
    phi: FloatArray

    def features(self, is_real: npt.NDArray[np.bool_]) -> FloatArray:
        """log(E / MeV), log(pT / MeV), eta and phi (n_events, 1 + max_objects, 4)."""
        logarithms = [np.log(np.where(is_real, column, np.float32(1))) for column in (self.energy_mev, self.pt_mev)]
        return np.stack([*logarithms, self.eta, self.phi], axis=-1)


def types_of(events: EventSet) -> npt.NDArray[np.uint8]:
    """(n_events, 1 + max_objects): ``MET_TYPE``, then the objects' tags; 0 for padding."""
    return np.concatenate([np.full((len(events), 1), MET_TYPE, np.uint8), events.tag], axis=1)


def kinematics_of(events: EventSet) -> Kinematics:
    """The events' own features, MET at least 1 GeV; the content of padding is dropped."""

    def row(first: npt.NDArray[Any], objects: FloatArray) -> FloatArray:
        return np.concatenate([first[:, None], np.where(events.is_object, objects, 0)], axis=1, dtype=np.float32)

    met_mev = np.maximum(events.met_mev, MET_FLOOR_MEV)
    return Kinematics(
        row(met_mev, events.energy_mev),
        row(met_mev, events.pt_mev),
        row(np.zeros(len(events)), events.eta),
        row(events.met_phi, events.phi),
    )


@dataclass(frozen=True)
class FeatureScale:
    """Mean and standard deviation of log E, log pT, eta and phi.

    One scale for all positions: MET is put on the scale of the objects' energies, as in the shared layout of four
    features, so that an event without much MET has no numbers of a size that the network has not seen.
    """

    mean: FloatArray
    std: FloatArray

    @classmethod
    def fit(cls, events: EventSet) -> Self:
        """Measure on background events; raises BadDataError if a feature is the same everywhere."""
        is_real = types_of(events) != 0
        features = kinematics_of(events).features(is_real)[is_real].astype(np.float64)
        mean, std = features.mean(axis=0), features.std(axis=0)
        is_constant = std < 1e-6 * (1 + np.abs(mean))
        if is_constant.any():
            constant = [name for name, is_flat in zip(_FEATURES, is_constant, strict=True) if is_flat]
            raise BadDataError(
                f"{' and '.join(constant)} of all objects and MET is the same number in {len(events):,} events; "
                "a tokenizer cannot learn from a constant column"
            )
        return cls(mean.astype(np.float32), std.astype(np.float32))

    def features_of(self, events: EventSet) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """Standardized features (n_events, 1 + max_objects, 4), zero at padding, and which positions are real."""
        is_real = types_of(events) != 0
        features = (kinematics_of(events).features(is_real) - self.mean) / self.std
        return np.where(is_real[..., None], features, np.float32(0)), is_real

    def kinematics(self, features: FloatArray, is_real: npt.NDArray[np.bool_]) -> Kinematics:
        """Physical features of standardized ones (n_events, 1 + max_objects, 4)."""
        log_energy, log_pt, eta, phi = np.moveaxis(features * self.std + self.mean, -1, 0)
        energy_mev, pt_mev = (np.exp(np.minimum(log, _MAX_LOG_MEV)) for log in (log_energy, log_pt))
        columns = (energy_mev, pt_mev, eta, wrap_phi(phi))
        return Kinematics(*(np.where(is_real, column, 0).astype(np.float32) for column in columns))
