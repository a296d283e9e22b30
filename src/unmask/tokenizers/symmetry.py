"""Turn and mirror events so that those which differ by a symmetry of the detector look the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from unmask.events.event_set import EventSet

RotateTo = Literal["met", "leading"]


def wrap_phi(phi: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float32]:
    """Bring angles into [-pi, pi] in single precision, where the two ends are the same direction.

    >>> wrap_phi(np.array([0.5, 6.0]))
    array([ 0.5      , -0.2831853], dtype=float32)
    """
    is_outside = np.abs(phi) > np.float32(np.pi)
    if is_outside.any():
        phi = np.where(is_outside, np.mod(phi.astype(np.float64) + np.pi, 2 * np.pi) - np.pi, phi)
    return phi.astype(np.float32, copy=False)


def standard_orientation(events: EventSet, rotate_to: RotateTo | None, reflect: bool) -> EventSet:
    """Rotate each event about the beam and mirror it; padding keeps whatever it holds.

    Parameters
    ----------
    rotate_to : turn the event until the MET, or the object of highest pT, has phi 0. An event without objects is
        turned to its MET in both cases. None: no turn.
    reflect : mirror eta so that the object of highest pT has eta >= 0, and phi so that it has phi >= 0 (after
        ``rotate_to="leading"``, where its phi is 0, so that the MET has phi >= 0).
    """
    if not len(events):
        return events
    is_object, eta, phi, met_phi = events.is_object, events.eta, events.phi, events.met_phi
    each = np.arange(len(events))
    leading = np.argmax(np.where(is_object, events.pt_mev, -1), axis=1)
    has_objects = is_object.any(axis=1)
    if rotate_to is not None:
        origin = met_phi
        if rotate_to == "leading":
            origin = np.where(has_objects, phi[each, leading], met_phi)
        # Double precision: the difference of two angles must not depend on where they lie.
        turned = np.where(is_object, phi, origin[:, None]).astype(np.float64) - origin[:, None]
        phi = np.where(is_object, wrap_phi(turned), phi)
        met_phi = wrap_phi(met_phi.astype(np.float64) - origin)
    if reflect:
        phi_of_reference = met_phi if rotate_to == "leading" else np.where(has_objects, phi[each, leading], met_phi)
        phi_sign = np.where(phi_of_reference < 0, np.float32(-1), np.float32(1))
        eta_sign = np.where(has_objects & (eta[each, leading] < 0), np.float32(-1), np.float32(1))
        phi = np.where(is_object, phi * phi_sign[:, None], phi)
        eta = np.where(is_object, eta * eta_sign[:, None], eta)
        met_phi = met_phi * phi_sign
    return replace(events, eta=eta, phi=phi, met_phi=met_phi)
