"""Gaussian posterior of the output weights: curvature, variances, draws and predictions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, softmax
from tests.unit.kernel_machine.weight_problems import weight_problem

from likelier.kernel_machine.integrate import (
    SCALE_GRID,
    choose_posterior_scale,
    class_predictive,
    normal_points,
    to_predictive,
)
from likelier.kernel_machine.laplace import class_curvature, laplace_posterior
from likelier.kernel_machine.weight_posterior import (
    OUT_OF_SUPPORT,
    WeightPosterior,
    extrapolation_degree,
    mean_score_variance,
    restore_prior_variance,
)
from likelier.kernel_machine.weights import ClassLoss, Prior, fit_weights, ridge


def fitted(n_classes, n=150, D=4, seed=0):
    rng = np.random.default_rng(seed)
    Phi = np.column_stack([rng.normal(size=(n, D - 1)), np.ones(n)])
    y = rng.integers(0, n_classes, n).astype(float)
    loss = ClassLoss(n_classes)
    weight = rng.uniform(0.5, 2.0, n)
    problem = weight_problem(Phi, y, weight, loss, Prior(ridge(D, 0.4)))
    W = fit_weights(problem, np.zeros((D, loss.n_outputs)), 1e-10, 300).W
    return problem, Phi, W


def numerical_hessian(problem, W):
    """Derivative of the gradient, parameters of one output together."""
    size, step = W.size, 1e-5
    H = np.empty((size, size))
    for j in range(size):
        move = np.zeros(size)
        move[j] = step
        move = move.reshape(W.shape[1], W.shape[0]).T
        high, low = problem.value_gradient(W + move)[1], problem.value_gradient(W - move)[1]
        H[j] = ((high - low) / (2.0 * step)).T.ravel()
    return H


@pytest.mark.parametrize("n_classes", [2, 3])
def test_joint_covariance_is_the_inverse_of_the_true_curvature(n_classes):
    problem, Phi, W = fitted(n_classes)
    posterior = laplace_posterior(problem, W, 2.5)
    assert posterior.layout == "joint"
    covariance = np.linalg.inv(numerical_hessian(problem, W))
    root = posterior.roots[0]
    np.testing.assert_allclose(root.T @ root, covariance, rtol=1e-4, atol=1e-7)
    C, D = W.shape[1], W.shape[0]
    residual = np.linspace(0.0, 1.0, len(Phi))
    found = posterior.covariance(Phi, residual)
    whole = covariance.reshape(C, D, C, D)
    expected = np.einsum("nd,kdle,ne->nkl", Phi, whole, Phi)
    expected += 2.5 * residual[:, None, None] * np.eye(C)
    found = found[:, :, None] if C == 1 else found
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("layout", ["per_class", "shared"])
def test_structured_covariances(layout):
    problem, Phi, W = fitted(5)
    posterior = laplace_posterior(problem, W, 1.0, layout)
    assert posterior.layout == layout
    variance = posterior.covariance(Phi, np.zeros(len(Phi)))
    assert variance.shape == (len(Phi), 5)
    if layout == "per_class":
        blocks = class_curvature(problem, W)
        blocks[:, np.arange(4), np.arange(4)] += ridge(4, 0.4)
        expected = [np.einsum("nd,de,ne->n", Phi, np.linalg.inv(H), Phi) for H in blocks]
        np.testing.assert_allclose(variance, np.stack(expected, 1), rtol=1e-4)
    else:
        assert np.ptp(variance, axis=1).max() == 0.0


@pytest.mark.parametrize("n_classes", [2, 3])
def test_draws_have_the_covariance(n_classes):
    problem, Phi, W = fitted(n_classes)
    posterior = laplace_posterior(problem, W, 1.0)
    draws = posterior.draw(40_000, np.random.default_rng(0))
    scores = np.einsum("nd,sdk->snk", Phi[:5], draws)
    found = scores.var(axis=0)
    expected = posterior.covariance(Phi[:5], np.zeros(5))
    if expected.ndim == 3:
        expected = np.diagonal(expected, axis1=1, axis2=2)
    # a variance of 40,000 draws has a relative error of 0.7%: six of those
    np.testing.assert_allclose(found, expected, rtol=0.045)
    np.testing.assert_allclose(scores.mean(axis=0), Phi[:5] @ W, atol=0.05)


def test_one_score_is_integrated_exactly():
    scores, variance = np.array([[-2.0], [0.3], [4.0]]), np.array([[0.5], [9.0], [2.0]])
    p, weights = class_predictive(scores, variance, 1.0)
    nodes = np.linspace(-12.0, 12.0, 20_001)
    density = np.exp(-0.5 * nodes**2) / np.sqrt(2.0 * np.pi) * (nodes[1] - nodes[0])
    expected = expit(scores + np.sqrt(variance) * nodes) @ density
    np.testing.assert_allclose(p @ weights, expected, atol=2e-4)


@pytest.mark.parametrize("full", [False, True])
def test_several_scores_are_averaged_well(full):
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(6, 3))
    root = 0.7 * rng.normal(size=(6, 3, 3)) if full else None
    variance = root @ root.transpose(0, 2, 1) if full else rng.uniform(0.1, 1.5, (6, 3))
    p, weights = class_predictive(scores, variance, 1.0)
    z = rng.normal(size=(200_000, 3))
    for i in range(6):
        away = z @ root[i].T if full else z * np.sqrt(variance[i])
        expected = softmax(scores[i] + away, axis=1).mean(axis=0)
        np.testing.assert_allclose(weights @ p[i], expected, atol=0.02)


def test_points_are_balanced():
    points = normal_points(7)
    np.testing.assert_allclose(points.mean(axis=0), 0.0, atol=1e-14)
    np.testing.assert_allclose((points**2).mean(axis=0), 1.0, rtol=1e-12)


def test_zero_posterior_scale_is_the_plug_in():
    scores = np.random.default_rng(0).normal(size=(4, 3))
    p = to_predictive(*class_predictive(scores, np.ones((4, 3)), 0.0)).probabilities()
    np.testing.assert_allclose(p, softmax(scores, axis=1))


def test_posterior_scale_is_large_for_overconfident_scores():
    rng = np.random.default_rng(5)
    truth = rng.normal(size=4000)
    noisy = 4.0 * (truth + rng.normal(size=4000))[:, None]  # sure beyond what is known
    y = (rng.random(4000) < expit(4.0 * truth)).astype(float)
    sure = choose_posterior_scale(noisy, np.full((4000, 1), 16.0), y, None)
    right = choose_posterior_scale(4.0 * truth[:, None], np.full((4000, 1), 16.0), y, None)
    assert sure > 10.0 * right


@pytest.mark.parametrize("kind", ["one score", "variances", "matrices"])
def test_the_posterior_scale_minimises_the_log_loss(kind):
    """Factors are compared by the probabilities that predictions use."""
    rng, n, K = np.random.default_rng(3), 300, 2 if kind == "one score" else 4
    scores = rng.normal(size=(n, 1 if K == 2 else K)) * 6.0
    covariance = rng.uniform(1.0, 20.0, scores.shape)
    if kind == "matrices":
        root = rng.normal(size=(n, K, K)) * 2.0
        covariance = root @ root.transpose(0, 2, 1)
    for sure in (1.0, 0.25, 0.05):  # scores that are too sure need a larger factor
        truth = np.hstack([np.zeros((n, 1)), sure * scores]) if K == 2 else sure * scores
        y = (softmax(truth, axis=1).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
        weight = rng.uniform(1.0, 3.0, n)
        losses = []
        for spread in SCALE_GRID:
            p, nodes = class_predictive(scores, covariance, spread, level=0)
            mean = p @ nodes if K == 2 else np.tensordot(nodes, p, (0, 1))
            mean = np.stack([1.0 - mean, mean], axis=1) if K == 2 else mean
            losses.append(-weight @ np.log(mean[np.arange(n), y]))
        found = choose_posterior_scale(scores, covariance, y.astype(float), weight)
        assert found == pytest.approx(SCALE_GRID[np.argmin(losses)])


def test_a_record_is_complete():
    posterior = WeightPosterior(np.zeros((3, 2)), np.eye(3)[None], "shared", 1.0)
    assert posterior.draw(2, np.random.default_rng(0)).shape == (2, 3, 2)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("variance", [1.0, 10.0, 100.0])
def test_wide_scores_of_equal_classes_are_equally_probable(variance, full):
    for K in (3, 10, 26):
        covariance = np.full((2, K), variance)
        if full:
            covariance = covariance[:, None] * np.eye(K)
        p, weights = class_predictive(np.zeros((2, K)), covariance, 1.0)
        np.testing.assert_allclose(np.tensordot(weights, p, (0, 1)), 1.0 / K, atol=0.01)


@pytest.mark.parametrize("full", [False, True])
def test_probabilities_go_with_the_classes_in_any_order(full):
    rng = np.random.default_rng(2)
    scores, order = 3.0 * rng.normal(size=(5, 6)), rng.permutation(6)
    root = 2.0 * rng.normal(size=(5, 6, 6))
    covariance = root @ root.transpose(0, 2, 1)
    moved = covariance[:, order][:, :, order]
    if not full:
        covariance, moved = (np.diagonal(c, axis1=1, axis2=2) for c in (covariance, moved))
    p, weights = class_predictive(scores, covariance, 1.0)
    q, _ = class_predictive(scores[:, order], moved, 1.0)
    np.testing.assert_allclose(weights @ q, (weights @ p)[:, order], atol=1e-9)


def test_one_wide_score_is_integrated_well():
    scores, variance = np.array([[-10.0], [0.5], [25.0]]), np.full((3, 1), 400.0)
    p, weights = class_predictive(scores, variance, 1.0)
    nodes = np.linspace(-12.0, 12.0, 20_001)
    density = np.exp(-0.5 * nodes**2) / np.sqrt(2.0 * np.pi) * (nodes[1] - nodes[0])
    expected = expit(scores + np.sqrt(variance) * nodes) @ density
    np.testing.assert_allclose(p @ weights, expected, atol=0.02)


def test_far_rows_have_their_whole_prior_variance():
    residual = np.array([0.0, 0.5, OUT_OF_SUPPORT, 0.5 * (1.0 + OUT_OF_SUPPORT), 1.0])
    learned = np.full((5, 1), 0.3)
    covariance = learned + 40.0 * residual[:, None]
    np.testing.assert_array_equal(
        extrapolation_degree(residual)[[0, 1, 2, 4]], [0.0, 0.0, 0.0, 1.0]
    )
    away = extrapolation_degree(residual)
    opened = 0.01 * restore_prior_variance(covariance, away, 40.0, 0.01)[:, 0]
    np.testing.assert_allclose(opened[:3], 0.01 * covariance[:3, 0])
    assert opened[2] < opened[3] < opened[4] == pytest.approx(0.01 * 0.3 + 40.0)
    for spread in (0.0, 1.0):
        assert restore_prior_variance(covariance, away, 40.0, spread) is covariance


@pytest.mark.parametrize("full", [False, True])
def test_a_common_shift_changes_no_probability(full):
    rng = np.random.default_rng(3)
    scores, root = rng.normal(size=(5, 4)), rng.normal(size=(5, 4, 4))
    covariance = root @ root.transpose(0, 2, 1)
    if not full:
        covariance = np.eye(4) * np.diagonal(covariance, axis1=1, axis2=2)[:, :, None]
    found, _ = class_predictive(scores, covariance, 0.5, 0)
    alike, _ = class_predictive(scores, covariance + 50.0, 0.5, 0)
    np.testing.assert_allclose(alike, found, atol=1e-4)
    np.testing.assert_allclose(
        mean_score_variance(covariance + 50.0), mean_score_variance(covariance)
    )
    independent = np.broadcast_to(2.5 * np.eye(4), covariance.shape)
    np.testing.assert_allclose(mean_score_variance(independent), 2.5)
    np.testing.assert_allclose(mean_score_variance(np.full((5, 4), 2.5)), 2.5)
