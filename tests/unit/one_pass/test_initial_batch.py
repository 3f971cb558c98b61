"""Initial batch of a stream: the maximum it finds, how close, and how many rows it holds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

from likelier.one_pass import initial_batch
from likelier.one_pass.initial_batch import (
    INITIAL_ROWS,
    INITIAL_VALUES,
    fit_softmax,
    initial_batch_size,
    softmax_terms,
)


def problem(n=400, d=4, K=3, seed=0):
    rng = np.random.default_rng(seed)
    Z = np.hstack([rng.normal(size=(n, d)), np.ones((n, 1))])
    codes = np.argmax(Z @ rng.normal(size=(d + 1, K)) * 2 + rng.gumbel(size=(n, K)), axis=1)
    prior = np.append(np.ones(d), 0.01)
    return Z, codes, rng.uniform(0.5, 2.0, n), prior


def energy(w, Z, codes, weight, prior):
    scores = Z @ w
    loss = logsumexp(scores, axis=1) - scores[np.arange(len(codes)), codes]
    return weight @ loss + 0.5 * (prior @ w**2).sum()


def test_terms_are_the_loss_and_its_gradient():
    rng = np.random.default_rng(0)
    scores, codes = 3.0 * rng.normal(size=(4, 6)), np.array([0, 1, 2, 3, 0, 1])
    loss, gradient = softmax_terms(scores.copy(), codes)

    def exact(s):
        return logsumexp(s, axis=0) - s[codes, np.arange(6)]

    np.testing.assert_allclose(loss, exact(scores), rtol=1e-12)
    for output in range(4):
        step = 1e-6 * np.eye(4)[output][:, None]
        found = (exact(scores + step) - exact(scores - step)) / 2e-6
        np.testing.assert_allclose(gradient[output], found, atol=1e-8)


def test_a_strict_initial_batch_is_the_maximum(monkeypatch):
    """Zero gradient, by finite differences of the energy; one output has no rows."""
    monkeypatch.setattr(initial_batch, "GRADIENT_TOL", 1e-8)
    Z, codes, weight, prior = problem()
    w = fit_softmax(Z, codes, weight, prior, 4)
    for place in np.ndindex(w.shape):
        step = np.zeros_like(w)
        step[place] = 1e-4
        up, down = (
            energy(w + step, Z, codes, weight, prior),
            energy(w - step, Z, codes, weight, prior),
        )
        assert abs(up - down) / 2e-4 < 1e-3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_default_is_far_within_what_the_rows_leave_open(dtype, monkeypatch):
    """Error against the maximum in standard deviations of the exact Laplace posterior."""
    Z, codes, weight, prior = problem()
    quick = fit_softmax(Z.astype(dtype), codes, weight, prior, 4)
    monkeypatch.setattr(initial_batch, "GRADIENT_TOL", 1e-8)
    exact = fit_softmax(Z, codes, weight, prior, 4)
    scores = Z @ exact
    p = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
    blocks = p[:, :, None] * np.eye(4) - p[:, :, None] * p[:, None, :]
    hessian = np.einsum("n,nkl,ni,nj->kilj", weight, blocks, Z, Z).reshape(20, 20)
    hessian += np.diag(np.tile(prior, 4))
    error = (quick - exact).T.ravel()
    assert np.sqrt(error @ hessian @ error / 20) < 0.1


def test_whole_weights_are_repeated_rows():
    Z, codes, _, prior = problem(200)
    times = np.random.default_rng(1).integers(1, 4, 200)
    one = fit_softmax(Z, codes, times.astype(float), prior, 4)
    n = times.sum()
    two = fit_softmax(Z.repeat(times, axis=0), codes.repeat(times), np.ones(n), prior, 4)
    np.testing.assert_allclose(one, two, atol=1e-6)


def test_separable_rows_and_twin_columns_do_no_harm():
    Z, codes, weight, prior = problem(50)
    Z = np.hstack([Z, Z[:, :1], np.zeros((50, 1))]).astype(np.float32)
    Z[:, 0] = Z[:, 5] = 10.0 * codes
    w = fit_softmax(Z, codes, weight, np.append(prior, [1.0, 1.0]), 4)
    assert np.isfinite(w).all() and (Z @ w).argmax(axis=1).tolist() == codes.tolist()
    np.testing.assert_allclose(w[6], 0.0, atol=1e-12)


def test_an_initial_batch_is_whole_blocks_of_a_bounded_number_of_values():
    for d in (1, 10, 54, 119, 784, 1024, 3000, 16_000):
        size = initial_batch_size(d, 512)
        assert size % 512 == 0 and 512 <= size <= INITIAL_ROWS
        assert size * d <= max(INITIAL_VALUES, 512 * d)
    assert initial_batch_size(4, 512) == INITIAL_ROWS
    assert initial_batch_size(3000, 2048) == 2048
