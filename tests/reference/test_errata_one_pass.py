"""One pass under label drift: where the plain reading of the cited works goes wrong."""

from __future__ import annotations

import numpy as np

from likelier import OnePassClassifier
from likelier.one_pass.model import INTERCEPT_PRECISION


def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = np.argmax(X @ rng.normal(size=(3, 3)) + rng.gumbel(size=(n, 3)), axis=1)
    return X, y


def solve(X, y, classes, times_prior=1, half=lambda X, y, k: 0.5, precision=5.0):
    """``P^-1 Q`` with the prior counted so many times; ``half`` is what each row loses in Q."""
    Z = np.hstack([X, np.ones((len(X), 1))])
    prior = np.diag([precision] * 3 + [INTERCEPT_PRECISION])
    P = times_prior * prior + 0.25 * Z.T @ Z
    Q = [Z.T @ ((y == k) - half(X, y, k)) for k in classes]
    return np.linalg.solve(P, np.array(Q).T).T


def test_the_prior_is_added_once_and_not_once_per_partition():
    X, y = rows()
    parts = [
        OnePassClassifier(update="frozen", prior_precision=5.0).fit(X[s::10], y[s::10])
        for s in range(10)
    ]
    for part in parts[1:]:
        parts[0].merge(part)
    once, ten_times = solve(X, y, range(3)), solve(X, y, range(3), times_prior=10)
    np.testing.assert_allclose(parts[0].coef_, once[:, :3], atol=1e-9)
    assert np.abs(parts[0].coef_ - ten_times[:, :3]).max() > 0.05


def test_a_class_first_seen_late_starts_from_minus_half_of_everything_before():
    X, y = rows()
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    late = int(np.searchsorted(y, 2))
    model = OnePassClassifier(update="frozen", prior_precision=5.0)
    model.partial_fit(X[:late], y[:late]).partial_fit(X[late:], y[late:])
    seen_all = solve(X, y, range(3))
    from_zero = solve(X, y, [2], half=lambda X, y, k: 0.5 * (np.arange(len(y)) >= late))
    np.testing.assert_allclose(
        np.column_stack([model.coef_, model.intercept_]), seen_all, atol=1e-9
    )
    assert np.abs(model.intercept_[2] - from_zero[0, 3]) > 0.5


def test_a_late_class_of_a_stream_hardly_claims_the_rows_before_it():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(3000, 3)), rng.integers(0, 2, 3000)
    X[:, 0] += 2.0 * y
    model = OnePassClassifier().fit(X, y).partial_fit(X[:1] + 8.0, [2])
    assert (model.predict(X) == 2).mean() < 0.01


def test_frozen_means_lose_accuracy_that_streaming_means_win_back():
    """Heavy tails: least squares pays for far rows that are on the right side anyway."""
    rng = np.random.default_rng(0)
    X = rng.standard_t(2.5, size=(6000, 4))
    y = (X @ [1.0, 1.0, 0.0, 0.0] + 0.3 * rng.logistic(size=6000) > 1.0).astype(int)
    X = np.column_stack([X, X[:, 0] ** 2])
    streaming, frozen = OnePassClassifier().fit(X, y), OnePassClassifier(update="frozen").fit(X, y)
    assert streaming.score(X, y) > frozen.score(X, y) + 0.01
