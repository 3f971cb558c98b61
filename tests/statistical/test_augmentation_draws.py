"""Hidden variables of the two augmentations: moments and laws.

Every test has a fixed seed. A Kolmogorov-Smirnov test fails below p = 1e-4, a moment beyond 4.5
standard errors: with all of this file's checks, a correct sampler would fail for about one seed in
two hundred.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from likelier.bayesian_linear.augmented import draw_inverse_gaussian, draw_polya_gamma

N = 40_000


def polya_gamma_series(b, c, n, rng, terms=300):
    """The defining sum of gamma variables, with the mean of what is cut off added."""
    k = np.arange(terms) + 0.5
    total = np.zeros(n)
    for half in k:
        total += rng.gamma(b, size=n) / (half**2 + c**2 / (4.0 * np.pi**2))
    tail = b * np.sum(1.0 / ((np.arange(terms, 10**6) + 0.5) ** 2 + c**2 / (4.0 * np.pi**2)))
    return (total + tail) / (2.0 * np.pi**2)


def mean_of(b, c):
    return b * np.tanh(c / 2.0) / (2.0 * c) if c else b / 4.0


def variance_of(b, c):
    return b * (np.sinh(c) - c) / (4.0 * c**3 * np.cosh(c / 2.0) ** 2) if c else b / 24.0


@pytest.mark.parametrize("b", [None, 1.0, 2.0, 0.3, 2.5, 17.5])
@pytest.mark.parametrize("c", [0.0, 0.7, 6.0])
def test_polya_gamma_moments(b, c):
    shape = 1.0 if b is None else b
    stream = np.random.default_rng(1)
    shapes = None if b is None else np.full(N, b)
    draws = draw_polya_gamma(shapes, np.full(N, c), stream)
    error = np.sqrt(variance_of(shape, c) / N)
    assert abs(draws.mean() - mean_of(shape, c)) < 4.5 * error
    spread = (draws - draws.mean()) ** 2
    assert abs(spread.mean() - variance_of(shape, c)) < 4.5 * spread.std() / np.sqrt(N)


@pytest.mark.parametrize(("b", "c"), [(1.0, 0.0), (1.0, 3.0), (0.4, 1.0), (2.5, 1.0)])
def test_polya_gamma_law(b, c):
    n = 8000
    stream, rng = np.random.default_rng(2), np.random.default_rng(3)
    shapes = None if b == 1.0 else np.full(n, b)
    draws = draw_polya_gamma(shapes, np.full(n, c), stream)
    assert stats.ks_2samp(draws, polya_gamma_series(b, c, n, rng)).pvalue > 1e-4


@pytest.mark.parametrize("c", [0.0, 3.0, 60.0])
def test_polya_gamma_law_of_tiny_shapes(c):
    """100 draws of shape 9e-4 add up to one of shape 0.09."""
    n, stream = 400, np.random.default_rng(6)
    parts = draw_polya_gamma(np.full(100 * n, 9e-4), np.full(100 * n, c), stream)
    assert (parts >= 0.0).all()
    whole = draw_polya_gamma(np.full(8000, 0.09), np.full(8000, c), stream)
    assert stats.ks_2samp(parts.reshape(n, 100).sum(axis=1), whole).pvalue > 1e-4
    mixed = draw_polya_gamma(np.tile([1e-12, 0.5], 3), np.zeros(6), stream)
    assert (mixed[::2] < 1e-6).all() and (mixed[1::2] > 1e-6).all()


def test_expected_omega_near_zero():
    """``tanh(c/2)/(2c)`` is ``1/4 - c^2/48`` to fourth order."""
    c = 0.1
    np.testing.assert_allclose(mean_of(1.0, c), 0.25 - c**2 / 48.0, rtol=1e-5)


@pytest.mark.parametrize("a", [1e-3, 0.1, 1.0, 20.0])
def test_inverse_gaussian_law(a):
    draws = draw_inverse_gaussian(np.full(N, a), np.random.default_rng(4))
    law = stats.invgauss(1.0 / a)  # mean 1/a, shape 1 in its own units
    assert stats.kstest(draws, law.cdf).pvalue > 1e-4


def test_inverse_gaussian_on_the_margin():
    """As ``u -> 0`` the law is that of one over a chi-squared variable; nothing overflows."""
    for a in (0.0, 1e-300, 1e-30, 1e-9):
        draws = draw_inverse_gaussian(np.full(N, a), np.random.default_rng(5))
        assert np.isfinite(draws).all()
        assert (draws > 0.0).all()
        assert stats.kstest(1.0 / draws, stats.chi2(1).cdf).pvalue > 1e-4
    assert np.isfinite(draw_inverse_gaussian(np.array([1e200]), np.random.default_rng(6))).all()
