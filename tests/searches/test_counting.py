"""Numbers of one counting region agree with integrals, with SciPy's tests and with toys."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

from unmask.searches.counting import CountedBackground, cls_value, events_limit, expected_events_limits, z_value


@pytest.mark.parametrize(("n", "n_auxiliary", "tau"), [(12, 40, 4.0), (3, 0, 2.0), (250, 90, 0.5)])
def test_p_values_are_those_of_the_binomial_test(n: int, n_auxiliary: int, tau: float) -> None:
    p = CountedBackground(n_auxiliary, tau).p_values(n)
    exact = stats.binomtest(n, n + n_auxiliary, 1 / (1 + tau), alternative="greater").pvalue
    assert p == pytest.approx(exact, rel=1e-6)
    assert z_value(p) == pytest.approx(max(stats.norm.isf(exact), 0), abs=1e-6)


@pytest.mark.parametrize(("expected", "error", "n"), [(9.8, 1.5, 12), (0.4, 0.3, 3), (300.0, 20.0, 350)])
def test_p_values_and_cls_are_averages_over_the_background_rate(expected: float, error: float, n: int) -> None:
    background = CountedBackground.of(expected, error)
    m = (expected / error) ** 2
    rate = stats.gamma(m + 1, scale=expected / m)

    def average(function: object) -> float:
        low, high = rate.ppf([1e-13, 1 - 1e-13])
        return integrate.quad(lambda b: function(b) * rate.pdf(b), low, high, epsabs=1e-13, limit=500)[0]  # type: ignore[operator]

    assert background.p_values(n) == pytest.approx(average(lambda b: stats.poisson.sf(n - 1, b)), rel=1e-6)

    def cls(signal: float) -> float:
        both = average(lambda b: stats.poisson.cdf(n, b + signal))
        return both / average(lambda b: stats.poisson.cdf(n, b))

    assert cls_value(n, 5.0, background) == pytest.approx(cls(5.0), rel=1e-6)
    limit = optimize.brentq(lambda signal: cls(signal) - 0.05, 0, 500, xtol=1e-9)
    assert events_limit(n, background) == pytest.approx(limit, rel=1e-6)


def test_without_error_the_numbers_are_those_of_poisson() -> None:
    background = CountedBackground.of(3.2, 1e-5)
    assert background.p_values(7) == pytest.approx(stats.poisson.sf(6, 3.2), rel=1e-6)
    assert [background.quantile(q) for q in (0.02, 0.5, 0.98)] == [*map(int, stats.poisson(3.2).ppf([0.02, 0.5, 0.98]))]
    assert events_limit(0, background) == pytest.approx(-np.log(0.05), rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(expected=st.floats(0.01, 500), relative=st.floats(0.01, 3), observed=st.integers(0, 600))
def test_limits_are_ordered_and_grow_with_data(expected: float, relative: float, observed: int) -> None:
    background = CountedBackground.of(expected, relative * expected)
    bands = expected_events_limits(background)
    assert bands == sorted(bands)
    assert bands[0] >= 2.9957
    assert events_limit(observed, background) <= events_limit(observed + 1, background)
    assert 0 <= background.p_values(observed + 1) <= background.p_values(observed) <= 1


def test_p_values_are_uniform_when_control_and_signal_region_fluctuate() -> None:
    """Counts are discrete: between the p-value of a count and of the next one a number is drawn."""
    rng = np.random.default_rng(5)
    counted = CountedBackground(rng.poisson(20, 4000), 4.0)
    observed = rng.poisson(5, 4000)
    p, following = counted.p_values(observed), counted.next_p_values(observed)
    assert stats.kstest(following + rng.random(4000) * (p - following), "uniform").pvalue > 0.01
    for level in (0.1, 0.01):
        assert np.mean(p <= level) <= level + 2 * np.sqrt(level / 4000)


@pytest.mark.parametrize("signal", [2.0, 6.0])
def test_limits_cover(signal: float) -> None:
    rng = np.random.default_rng(6)
    auxiliary, observed = rng.poisson(16, 600), rng.poisson(4 + signal, 600)
    known: dict[tuple[int, int], float] = {}
    for pair in set(zip(auxiliary.tolist(), observed.tolist(), strict=True)):
        known[pair] = events_limit(pair[1], CountedBackground(pair[0], 4.0))
    covered = [known[pair] >= signal for pair in zip(auxiliary.tolist(), observed.tolist(), strict=True)]
    assert np.mean(covered) >= 0.95
