"""The posterior of the kernel classifier's weights against long runs of Hamiltonian Monte Carlo."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, softmax

from likelier.inference.laplace import class_predictive, head_posterior
from likelier.inference.softmax_head import (
    HeadLoss,
    HeadProblem,
    Prior,
    fit_head,
    ready_features,
    ridge,
    rows_in_memory,
)
from likelier.models.kernel_machine import landmark_map


def model(case):
    """Three small models: two and three classes of a kernel, and two of a linear one."""
    rng = np.random.default_rng(case)
    n_classes, n = (2, 3, 2)[case], 1500
    X = rng.normal(size=(n, 2))
    if case < 2:
        grid = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
        Phi = landmark_map(grid, np.zeros(2), np.full(2, 0.7))(X)
    else:
        Phi = np.column_stack([X, np.ones(n)])
    loss = HeadLoss(n_classes)
    truth = rng.normal(size=(Phi.shape[1], loss.n_outputs))
    f = Phi @ truth
    p = softmax(f, axis=1) if n_classes > 2 else np.hstack([1.0 - expit(f), expit(f)])
    y = (rng.random(n)[:, None] > np.cumsum(p, axis=1)).sum(axis=1).clip(0, n_classes - 1)
    prior = Prior(ridge(Phi.shape[1], 1.0, 1.0))
    return HeadProblem(rows_in_memory(Phi, y.astype(float)), ready_features, loss, prior), Phi


def hamiltonian(problem, start, covariance_root, n_draws, rng):
    """Draws by Hamiltonian Monte Carlo in coordinates where the posterior is nearly standard."""
    shape = start.shape

    def place(z):
        return start + (z @ covariance_root).reshape(shape[::-1]).T

    def look(z):
        value, gradient = problem.value_gradient(place(z))
        return value, covariance_root @ gradient.T.ravel()

    z = np.zeros(start.size)
    value, slope = look(z)
    draws, accepted = [], 0
    for _ in range(n_draws):
        momentum = rng.normal(size=z.size)
        new, push, v, s = z.copy(), momentum.copy(), value, slope
        step = 0.35 * rng.uniform(0.8, 1.2)
        for _ in range(5):
            push -= 0.5 * step * s
            new = new + step * push
            v, s = look(new)
            push -= 0.5 * step * s
        change = value - v + 0.5 * (momentum @ momentum - push @ push)
        if np.log(rng.random()) < change:
            z, value, slope, accepted = new, v, s, accepted + 1
        draws.append(place(z))
    assert accepted > 0.8 * n_draws
    return np.array(draws)


@pytest.mark.parametrize("case", [0, 2, pytest.param(1, marks=pytest.mark.slow)])
def test_agrees_with_hamiltonian_monte_carlo(case):
    problem, Phi = model(case)
    D, C = Phi.shape[1], problem.loss.n_outputs
    W = fit_head(problem, np.zeros((D, C)), 1e-12, 300).W
    posterior = head_posterior(problem, W, 1.0)
    assert posterior.layout == "joint"
    draws = hamiltonian(problem, W, posterior.roots[0], 2500, np.random.default_rng(9))[200:]
    covariance = posterior.roots[0].T @ posterior.roots[0]
    sd = np.sqrt(np.diagonal(covariance)).reshape(C, D).T
    # nearly independent draws: an error of a few hundredths of a deviation
    assert np.abs((draws.mean(axis=0) - W) / sd).max() < 0.1
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.1)
    rows = Phi[:40]
    nodes, weights = class_predictive(
        posterior.scores(rows), posterior.covariance(rows, np.zeros(40)), 1.0
    )
    scores = np.einsum("nd,sdk->snk", rows, draws)
    if C == 1:
        mine, theirs = nodes @ weights, expit(scores[:, :, 0]).mean(axis=0)
    else:
        mine = np.tensordot(weights, nodes, (0, 1))
        theirs = softmax(scores, axis=2).mean(axis=0)
    np.testing.assert_allclose(mine, theirs, atol=0.01)
