"""Formulas of kinematics, for NumPy arrays and for tensors alike."""

from __future__ import annotations

import math
from typing import Any, TypeVar, cast

import numpy as np

Values = TypeVar("Values", bound=Any)


def wrap_phi(phi: Values) -> Values:
    """Bring angles into [-pi, pi], where the two ends are the same direction; arrays keep what is inside bit by bit.

    >>> wrap_phi(np.array([0.5, 6.0]))
    array([ 0.5       , -0.28318531])
    """
    angle: Any = phi
    if not isinstance(angle, np.ndarray):
        angle = (angle + math.pi) % (2 * math.pi) - math.pi
    elif (is_outside := np.abs(angle) > angle.dtype.type(np.pi)).any():
        wrapped = np.mod(angle.astype(np.float64) + np.pi, 2 * np.pi) - np.pi
        angle = np.where(is_outside, wrapped, angle).astype(angle.dtype)
    return cast("Values", angle)


def delta_r(delta_eta: Values, delta_phi: Values) -> Values:
    """Angular distance sqrt(deta^2 + dphi^2); dphi need not be wrapped.

    >>> delta_r(np.array([3.0]), np.array([4.0 - 2 * np.pi])).round(2)
    array([3.77])
    """
    distance = np.hypot if isinstance(delta_eta, np.ndarray) else type(delta_eta).hypot
    return cast("Values", distance(delta_eta, wrap_phi(delta_phi)))


def log_cosh(eta: Values) -> Values:
    """ln cosh(eta), which is ln(|p| / pT); finite however large eta is.

    >>> log_cosh(np.array([0.0, 1000.0])).round(3)
    array([  0.   , 999.307])
    """
    log_of_sum = np.logaddexp if isinstance(eta, np.ndarray) else type(eta).logaddexp
    return cast("Values", log_of_sum(eta, -eta) - math.log(2))
