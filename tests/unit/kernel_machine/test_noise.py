"""The fitted noise distribution."""

import numpy as np
import pytest
from scipy import stats

from likelier.kernel_machine.noise import (
    CENTRES,
    PSEUDO_COUNTS,
    WIDTHS,
    NoiseShape,
    component_log_density,
    noise_mixture,
    noise_shape,
)


def around_zero(shape, n):
    """The predictive of n residuals."""
    std = np.full(n, np.sqrt(shape.variance))
    return noise_mixture(np.zeros(n), std, shape, np.zeros(n))


def log_density(shape, z):
    return around_zero(shape, len(z)).log_density(z)


def half_width(shape, coverage=0.9):
    low, high = around_zero(shape, 1).interval(coverage)[0]
    assert high == pytest.approx(-low, rel=1e-6)
    return high


def test_gaussian_noise_stays_gaussian():
    z = np.random.default_rng(0).standard_normal(5000)
    shape = noise_shape(z)
    assert shape.weights @ (shape.widths**2 + shape.centres**2) == pytest.approx(1.0)
    assert shape.weights @ shape.centres == pytest.approx(0.0, abs=1e-12)
    fresh = np.random.default_rng(1).standard_normal(5000)
    assert log_density(shape, fresh).mean() > stats.norm.logpdf(fresh).mean() - 0.003


def test_heavy_tails_are_learned():
    rng = np.random.default_rng(2)
    scale = np.sqrt(3.0)  # the standard deviation of Student's t with three degrees of freedom
    z, fresh = rng.standard_t(3, 4000) / scale, rng.standard_t(3, 20_000) / scale
    shape = noise_shape(z)
    assert np.mean(np.abs(fresh) < half_width(shape)) == pytest.approx(0.9, abs=0.012)
    assert np.mean(np.abs(fresh) < 1.6449) > 0.92  # what a Gaussian of that variance would cover
    assert log_density(shape, fresh).mean() > stats.norm.logpdf(fresh).mean() + 0.1


def test_shoulders_are_learned():
    """Most residuals are small, the others of a typical size: zero-mean widths do not fit."""

    def draw(rng, n):
        off = rng.choice([-2.0, 2.0], n) + 0.5 * rng.standard_normal(n)
        z = np.where(rng.random(n) < 0.8, 0.5 * rng.standard_normal(n), off)
        return z / np.sqrt(0.8 * 0.25 + 0.2 * 4.25)

    rng = np.random.default_rng(2)
    z, fresh = draw(rng, 2000), draw(rng, 20_000)
    shape = noise_shape(z)
    # the share of 2,000 rows beyond a quantile has a standard error of 0.007
    assert np.mean(np.abs(fresh) < half_width(shape)) == pytest.approx(0.9, abs=0.015)
    assert shape.weights[shape.centres != 0.0].sum() > 0.1
    widths_alone = best_widths(z)
    assert np.mean(np.abs(fresh) < half_width(widths_alone)) < 0.88
    assert log_density(shape, fresh).mean() > log_density(widths_alone, fresh).mean() + 0.02


def best_widths(z):
    """Fit of the zero-mean widths only."""
    widths = WIDTHS[CENTRES == 0.0]
    density = stats.norm.pdf(z[:, None], scale=widths)
    shares = np.full(len(widths), 1.0 / len(widths))
    for _ in range(500):
        shares = shares * (density.T @ (1.0 / (density @ shares))) / len(z)
    return NoiseShape(widths, shares, np.zeros(len(widths)))


def test_components_are_densities():
    grid = np.linspace(-40.0, 40.0, 80_001)
    areas = np.exp(component_log_density(grid)).sum(axis=0) * (grid[1] - grid[0])
    # one constant for all of them, whether they lie around zero or are pairs
    np.testing.assert_allclose(areas, 2.0 * np.sqrt(2.0 * np.pi), rtol=1e-9)


def test_mixture_weights_are_optimal():
    z = np.random.default_rng(3).laplace(size=400)
    z /= z.std()
    shape = noise_shape(z)
    scale = np.sqrt(shape.variance)
    found = zip(scale * shape.widths, scale * np.abs(shape.centres), shape.weights, strict=True)
    shares = np.zeros(len(WIDTHS))
    for width, centre, share in found:
        shares[np.argmin(np.abs(WIDTHS - width) + np.abs(CENTRES - centre))] += share

    def objective(w):
        density = np.exp(component_log_density(z)) @ w
        return np.log(density).sum() + PSEUDO_COUNTS[PSEUDO_COUNTS > 0] @ np.log(
            w[PSEUDO_COUNTS > 0]
        )

    best = objective(shares)
    rng = np.random.default_rng(4)
    for _ in range(200):
        other = 0.97 * shares + 0.03 * rng.dirichlet(np.ones(len(WIDTHS)))
        assert objective(other) <= best + 0.05


def test_a_weight_is_a_repetition():
    z = np.random.default_rng(5).standard_t(4, 50)
    weight = np.random.default_rng(6).integers(1, 4, 50).astype(float)
    a, b = noise_shape(z, weight), noise_shape(np.repeat(z, weight.astype(int)))
    np.testing.assert_allclose(a.weights, b.weights, rtol=1e-9)


def test_no_residuals_at_all_are_a_gaussian():
    shape = noise_shape(np.zeros(0))
    np.testing.assert_allclose(shape.weights @ (shape.widths**2 + shape.centres**2), 1.0)
    assert shape.weights.max() > 0.99
