"""The objective of linear models and its minimum, by means that share nothing with the library.

``(1/N) sum_i omega_i loss(y_i, x_i^T w + b) + sum_j alpha_j w_j^2 / 2 + l1 |w_j|``.
Smooth losses are minimised by SciPy's L-BFGS on plain formulas; losses with kinks are maxima of
straight lines, so their minimum is a quadratic programme in ``theta`` and one slack per row, solved
by SLSQP (a linear one without squares, solved by HiGHS). With an L1 penalty weights are differences
of two that are not negative: features appear twice, with either sign.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog, minimize
from scipy.special import logsumexp, softmax
from tests.reference.plain_losses import PLAIN

from likelier import losses

BINARY = [losses.LogLoss(), losses.Hinge(), losses.SquaredHinge(), losses.ModifiedHuber()]
NUMBERS = [loss for loss in PLAIN if loss.task in ("regression", "count")]
COUPLED = [losses.Softmax(), losses.MulticlassHinge()]

# Each kinked loss as the maximum of lines ``a + b f``: functions of the target.
LINES = {
    losses.Hinge(): [lambda y: (0.0 * y, 0.0 * y), lambda y: (1.0 + 0.0 * y, -y)],
    losses.EpsilonInsensitive(epsilon=0.3): [
        lambda y: (0.0 * y, 0.0 * y),
        lambda y: (y - 0.3, -1.0 + 0.0 * y),
        lambda y: (-y - 0.3, 1.0 + 0.0 * y),
    ],
    losses.EpsilonInsensitive(epsilon=0.0): [
        lambda y: (y, -1.0 + 0.0 * y),
        lambda y: (-y, 1.0 + 0.0 * y),
    ],
    losses.Quantile(tau=0.9): [
        lambda y: (0.9 * y, -0.9 + 0.0 * y),
        lambda y: (-0.1 * y, 0.1 + 0.0 * y),
    ],
}


def draw(loss, n_classes=2, n=60, d=3, seed=0):
    """Rows that float32 holds exactly, targets of the loss's task, and weights."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)).astype(np.float32).astype(np.float64)
    X[rng.random(X.shape) < 0.3] = 0.0
    signal = X @ np.linspace(1.0, -0.5, d) + 0.3
    if loss.task == "regression":
        y = signal + 0.7 * rng.standard_normal(n)
    elif loss.task == "count":
        y = rng.poisson(np.exp(0.5 * signal)).astype(float)
    else:
        y = np.digitize(signal + rng.standard_normal(n), np.linspace(-0.6, 1.2, n_classes - 1))
    return X, y, rng.uniform(0.2, 3.0, n)


def output_targets(loss, y):
    """Targets of the separate problems a scalar loss is used for: one-vs-rest for classes."""
    if loss.task != "binary":
        return [y]
    classes = np.unique(y)
    return [np.where(y == k, 1.0, -1.0) for k in (classes[1:] if len(classes) == 2 else classes)]


def objective(loss, X, y, weight, W, b, alpha, l1=0.0):
    """Value for coefficients of shape (outputs, d), summed over one-vs-rest problems."""
    scores = X @ np.atleast_2d(W).T + b
    penalty = 0.5 * np.sum(alpha * np.atleast_2d(W) ** 2) + l1 * np.abs(W).sum()
    if loss.coupled:
        return weight @ coupled_value(loss, y, scores) / len(y) + penalty
    value = PLAIN[loss][0]
    targets = output_targets(loss, y)
    total = sum(weight @ value(t, f) for t, f in zip(targets, scores.T, strict=True))
    return total / len(y) + penalty


def coupled_value(loss, y, scores):
    own = scores[np.arange(len(y)), y]
    if loss.name == "softmax":
        return logsumexp(scores, axis=1) - own
    margin = scores + 1.0
    margin[np.arange(len(y)), y] -= 1.0
    return margin.max(axis=1) - own


def minimum(loss, X, y, weight, alpha, fit_intercept, l1=0.0):
    """Coefficients (outputs, d), intercepts and the smallest value."""
    Z, d = np.hstack([X, -X]) if l1 else X, X.shape[1]
    if loss.coupled:
        W, b = _coupled(loss, Z, y, weight, alpha, fit_intercept, l1)
    else:
        solve = _kinked if loss in LINES else _smooth
        parts = [
            solve(loss, Z, t, weight, alpha, fit_intercept, l1) for t in output_targets(loss, y)
        ]
        W, b = np.stack([w for w, _ in parts]), np.array([b for _, b in parts])
    W = W[:, :d] - W[:, d:] if l1 else W
    return W, b, objective(loss, X, y, weight, W, b, alpha, l1)


def _with_ones(X, fit_intercept):
    return np.column_stack([X, np.ones(len(X))]) if fit_intercept else X


def _price(d, fit_intercept, l1):
    """L1 strengths, none for the intercept; what has one is not negative."""
    return np.append(np.full(d, l1), [0.0] * int(fit_intercept))


def _bounds(price):
    return [(0.0 if strength else None, None) for strength in price]


def _split(theta, d):
    return theta[:d], float(theta[d]) if len(theta) > d else 0.0


def _smooth(loss, X, y, weight, alpha, fit_intercept, l1):
    Z, d = _with_ones(X, fit_intercept), X.shape[1]
    price = _price(d, fit_intercept, l1)
    strength = np.append(np.broadcast_to(alpha, d), [0.0] * int(fit_intercept))
    value, derivative = PLAIN[loss]

    def both(theta):
        f = Z @ theta
        total = weight @ value(y, f) / len(y) + 0.5 * strength @ theta**2 + price @ theta
        return total, Z.T @ (weight * derivative(y, f)) / len(y) + strength * theta + price

    return _split(_descend(both, np.zeros(Z.shape[1]), _bounds(price)), d)


def _descend(both, start, bounds):
    """L-BFGS, restarted until it has nothing left to gain."""
    options = {"maxcor": 60, "ftol": 1e-16, "gtol": 1e-12, "maxiter": 5000, "maxfun": 20000}
    for _ in range(3):
        start = minimize(both, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return start


def _programme(strength, price, share, A, low):
    """``min sum_j strength_j v_j^2 / 2 + price w + share s``, ``v = (w, s)``, ``A v >= low``."""
    bounds = _bounds(price) + [(None, None)] * len(share)
    start = np.append(np.zeros(len(price)), np.full(len(share), max(1.0, low.max()) + 1.0))
    strength, share = np.append(strength, 0.0 * share), np.append(price, share)
    if not strength.any():
        found = linprog(share, A_ub=-A, b_ub=-low, bounds=bounds)
        assert found.status == 0, found.message
        return found.x
    size = len(low)  # sums suit the tolerances of the solver better than means
    for ftol in (1e-7, 1e-9):  # a line search that can no longer descend is an end as well
        found = minimize(
            lambda v: (size * (0.5 * strength @ v**2 + share @ v), size * (strength * v + share)),
            start,
            jac=True,
            method="SLSQP",
            bounds=bounds,
            constraints={"type": "ineq", "fun": lambda v: A @ v - low, "jac": lambda v: A},
            options={"maxiter": 1000, "ftol": ftol},
        )
        start = found.x
    assert found.status in (0, 8), found.message
    return found.x


def _kinked(loss, X, y, weight, alpha, fit_intercept, l1):
    Z, (n, d) = _with_ones(X, fit_intercept), X.shape
    p, price = Z.shape[1], _price(d, fit_intercept, l1)
    strength = np.zeros(p)
    strength[:d] = alpha
    rows, low = [], []
    for line in LINES[loss]:  # slack_i >= a_i + b_i z_i^T theta
        a, b = line(y)
        rows.append(np.hstack([-b[:, None] * Z, np.eye(n)]))
        low.append(a)
    v = _programme(strength, price, weight / n, np.vstack(rows), np.concatenate(low))
    return _split(v[:p], d)


def _coupled(loss, X, y, weight, alpha, fit_intercept, l1):
    Z, (n, d), K = _with_ones(X, fit_intercept), X.shape, int(y.max()) + 1
    p = Z.shape[1]
    one = np.append(np.broadcast_to(alpha, d), [0.0] * int(fit_intercept))
    strength, price = np.tile(one, K), np.tile(_price(d, fit_intercept, l1), K)
    own = np.eye(K)[y]

    def both(theta):
        W = theta.reshape(K, p)
        scores = Z @ W.T
        total = weight @ coupled_value(loss, y, scores) / n
        total += 0.5 * strength @ theta**2 + price @ theta
        pull = (weight[:, None] * (softmax(scores, axis=1) - own)).T @ Z / n
        return total, pull.ravel() + strength * theta + price

    if loss.name == "softmax":
        W = _descend(both, np.zeros(K * p), _bounds(price)).reshape(K, p)
    else:
        W = _crammer_singer(Z, y, weight, strength, price, K)
    return W[:, :d], W[:, d] if fit_intercept else np.zeros(K)


def _crammer_singer(Z, y, weight, strength, price, K):
    n, p = Z.shape
    rows, low = [np.hstack([np.zeros((n, K * p)), np.eye(n)])], [np.zeros(n)]
    for k in range(K):  # slack_i >= 1 + f_k - f_y for every rival k
        rivals = np.flatnonzero(y != k)
        row = np.zeros((len(rivals), K * p + n))
        for at, i in enumerate(rivals):
            row[at, y[i] * p : (y[i] + 1) * p] += Z[i]
            row[at, k * p : (k + 1) * p] -= Z[i]
            row[at, K * p + i] = 1.0
        rows.append(row)
        low.append(np.ones(len(rivals)))
    v = _programme(strength, price, weight / n, np.vstack(rows), np.concatenate(low))
    return v[: K * p].reshape(K, p)
