"""Kernel values against scikit-learn and against the formulas written out pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.gaussian_process.kernels import Matern as GaussianProcessMatern
from sklearn.metrics import pairwise
from sklearn.svm import SVC

from likelier.kernels import Laplacian, Matern, Rbf, make_kernel

GAMMA, COEF0, DEGREE = 0.3, 0.5, 3
LENGTH = (0.5 / GAMMA) ** 0.5
NAMES = ["rbf", "laplacian", "matern32", "matern52", "poly", "sigmoid", "linear"]
PEERS = {
    "rbf": lambda X, Y: pairwise.rbf_kernel(X, Y, gamma=GAMMA),
    "laplacian": lambda X, Y: pairwise.laplacian_kernel(X, Y, gamma=GAMMA),
    "matern32": GaussianProcessMatern(LENGTH, nu=1.5),
    "matern52": GaussianProcessMatern(LENGTH, nu=2.5),
    "poly": lambda X, Y: pairwise.polynomial_kernel(X, Y, DEGREE, GAMMA, COEF0),
    "sigmoid": lambda X, Y: pairwise.sigmoid_kernel(X, Y, GAMMA, COEF0),
    "linear": pairwise.linear_kernel,
}
LAYOUTS = {"dense": np.asarray, "csr": sparse.csr_array, "matrix": sparse.csr_matrix}


def draw(n_rows, seed):
    rng = np.random.default_rng(seed)
    return np.where(rng.random((n_rows, 6)) < 0.6, rng.normal(size=(n_rows, 6)), 0.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_scikit_learn(name, left, right, dtype):
    X, Y = draw(9, 0), draw(12, 1)
    kernel = make_kernel(name, gamma=GAMMA, coef0=COEF0, degree=DEGREE)
    ours = kernel.matrix(LAYOUTS[left](X.astype(dtype)), LAYOUTS[right](Y.astype(dtype)))
    assert ours.dtype == dtype
    expected = PEERS[name](X, Y)
    tolerance = 1e-6 if dtype is np.float32 else 1e-14
    np.testing.assert_allclose(ours, expected, atol=tolerance * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_values_of_rows_among_themselves(name, layout):
    X = draw(15, 2)
    kernel = make_kernel(name, gamma=GAMMA, coef0=COEF0)
    rows = LAYOUTS[layout](X)
    ours = kernel.matrix(rows)
    np.testing.assert_allclose(ours, PEERS[name](X, X), atol=1e-13)
    np.testing.assert_array_equal(ours, ours.T)
    np.testing.assert_allclose(kernel.diagonal(rows), np.diagonal(ours), rtol=1e-14)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_scale_per_feature(layout):
    X, Y, gamma = draw(7, 3), draw(5, 4), np.array([0.1, 0.0, 2.0, 0.5, 0.3, 1.0])
    gap = X[:, None, :] - Y[None, :, :]
    square, absolute = (gamma * gap**2).sum(-1), (gamma * np.abs(gap)).sum(-1)
    s3, s5 = np.sqrt(6 * square), np.sqrt(10 * square)
    expected = {
        Rbf(gamma): np.exp(-square),
        Laplacian(gamma): np.exp(-absolute),
        Matern(gamma, nu=1.5): (1 + s3) * np.exp(-s3),
        Matern(gamma, nu=2.5): (1 + s5 + s5**2 / 3) * np.exp(-s5),
    }
    for kernel, values in expected.items():
        ours = kernel.matrix(LAYOUTS[layout](X), LAYOUTS[layout](Y))
        np.testing.assert_allclose(ours, values, atol=1e-14, err_msg=str(kernel))


def test_one_scale_for_all_is_the_same_as_that_scale_for_each():
    X, Y = draw(7, 5), draw(5, 6)
    for one, each in ((Rbf(0.4), Rbf([0.4] * 6)), (Laplacian(0.4), Laplacian([0.4] * 6))):
        np.testing.assert_allclose(one.matrix(X, Y), each.matrix(X, Y), rtol=1e-13)


def test_the_word_scale_means_what_it_means_in_scikit_learn():
    X, y = draw(40, 7), np.arange(40) % 2
    theirs = SVC(gamma="scale").fit(X, y)._gamma
    for rows in (X, sparse.csr_array(X)):
        assert make_kernel("rbf", gamma="scale", X=rows).gamma == pytest.approx(theirs, rel=1e-12)
    assert make_kernel("rbf", gamma="auto", X=X).gamma == 1 / 6


def test_the_word_median_is_the_median_distance():
    X = draw(60, 8)
    pairs = np.triu_indices(60, 1)
    euclidean = np.median(pairwise.euclidean_distances(X)[pairs])
    taxi = np.median(pairwise.manhattan_distances(X)[pairs])
    for rows in (X, sparse.csr_array(X)):
        gamma = make_kernel("matern32", gamma="median", X=rows).gamma
        assert gamma == pytest.approx(0.5 / euclidean**2, rel=1e-10)
        gamma = make_kernel("laplacian", gamma="median", X=rows).gamma
        assert gamma == pytest.approx(1 / taxi, rel=1e-10)


@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 2e-4), (np.float64, 1e-10)])
def test_data_far_from_the_origin_keep_their_distances(dtype, bound):
    """Without a shift the float32 values would be off by more than one half."""
    X = (draw(20, 9) + 1000.0).astype(dtype)
    gap = X[:, None, :].astype(float) - X[None, :, :]
    expected = np.exp(-0.5 * (gap**2).sum(-1))
    for ours in (Rbf(0.5).matrix(X), Rbf(0.5).matrix(X[:7], X), Rbf(0.5).prepare(X).rows([3, 1])):
        rows = {20: slice(None), 7: slice(7), 2: [3, 1]}[len(ours)]
        assert np.abs(ours - expected[rows]).max() < bound
    norms = (X * X).sum(axis=1)
    plain = np.exp(-0.5 * np.maximum(norms[:, None] + norms - 2 * X @ X.T, 0))
    if dtype is np.float32:
        assert np.abs(plain - expected).max() > 0.1
