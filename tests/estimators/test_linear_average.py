"""``average=True`` is the mean of all iterates, replayed row by row from the formulas.

Implicitly, with ``s = 1 / (1 + a alpha)``: ``g = -loss'(s x^T w + b + a (s |x|^2 + 1) g)``,
``w <- s (w + a g x)``, ``b <- b + a g``; explicitly ``w <- (1 - a alpha) w + a g x`` with minus
the derivative at ``x^T w + b``.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from likelier import SGD, LinearClassifier, LinearRegressor
from likelier.engines import LocalEngine
from likelier.losses import LOSSES

N, PASSES, ALPHA, ETA0 = 120, 3, 0.3, 0.2
PLAIN = {"alpha": ALPHA, "max_iter": PASSES, "tol": None, "random_state": 4}
KINDS = {"dense": np.asarray, "csr": sparse.csr_array}
PROBLEMS = [  # loss, classes: none for numbers
    ("log_loss", 2), ("log_loss", 4), ("hinge", 2), ("hinge", 4), ("softmax", 3),
    ("multiclass_hinge", 3), ("squared_error", 0), ("huber", 0), ("quantile", 0),
]  # fmt: skip
every_problem = pytest.mark.parametrize(("loss", "n_classes"), PROBLEMS)
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
every_schedule = pytest.mark.parametrize("schedule", ["constant", "invscaling"])
every_update = pytest.mark.parametrize("update", ["implicit", "explicit"])


def draw(n_classes, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, 6)) * (rng.random((N, 6)) < 0.5)
    y = rng.integers(0, n_classes, N) if n_classes else rng.standard_normal(N)
    return X, y


def make(loss, n_classes, **sgd):
    kind = LinearClassifier if n_classes else LinearRegressor
    more = {"probability": False} if n_classes else {}  # which would take fits of their own
    return kind(loss, solver=SGD(eta0=ETA0, **sgd), **PLAIN | more)


def output_target(loss, n_classes, label):
    """Targets of the outputs: one for two classes or a number."""
    if not n_classes:
        return np.array([label])
    return (
        np.array([2.0 * label - 1.0])
        if n_classes == 2
        else 2.0 * (np.arange(n_classes) == label) - 1
    )


def replay(name, X, y, n_classes, order, schedule, update):
    """Every iterate, as a matrix whose last row are the intercepts; the first row is step 1."""
    loss = LOSSES[name]()
    K = n_classes if loss.coupled or n_classes > 2 else 1
    W, b, path = np.zeros((X.shape[1], K)), np.zeros(K), []
    for t, i in enumerate(order, start=1):
        a = ETA0 if schedule == "constant" else ETA0 / np.sqrt(t)
        implicit = update == "implicit"
        s = 1.0 / (1.0 + a * ALPHA) if implicit else 1.0
        m, c = s * (X[i] @ W) + b, np.full(K, a * (s * (X[i] @ X[i]) + 1.0))
        if loss.coupled:
            g = (
                loss.prox(int(y[i]), m[None], c[0])[0]
                if implicit
                else -loss.derivative(y[i], m[None])[0]
            )
        else:
            target = output_target(loss, n_classes, y[i])
            g = loss.prox(target, m, c) if implicit else -loss.derivative(target, m)
        W = (s if implicit else 1.0 - a * ALPHA) * W + a * (s if implicit else 1.0) * np.outer(
            X[i], g
        )
        b = b + a * g
        path.append(np.vstack([W, b]))
    return np.array(path)


def assert_mean(model, iterates):
    """Coefficients are the mean; of a coupled loss with two classes the difference."""
    theta = iterates.mean(axis=0)
    if theta.shape[1] == 2:
        theta = theta[:, 1:] - theta[:, :1]
    found = np.vstack([np.atleast_2d(model.coef_).T, np.atleast_1d(model.intercept_)])
    np.testing.assert_allclose(found, theta, rtol=1e-9, atol=1e-12)


@every_problem
@every_kind
@every_schedule
@every_update
def test_in_memory(loss, n_classes, kind, schedule, update):
    X, y = draw(n_classes)
    params = {"learning_rate": schedule, "update": update, "average": True}
    model = make(loss, n_classes, **params)
    engine = LocalEngine(X, y.astype(float), seed=model._seed())
    order = [i for k in range(PASSES) for batch in engine.blocks(k) for i in batch.rows]
    assert len(order) == PASSES * N and order != sorted(order)
    assert_mean(model.fit(kind(X), y), replay(loss, X, y, n_classes, order, schedule, update))


@every_problem
@every_kind
@every_schedule
def test_streamed(loss, n_classes, kind, schedule):
    X, y = draw(n_classes)

    class Blocks:
        def __iter__(self):
            for rows in np.array_split(np.arange(N), 7):
                yield kind(X[rows]), y[rows]

    model = make(loss, n_classes, learning_rate=schedule, average=True, shuffle=False)
    order = np.tile(np.arange(N), PASSES)
    assert_mean(model.fit(Blocks()), replay(loss, X, y, n_classes, order, schedule, "implicit"))


@every_problem
@every_kind
@every_schedule
@pytest.mark.parametrize("sizes", [[N], [1] * N, [50, 3, 60, 7]], ids=["once", "by_row", "mixed"])
def test_batch_by_batch(loss, n_classes, kind, schedule, sizes):
    """Any batches at all, and what they leave of the mean after each of them."""
    X, y = draw(n_classes)
    model = make(loss, n_classes, learning_rate=schedule, average=True)
    path = replay(loss, X, y, n_classes, range(N), schedule, "implicit")
    more = {"classes": np.arange(n_classes)} if n_classes else {}
    first = 0
    for size in sizes:
        rows = slice(first, first + size)
        model.partial_fit(kind(X[rows]), y[rows], **more)
        first += size
        assert_mean(model, path[:first])


@every_kind
@pytest.mark.parametrize("first", [1, 50, N + 5, N * PASSES])
def test_from_a_number_of_rows_on(kind, first):
    """The iterates after the given number of rows and later; the last pass may be the first."""
    X, y = draw(3)
    model = make("log_loss", 3, learning_rate="constant", average=first, shuffle=False)
    order = np.tile(np.arange(N), PASSES)
    path = replay("log_loss", X, y, 3, order, "constant", "implicit")
    assert_mean(model.fit(kind(X), y), path[first - 1 :])


def test_a_class_that_comes_late_has_the_mean_of_an_output_that_never_learned_it():
    X, y = draw(3)
    y = np.where(np.arange(N) < 60, y % 2, y)
    model = make("log_loss", 3, learning_rate="constant", average=True)
    for rows in (slice(0, 40), slice(40, 80), slice(80, N)):
        model.partial_fit(X[rows], y[rows])
    assert_mean(model, replay("log_loss", X, y, 3, range(N), "constant", "implicit"))


def test_a_mean_of_many_rows_has_all_its_digits():
    """Summed in extended precision: nothing is lost where factors shrink a thousandfold."""
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((20_000, 3)), rng.standard_normal(20_000)
    model = make("squared_error", 0, learning_rate="constant", average=True, shuffle=False)
    model.set_params(max_iter=1, solver__eta0=0.01, alpha=0.05).fit(X, y)
    s = 1.0 / (1.0 + 0.01 * 0.05)
    theta, total = np.zeros(4, dtype=np.longdouble), np.zeros(4, dtype=np.longdouble)
    for x, target in zip(np.hstack([X, np.ones((len(X), 1))]), y, strict=True):
        shrink = np.array([s, s, s, 1.0])
        g = (target - x @ (shrink * theta)) / (1.0 + 0.01 * (x @ (shrink * x)))
        theta = shrink * (theta + 0.01 * g * x)
        total += theta
    found = np.append(model.coef_, model.intercept_)
    np.testing.assert_allclose(found, (total / len(X)).astype(float), rtol=1e-11, atol=1e-14)
