"""The Bayesian linear model: coordinates, prior, and sums over rows against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from tests.reference.bayesian_problem import log_likelihood, make_model, small_rows

from likelier.base import Batch
from likelier.bayesian_linear.model import Coordinates, Prior


def shifted(model, mean, spread):
    from dataclasses import replace

    coordinates = Coordinates.of(mean, spread, model.linear.fit_intercept)
    return replace(model, coordinates=coordinates)


@pytest.mark.parametrize("offset", [0.0, 3.0, 1e7])
def test_standard_coordinates_do_not_change_scores(offset):
    """Raw, shifted and published parameters all give the same scores."""
    rng = np.random.default_rng(0)
    X = offset + rng.standard_normal((50, 3)) * [1.0, 10.0, 0.1]
    model = shifted(make_model(3, fit_intercept=True), X.mean(axis=0), X.var(axis=0))
    assert (model.coordinates.shift is not None) is (offset > 1e3)
    theta = rng.standard_normal((5, 4))
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    wanted = Z @ theta[:, :3].T + theta[:, 3]
    raw = model.raw(theta)
    scores = model.linear.scores(raw.T.copy(), model.coordinates.rows(X))
    np.testing.assert_allclose(scores, wanted, rtol=1e-6, atol=1e-7)
    public = model.in_data_units(theta)[:, 0]
    by_hand = X @ public[:, :3].T + public[:, 3]
    np.testing.assert_allclose(by_hand, wanted, rtol=1e-6, atol=1e-6 * max(1.0, offset / 1e3))


@pytest.mark.parametrize("kind", ["log_loss", "hinge", "softmax"])
@pytest.mark.parametrize("rows", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_slopes_are_derivatives(kind, rows):
    K = 3 if kind == "softmax" else 2
    X, y = small_rows(70, 2, seed=1, n_classes=K)
    weight = np.random.default_rng(2).uniform(0.0, 2.0, 70)
    loss = "log_loss" if kind == "softmax" else kind
    model = shifted(
        make_model(2, loss, n_classes=K, fit_intercept=True),
        X.mean(axis=0), X.var(axis=0),
    )  # fmt: skip
    batch = Batch(rows(X), y, weight)
    theta = np.random.default_rng(3).standard_normal((4, model.n_parameters))
    value, gradient = model.gradients(batch, model.raw(theta))
    np.testing.assert_allclose(value, model.log_likelihoods(batch, model.raw(theta)))
    Z = np.column_stack([(X - X.mean(axis=0)) / X.std(axis=0), np.ones(70)])
    cube = theta.reshape(4, 3, 3) if kind == "softmax" else theta
    np.testing.assert_allclose(value, log_likelihood(kind, Z, y, cube, weight))
    gradient = model.standard_gradient(gradient)
    for j in range(model.n_parameters):
        step = np.zeros(model.n_parameters)
        step[j] = 1e-6
        up, down = (model.log_likelihoods(batch, model.raw(theta + s)) for s in (step, -step))
        np.testing.assert_allclose(gradient[:, j], (up - down) / 2e-6, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("learned", [False, True])
def test_slope_of_the_prior(learned):
    prior = Prior(
        np.array([0.5, -1.0, 0.0]), np.array([0.0, 2.0, 0.01]),
        np.array([1.0, 1.0, 0.0]) * learned, 2.0, 0.2,
    )  # fmt: skip
    theta, eta = np.random.default_rng(4).standard_normal((6, 3)), np.linspace(-1.0, 1.0, 6)
    slope = prior.derivative(theta, eta)
    for j in range(3):
        step = np.zeros(3)
        step[j] = 1e-6
        up, down = prior.log_density(theta + step, eta), prior.log_density(theta - step, eta)
        np.testing.assert_allclose(slope[:, j], (up - down) / 2e-6, atol=1e-7)
    assert prior.learned is learned


def test_eta_given_the_weights():
    """Its density in ``eta`` is that of the joint; within four errors, once in 15,000 seeds."""
    prior = Prior(np.zeros(3), np.zeros(3), np.ones(3), 2.0, 0.2)
    theta = np.tile([0.5, -0.2, 1.0], (20_000, 1))
    draws = prior.draw_eta(theta, np.random.default_rng(5))
    grid = np.linspace(-8.0, 6.0, 4001)
    value = prior.log_density(np.tile(theta[:1], (4001, 1)), grid)
    share = np.exp(value - value.max())
    share /= share.sum()
    mean = share @ grid
    sd = np.sqrt(share @ (grid - mean) ** 2)
    assert abs(draws.mean() - mean) < 4.0 * sd / np.sqrt(len(draws))
    np.testing.assert_allclose(draws.std(), sd, rtol=0.03)


def test_chunks_do_not_change_sums(monkeypatch):
    import likelier.bayesian_linear.model as module

    X, y = small_rows(500, 2, seed=6)
    model, batch = make_model(2), Batch(X, y)
    theta = np.random.default_rng(7).standard_normal((3, 2))
    whole = model.log_likelihoods(batch, theta), *model.gradients(batch, theta)
    spread = model.expected(batch, (theta[0], 0.1 * np.eye(2)))
    monkeypatch.setattr(module, "CHUNK_VALUES", 3)
    monkeypatch.setattr(module, "WIDE_VALUES", 2)
    parts = model.log_likelihoods(batch, theta), *model.gradients(batch, theta)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    np.testing.assert_allclose(
        model.expected(batch, (theta[0], 0.1 * np.eye(2))).hessian, spread.hessian, rtol=1e-12
    )
