"""The learned shape of the noise."""

import numpy as np
import pytest
from scipy import stats

from likelier.inference.noise_shape import WIDTHS, noise_shape


def log_density(shape, z):
    widths = np.sqrt(shape.variance) * shape.widths
    parts = stats.norm.logpdf(z[:, None], scale=widths) + np.log(shape.shares)
    return np.logaddexp.reduce(parts, axis=1)


def test_gaussian_noise_stays_gaussian():
    z = np.random.default_rng(0).standard_normal(5000)
    shape = noise_shape(z)
    assert shape.shares @ shape.widths**2 == pytest.approx(1.0)
    fresh = np.random.default_rng(1).standard_normal(5000)
    assert log_density(shape, fresh).mean() > stats.norm.logpdf(fresh).mean() - 0.003


def test_heavy_tails_are_learned():
    rng = np.random.default_rng(2)
    scale = np.sqrt(3.0)  # the standard deviation of Student's t with three degrees of freedom
    z, fresh = rng.standard_t(3, 4000) / scale, rng.standard_t(3, 20_000) / scale
    shape = noise_shape(z)
    grid = np.linspace(0.5, 3.0, 2501)
    widths = np.sqrt(shape.variance) * shape.widths
    cdf = (stats.norm.cdf(grid[:, None] / widths) @ shape.shares) * 2.0 - 1.0
    half = grid[np.searchsorted(cdf, 0.9)]
    assert np.mean(np.abs(fresh) < half) == pytest.approx(0.9, abs=0.012)
    assert np.mean(np.abs(fresh) < 1.6449) > 0.92  # what a Gaussian of that variance would cover
    assert log_density(shape, fresh).mean() > stats.norm.logpdf(fresh).mean() + 0.1


def test_shares_are_the_best_ones():
    z = np.random.default_rng(3).laplace(size=400)
    z /= z.std()
    shape = noise_shape(z)
    widths = np.sqrt(shape.variance) * shape.widths
    shares = np.zeros(len(WIDTHS))
    shares[np.searchsorted(WIDTHS, 0.999 * widths)] = shape.shares

    def objective(w):
        parts = stats.norm.pdf(z[:, None], scale=WIDTHS) @ w
        return np.log(parts).sum() + 5.0 * np.log(w[2])

    best = objective(shares)
    rng = np.random.default_rng(4)
    for _ in range(200):
        other = 0.97 * shares + 0.03 * rng.dirichlet(np.ones(5))
        assert objective(other) <= best + 0.05


def test_a_weight_is_a_repetition():
    z = np.random.default_rng(5).standard_t(4, 50)
    weight = np.random.default_rng(6).integers(1, 4, 50).astype(float)
    a, b = noise_shape(z, weight), noise_shape(np.repeat(z, weight.astype(int)))
    np.testing.assert_allclose(a.shares, b.shares, rtol=1e-9)


def test_no_residuals_at_all_are_a_gaussian():
    shape = noise_shape(np.zeros(0))
    np.testing.assert_allclose(shape.shares @ shape.widths**2, 1.0)
    assert shape.shares.max() > 0.99
