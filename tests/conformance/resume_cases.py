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


quick = {"random_state": 0}
CASES = {
    "gaussian_nb": (likelier.GaussianNB(**quick), dense),
    "bernoulli_nb_stream": (likelier.BernoulliNB(**quick), stream),
    "linear_newton": (likelier.LinearClassifier(alpha=1e-3, **quick), lambda: dense(5000, k=3)),
    "linear_newton_stream": (likelier.LinearClassifier(alpha=1e-3, **quick), stream),
    "linear_lbfgs": (likelier.LinearClassifier(alpha=1e-6, tol=1e-12, **quick), wide),
    "linear_folds": (likelier.LinearRegressor(**quick), lambda: numbers(60, 20)),
    "svc_two": (likelier.SVC(probability=True, **quick), lambda: dense(900)),
    "svc_pairs": (likelier.SVC(probability=True, **quick), lambda: dense(900, k=3)),
    "svc_small_pairs": (likelier.SVC(**quick), lambda: dense(400, k=5)),
    "svr": (likelier.SVR(C=10.0, probability=True, **quick), lambda: numbers(900)),
    "linear_calibrated": (likelier.LinearClassifier("squared_hinge", **quick), dense),
}
