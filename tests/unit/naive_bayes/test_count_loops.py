"""Compiled counting and scoring, against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.special import gammaln, logsumexp

from likelier.loops.rows import as_rows
from likelier.naive_bayes.loops.counts import (
    add_counts,
    add_missing,
    best_columns,
    best_rows,
    dirichlet_scores,
    log_coefficients,
    log_counts,
    log_odds,
    log_sum_rows,
    mark_presence,
    normalise_rows,
    sparse_scores,
)

RNG = np.random.default_rng(0)
K, D, N = 3, 130, 50
X = RNG.poisson(0.7, size=(N, D)).astype(float)
CODES = RNG.integers(0, K, N)
W = RNG.uniform(0.5, 2.0, N)
ONE_HOT = np.eye(K)[CODES]
NO_WEIGHT = np.empty(0)
every_matrix = pytest.mark.parametrize("matrix", [np.asarray, sparse.csr_array, sparse.csr_matrix])


@every_matrix
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("weighted", [False, True])
def test_counts(matrix, dtype, weighted):
    weight = W if weighted else NO_WEIGHT
    Y = ONE_HOT * (W[:, None] if weighted else 1.0)
    rows = as_rows(matrix(X.astype(dtype)))
    order = RNG.permutation(N)
    values, present = np.zeros((2, K, D))
    add_counts(*rows, order, CODES, weight, False, 0.0, values)
    add_counts(*rows, order, CODES, weight, True, 1.0, present)
    np.testing.assert_allclose(values, Y.T @ X)
    np.testing.assert_allclose(present, Y.T @ (X > 1.0))


@every_matrix
def test_missing(matrix):
    holes = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
    lost = np.zeros((K, D))
    add_missing(*as_rows(matrix(holes)), CODES, W, lost)
    np.testing.assert_allclose(lost, (ONE_HOT * W[:, None]).T @ np.isnan(holes))


@pytest.mark.parametrize("scale", [1.0, 0.37, 1e6], ids=["whole", "fractions", "large"])
@pytest.mark.parametrize("alpha", [np.array([0.5]), np.linspace(0.0, 2.0, D)], ids=["one", "each"])
def test_logarithms_of_counts(scale, alpha):
    counts = np.floor(scale * (ONE_HOT.T @ X)) if scale > 1.0 else scale * (ONE_HOT.T @ X)
    counts[:, 5] = 0.0
    shift, out = np.array([1.0, 2.0, 3.0]), np.empty((D, K))
    log_counts(counts, alpha, shift, out)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(out, (np.log(counts + alpha) - shift[:, None]).T, rtol=1e-13)


@pytest.mark.parametrize("alpha", [np.array([0.5]), np.linspace(0.1, 2.0, D)], ids=["one", "each"])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_log_odds(alpha, wide, weighted):
    Y = ONE_HOT * (W[:, None] if weighted else 1.0)
    counts, seen = Y.T @ (X > 0), Y.sum(axis=0)[:, None]
    seen = seen + np.arange(D) % 2 if wide else seen
    skip = np.arange(D) % 3 == 0
    out, base, rest = np.empty((D, K)), np.zeros(K), np.zeros(K)
    log_odds(counts, seen, alpha, np.empty(0, dtype=bool), out, base)
    log_odds(counts, seen, alpha, skip, np.empty((0, 0)), rest)
    p = (counts + alpha) / (seen + 2 * alpha)
    np.testing.assert_allclose(out, (np.log(p) - np.log1p(-p)).T, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(base, np.log1p(-p).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(rest, np.log1p(-p)[:, ~skip].sum(axis=1), rtol=1e-12)


def test_presence_and_its_warning():
    out = np.empty(4)
    total = mark_presence(np.array([0.0, 2.0, -1.0, 0.5]), 0.5, out)
    assert list(out) == [0.0, 1.0, 0.0, 0.0]
    assert total == 1.5
    for bad in (np.nan, np.inf):
        assert not np.isfinite(mark_presence(np.array([0.0, bad, 1.0, 2.0]), 0.5, out))


@pytest.mark.parametrize("n_lanes", [1, 2, 7, 8, 9, 20])
def test_sparse_scores(n_lanes):
    table = RNG.normal(size=(D, n_lanes))
    out = np.full((N, n_lanes), np.nan)
    data, indices, indptr, _ = as_rows(sparse.csr_array(X))
    sparse_scores(data, indices, indptr, table.reshape(-1), out)
    np.testing.assert_allclose(out, X @ table, rtol=1e-12)


def test_normalising():
    joint = RNG.normal(size=(40, 5)) * 10.0 ** RNG.integers(-2, 4, (40, 1))
    joint[3, 2] = -np.inf
    joint[7] = -np.inf
    prior = np.log([0.1, 0.2, 0.3, 0.2, 0.2])
    logs, probs, total = np.empty((40, 5)), np.empty((40, 5)), np.empty(40)
    normalise_rows(joint, prior, True, logs)
    normalise_rows(joint, prior, False, probs)
    log_sum_rows(joint, total)
    np.testing.assert_allclose(total, logsumexp(joint, axis=1), rtol=1e-13)
    known = np.delete(joint, 7, axis=0)
    expected = known - logsumexp(known, axis=1, keepdims=True)
    np.testing.assert_allclose(np.delete(logs, 7, axis=0), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(logs[7], prior)
    np.testing.assert_allclose(probs, np.exp(logs), rtol=1e-10, atol=1e-300)


def test_the_best_of_a_row():
    joint = RNG.integers(0, 4, size=(200, 5)).astype(float)
    joint[3] = -np.inf
    joint[4] = np.nan
    expected = joint.argmax(axis=1)
    expected[[3, 4]] = -1
    one, two = np.empty((2, 200), dtype=np.intp)
    best_columns(joint, one)
    best_rows(np.ascontiguousarray(joint.T), two)
    np.testing.assert_array_equal(one, expected)
    np.testing.assert_array_equal(two, expected)


@every_matrix
@pytest.mark.parametrize("scale", [1.0, 0.3, 40.0])
def test_dirichlet_scores_and_coefficients(matrix, scale):
    rows = scale * X
    pseudo = RNG.uniform(0.1, 3.0, size=(K, D)) * 10.0 ** RNG.integers(-2, 6, (1, D))
    out, coefficient = np.empty((N, K)), np.empty(N)
    dirichlet_scores(*as_rows(matrix(rows)), pseudo, pseudo.sum(axis=1), out)
    log_coefficients(*as_rows(matrix(rows)), coefficient)
    n, total = rows.sum(axis=1), pseudo.sum(axis=1)
    expected = gammaln(total) - gammaln(total + n[:, None])
    expected = expected + (gammaln(pseudo + rows[:, None]) - gammaln(pseudo)).sum(axis=2)
    size = abs(gammaln(pseudo)).sum()  # what SciPy's differences cancel from
    np.testing.assert_allclose(out, expected, rtol=1e-9, atol=1e-14 * size)
    np.testing.assert_allclose(coefficient, gammaln(n + 1) - gammaln(rows + 1).sum(axis=1))
