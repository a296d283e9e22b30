"""The HistFactory model of a search, and its asymptotic significances and limits, by pyhf."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from unmask.artifacts import Json
from unmask.errors import UnmaskError, require
from unmask.scores.intervals import CONFIDENCE
from unmask.searches.estimate import Background, Yields

FloatArray = npt.NDArray[np.float64]
#: Asymptotic formulae are used where every signal region expects at least so many events, counted as as many.
MIN_ASYMPTOTIC = 10.0
_MEASUREMENT = "strength"
_ERRORS = "return_uncertainties"


class NotConvergedError(UnmaskError, RuntimeError):
    """A fit that neither Minuit nor SciPy could bring to an end."""


@dataclass(frozen=True)
class Fitted:
    """Results of pyhf for a signal.

    Attributes
    ----------
    strength, strength_error
        Best-fit strength with its error; None without data.
    p_value, z
        Of background alone against the signal; None without data.
    expected_z
        Median if the signal is there, at strength 1.
    limit, expected_limits
        Upper limits by CLs; the expected ones at -2 to 2 standard deviations.
    """

    strength: float | None
    strength_error: float | None
    p_value: float | None
    z: float | None
    expected_z: float
    limit: float | None
    expected_limits: list[float]


def is_asymptotic(background: Background) -> bool:
    """Whether asymptotic formulae hold: enough events are expected, and stand behind the estimate."""
    counted = background.counted
    return bool(min(background.yields.total[2:].min(), counted.n_auxiliary[2:].min()) >= MIN_ASYMPTOTIC)


def workspace(
    names: Sequence[str],
    background: Background,
    signal: Yields,
    observed: npt.NDArray[np.integer] | None,
    *,
    bound: float,
) -> dict[str, Json]:
    """A HistFactory workspace: a channel of one bin for control and each signal region.

    Background has a free normalization in all of them, and in each a constraint on its simulated statistics and the
    variations; so has the signal, whose strength ``mu`` is up to ``bound``. Without data they are those expected.
    """
    regions = [i for i in range(len(names)) if i != 1]
    nominal = np.where(background.yields.total > 0, background.yields.total, background.yields.one_event)
    error = np.where(background.yields.total > 0, background.yields.error, nominal)
    data = nominal if observed is None else observed
    samples = (
        ("background", nominal, error, background.yields, "mu_background"),
        ("signal", signal.total, signal.error, signal, "mu"),
    )
    channels = [
        {
            "name": names[i],
            "samples": [
                {
                    "name": sample,
                    "data": [float(total[i])],
                    "modifiers": [
                        {"name": strength, "type": "normfactor", "data": None},
                        *_constraints(f"{sample}_{names[i]}", i, total, errors, yields),
                    ],
                }
                for sample, total, errors, yields, strength in samples
            ],
        }
        for i in regions
    ]
    parameters = [
        {"name": "mu", "inits": [bound / 20], "bounds": [[0.0, bound]]},
        {"name": "mu_background", "inits": [1.0], "bounds": [[0.0, 10.0]]},
    ]
    return {
        "channels": channels,
        "observations": [{"name": names[i], "data": [float(data[i])]} for i in regions],
        "measurements": [{"name": _MEASUREMENT, "config": {"poi": "mu", "parameters": parameters}}],
        "version": "1.0.0",
    }


def _constraints(name: str, i: int, total: FloatArray, error: FloatArray, yields: Yields) -> Iterator[dict[str, Json]]:
    if total[i] > 0 and error[i] > 0:
        yield {"name": f"statistics_{name}", "type": "shapesys", "data": [float(error[i])]}
    for variation, (up, down) in yields.factors.items():
        yield {"name": variation, "type": "normsys", "data": {"hi": float(up[i]), "lo": float(down[i])}}


class _Pyhf:
    """A model and data of pyhf, fitted by Minuit or, where that does not converge, by SciPy."""

    def __init__(self, spec: dict[str, Json]) -> None:
        require("pyhf", "search")
        require("iminuit", "search")
        import pyhf

        self.pyhf = pyhf
        with self._backend(pyhf.optimize.minuit_optimizer()):
            self.workspace = pyhf.Workspace(spec)
            self.model = self.workspace.model()
            self.data = self.workspace.data(self.model)
        self.poi = self.model.config.poi_index
        self._cls: dict[float, FloatArray] = {}

    @contextmanager
    def _backend(self, optimizer: Any) -> Iterator[None]:
        """Use NumPy and an optimizer for a while."""
        before = self.pyhf.get_backend()
        self.pyhf.set_backend("numpy", optimizer)
        disabled = logging.root.manager.disable
        logging.disable()  # it tells of fits that are tried again
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what pyhf calls in other packages
                yield
        finally:
            self.pyhf.set_backend(*before)
            logging.disable(disabled)

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function of pyhf that fits."""
        optimize, failed = self.pyhf.optimize, self.pyhf.exceptions.FailedMinimization
        for optimizer in (
            optimize.minuit_optimizer(tolerance=1e-4),
            optimize.minuit_optimizer(strategy=2, tolerance=1.0),
        ):
            try:
                with self._backend(optimizer):
                    return function(*arguments, **options)
            except failed:
                continue
        try:
            with self._backend(optimize.scipy_optimizer()):
                return function(*arguments, **{name: one for name, one in options.items() if name != _ERRORS})
        except failed as failure:
            raise NotConvergedError(str(failure).splitlines()[0]) from None

    def cls(self, strength: float) -> FloatArray:
        """CLs observed and expected at -2 to 2 standard deviations."""
        if strength not in self._cls:
            hypotest = self.pyhf.infer.hypotest
            observed, expected = self.call(
                hypotest, strength, self.data, self.model, test_stat="qtilde", return_expected_set=True
            )
            self._cls[strength] = np.array([float(observed), *map(float, expected)])
        return self._cls[strength]

    def limit(self, which: int, guess: float) -> float:
        """Strength at which CLs falls through 1 - CONFIDENCE; infinite beyond the bound of the strength."""
        from scipy.optimize import brentq

        def distance(strength: float) -> float:
            return float(ndtri(np.clip(self.cls(strength)[which], 1e-15, 1 - 1e-15)) - ndtri(1 - CONFIDENCE))

        bound = self.model.config.suggested_bounds()[self.poi][1]
        low = high = min(guess, bound)
        while distance(low) < 0:
            low, high = low / 1.3, low
        while distance(high) > 0:
            if high >= bound:
                return float("inf")
            low, high = high, min(high * 1.3, bound)
        return low if low == high else float(brentq(distance, low, high, xtol=1e-12, rtol=1e-7))


def fit_asymptotic(spec: dict[str, Json], guesses: Sequence[float], *, has_data: bool, least: float = 0.0) -> Fitted:
    """Fit a workspace, and find significances and limits by asymptotic formulae.

    ``guesses`` are limits near the observed one and the expected ones at -2 to 2 standard deviations; ``least`` is the
    lower bound of the best-fit strength.
    """
    fit = _Pyhf(spec)
    limits = [fit.limit(i, guess) if has_data or i else None for i, guess in enumerate(guesses)]
    config = fit.model.config
    init, bounds, fixed = config.suggested_init(), config.suggested_bounds(), config.suggested_fixed()
    with_signal = [1.0 if i == fit.poi else one for i, one in enumerate(init)]
    open_bounds = [(0.0, max(one[1], 10.0)) if i == fit.poi else one for i, one in enumerate(bounds)]
    q0 = fit.pyhf.infer.test_statistics.q0
    expected_q0 = fit.call(q0, 0.0, fit.model.expected_data(with_signal), fit.model, with_signal, open_bounds, fixed)
    strength = error = z = None
    if has_data:
        below = [(least, one[1]) if i == fit.poi else one for i, one in enumerate(open_bounds)]
        best = fit.call(fit.pyhf.infer.mle.fit, fit.data, fit.model, par_bounds=below, **{_ERRORS: True})
        strength, error = map(float, best[fit.poi]) if np.ndim(best[fit.poi]) else (float(best[fit.poi]), None)
        z = float(np.sqrt(fit.call(q0, 0.0, fit.data, fit.model, init, bounds, fixed)))
    return Fitted(
        strength,
        error,
        None if z is None else float(ndtr(-z)),
        z,
        float(np.sqrt(expected_q0)),
        limits[0],
        [float("inf") if one is None else one for one in limits[1:]],
    )
