"""Logistic regressions of many labels at once: the optimum, unknown labels, hard cases."""

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from likelier.multilabel.logistic import fit_labels, prior_weights, update_labels

RNG = np.random.default_rng(0)
N, D, L = 300, 8, 5
Z = RNG.normal(size=(N, D))
Y = (RNG.random((N, L)) < expit(Z @ RNG.normal(size=(D, L)) - [0, 1, 2, 3, 1])).astype(float)
ONES = np.ones(N)
ALPHA = np.array([0.1, 1.0, 3.0, 0.5, 10.0])


def gradient(found, Z, Y, weight, alpha):
    known = np.isfinite(Y)
    residual = weight[:, None] * np.where(known, expit(found.scores(Z)) - np.nan_to_num(Y), 0.0)
    return Z.T @ residual + alpha * found.coef, residual.sum(axis=0)


def test_the_optimum_is_that_of_scikit_learn():
    found = fit_labels(Z, Y, ONES, ALPHA, max_iter=200, tol=1e-7)
    for c in range(L):
        peer = LogisticRegression(C=1.0 / ALPHA[c], tol=1e-10, max_iter=10_000).fit(Z, Y[:, c])
        np.testing.assert_allclose(found.coef[:, c], peer.coef_[0], atol=1e-5)
        np.testing.assert_allclose(found.intercept[c], peer.intercept_[0], atol=1e-5)


def test_unknown_labels_are_left_out_label_by_label():
    holes = Y.copy()
    holes[RNG.random(Y.shape) < 0.3] = np.nan
    found = fit_labels(Z, holes, ONES, ALPHA, max_iter=200, tol=1e-8)
    slope, total = gradient(found, Z, holes, ONES, ALPHA)
    assert max(abs(slope).max(), abs(total).max()) < 1e-5
    for c in range(L):
        rows = np.isfinite(holes[:, c])
        alone = fit_labels(
            Z[rows], holes[rows][:, [c]], ONES[rows], ALPHA[[c]], max_iter=200, tol=1e-8
        )
        np.testing.assert_allclose(found.coef[:, [c]], alone.coef, atol=1e-6)


def test_a_weight_of_two_is_a_duplicate():
    weight = RNG.integers(0, 3, N).astype(float)
    copies = np.repeat(np.arange(N), weight.astype(int))
    one = fit_labels(Z, Y, weight, ALPHA, max_iter=200, tol=1e-8)
    two = fit_labels(Z[copies], Y[copies], np.ones(len(copies)), ALPHA, max_iter=200, tol=1e-8)
    np.testing.assert_allclose(one.coef, two.coef, atol=1e-6)


@pytest.mark.parametrize("matrix", [sparse.csr_array, np.asfortranarray])
def test_other_layouts_are_the_same(matrix):
    one = fit_labels(Z, Y, ONES, ALPHA, tol=1e-6)
    two = fit_labels(matrix(Z), Y, ONES, ALPHA, tol=1e-6)
    np.testing.assert_allclose(one.coef, two.coef, atol=1e-5)
    np.testing.assert_allclose(one.variance(Z), two.variance(matrix(Z)), rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("alpha", [1e-3, 1e-1])
def test_separable_labels_stay_finite(dtype, alpha):
    """More columns than rows, rare labels, hardly a prior: lines with cliffs."""
    wide = RNG.normal(size=(60, 200)).astype(dtype)
    rare = (RNG.random((60, 30)) < 0.05).astype(dtype)
    found = fit_labels(wide, rare, np.ones(60, dtype), np.full(30, alpha), max_iter=60)
    assert np.isfinite(found.coef).all() and np.isfinite(found.intercept).all()
    varied = (rare.sum(axis=0) > 0) & (rare.sum(axis=0) < 60)
    right = (found.scores(wide) > 0) == (rare > 0.5)
    assert right[:, varied].mean() > 0.999


def test_a_label_that_all_rows_have_keeps_its_frequency():
    constant = np.column_stack([Y[:, 0], np.ones(N), np.zeros(N), np.full(N, np.nan)])
    found = fit_labels(Z, constant, ONES, np.ones(4))
    assert (found.coef[:, 1:] == 0.0).all()
    np.testing.assert_allclose(expit(found.intercept[1:]), [300.5 / 301, 0.5 / 301, 0.5])


def test_a_second_batch_starts_from_what_is_known():
    """The update is the minimum of loss plus the Gaussian that was known before."""
    before = fit_labels(Z[:150], Y[:150], ONES[:150], ALPHA, max_iter=200, tol=1e-8)
    after = update_labels(Z[150:], Y[150:], ONES[150:], before, max_iter=300, tol=1e-8)
    residual = expit(after.scores(Z[150:])) - Y[150:]
    slope = Z[150:].T @ residual + before.precision * (after.coef - before.coef)
    total = residual.sum(axis=0)
    total += before.intercept_precision * (after.intercept - before.intercept)
    assert max(abs(slope).max(), abs(total).max()) < 1e-4
    assert (after.precision > before.precision).all()
    whole = fit_labels(Z, Y, ONES, ALPHA, max_iter=200, tol=1e-8)
    distance = [np.linalg.norm(distribution.coef - whole.coef) for distribution in (after, before)]
    assert distance[0] < 0.75 * distance[1]


def test_the_precision_is_laplace_in_uncorrelated_columns():
    """One label without signal: the Hessian is diagonal up to noise."""
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(5000, 4)))[0] * np.sqrt(5000)
    y = (np.random.default_rng(2).random((5000, 1)) < 0.2).astype(float)
    found = fit_labels(Q, y, np.ones(5000), np.ones(1), tol=1e-8)
    p = expit(found.scores(Q))
    hessian = np.diag(Q.T @ (Q * (p * (1 - p)))) + 1.0
    np.testing.assert_allclose(found.precision[:, 0], hessian, rtol=0.05)


def test_nothing_known_is_the_prior():
    start = prior_weights(3, np.full((4, 2), np.nan), np.ones(4), np.array([2.0, 3.0]))
    np.testing.assert_array_equal(start.intercept, 0.0)
    np.testing.assert_array_equal(start.precision, [[2.0, 3.0]] * 3)
