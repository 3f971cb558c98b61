"""Compiled stochastic passes replayed row by row in plain Python, from the formulas.

With ``s = 1 / (1 + a alpha)``: ``m = s x^T w + b``, ``c = a omega (s |x|^2 + k)``,
``g = -loss'(m + c g)``, ``w <- s (w + a omega g x)``, ``b <- b + k a omega g``; explicitly,
``w <- (1 - a alpha) w - a omega loss'(x^T w + b) x``.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from likelier import losses
from likelier.base import Batch
from likelier.glm.loops.sgd import adaptive_pass, apply_pending
from likelier.glm.model import LinearModel
from likelier.glm.penalty import ElasticNet
from likelier.glm.sgd import NEVER, ScheduledSGD
from likelier.loops.rows import as_rows

ALL = [cls() for cls in losses.LOSSES.values()]
every_loss = pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.name)
every_kind = pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
every_update = pytest.mark.parametrize("implicit", [True, False], ids=["implicit", "explicit"])


def draw(loss, n=50, d=5, seed=0):
    """Rows with zeros (and one empty row), targets, weights with zeros, number of outputs."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.6)
    X[3] = 0.0
    weight = rng.choice([0.0, 0.5, 1.0, 3.0], n)
    if loss.task in ("binary", "multiclass"):
        return X, rng.integers(0, 3, n).astype(float), weight, 3
    y = rng.poisson(2.0, n) if loss.task == "count" else rng.standard_normal(n)
    return X, y.astype(float), weight, 1


def with_one_output(data):
    """Two classes with one output, the form the single-score loop is written for."""
    X, y, weight, _ = data
    return X, np.minimum(y, 1.0), weight, 1


def make_model(loss, d, K, fit_intercept, alpha):
    l2 = np.append(np.full(d, alpha), [0.0] * int(fit_intercept))
    classes = loss.task in ("binary", "multiclass")
    return LinearModel(loss, d, K, classes, fit_intercept, ElasticNet(l2, 0.0 * l2))


def targets(loss, y, K):
    """Targets of each output for one row."""
    if loss.task == "binary":
        return np.where(np.arange(K) == y, 1.0, -1.0)
    return np.full(K, y)


def direction(loss, y, m, c, implicit):
    """``g`` of every output of one row."""
    if loss.coupled:
        row = m[None]
        return loss.prox(int(y), row, c[0])[0] if implicit else -loss.derivative(int(y), row)[0]
    t = targets(loss, y, len(m))
    return loss.prox(t, m, c) if implicit else -loss.derivative(t, m)


def replay(loss, data, order, rate, alpha, k, implicit):
    """One pass in plain Python; every weight matrix and intercept it went through."""
    X, y, weight, K = data
    W, b, path = np.zeros((X.shape[1], K)), np.zeros(K), []
    for t, i in enumerate(order, start=1):
        x, omega, a = X[i], weight[i], rate(t)
        s = 1.0 / (1.0 + a * alpha) if implicit else 1.0
        m = s * (x @ W) + b
        c = np.full(K, a * omega * (s * (x @ x) + k))
        g = direction(loss, y[i], m, c, implicit)
        if implicit:
            W = s * (W + a * omega * np.outer(x, g))
        else:
            W = (1.0 - a * alpha) * W + a * omega * np.outer(x, g)
        b = b + k * a * omega * g
        path.append((W, b))
    return path


def run(sgd, loss, data, order, kind, fit_intercept, alpha):
    X, y, weight, K = data
    state = sgd.start(make_model(loss, X.shape[1], K, fit_intercept, alpha))
    sgd.learn(state, Batch(kind(X), y, weight, rows=order))
    if isinstance(sgd, ScheduledSGD):
        state.fold()
    return state


def assert_same(state, W, b, rtol=1e-10):
    d = state.model.n_features
    scale = max(1.0, abs(W).max())
    np.testing.assert_allclose(state.weights.reshape(d, -1), W, rtol=rtol, atol=1e-10 * scale)
    np.testing.assert_allclose(state.intercept, b, rtol=rtol, atol=1e-10 * scale)


# -- one rate for all coordinates -------------------------------------------------------------


@every_loss
@every_kind
@every_update
@pytest.mark.parametrize("fit_intercept", [False, True], ids=["origin", "intercept"])
def test_scheduled_pass_is_the_formula_row_by_row(loss, kind, implicit, fit_intercept):
    order = np.random.default_rng(1).permutation(50)
    sgd = ScheduledSGD(0.05, 0.0, implicit, NEVER)
    forms = [draw(loss)] + ([with_one_output(draw(loss))] if loss.task == "binary" else [])
    for data in forms:
        state = run(sgd, loss, data, order, kind, fit_intercept, alpha=0.3)
        path = replay(loss, data, order, lambda t: 0.05, 0.3, float(fit_intercept), implicit)
        assert_same(state, *path[-1])
        assert np.any(state.weights != 0.0)


@pytest.mark.parametrize("loss", [losses.LogLoss(), losses.Softmax(), losses.Quantile()], ids=repr)
@every_kind
@every_update
def test_falling_rate(loss, kind, implicit):
    data = draw(loss)
    order = np.arange(len(data[1]))
    sgd = ScheduledSGD(0.7, 0.5, implicit, NEVER)
    state = run(sgd, loss, data, order, kind, True, alpha=0.01)
    path = replay(loss, data, order, lambda t: 0.7 / np.sqrt(t), 0.01, 1.0, implicit)
    assert_same(state, *path[-1])


def assert_mean(state, path, first, rtol=1e-10):
    """The parameters are the mean of the iterates from step ``first`` on (the first is step 1)."""
    taken = path[max(first, 1) - 1 :]
    W, b = (np.mean([step[part] for step in taken], axis=0) for part in (0, 1))
    assert state.counters.tolist() == [len(path), len(taken)]
    np.testing.assert_allclose(state.theta(), np.vstack([W, b]), rtol=rtol, atol=1e-12)


@every_loss
@every_kind
@every_update
@pytest.mark.parametrize("power", [0.0, 0.5], ids=["constant", "falling"])
@pytest.mark.parametrize("first", [0, 1, 20])
def test_average_is_the_mean_of_all_iterates(loss, kind, implicit, power, first):
    order = np.random.default_rng(1).permutation(50)
    sgd = ScheduledSGD(0.05, power, implicit, first)
    forms = [draw(loss)] + ([with_one_output(draw(loss))] if loss.task == "binary" else [])
    for data in forms:
        path = replay(loss, data, order, lambda t: 0.05 / t**power, 0.3, 1.0, implicit)
        assert_mean(run(sgd, loss, data, order, kind, True, 0.3), path, first)


@pytest.mark.parametrize("loss", [losses.Hinge(), losses.SquaredError()], ids=repr)
@every_kind
@pytest.mark.parametrize("alpha", [0.0, 1.0, 10.0, 1e3, 1e8, 1e200, 1e307])
def test_a_mean_keeps_its_digits_as_the_weights_are_shrunk(loss, kind, alpha):
    """From hardly at all to nothing left of them in one step; several calls go on summing."""
    data, order = draw(loss, n=400), np.arange(400)
    X, y, weight, K = data
    sgd = ScheduledSGD(0.1, 0.0, True, 7)
    state = sgd.start(make_model(loss, X.shape[1], K, True, alpha))
    for part in np.array_split(order, 3):
        sgd.learn(state, Batch(kind(X), y, weight, rows=part))
        state.theta()
    path = replay(loss, data, order, lambda t: 0.1, alpha, 1.0, True)
    assert_mean(state, path, 7)


@pytest.mark.parametrize("alpha", [5.0, 10.0, 15.0, 20.0, 30.0])
def test_a_mean_of_explicit_steps_onto_zero_and_beyond(alpha):
    """``1 - eta0 alpha`` is .5, 0, -.5, -1 and, where the weights grow without bound, -2."""
    loss, order = losses.Hinge(), np.arange(50)
    for data in (draw(loss), with_one_output(draw(loss))):
        path = replay(loss, data, order, lambda t: 0.1, alpha, 1.0, False)
        state = run(ScheduledSGD(0.1, 0.0, False, 3), loss, data, order, np.asarray, True, alpha)
        assert_mean(state, path, 3)


@pytest.mark.parametrize("alpha", [1e3, 1e8, 1e90, 1e200, 1e307])
@every_kind
def test_scale_that_underflows_is_folded_in_time(alpha, kind):
    """Each implicit step shrinks the weights by ``1 / (1 + eta0 alpha)``."""
    loss = losses.SquaredError()
    data = draw(loss, n=300)
    order = np.arange(300)
    state = run(ScheduledSGD(1e3, 0.0, True, NEVER), loss, data, order, kind, True, alpha)
    path = replay(loss, data, order, lambda t: 1e3, alpha, 1.0, True)
    assert np.isfinite(state.weights).all()
    W, b = path[-1]
    np.testing.assert_allclose(state.weights[:, None], W, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(state.intercept, b, rtol=1e-9)


@pytest.mark.parametrize("alpha", [10.0, 15.0, 20.0])
def test_explicit_shrinkage_that_lands_on_zero_or_beyond(alpha):
    """``1 - eta0 alpha`` is zero, then negative: the lazy scale changes its sign."""
    loss = losses.Hinge()
    order, sgd = np.arange(50), ScheduledSGD(0.1, 0.0, False, NEVER)
    for data in (draw(loss), with_one_output(draw(loss))):
        state = run(sgd, loss, data, order, np.asarray, True, alpha)
        assert_same(state, *replay(loss, data, order, lambda t: 0.1, alpha, 1.0, False)[-1])


@every_loss
def test_a_row_of_weight_zero_is_only_shrinkage(loss):
    """``omega = 0``: nothing moves but the penalty."""
    X, y, weight, K = draw(loss)
    order = np.arange(len(y))
    with_penalty = run(
        ScheduledSGD(0.1, 0.0, True), loss, (X, y, 0.0 * weight, K), order, np.asarray, True, 0.0
    )
    assert not with_penalty.weights.any()
    assert not with_penalty.intercept.any()


def test_float32_rows_are_computed_in_double_precision():
    loss = losses.LogLoss()
    X, y, weight, K = draw(loss)
    X32 = X.astype(np.float32)
    order = np.arange(len(y))
    for kind in (np.asarray, sparse.csr_array):
        one = run(ScheduledSGD(0.1), loss, (X32, y, weight, K), order, kind, True, 0.1)
        two = run(
            ScheduledSGD(0.1), loss, (X32.astype(float), y, weight, K), order, kind, True, 0.1
        )
        np.testing.assert_allclose(one.weights, two.weights, rtol=1e-12)


# -- a rate for every coordinate --------------------------------------------------------------


def replay_adaptive(loss, data, order, rates, etas, l2, l1, k, implicit, apply_now):
    """Penalties are owed until a coordinate is met again, then paid in one implicit step.

    That of the present step is part of the proximal point, unless it has a kink.
    """
    X, y, weight, K = data
    n_scores = K * len(etas)
    eta = np.repeat(etas, K)
    W, b = np.zeros((X.shape[1], n_scores)), np.zeros(n_scores)
    seen, now, met = np.zeros(X.shape[1]), 0.0, np.zeros(len(etas))

    def pay(j):
        tau = eta * rates[j] * (now - seen[j])
        seen[j] = now
        return np.sign(W[j]) * np.maximum(abs(W[j]) - tau * l1[j], 0.0) / (1.0 + tau * l2[j])

    for i in order:
        x, omega = X[i], weight[i]
        now += 1.0
        s = np.ones_like(W)
        if apply_now:
            for j in np.flatnonzero(x):
                if implicit and l1[j] == 0.0:
                    s[j] = 1.0 / (1.0 + eta * rates[j] * l2[j])
                    now -= 1.0
                    W[j] = pay(j)
                    now += 1.0
                    seen[j] = now
                else:
                    W[j] = pay(j)
        m = x @ (s * W) + b
        q = eta * ((rates * x * x) @ s + k)
        g = np.empty(n_scores)
        for group in range(len(etas)):
            here = slice(group * K, (group + 1) * K)
            g[here] = direction(loss, y[i], m[here], omega * q[here], implicit)
            met[group] += omega * value(loss, y[i], m[here])
        W = s * (W + np.outer(rates * x, eta * omega * g))
        b = b + k * eta * omega * g
    for j in range(X.shape[1]):
        W[j] = pay(j)
    return W, b, met


def value(loss, y, m):
    if loss.coupled:
        return float(loss.value(int(y), m[None])[0])
    return float(loss.value(targets(loss, y, len(m)), m).sum())


@every_loss
@every_kind
@every_update
@pytest.mark.parametrize("apply_now", [True, False], ids=["at_once", "at_the_end"])
@pytest.mark.parametrize("one_rate", [True, False], ids=["one_rate", "several_rates"])
def test_adaptive_pass_is_the_formula_row_by_row(loss, kind, implicit, apply_now, one_rate):
    data = draw(loss)
    X, y, weight, K = data
    rng = np.random.default_rng(2)
    rates, etas = 10.0 ** rng.uniform(-3, 0, X.shape[1]), np.array([0.02, 0.1, 0.4])
    l2, l1 = rng.uniform(0, 0.1, X.shape[1]), rng.uniform(0, 0.02, X.shape[1])
    l1[::2] = 0.0
    if one_rate:  # and no kink: all outputs share coefficients
        etas, l1 = etas[1:2], np.zeros_like(l1)
    order = rng.permutation(len(y))
    n_scores = K * len(etas)
    W, b, met = np.zeros(X.shape[1] * n_scores), np.zeros(n_scores), np.zeros(len(etas))
    seen, elapsed, counters = np.zeros(X.shape[1]), np.zeros(1), np.zeros(2, dtype=np.int64)
    score_etas = np.repeat(etas, K)
    view = as_rows(kind(X))
    adaptive_pass(
        *view, order, y, weight, loss.code, loss.parameters, loss.coupled or None, implicit,
        loss.task in ("binary", "multiclass"), K, W, b, score_etas, rates, seen, elapsed,
        l2, l1, apply_now, 0.0, 0.05, counters, met,
    )  # fmt: skip
    apply_pending(W, n_scores, score_etas, rates, seen, elapsed, l2, l1)
    expected = replay_adaptive(loss, data, order, rates, etas, l2, l1, 0.05, implicit, apply_now)
    np.testing.assert_allclose(W.reshape(-1, n_scores), expected[0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(b, expected[1], rtol=1e-10, atol=1e-12)
    if n_scores > 1 or apply_now:  # a single output only estimates its loss
        np.testing.assert_allclose(met, expected[2], rtol=1e-10)
    assert counters[0] == len(y)
    assert elapsed[0] == len(y)
    assert (seen == len(y)).all()


def test_a_step_with_rates_of_its_own_is_the_joint_proximal_point():
    """Loss and penalty at once; paying the penalty first and then stepping is not the minimum."""
    rng = np.random.default_rng(5)
    x, w, rates = rng.standard_normal(3), rng.standard_normal(3), np.array([0.5, 2.0, 7.0])
    l2, k, eta, omega, y = np.array([0.3, 1.0, 0.1]), 0.4, 1.5, 1.3, 0.7
    loss = losses.SquaredError()
    W, b = w.copy(), np.array([0.2])
    adaptive_pass(
        *as_rows(x[None]), np.zeros(1, dtype=np.int64), np.array([y]), np.array([omega]),
        loss.code, loss.parameters, None, True, False, 1, W, b, np.array([eta]), rates,
        np.zeros(3), np.zeros(1), l2, np.zeros(3), True, 0.0, k, np.zeros(2, dtype=np.int64),
        np.zeros(1),
    )  # fmt: skip

    def gradient(theta):
        residual = omega * (x @ theta[:3] + theta[3] - y)
        near = (theta[:3] - w) / (eta * rates)
        return np.append(
            residual * x + l2 * theta[:3] + near, residual + (theta[3] - 0.2) / (eta * k)
        )

    np.testing.assert_allclose(gradient(np.append(W, b)), 0.0, atol=1e-12)
    split = w / (1.0 + eta * rates * l2)  # the penalty first, then the loss alone
    c = omega * eta * ((rates * x * x).sum() + k)
    g = (y - x @ split - 0.2) / (1.0 + c)
    split = np.append(split + eta * rates * omega * g * x, 0.2 + k * eta * omega * g)
    assert abs(gradient(split)).max() > 0.1
