"""Low-rank joint curvature of all classes, against the exact one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax
from tests.unit.kernel_machine.weight_problems import weight_problem

from likelier.kernel_machine import joint_curvature
from likelier.kernel_machine.features import landmark_map
from likelier.kernel_machine.integrate import centred
from likelier.kernel_machine.joint_curvature import is_reducible, reduced_curvature, thinned
from likelier.kernel_machine.laplace import choose_layout, laplace_posterior
from likelier.kernel_machine.weights import ClassLoss, Prior, fit_weights, ridge

PRECISION = 0.05


@pytest.fixture(scope="module")
def rings():
    """Five classes of points on a plane on 120 landmarks, at the optimum, and other rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (1500, 2))
    angle = np.arctan2(X[:, 1], X[:, 0]) + 0.4 * rng.normal(size=1500)
    codes = np.floor(5.0 * (angle / (2.0 * np.pi) % 1.0))
    weight = rng.uniform(0.5, 2.0, 1500)
    made = landmark_map(rng.permutation(X)[:120], np.zeros(2), np.full(2, 1.5))
    Phi = made(X, np.float32)
    prior = Prior(ridge(Phi.shape[1], PRECISION, 0.1))
    problem = weight_problem(Phi[:1200], codes[:1200], weight[:1200], ClassLoss(5), prior)
    W = fit_weights(problem, np.zeros((Phi.shape[1], 5)), 1e-8, 300).W
    return problem, W, Phi[1200:]


def deviations(posterior, whole, Phi):
    """Variances of centred scores, relative to the exact ones."""
    nothing = np.zeros(len(Phi))
    found, right = (centred(each.covariance(Phi, nothing)) for each in (posterior, whole))
    return np.diagonal(found, axis1=1, axis2=2) / np.diagonal(right, axis1=1, axis2=2)


def test_all_directions_and_no_thinning_are_the_whole_curvature(rings, monkeypatch):
    problem, W, Phi = rings
    monkeypatch.setattr(joint_curvature, "THINNING", 0.0)
    found = laplace_posterior(problem, W, 1.0 / PRECISION, "reduced", n_directions=W.size)
    whole = laplace_posterior(problem, W, 1.0 / PRECISION, "joint")
    assert found.bases.shape == (5, 121, 121)
    residual = np.linspace(0.0, 1.0, len(Phi))
    right = whole.covariance(Phi, residual)
    np.testing.assert_allclose(
        found.covariance(Phi, residual), right, rtol=1e-3, atol=1e-4 * right.max()
    )


@pytest.mark.parametrize(
    ("n_directions", "bias", "error"), [(150, 0.1, 0.2), (300, 0.05, 0.06), (450, 0.02, 0.035)]
)
def test_few_directions_tell_the_variances(rings, n_directions, bias, error):
    """With 605 directions; the shared layout is off by a factor of six."""
    problem, W, Phi = rings
    whole = laplace_posterior(problem, W, 1.0 / PRECISION, "joint")
    few = laplace_posterior(problem, W, 1.0 / PRECISION, "reduced", n_directions=n_directions)
    assert few.bases.shape == (5, 121, n_directions // 5)
    ratio = deviations(few, whole, Phi)
    assert abs(np.median(ratio) - 1.0) < bias
    assert np.abs(np.log(ratio)).mean() < error
    shared = laplace_posterior(problem, W, 1.0 / PRECISION, "shared").covariance(Phi, np.zeros(300))
    right = np.diagonal(centred(whole.covariance(Phi, np.zeros(300))), axis1=1, axis2=2)
    assert np.abs(np.log(0.8 * shared / right)).mean() > 1.5


def test_draws_have_the_covariance(rings):
    problem, W, Phi = rings
    posterior = laplace_posterior(problem, W, 1.0 / PRECISION, "reduced", n_directions=100)
    draws = posterior.draw(20_000, np.random.default_rng(0))
    assert draws.shape == (20_000, 121, 5)
    scores = np.einsum("nd,sdk->nsk", Phi[:4].astype(np.float64), draws, optimize=True)
    right = posterior.covariance(Phi[:4], np.zeros(4))
    for row in range(4):  # a variance of 20,000 draws has a relative error of 1%: five of those
        sd = np.sqrt(np.diagonal(right[row]))
        np.testing.assert_allclose(
            np.cov(scores[row].T) / np.outer(sd, sd), right[row] / np.outer(sd, sd), atol=0.05
        )


def test_bases_are_orthonormal_and_hold_the_constant(rings):
    problem, W, _ = rings
    found = reduced_curvature(problem, W, 400)
    assert found.inside.shape == (400, 400) and (found.outside >= PRECISION).all()
    for basis in found.bases:
        np.testing.assert_allclose(basis.T @ basis, np.eye(80), atol=1e-5)
        np.testing.assert_array_equal(basis[-1], np.eye(80)[-1])


def test_thinned_probabilities_sum_to_one():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(40_000, 4)) * [1.0, 1.0, 1.0, 0.1] + [12.0, 0.0, 3.0, -4.0]
    p, omega = softmax(scores, axis=1), rng.choice([0.5, 4.0], 40_000)
    kept = thinned(p, omega, 0.004)
    np.testing.assert_allclose(kept.sum(axis=1), 1.0)
    assert 0.5 < (kept[:, 0] == 1.0).mean()  # most rows are sure, and bend no more
    # a kept probability weighs 0.004 for one row in many: errors of the sums are far below 5%
    np.testing.assert_allclose(omega @ kept, omega @ p, rtol=0.05)
    pull = omega @ (kept[:, 0] * kept[:, 2])
    assert pull == pytest.approx(omega @ (p[:, 0] * p[:, 2]), rel=0.05)
    large = omega[:, None] * p > 0.02
    np.testing.assert_allclose(kept[large], p[large], rtol=0.03)
    np.testing.assert_array_equal(thinned(p, omega, 0.0), p / p.sum(axis=1, keepdims=True))


def test_a_perfectly_separated_class(rings):
    """Without information about a class, directions are arbitrary and results finite."""
    problem, W, Phi = rings
    sure = W.copy()
    sure[-1, 2] = -60.0
    posterior = laplace_posterior(problem, sure, 1.0 / PRECISION, "reduced", n_directions=100)
    covariance = posterior.covariance(Phi, np.zeros(len(Phi)))
    assert np.isfinite(covariance).all()
    squares = np.einsum("nd,nd->n", Phi[:, :-1], Phi[:, :-1], dtype=np.float64)
    expected = squares / PRECISION + 10.0  # all of it the prior's
    np.testing.assert_allclose(covariance[:, 2, 2], expected, rtol=1e-3)


def test_where_it_is_used(rings):
    problem, W, _ = rings
    assert choose_layout(problem, *W.shape) == "reduced"
    assert choose_layout(problem, 100, 5) == "joint"
    assert choose_layout(problem, 10_000, 1) == "joint"
    assert is_reducible(problem, 64) and not is_reducible(problem, 65)
    hinge = replace(problem, loss=ClassLoss(5, 1.0, 20.0))
    assert choose_layout(hinge, 200, 5) == "shared"
    blocks = replace(problem, prior=Prior(np.ones((5, 2, 2))))
    assert not is_reducible(blocks, 5)
