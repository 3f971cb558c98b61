"""Feature maps of the kernel machine: kernels, residuals, sparse rows, precision."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from likelier.fitting.standardize import Standard
from likelier.kernel_machine.features import IdentityMap, fourier_map, landmark_map, restore_map


def rows(n=60, d=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def kernel(X, gamma):
    Z = X * gamma
    return np.exp(-0.5 * ((Z[:, None] - Z[None]) ** 2).sum(axis=2))


GAMMA = np.array([0.5, 0.2, 0.0, 1.0])


def test_all_rows_as_landmarks_give_the_kernel():
    X = rows()
    made = landmark_map(X, X.mean(axis=0), GAMMA)
    Phi = made(X)
    np.testing.assert_allclose(Phi[:, :-1] @ Phi[:, :-1].T, kernel(X, GAMMA), atol=2e-4)
    assert (Phi[:, -1] == 1.0).all()
    assert made.residual(Phi).max() < 1e-3


def test_residual_is_one_out_of_support_and_zero_at_landmarks():
    X = rows()
    made = landmark_map(X[:20], np.zeros(4), GAMMA)
    far = X[:3] + 1e3
    np.testing.assert_allclose(made.residual(made(far)), 1.0)
    assert made.residual(made(X[:20])).max() < 1e-3
    between = made.residual(made(X[20:]))
    assert ((between > 0.0) & (between < 1.0)).all()


def test_fourier_features_approximate_the_kernel():
    X = rows()
    made = fourier_map(8000, np.zeros(4), GAMMA, np.random.default_rng(0))
    Phi = made(X)[:, :-1]
    assert np.abs(Phi @ Phi.T - kernel(X, GAMMA)).max() < 0.06
    assert (made.residual(made(X)) == 0.0).all()


def test_identity_is_the_scaled_rows():
    X = rows()
    made = IdentityMap(X.mean(axis=0), GAMMA)
    np.testing.assert_allclose(made(X)[:, :-1], (X - X.mean(axis=0)) * GAMMA)


@pytest.mark.parametrize("kind", ["nystroem", "fourier", "identity"])
def test_sparse_rows_give_the_same_features(kind):
    X = rows() * (np.random.default_rng(1).random((60, 4)) < 0.4)
    S = sparse.csr_matrix(X)
    zero = np.zeros(4)
    if kind == "nystroem":
        dense, made = landmark_map(X[:20], zero, GAMMA), landmark_map(S[:20], zero, GAMMA)
    elif kind == "fourier":
        dense = made = fourier_map(20, zero, GAMMA, np.random.default_rng(0))
    else:
        dense = made = IdentityMap(zero, GAMMA)
    np.testing.assert_allclose(made(S), dense(X), atol=1e-10)
    assert np.shares_memory(S.data, S.data) and (S != sparse.csr_matrix(X)).nnz == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_duplicated_landmarks_are_harmless(dtype):
    X = np.repeat(rows(5), 12, axis=0).astype(dtype)
    Phi = landmark_map(X, np.zeros(4), np.ones(4))(X, dtype)
    assert np.isfinite(Phi).all()
    inside = np.einsum("ij,ij->i", Phi[:, :-1], Phi[:, :-1])
    np.testing.assert_allclose(inside, 1.0, atol=1e-2)


def test_blocks_and_precision_change_nothing_much():
    X = rows(5000)
    made = landmark_map(X[:100], X.mean(axis=0), GAMMA)
    np.testing.assert_allclose(made(X)[3000:3010], made(X[3000:3010]), atol=1e-10)
    assert np.abs(made(X, np.float32) - made(X)).max() < 2e-2
    assert made(X, np.float32).dtype == np.float32


@pytest.mark.parametrize("kind", ["nystroem", "fourier", "identity"])
def test_plain_form_and_back(kind):
    X = rows()
    made = {
        "nystroem": lambda: landmark_map(X[:9], np.zeros(4), GAMMA),
        "fourier": lambda: fourier_map(6, np.zeros(4), GAMMA, np.random.default_rng(0)),
        "identity": lambda: IdentityMap(np.zeros(4), GAMMA),
    }[kind]()
    again = restore_map(made.to_arrays())
    assert again.kind == kind and again.n_features == made.n_features
    assert np.array_equal(again(X), made(X))


def test_standard_of_large_means_and_constants():
    X = np.column_stack([1e6 + rows(400)[:, 0], np.full(400, 7.0), rows(400)[:, 1]])
    weight = np.random.default_rng(0).integers(1, 4, 400).astype(float)
    standard = Standard.of(X, weight)
    copies = np.repeat(X, weight.astype(int), axis=0)
    np.testing.assert_allclose(standard.spread()[[0, 2]], copies.std(axis=0)[[0, 2]], rtol=1e-6)
    assert standard.inverse[1] == 0.0 and standard.spread()[1] == 0.0
    np.testing.assert_allclose(standard.mean, copies.mean(axis=0))
    part = Standard.of(sparse.csr_matrix(X[:, [2]]))
    assert part.spread()[0] == pytest.approx(X[:, 2].std(), rel=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_feature_is_so_small_that_it_loses_digits(dtype):
    """Subnormal products would be a hundred times slower."""
    rng = np.random.default_rng(0)
    X = 12.0 * rng.normal(size=(400, 3))  # distances from none to far beyond any kernel value
    made = landmark_map(X[:200], np.zeros(3), np.ones(3))
    Phi = made(X, dtype)
    small, least = np.abs(Phi[Phi != 0.0]).astype(np.float64), np.finfo(np.float32).tiny
    assert small.min() > least
    if dtype == np.float32:  # but for differences of features that are nearly equal
        assert (small**2 < least).mean() < 1e-3
    exact = np.exp(-0.5 * ((X[:, None] - X[None, :200]) ** 2).sum(axis=2))
    assert exact[exact > 0.0].min() < 1e-100  # there are such values
    digits = 1e-3 if dtype == np.float32 else 1e-10  # of distances of a hundred
    np.testing.assert_allclose(Phi[:, :-1], exact @ made.whiten, atol=digits)
    right = 1.0 - ((exact @ made.whiten) ** 2).sum(axis=1)
    np.testing.assert_allclose(made.residual(Phi), right, atol=10 * digits)
