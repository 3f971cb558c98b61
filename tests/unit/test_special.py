"""Scalar special functions against SciPy and against the equations they solve."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import expit, wrightomega

from likelier import special

GRID = np.concatenate([np.linspace(-800.0, 800.0, 4001), np.linspace(-3.0, 3.0, 1001)])


def each(function, *columns):
    return np.array([function(*(float(v) for v in row)) for row in zip(*columns, strict=True)])


def test_sigmoid_and_log1p_exp_never_overflow():
    np.testing.assert_allclose(each(special.sigmoid, GRID), expit(GRID), rtol=4e-16, atol=1e-307)
    np.testing.assert_allclose(
        each(special.log1p_exp, GRID), np.logaddexp(0.0, GRID), rtol=1e-15, atol=0.0
    )
    assert special.sigmoid(-math.inf) == 0.0
    assert special.sigmoid(math.inf) == 1.0


def test_wright_omega_matches_scipy():
    x = np.concatenate([GRID, [-36.0, -35.999, -1.0, 2.0, 1e3, 1e8, 1e16, 2e17, 1e300]])
    np.testing.assert_allclose(each(special.wright_omega, x), wrightomega(x), rtol=1e-14)


def test_wright_omega_is_continuous_and_increasing_where_its_starts_change():
    for edge in (-36.0, -1.0, 2.0, 1e17):
        below, above = np.nextafter(edge, -np.inf), np.nextafter(edge, np.inf)
        low, high = special.wright_omega(below), special.wright_omega(above)
        assert low <= high * (1.0 + 1e-15)
        # two roundings of x apart: omega changes by at most |x| times that
        assert abs(high - low) <= 8e-16 * abs(edge) * abs(high)


@pytest.mark.parametrize("z", [-1e6, -50.0, -1.0, 0.0, 1.0, 40.0, 800.0, 1e6])
def test_implicit_logistic_without_a_step_is_the_slope(z):
    assert special.implicit_logistic(z, 0.0) == special.sigmoid(-z)
    assert special.implicit_logistic(z, 1e-300) == pytest.approx(special.sigmoid(-z), rel=1e-12)


def test_implicit_logistic_keeps_the_digits_of_a_tiny_probability():
    """``(u - z) / c`` would be all rounding here: the answer is far below 1e-16."""
    for z, c in ((300.0, 1e-8), (300.0, 1.0), (700.0, 10.0)):
        assert special.implicit_logistic(z, c) == pytest.approx(math.exp(-z), rel=1e-12)


def test_implicit_poisson_where_the_mean_underflows():
    """A mean of exp(-1000) is no mean at all: the step is the count itself."""
    for y, m, c in ((0.0, -1000.0, 10.0), (1.0, -1000.0, 1.0), (3.0, -760.0, 2.0)):
        assert special.implicit_poisson(y, m, c) == y
    assert special.implicit_poisson(0.0, -800.0, 1e6) == 0.0


def test_implicit_poisson_without_a_step_is_the_slope():
    assert special.implicit_poisson(3.0, 0.5, 0.0) == 3.0 - math.exp(0.5)
    assert special.implicit_poisson(3.0, 0.5, 1e-300) == pytest.approx(3.0 - math.exp(0.5))


def test_implicit_poisson_from_an_exploding_score():
    """The explicit step from m = 800 is infinite, the implicit one lands near log(y)."""
    g = special.implicit_poisson(5.0, 800.0, 1e6)
    assert 800.0 + 1e6 * g == pytest.approx(math.log(5.0), abs=1e-3)
