"""Events as standardised numbers for a network, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from unmask.errors import BadDataError
from unmask.events.event_set import EventSet
from unmask.events.objects import MET_TYPE, MIN_PT_MEV
from unmask.kinematics import wrap_phi

#: log E, log pT, eta and phi.
N_FEATURES = 4
#: MET has no lower bound and its logarithm none either; below this it is noise in any detector.
MET_FLOOR_MEV = MIN_PT_MEV
# Nothing at a collider has an energy of e^20 MeV; a network can still say so.
_MAX_LOG_MEV = 20.0

FloatArray = npt.NDArray[np.float32]


class Kinematics(NamedTuple):
    """Physical features of positions: the first of an event is its MET (energy and pT both MET, eta 0), then objects.

    All arrays are (n_events, 1 + max_objects), zero at padding. ``types`` are the objects' tags, ``MET_TYPE``, or None
    where they are not known.
    """

    energy_mev: FloatArray
    pt_mev: FloatArray
    eta: FloatArray
    phi: FloatArray
    types: npt.NDArray[np.uint8] | None = None


def types_of(events: EventSet) -> npt.NDArray[np.uint8]:
    """(n_events, 1 + max_objects): the type of MET, then the objects' tags; 0 for padding."""
    return np.concatenate([np.full((len(events), 1), MET_TYPE, np.uint8), events.tag], axis=1)


def kinematics_of(events: EventSet) -> Kinematics:
    """The events' own features, MET at least 1 GeV; whatever padding holds is dropped."""

    def row(first: npt.NDArray[Any], objects: FloatArray) -> FloatArray:
        return np.concatenate([first[:, None], np.where(events.is_object, objects, 0)], axis=1, dtype=np.float32)

    met_mev = np.maximum(events.met_mev, MET_FLOOR_MEV)
    return Kinematics(
        row(met_mev, events.energy_mev),
        row(met_mev, events.pt_mev),
        row(np.zeros(len(events)), events.eta),
        row(events.met_phi, events.phi),
        types_of(events),
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
        """Measure on background events.

        Raises
        ------
        BadDataError
            If a feature is the same everywhere.
        """
        is_real = types_of(events) != 0
        features = _features(kinematics_of(events), is_real)[is_real].astype(np.float64)
        mean, std = features.mean(axis=0), features.std(axis=0)
        names = ("log energy", "log pT", "eta", "phi")
        constant = [name for name, is_flat in zip(names, std < 1e-6 * (1 + np.abs(mean)), strict=True) if is_flat]
        if constant:
            raise BadDataError(
                f"{' and '.join(constant)} of all objects and MET is the same number in {len(events):,} events; "
                "a tokenizer cannot learn from a column that never changes"
            )
        return cls(mean.astype(np.float32), std.astype(np.float32))

    def features_of(self, events: EventSet) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """Standardised features (n_events, 1 + max_objects, 4), zero at padding, and which positions are real."""
        is_real = types_of(events) != 0
        features = (_features(kinematics_of(events), is_real) - self.mean) / self.std
        return np.where(is_real[..., None], features, np.float32(0)), is_real

    def kinematics(self, features: FloatArray, is_real: npt.NDArray[np.bool_]) -> Kinematics:
        """Physical features of standardised ones (n_events, sequence, 4)."""
        values = features * self.std + self.mean
        log_energy, log_pt, eta, phi = np.moveaxis(values, -1, 0)
        energy_mev, pt_mev = (np.exp(np.minimum(log, _MAX_LOG_MEV)) for log in (log_energy, log_pt))

        def column(values: FloatArray) -> FloatArray:
            return np.where(is_real, values, 0).astype(np.float32)

        return Kinematics(column(energy_mev), column(pt_mev), column(eta), column(wrap_phi(phi)))


def _features(kinematics: Kinematics, is_real: npt.NDArray[np.bool_]) -> FloatArray:
    log_energy, log_pt = (np.log(np.where(is_real, column, 1)) for column in kinematics[:2])
    return np.stack([log_energy, log_pt, kinematics.eta, kinematics.phi], axis=-1)
