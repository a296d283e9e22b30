"""The HistFactory model of a search, and its asymptotic significances and limits, by pyhf."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtr

from unmask.artifacts import Json
from unmask.errors import UnmaskError, require
from unmask.scores.intervals import CONFIDENCE
from unmask.searches.counting import BANDS
from unmask.searches.estimate import Background, Yields

FloatArray = npt.NDArray[np.float64]
#: Asymptotic formulae are used where every signal region expects at least so many events, counted as as many.
MIN_ASYMPTOTIC = 10.0
_MEASUREMENT = "strength"
_ERRORS = "return_uncertainties"


class NotConvergedError(UnmaskError, RuntimeError):
    """A fit that neither Minuit nor SciPy could bring to an end."""


@dataclass(frozen=True)
class Asymptotic:
    """Significances and limits by asymptotic formulae.

    Attributes
    ----------
    p_value, z
        Of background alone against the signal; None without data.
    expected_z
        Median if the signal is there, at strength 1.
    limit, expected_limits
        Upper limits by CLs; the expected ones at -2 to 2 standard deviations.
    """

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


class Fits:
    """Fits of a workspace by pyhf, with Minuit or, where that does not converge, SciPy; none is done twice."""

    def __init__(self, spec: dict[str, Json]) -> None:
        require("pyhf", "search")
        require("iminuit", "search")
        import pyhf

        self.pyhf = pyhf
        with self._backend(pyhf.optimize.minuit_optimizer()):
            workspace = pyhf.Workspace(spec)
            self.model = workspace.model()
            data = workspace.data(self.model)
        config = self.model.config
        self.poi, self.init = config.poi_index, np.array(config.suggested_init())
        self.bounds = [*map(tuple, config.suggested_bounds())]
        self.bounds[self.poi] = (0.0, max(self.bounds[self.poi][1], 10.0))
        without_signal = self._minimum(data, 0.0)[0]
        #: Data, and what is expected without and with signal of strength 1.
        self.samples = {"data": data, "background": self._expected(without_signal), "signal": None}
        self.samples["signal"] = self._expected(self._with(self.init, 1.0))
        self._known: dict[tuple[str, float | None], tuple[FloatArray, float]] = {}

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

    def _with(self, parameters: FloatArray, strength: float) -> FloatArray:
        return np.where(np.arange(len(parameters)) == self.poi, strength, parameters)

    def _expected(self, parameters: FloatArray) -> Any:
        with self._backend(self.pyhf.optimize.scipy_optimizer()):
            return self.model.expected_data(parameters)

    def _minimum(
        self, data: Any, strength: float | None, *, least: float = 0.0, with_errors: bool = False
    ) -> tuple[FloatArray, float]:
        """Best-fit parameters, with their errors on demand, and twice the negative logarithm of the likelihood."""
        optimize, mle = self.pyhf.optimize, self.pyhf.infer.mle
        bounds = [(least, one[1]) if i == self.poi else one for i, one in enumerate(self.bounds)]
        given = (data, self.model, [*(self.init if strength is None else self._with(self.init, strength))], bounds)
        minuit = ({"tolerance": 1e-4}, {"tolerance": 1.0, "strategy": 2})
        for optimizer in (*(optimize.minuit_optimizer(**options) for options in minuit), optimize.scipy_optimizer()):
            more = {_ERRORS: True} if with_errors and optimizer.name == "minuit" else {}
            try:
                with self._backend(optimizer):
                    fit = mle.fit if strength is None else partial(mle.fixed_poi_fit, strength)
                    parameters, value = fit(*given, return_fitted_val=True, **more)
            except self.pyhf.exceptions.FailedMinimization as failure:
                reason = str(failure).splitlines()[0]
                continue
            return np.asarray(parameters, np.float64), float(value)
        raise NotConvergedError(reason)

    def minimum(self, sample: str, strength: float | None = None) -> tuple[FloatArray, float]:
        """Best-fit parameters and minimum, with a strength or, by default, the best one of at least zero."""
        if (sample, strength) not in self._known:
            self._known[sample, strength] = self._minimum(self.samples[sample], strength)
        return self._known[sample, strength]

    def distance(self, sample: str, strength: float) -> float:
        """Square root of the test statistic: q0 for strength 0, else the q-tilde of limits."""
        parameters, least = self.minimum(sample)
        if 0 < strength < parameters[self.poi]:
            return 0.0
        return float(np.sqrt(max(self.minimum(sample, strength)[1] - least, 0.0)))

    def log_cls(self, strength: float, band: int | None) -> float:
        """Logarithm of CLs: observed, or expected at ``band`` standard deviations (arXiv:1007.1727)."""
        shift = self.distance("background", strength)
        t = float(-band) if band is not None else self.distance("data", strength) - shift
        if band is None and t > 0:
            t = ((t + shift) ** 2 - shift**2) / (2 * max(shift, 1e-12))
        return float(log_ndtr(-t - shift) - log_ndtr(-t))

    def limit(self, band: int | None, guess: float) -> float:
        """Strength at which CLs falls through 1 - CONFIDENCE; infinite beyond the bound of the strength."""
        from scipy.optimize import brentq

        def above(strength: float) -> float:
            return self.log_cls(strength, band) - float(np.log(1 - CONFIDENCE))

        bound = self.bounds[self.poi][1]
        low = high = min(guess, bound)
        while above(low) < 0:
            low, high = low / 1.3, low
        while above(high) > 0:
            if high >= bound:
                return float("inf")
            low, high = high, min(high * 1.3, bound)
        return low if low == high else float(brentq(above, low, high, xtol=1e-12, rtol=1e-7))

    def best(self, least: float) -> tuple[float, float | None]:
        """Best-fit strength of data, of at least ``least``, and its error where Minuit gives one."""
        found = self._minimum(self.samples["data"], None, least=least, with_errors=True)[0][self.poi]
        return (float(found[0]), float(found[1])) if np.ndim(found) else (float(found), None)


def fit_asymptotic(fits: Fits, guesses: Sequence[float], *, has_data: bool) -> Asymptotic:
    """Find significances and limits by asymptotic formulae.

    ``guesses`` are limits near the observed one and the expected ones at -2 to 2 standard deviations.
    """
    expected = [fits.limit(band, guess) for band, guess in zip(BANDS, guesses[1:], strict=True)]
    expected_z = fits.distance("signal", 0.0)
    if not has_data:
        return Asymptotic(None, None, expected_z, None, expected)
    z = fits.distance("data", 0.0)
    return Asymptotic(float(ndtr(-z)), z, expected_z, fits.limit(None, guesses[0]), expected)
