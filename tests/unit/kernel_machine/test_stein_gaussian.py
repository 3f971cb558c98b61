"""Gaussian particles: the mixture's density, and posteriors known in closed form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from tests.unit.kernel_machine.particle_targets import run

from likelier.engines import LocalEngine
from likelier.kernel_machine.fourier_machine import FourierMachine
from likelier.kernel_machine.stein_gaussian import SteinGaussian, mixture_log_density
from likelier.losses import SquaredError


def test_mixture_density_and_its_slope():
    rng = np.random.default_rng(0)
    mean, scale = rng.standard_normal((3, 4)), rng.uniform(0.3, 2.0, (3, 4))
    theta = rng.standard_normal((7, 4))

    def log_q(points):
        parts = norm.logpdf(points[:, None], mean, scale).sum(axis=2)
        return np.logaddexp.reduce(parts, axis=1) - np.log(3.0)

    found, slope = mixture_log_density(theta, mean, scale)
    np.testing.assert_allclose(found, log_q(theta), rtol=1e-10)
    for j in range(4):
        step = 1e-6 * np.eye(4)[j]
        numeric = (log_q(theta + step) - log_q(theta - step)) / 2e-6
        np.testing.assert_allclose(slope[:, j], numeric, rtol=1e-6, atol=1e-8)


def test_mixture_density_far_from_zero():
    """Narrow Gaussians far from zero: no cancellation."""
    mean = 1e4 + np.random.default_rng(0).standard_normal((3, 50))
    scale = np.full((3, 50), 1e-3)
    found, slope = mixture_log_density(mean + 1e-3, mean, scale)
    alone = norm.logpdf(1.0, scale=1.0) * 50 - 50 * np.log(1e-3) - np.log(3.0)
    np.testing.assert_allclose(found, alone, rtol=1e-6)
    np.testing.assert_allclose(slope, -1e3, rtol=1e-6)


def gaussian_regression(n=80, count=None):
    """Linear regression with its exact posterior: mean and precision of (w, b)."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, 3)) @ np.array([[1.0, 0.6, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 2.0]])
    y = X @ [1.0, -0.5, 0.2] + 0.7 + 0.5 * rng.standard_normal(n)
    weight = rng.uniform(0.5, 2.0, n)
    model = FourierMachine(
        SquaredError(), 3, 1, alpha=0.5, intercept_precision=0.1, dispersion=0.25,
        count=count,
    )  # fmt: skip
    A = np.column_stack([X, np.ones(n)])
    factor = (n if count is None else count) / n / 0.25
    precision = factor * (A.T * weight) @ A + np.diag([0.5, 0.5, 0.5, 0.1])
    mean = np.linalg.solve(precision, factor * A.T @ (weight * y))
    return model, LocalEngine(X, y, weight, seed=2), mean, precision


@pytest.mark.parametrize("count", [None, 20.0, 320.0])
def test_gaussian_posterior(count):
    """Exact means; conditional variances, as in a product distribution."""
    model, engine, mean, precision = gaussian_regression(count=count)
    inference = SteinGaussian(n_particles=1, n_updates=1500, batch_size=1000, step_size=0.03)
    state, info = run(inference, model, engine)
    sd = np.diagonal(precision) ** -0.5
    assert np.abs((state.mean[0] - mean) / sd).max() < 0.1
    np.testing.assert_allclose(np.exp(state.log_scale[0]), sd, rtol=0.1)
    assert np.isfinite(info.objective)


def test_minibatches_find_the_same_posterior():
    """Minibatch noise averages out."""
    model, engine, mean, precision = gaussian_regression()
    inference = SteinGaussian(n_particles=1, n_updates=3000, batch_size=20, step_size=0.02)
    state, _ = run(inference, model, engine)
    sd = np.diagonal(precision) ** -0.5
    assert np.abs((state.mean[0] - mean) / sd).max() < 0.4
    np.testing.assert_allclose(np.exp(state.log_scale[0]), sd, rtol=0.2)


def test_predictions_are_normal_with_both_variances():
    model, engine, mean, _ = gaussian_regression()
    inference = SteinGaussian(n_particles=1, n_updates=1000, batch_size=1000)
    state, _ = run(inference, model, engine)
    posterior = replace(inference.posterior(state), n_draws=4000)
    X = np.array([[0.5, -1.0, 2.0]])
    predictive = posterior.predictive(X)
    assert predictive.mean()[0] == pytest.approx(X[0] @ mean[:3] + mean[3], abs=0.02)
    scale = posterior.scale[0]
    expected = 0.25 + (X[0] ** 2) @ scale[:3] ** 2 + scale[3] ** 2
    assert predictive.std()[0] ** 2 == pytest.approx(expected, rel=0.02)
    assert predictive.uncertainty().aleatoric[0] == pytest.approx(0.25)


def test_draws_are_the_same_at_every_call_and_spread_over_all_gaussians():
    model, engine, _, _ = gaussian_regression()
    inference = SteinGaussian(n_particles=5, n_updates=5)
    state, _ = run(inference, model, engine)
    posterior = replace(inference.posterior(state), n_draws=3)
    X = np.ones((2, 3))
    assert posterior.scores(X).shape == (5, 2, 1)
    np.testing.assert_array_equal(posterior.scores(X), posterior.scores(X))
    draws = posterior.draws(10, np.random.default_rng(0))
    assert draws.shape == (10, 4)
