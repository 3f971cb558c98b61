"""Convex problem of the output weights: gradients, curvature, optimum and priors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from tests.unit.kernel_machine.weight_problems import weight_problem

from likelier.kernel_machine.regression import EpsilonLoss
from likelier.kernel_machine.weights import (
    HINGE_SHARPNESS,
    ClassLoss,
    Prior,
    WeightSolver,
    fit_weights,
    lower_factor,
    ridge,
)

LOSSES = [
    ClassLoss(2),
    ClassLoss(4),
    ClassLoss(2, 1.0, HINGE_SHARPNESS),
    ClassLoss(4, 1.0, HINGE_SHARPNESS),
    EpsilonLoss(0.3),
]


def problem(loss, n=80, D=6, seed=0, precision=0.3, weighted=False):
    rng = np.random.default_rng(seed)
    Phi = np.column_stack([rng.normal(size=(n, D - 1)), np.ones(n)])
    y = rng.normal(size=n) if isinstance(loss, EpsilonLoss) else rng.integers(0, loss.n_classes, n)
    weight = rng.uniform(0.5, 2.0, n) if weighted else None
    prior = Prior(ridge(D, precision))
    return weight_problem(Phi, y.astype(float), weight, loss, prior), Phi, y, weight


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_gradient_by_central_differences(loss, weighted):
    whole, Phi, _, _ = problem(loss, weighted=weighted)
    W = 0.5 * np.random.default_rng(1).normal(size=(Phi.shape[1], loss.n_outputs))
    _, gradient = whole.value_gradient(W)
    step, differences = 1e-5, np.zeros_like(W)
    for place in np.ndindex(*W.shape):
        move = np.zeros_like(W)
        move[place] = step
        high, _ = whole.value_gradient(W + move)
        low, _ = whole.value_gradient(W - move)
        differences[place] = (high - low) / (2.0 * step)
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_reaches_the_optimum(loss):
    whole, Phi, _, _ = problem(loss, weighted=True)
    shape = (Phi.shape[1], loss.n_outputs)

    def flat(theta):
        value, gradient = whole.value_gradient(theta.reshape(shape))
        return value, gradient.ravel()

    best = minimize(flat, np.zeros(shape).ravel(), jac=True, options={"maxiter": 2000})
    solver, values = WeightSolver(whole, 1e-10), []
    state = solver.init(np.zeros(shape))
    while not state.converged and len(values) < 500:
        values.append(state.value)
        state, _ = solver.step(state)
    assert state.value <= best.fun + 1e-6 * abs(best.fun)
    assert all(np.diff(values) <= 0.0)


def test_softmax_agrees_with_logistic_regression():
    loss = ClassLoss(3)
    whole, Phi, y, _ = problem(loss, precision=0.5)
    fit = fit_weights(whole, np.zeros((Phi.shape[1], 3)), 1e-12, 500)
    peer = LogisticRegression(C=2.0, tol=1e-10, max_iter=5000).fit(Phi[:, :-1], y)
    scores = Phi @ fit.W
    mine = np.exp(scores - scores.max(axis=1, keepdims=True))
    mine /= mine.sum(axis=1, keepdims=True)
    # the peer's intercept has no penalty, ours a weak one
    np.testing.assert_allclose(mine, peer.predict_proba(Phi[:, :-1]), atol=2e-3)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_rounded_hinge_is_an_upper_bound_within_its_promise(n_classes):
    loss = ClassLoss(n_classes, 1.0, HINGE_SHARPNESS)
    rng = np.random.default_rng(2)
    scores, y = 2.0 * rng.normal(size=(200, loss.n_outputs)), rng.integers(0, n_classes, 200)
    value, _, _ = loss.terms(scores, y.astype(float))
    if n_classes == 2:
        plain = np.maximum(0.0, 1.0 - np.where(y == 1, 1.0, -1.0) * scores[:, 0])
    else:
        rivals = scores.copy()
        rivals[np.arange(200), y] = -np.inf
        plain = np.maximum(0.0, 1.0 + rivals.max(axis=1) - scores[np.arange(200), y])
    assert (value >= plain - 1e-12).all()
    assert (value <= plain + np.log(n_classes) / HINGE_SHARPNESS + 1e-12).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", LOSSES[:4], ids=str)
def test_huge_scores_stay_finite(loss, dtype):
    scores = np.full((2, loss.n_outputs), 1e4, dtype=dtype)
    scores[1] *= -1
    for part in loss.terms(scores, np.array([0.0, 1.0])):
        assert np.isfinite(part).all() and part.dtype == dtype


def test_a_matrix_prior_is_a_quadratic():
    loss, rng = ClassLoss(3), np.random.default_rng(3)
    whole, Phi, _, _ = problem(loss)
    D = Phi.shape[1]
    roots = rng.normal(size=(3, D, D))
    H, M = roots @ roots.transpose(0, 2, 1), rng.normal(size=(D, 3))
    prior = Prior(H, M)
    W = rng.normal(size=(D, 3))
    expected = 0.5 * sum((W - M)[:, k] @ H[k] @ (W - M)[:, k] for k in range(3))
    assert prior.value(W) == pytest.approx(expected)
    whole = replace(whole, prior=prior)
    fit = fit_weights(whole, M, 1e-10, 300)
    _, gradient = whole.value_gradient(fit.W)
    assert np.abs(gradient).max() < 1e-3


def test_the_search_ends_after_its_steps():
    whole, Phi, _, _ = problem(ClassLoss(3))
    fit = fit_weights(whole, np.zeros((Phi.shape[1], 3)), 0.0, 2)
    assert fit.step == 2 and not fit.converged


def test_factor_repairs_rounding():
    ones = np.ones((5, 5), dtype=np.float32)
    factor = lower_factor(ones - 1e-6 * np.eye(5, dtype=np.float32))
    np.testing.assert_allclose(factor @ factor.T, np.ones((5, 5)), atol=1e-4)
