"""Events as a fixed number of standardised features, for detectors that know neither tokens nor objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from unmask.events.event_set import EventSet
from unmask.events.objects import MAX_OBJECTS

FeatureKind = Literal["summary", "flat"]

#: Energies are used as log(1 + E / 10 GeV): the logarithm of what is there, and 0 for what is not.
_SOFT_MEV = 1e4
#: Angles and rapidities of what is not there lie outside of their range.
_NO_ANGLE = -1.0
#: Points in which the distribution of a feature is kept.
_N_KNOTS = 101
# All pairs of objects are many numbers an event.
_CHUNK_EVENTS = 8192
_FIRST, _SECOND = np.triu_indices(MAX_OBJECTS, 1)

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def raw_features(events: EventSet, kind: FeatureKind) -> dict[str, Array]:
    """Named features, each (n_events,), before they are standardised; finite for every event, an empty one too.

    "summary" is what an analyst would look at: how many objects of each type, how hard, at which angles, of which
    masses. "flat" is the layout of 92 columns: 18 tags, MET, its phi, then E, pT, eta, phi of each slot.

    >>> from unmask import load_sample
    >>> events = load_sample("gluino")[:10]
    >>> len(raw_features(events, "summary")), len(raw_features(events, "flat"))
    (47, 92)
    """
    return _flat(events) if kind == "flat" else _summary(events)


@dataclass(frozen=True)
class EventFeatures:
    """Features on the scale of a standard normal distribution, each by its quantiles in background.

    A value becomes the normal quantile of its rank in background, the middle one for equal values, so that rare counts
    and long tails are as odd as they are rare. Beyond the largest and the smallest value the line from the median is
    continued: what background never has is further out than what it has.

    Attributes
    ----------
    value, quantile : (n_features, n_knots), the values and their normal quantiles, rising.
    slope : (n_features, 2), how the quantile goes on below and above.
    """

    kind: FeatureKind
    value: Array
    quantile: Array
    slope: Array

    @classmethod
    def fit(cls, events: EventSet, kind: FeatureKind) -> Self:
        """Learn the distributions from background events, of which there is at least one."""
        knots = [_knots(column) for column in _table(events, kind).T]
        value, quantile, slope = (np.stack([knot[i] for knot in knots]) for i in range(3))
        return cls(kind, value, quantile, slope)

    def of(self, events: EventSet) -> npt.NDArray[np.float32]:
        """Standardised features (n_events, n_features)."""
        found = _table(events, self.kind)
        for i, column in enumerate(found.T):
            value, quantile, slope = self.value[i], self.quantile[i], self.slope[i]
            below, above = np.minimum(column - value[0], 0), np.maximum(column - value[-1], 0)
            found[:, i] = np.interp(column, value, quantile) + below * slope[0] + above * slope[1]
        return found.astype(np.float32)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All that was learnt."""
        return {"features.value": self.value, "features.quantile": self.quantile, "features.slope": self.slope}

    @classmethod
    def take_from(cls, arrays: dict[str, npt.NDArray[Any]], kind: FeatureKind) -> Self:
        """Take back what :meth:`arrays` gave, leaving the other arrays."""
        return cls(kind, *(arrays.pop(f"features.{name}") for name in ("value", "quantile", "slope")))


def n_features(kind: FeatureKind) -> int:
    """Number of features of a kind."""
    return len(raw_features(EventSet.empty(), kind))


def _table(events: EventSet, kind: FeatureKind) -> Array:
    parts = [np.stack(list(raw_features(part, kind).values()), axis=1) for part in events.chunks(_CHUNK_EVENTS)]
    return np.concatenate(parts) if parts else np.zeros((0, n_features(kind)))


def _knots(column: Array) -> tuple[Array, Array, Array]:
    value, n = np.unique(column, return_counts=True)
    quantile = ndtri((np.cumsum(n) - n / 2) / len(column))
    middle = int(np.searchsorted(np.cumsum(n), len(column) / 2))
    # Where the end is the median there is no line to continue: a unit further is as odd as one event of all.
    steep = -ndtri(0.5 / (len(column) + 1))
    slope = [
        (quantile[end] - quantile[middle]) / (value[end] - value[middle]) if value[end] != value[middle] else steep
        for end in (0, -1)
    ]
    if len(value) > _N_KNOTS:
        # Even in quantiles, so that the tails are kept as well as the bulk.
        wanted = np.linspace(quantile[0], quantile[-1], _N_KNOTS)
        chosen = np.unique(np.searchsorted(quantile, wanted).clip(max=len(value) - 1))
        value, quantile = value[chosen], quantile[chosen]
    missing = (0, _N_KNOTS - len(value))
    return np.pad(value, missing, mode="edge"), np.pad(quantile, missing, mode="edge"), np.array(slope)


def _log(energy_mev: npt.NDArray[Any]) -> Array:
    return np.asarray(np.log1p(energy_mev / _SOFT_MEV), np.float64)


def _flat(events: EventSet) -> dict[str, Array]:
    is_object = events.is_object
    features = {f"tag{i + 1}": events.tag[:, i].astype(np.float64) for i in range(MAX_OBJECTS)}
    features |= {"MET": _log(events.met_mev), "METphi": events.met_phi.astype(np.float64)}
    for i in range(MAX_OBJECTS):
        features[f"E{i + 1}"] = _log(np.where(is_object[:, i], events.energy_mev[:, i], 0))
        features[f"pt{i + 1}"] = _log(np.where(is_object[:, i], events.pt_mev[:, i], 0))
        features[f"eta{i + 1}"] = np.where(is_object[:, i], events.eta[:, i], 0.0)
        features[f"phi{i + 1}"] = np.where(is_object[:, i], events.phi[:, i], 0.0)
    return features


def _summary(events: EventSet) -> dict[str, Array]:
    tag, is_object = events.tag, events.is_object
    pt, eta, phi, energy = (
        np.where(is_object, column, 0).astype(np.float64)
        for column in (events.pt_mev, events.eta, events.phi, events.energy_mev)
    )
    met = events.met_mev.astype(np.float64)
    from_met = _apart(phi, events.met_phi[:, None].astype(np.float64))
    groups: dict[str, Mask] = {
        "jet": (tag == 1) | (tag == 2),  # b-jets are jets
        "b_jet": tag == 2,
        "lepton": (tag >= 3) & (tag <= 6),
        "photon": tag == 7,
    }
    ht, lepton_pt = (np.where(groups[name], pt, 0).sum(1) for name in ("jet", "lepton"))
    charge = np.isin(tag, (4, 6)).sum(1) - np.isin(tag, (3, 5)).sum(1)
    momentum = np.stack([energy, pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)])  # (4, n_events, 18)
    features: dict[str, Array] = {
        "n_jets": groups["jet"].sum(1) * 1.0,
        "n_b_jets": groups["b_jet"].sum(1) * 1.0,
        "n_electrons": np.isin(tag, (3, 4)).sum(1) * 1.0,
        "n_muons": np.isin(tag, (5, 6)).sum(1) * 1.0,
        "n_photons": groups["photon"].sum(1) * 1.0,
        "total_charge": np.abs(charge) * 1.0,
        "met": _log(met),
        "ht": _log(ht),
        "lepton_pt": _log(lepton_pt),
        "met_significance": met / np.sqrt(ht + lepton_pt + _SOFT_MEV),
        "visible_mass": _log(_mass(momentum.sum(2))),
    }
    leading: dict[str, tuple[npt.NDArray[np.int64], Mask]] = {}
    for name, is_one in groups.items():
        order = np.argsort(np.where(is_one, -pt, 1), axis=1, kind="stable")
        leading[name] = order, np.take_along_axis(is_one, order, 1)
    for name, n_pts, n_etas in (("jet", 8, 3), ("b_jet", 3, 1), ("lepton", 3, 2), ("photon", 1, 0)):
        order, is_there = leading[name]
        their_pt, their_eta = (np.take_along_axis(column, order, 1) for column in (pt, eta))
        for i in range(n_pts):
            features[f"{name}_{i + 1}_pt"] = _log(np.where(is_there[:, i], their_pt[:, i], 0))
        for i in range(n_etas):
            features[f"{name}_{i + 1}_eta"] = np.where(is_there[:, i], np.abs(their_eta[:, i]), _NO_ANGLE)
    for name in ("jet", "b_jet", "lepton"):
        order, is_there = leading[name]
        angle = np.take_along_axis(from_met, order[:, :1], 1)[:, 0]
        features[f"{name}_1_from_met"] = np.where(is_there[:, 0], angle, _NO_ANGLE)
    features["nearest_jet_to_met"] = _least(from_met, groups["jet"], _NO_ANGLE)

    mass = _mass(momentum[:, :, _FIRST] + momentum[:, :, _SECOND])  # (n_events, n_pairs)
    distance = np.hypot(eta[:, _FIRST] - eta[:, _SECOND], _apart(phi[:, _FIRST], phi[:, _SECOND]))
    for one, other in (("jet", "jet"), ("b_jet", "b_jet"), ("lepton", "lepton"), ("b_jet", "lepton")):
        is_pair = groups[one][:, _FIRST] & groups[other][:, _SECOND]  # b-jets come before leptons
        features[f"least_mass_{one}_{other}"] = _log(_least(mass, is_pair, 0.0))
        if one == other:
            features[f"largest_mass_{one}_{other}"] = _log(-_least(-mass, is_pair, 0.0))
            features[f"nearest_{one}_{other}"] = _least(distance, is_pair, _NO_ANGLE)
    order, is_there = leading["lepton"]
    lepton, angle = (np.take_along_axis(column, order[:, :1], 1)[:, 0] for column in (pt, from_met))
    features["transverse_mass"] = _log(np.where(is_there[:, 0], np.sqrt(2 * lepton * met * (1 - np.cos(angle))), 0))
    return features


def _apart(phi: Array, other: Array) -> Array:
    """Angle between two azimuths, from 0 to pi."""
    return np.asarray(np.abs((phi - other + np.pi) % (2 * np.pi) - np.pi))


def _mass(momentum: Array) -> Array:
    """Invariant mass of four-momenta (4, ...), 0 where rounding makes it imaginary."""
    energy, x, y, z = momentum
    return np.asarray(np.sqrt(np.maximum(energy**2 - x**2 - y**2 - z**2, 0)))


def _least(values: Array, is_counted: Mask, otherwise: float) -> Array:
    """The least of the counted values (n_events, n) of each event, or ``otherwise`` where there are none."""
    least = np.where(is_counted, values, np.inf).min(axis=1, initial=np.inf)
    return np.where(np.isfinite(least), least, otherwise)
