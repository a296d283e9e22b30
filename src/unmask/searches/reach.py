"""Reach: the strength of a signal that is excluded or discovered, against luminosity."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.special import xlogy

from unmask.artifacts import Json
from unmask.searches.estimate import Background, FloatArray, Yields

#: Luminosities, in units of that of the search.
LUMINOSITIES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
#: Standard deviations of a median exclusion at 95% CL by CLs, of evidence and of discovery.
_GOALS = {"excluded": 1.959963984540054, "evidence": 3.0, "discovered": 5.0}


def distance(signal: FloatArray, observed: FloatArray, n_auxiliary: FloatArray, tau: FloatArray) -> FloatArray:
    """Minus twice the logarithm of the profile likelihood ratio of ``signal`` in a region with auxiliary events.

    >>> float(distance(np.array(0.0), np.array(20.0), np.array(1e9), np.array(1e8)).round(3))
    7.726
    """
    half = ((1 + tau) * signal - observed - n_auxiliary) / 2
    b = (-half + np.sqrt(half**2 + (1 + tau) * n_auxiliary * signal)) / (1 + tau)
    best = xlogy(observed, observed) - observed + xlogy(n_auxiliary, n_auxiliary) - n_auxiliary
    profiled = xlogy(observed, signal + b) - signal - b + xlogy(n_auxiliary, tau * b) - tau * b
    return np.asarray(np.maximum(2 * (best - profiled), 0.0))


def reach(background: Background, signal: Yields) -> dict[str, Json]:
    """Median strengths that all signal regions together exclude, give evidence for and discover, by luminosity.

    By asymptotic formulae with the expected data (Asimov); relative errors of simulation and variations stay.
    """
    found: dict[str, Json] = {"luminosity": list(LUMINOSITIES), **{name: [] for name in _GOALS}}
    for luminosity in LUMINOSITIES:
        scaled = Background.of(background.yields.scaled(luminosity), background.control * luminosity)
        n_auxiliary, tau = scaled.counted.n_auxiliary[2:], scaled.counted.tau[2:]
        # A region without simulation holds one event.
        auxiliary = np.where(n_auxiliary > 0, n_auxiliary, 1.0), tau
        for name, goal in _GOALS.items():
            significance = partial(_significance, luminosity * signal.total[2:], auxiliary, name == "excluded")
            found[name].append(_strength(significance, goal))
    return found


def _significance(
    signal: FloatArray, auxiliary: tuple[FloatArray, FloatArray], is_exclusion: bool, strength: float
) -> float:
    expected, more = auxiliary[0] / auxiliary[1], strength * signal
    tested, observed = (more, expected) if is_exclusion else (np.zeros_like(more), expected + more)
    return float(np.sqrt(distance(tested, observed, *auxiliary).sum()))


def _strength(significance: Callable[[float], float], goal: float) -> float | None:
    """The strength with this significance; None if it is beyond all measure."""
    from scipy.optimize import brentq

    high = 1e-6
    while significance(high) < goal:
        high *= 2
        if high > 1e12:
            return None
    return float(brentq(lambda strength: significance(strength) - goal, 0.0, high, xtol=1e-15, rtol=1e-9))
