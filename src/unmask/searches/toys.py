"""Toy experiments: the global p-value over regions, and CLs limits where asymptotic formulae do not hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from unmask.scores.intervals import CONFIDENCE
from unmask.searches.counting import BANDS, CountedBackground
from unmask.searches.estimate import Background, Yields, transfer_changes

FloatArray = npt.NDArray[np.float64]

#: Toys of a global p-value, and if fewer than a hundred of them are as extreme.
N_GLOBAL = (10_000, 200_000)
_ENOUGH = 100
N_LIMIT = 20_000
#: Signal strengths that a limit is interpolated between: per factor of ten.
_PER_DECADE = 24


def global_p_value(smallest: float, background: Background, *, seed: int, n_toys: tuple[int, ...] = N_GLOBAL) -> float:
    """Probability that background alone gives a local p-value as small in any signal region.

    Each toy repeats the whole procedure: data in control and signal regions, simulated statistics and variations
    fluctuate, the background is estimated again, and the smallest local p-value is taken.
    """
    for n in n_toys:
        p = _smallest_p_values(background, np.random.default_rng(seed), n)
        n_as_small = np.count_nonzero(p <= smallest * (1 + 1e-9))
        if n_as_small >= _ENOUGH:
            break
    return float(max((1 + n_as_small) / (1 + n), smallest))


def _smallest_p_values(background: Background, rng: np.random.Generator, n: int) -> FloatArray:
    """The smallest p-value of the signal regions in each of ``n`` toys without signal."""
    used = [0, *range(2, len(background.yields.total))]
    yields, signal = background.yields, slice(1, None)
    total, error = yields.total[used], yields.error[used]
    truth = np.where(total > 0, total, yields.one_event)
    weight = np.where(total > 0, error**2 / truth, yields.one_event)
    changes = transfer_changes(yields)[:, used]
    pulls = np.exp(rng.standard_normal((n, len(changes))) @ changes)
    control = np.maximum(rng.poisson(background.control, n), 1)
    simulated = rng.poisson(truth / weight, (n, len(truth)))  # events of equal weight
    simulated[:, 0] = np.maximum(simulated[:, 0], 1)
    scale = control / (simulated[:, 0] * weight[0])
    # Variances relative to the squared estimate: of an empty region infinite, so that it counts as no event.
    with np.errstate(divide="ignore"):
        variance = 1 / simulated + (1 / simulated[:, 0] + 1 / control)[:, None] + (changes**2).sum(axis=0)
    one_event = scale[:, None] * weight
    n_auxiliary = np.where(simulated > 0, 1 / variance, 0.0)
    tau = np.where(simulated > 0, n_auxiliary / np.maximum(simulated * one_event, 1e-300), 1 / one_event)
    observed = rng.poisson(truth * pulls, (n, len(truth)))
    counted = CountedBackground(n_auxiliary[:, signal], tau[:, signal])
    return np.asarray(counted.p_values(observed[:, signal]).min(axis=1))


@dataclass(frozen=True)
class ToyLimits:
    """Upper limits on the strength of a signal, and the p-value of background alone against it at strength 1."""

    observed: float | None
    expected: list[float]
    p_value: float | None


def toy_limits(
    observed: npt.NDArray[np.integer] | None,
    signal: Yields,
    background: Background,
    *,
    seed: int,
    n_toys: int = N_LIMIT,
) -> ToyLimits:
    """CLs limits from toys of all signal regions, ordered by the ratio of likelihoods with and without signal.

    Rates of background and signal are drawn within their errors, variations together in all regions. Signal in the
    control region is taken off the background that it would feign.
    """
    rng = np.random.default_rng(seed)
    rates, strengths = _drawn(background.yields, signal, background.control, rng, n_toys)
    counted = background.counted
    nominal = (counted.n_auxiliary + (counted.n_auxiliary == 0)) / counted.tau
    b, s = nominal[2:], signal.total[2:]
    feigned = signal.total[0] / background.control

    def expected(strength: float, rates: FloatArray, signals: FloatArray) -> FloatArray:
        return np.asarray(rates * max(1 - strength * feigned, 0.0) + strength * signals)

    alone = rng.poisson(rates)

    def cls(strength: float) -> FloatArray:
        """CLs of the observed number, where there is one, and of the quantiles of background alone."""
        weights = np.log(np.maximum(expected(strength, b, s), 1e-12) / b)
        q_alone, q_signal = alone @ weights, rng.poisson(expected(strength, rates, strengths)) @ weights
        bands = np.quantile(q_alone, ndtr(BANDS), method="inverted_cdf")
        at = np.array([*bands, *([] if observed is None else [observed[2:] @ weights])]) + 1e-9
        alone_sorted, signal_sorted = np.sort(q_alone), np.sort(q_signal)
        below = [np.searchsorted(one, at, side="right") for one in (signal_sorted, alone_sorted)]
        return np.asarray(below[0] / np.maximum(below[1], 1))

    limits = _crossings(cls, (3 + 2 * np.sqrt(b.sum())) / s.sum())
    p_value = None
    if observed is not None:
        weights = np.log(np.maximum(expected(1.0, b, s), 1e-12) / b)
        p_value = float((1 + np.count_nonzero(alone @ weights >= observed[2:] @ weights - 1e-9)) / (1 + n_toys))
    return ToyLimits(None if observed is None else limits[-1], limits[: len(BANDS)], p_value)


def _drawn(
    background: Yields, signal: Yields, control: float, rng: np.random.Generator, n: int
) -> tuple[FloatArray, FloatArray]:
    """Rates of background and signal (n, n_signal_regions) within their errors."""
    names = list(dict.fromkeys([*background.factors, *signal.factors]))
    pulls = rng.standard_normal((n, len(names)))
    drawn = []
    for yields in (background, signal):
        is_there = yields.total > 0
        n_events = np.where(is_there, (yields.total / np.where(yields.error > 0, yields.error, 1)) ** 2, 0.0)
        weight = np.divide(yields.total, n_events, out=np.full(len(n_events), yields.one_event), where=n_events > 0)
        rates = rng.gamma(n_events + (yields is background), size=(n, len(n_events))) * weight
        for pull, name in zip(pulls.T, names, strict=True):
            if name in yields.factors:
                up, down = np.log(yields.factors[name])
                rates *= np.exp(np.where(pull[:, None] > 0, up, -down) * pull[:, None])
        drawn.append(rates)
    rates = drawn[0] / drawn[0][:, :1] * rng.gamma(control + 1, size=(n, 1))
    return rates[:, 2:], drawn[1][:, 2:]


def _crossings(cls: Callable[[float], FloatArray], start: float) -> list[float]:
    """Strengths at which each CLs falls through 1 - CONFIDENCE; infinite where it does not."""
    level = np.log(1 - CONFIDENCE)
    strengths, values = [start], [cls(start)]

    def add(strength: float, at: int) -> None:
        strengths.insert(at, strength)
        values.insert(at, cls(strength))

    step = 10 ** (1 / 4)
    while (values[-1] > 1 - CONFIDENCE).any() and strengths[-1] < 1e4 * start:
        add(strengths[-1] * step, len(strengths))
    while (values[0] < 1 - CONFIDENCE).any():
        add(strengths[0] / step, 0)
    grid = np.geomspace(strengths[0], strengths[-1], max(int(_PER_DECADE * np.log10(strengths[-1] / strengths[0])), 8))
    logs = np.log(np.maximum([cls(one) for one in grid], 1e-12))
    limits = []
    for column in logs.T:
        falling = np.minimum.accumulate(column)
        above = int(np.argmax(falling < level)) if (falling < level).any() else 0
        if not above:
            limits.append(float("inf"))
            continue
        low, high = falling[above - 1], falling[above]
        fraction = (low - level) / (low - high)
        limits.append(float(grid[above - 1] * (grid[above] / grid[above - 1]) ** fraction))
    return limits
