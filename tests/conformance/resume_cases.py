"""Fits that are killed and resumed: every route and stage that a checkpoint can be in."""

from __future__ import annotations

import numpy as np
from scipy import sparse

import likelier


def dense(n=1500, d=6, k=2):
    """Rows and classes."""
    rng = np.random.default_rng(d)
    X = rng.standard_normal((n, d))
    score = X @ rng.standard_normal((d, k)) + 0.5 * rng.standard_normal((n, k))
    return X, score.argmax(axis=1)


def numbers(n=3000, d=6):
    """Rows and continuous targets."""
    X, _ = dense(n, d)
    rng = np.random.default_rng(1)
    return X, X @ rng.standard_normal(d) + 0.5 * rng.standard_normal(n)


def wide(n=1500, d=2500):
    """Sparse rows and classes."""
    rng = np.random.default_rng(0)
    X = sparse.random_array((n, d), density=0.01, format="csr", rng=rng)
    return X, (X @ rng.standard_normal(d) > 0.0).astype(int)


def stream():
    """Blocks of rows, read as often as needed."""
    X, y = dense(5000, k=3)
    return ([(X[:700], y[:700]), (X[700:], y[700:])],)


def by_class():
    """Rows sorted by class."""
    X, y = dense(20_000, k=3)
    order = np.argsort(y, kind="stable")
    return X[order], y[order]


quick = {"random_state": 0}
CASES = {
    "gaussian_nb": (likelier.GaussianNB(**quick), dense),
    "bernoulli_nb_stream": (likelier.BernoulliNB(**quick), stream),
    "one_pass": (likelier.OnePassClassifier(**quick), by_class),
    "one_pass_stream": (
        likelier.OnePassClassifier(features="fourier", n_components=40, half_life=3000, **quick),
        stream,
    ),
    "one_pass_frozen": (likelier.OnePassClassifier(update="frozen", **quick), lambda: dense(k=3)),
    "one_pass_frozen_stream": (likelier.OnePassClassifier(update="frozen", **quick), stream),
    "linear_newton": (likelier.LinearClassifier(alpha=1e-3, **quick), lambda: dense(5000, k=3)),
    "linear_newton_stream": (likelier.LinearClassifier(alpha=1e-3, **quick), stream),
    "linear_lbfgs": (likelier.LinearClassifier(alpha=1e-6, tol=1e-12, **quick), wide),
    "linear_folds": (likelier.LinearRegressor(**quick), lambda: numbers(60, 20)),
    "linear_calibrated": (likelier.LinearClassifier("squared_hinge", **quick), dense),
}
