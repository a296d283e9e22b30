"""P-values over regions are uniform, and limits from toys cover, when data, control and simulation fluctuate."""

import numpy as np
import pytest
from scipy import stats

from unmask.searches.counting import CountedBackground, events_limit
from unmask.searches.estimate import Background, Yields
from unmask.searches.toys import global_p_value, toy_limits

#: Expected events in control, validation and three signal regions; simulated events per expected one.
TRUTH, PER_EVENT = np.array([800.0, 100.0, 60.0, 25.0, 8.0]), 2.0
CHANGE = np.array([1.0, 1.05, 1.1, 1.15, 1.2])


def experiments(n: int, seed: int) -> list[tuple[Background, np.ndarray]]:
    """Background estimates and data of experiments with a variation of unknown size, without signal."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        simulated = rng.poisson(TRUTH * PER_EVENT) / PER_EVENT
        yields = Yields(simulated, np.sqrt(simulated / PER_EVENT), 1 / PER_EVENT, {"jes": (CHANGE, 1 / CHANGE)})
        observed = rng.poisson(TRUTH * CHANGE ** rng.standard_normal())
        made.append((Background.of(yields, float(observed[0])), observed))
    return made


def test_local_and_global_p_values_are_uniform_without_signal() -> None:
    rng = np.random.default_rng(3)
    local, overall = [], []
    for background, observed in experiments(300, seed=2):
        p, following = background.counted.p_values(observed)[2:], background.counted.next_p_values(observed)[2:]
        local.append(following + rng.random(3) * (p - following))
        overall.append(global_p_value(float(p.min()), background, seed=len(local), n_toys=(1000,)))
    for some in [*np.transpose(local), overall]:
        assert stats.kstest(some, "uniform").pvalue > 0.01
    assert np.mean(np.array(overall) < 0.05) < 0.08


def test_the_global_p_value_is_larger_by_the_number_of_regions() -> None:
    yields = Yields(np.array([1e6, 1e5, 100, 100, 100, 100]), np.full(6, 1e-3), 1e-9)
    p = global_p_value(0.01, Background.of(yields, 1e6), seed=1)
    one = stats.poisson.sf(stats.poisson.isf(0.01, 100), 100)  # counts are discrete: the next below 0.01
    assert p == pytest.approx(1 - (1 - one) ** 4, rel=0.15)


def test_limits_from_toys_are_those_of_counting_in_one_region() -> None:
    yields = Yields(np.array([900.0, 90, 6.0]), np.array([10.0, 3, 1.5]), 0.4)
    background = Background.of(yields, 900.0)
    signal = Yields(np.array([0.0, 0, 10.0]), np.zeros(3), 0.1)
    counted = background.counted
    for n in (2, 6, 12):
        limits = toy_limits(np.array([900, 90, n]), signal, background, seed=1, n_toys=40_000)
        exact = events_limit(n, CountedBackground(counted.n_auxiliary[2], counted.tau[2]))
        assert limits.observed == pytest.approx(exact / 10, rel=0.03)


def test_limits_from_toys_cover() -> None:
    strength, per_region = 1.0, np.array([20.0, 5, 3, 4, 4])
    signal = Yields(per_region, per_region / 30, 0.01, {"jes": (CHANGE, 1 / CHANGE)})
    rng = np.random.default_rng(8)
    n_covered = 0
    for background, observed in experiments(100, seed=7):
        both = observed + rng.poisson(strength * per_region)
        limit = toy_limits(both, signal, Background.of(background.yields, float(both[0])), seed=1, n_toys=1500).observed
        n_covered += limit is not None and limit >= strength
    assert n_covered >= 0.95 * 100 - 1
