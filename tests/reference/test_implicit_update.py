"""The implicit update of weights and intercept really is the proximal point.

``(w+, b+) = argmin omega loss(y, x^T w + b) + alpha/2 |w|^2 + sum (w - w0)^2 / (2 rates)
+ (b - b0)^2 / (2 k)`` reduces to the scalar step of the loss; here the reduction is checked
on whole vectors, by values, by the gradient and by an optimiser that knows nothing of it.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from tests.reference.plain_losses import EPS, PLAIN, SCALAR

from likelier import losses


def implicit_update(loss, w, b, x, y, omega, rates, k, alpha):
    """Update of weights and intercept by one row, with one rate per coordinate."""
    shrink = 1.0 / (1.0 + rates * alpha)
    m = np.sum(shrink * x * w) + b
    q = np.sum(shrink * rates * x * x) + k
    g = float(loss.prox(y, m, omega * q))
    return shrink * (w + rates * omega * g * x), b + k * omega * g


def scalar_update(loss, w, b, x, y, omega, a, k, alpha):
    """The same with one rate ``a`` and the intercept's rate relative to it."""
    s = 1.0 / (1.0 + a * alpha)
    m = s * x @ w + b
    g = float(loss.prox(y, m, a * omega * (s * x @ x + k)))
    return s * (w + a * omega * g * x), b + k * a * omega * g


def proximal_objective(loss, w, b, start, row, rates, k, alpha):
    w0, b0 = start
    x, y, omega = row
    penalty = 0.5 * alpha * w @ w + np.sum((w - w0) ** 2 / (2.0 * rates)) + (b - b0) ** 2 / (2 * k)
    return omega * float(PLAIN[loss][0](np.float64(y), x @ w + b)) + penalty


def random_row(loss, d, rng):
    y = {
        "binary": lambda: float(rng.choice([-1.0, 1.0])),
        "count": lambda: float(rng.poisson(3.0)),
        "regression": lambda: float(rng.standard_normal()),
    }[loss.task]()
    return rng.standard_normal(d), y, float(rng.choice([0.0, 0.3, 1.0, 7.0]))


@pytest.mark.parametrize("loss", SCALAR, ids=repr)
def test_update_is_the_argmin_over_weights_and_intercept(loss):
    """A strongly convex objective: no direction, small or large, may lead below the update."""
    rng = np.random.default_rng(29)
    for _ in range(60):
        d = int(rng.integers(1, 5))
        row = random_row(loss, d, rng)
        w, b = rng.standard_normal(d), float(rng.standard_normal())
        rates, k = 10.0 ** rng.uniform(-2, 2, d), float(10.0 ** rng.uniform(-2, 2))
        alpha = float(rng.choice([0.0, 0.1, 2.0]))
        best_w, best_b = implicit_update(loss, w, b, *row, rates, k, alpha)
        best = proximal_objective(loss, best_w, best_b, (w, b), row, rates, k, alpha)
        assert best <= proximal_objective(loss, w, b, (w, b), row, rates, k, alpha) + 1e-12
        for _ in range(40):
            step = 10.0 ** rng.uniform(-4, 0) * rng.standard_normal(d + 1)
            other = proximal_objective(
                loss, best_w + step[:d], best_b + step[d], (w, b), row, rates, k, alpha
            )
            assert best <= other + 1e-13 * (1.0 + abs(best))


@pytest.mark.parametrize("loss", SCALAR, ids=repr)
def test_gradient_vanishes_at_the_update(loss):
    """For some slope of the loss at the new score; the step itself says which."""
    rng = np.random.default_rng(30)
    for _ in range(300):
        d = int(rng.integers(1, 6))
        x, y, omega = random_row(loss, d, rng)
        omega = max(omega, 0.1)
        w, b = rng.standard_normal(d), float(rng.standard_normal())
        rates, k = 10.0 ** rng.uniform(-8, 8, d), float(10.0 ** rng.uniform(-8, 8))
        alpha = float(rng.choice([0.0, 0.1, 2.0]))
        new_w, new_b = implicit_update(loss, w, b, x, y, omega, rates, k, alpha)
        shrink = 1.0 / (1.0 + rates * alpha)
        q = np.sum(shrink * rates * x * x) + k
        m = np.sum(shrink * x * w) + b
        slope = (m - (x @ new_w + new_b)) / (omega * q)  # what the new score itself implies
        scale = max(1.0, abs(y), abs(slope))
        # the score of the updated vectors is the one the scalar problem promised
        score_off = 64.0 * EPS * (abs(x) @ (abs(w) + abs(new_w)) + abs(b) + abs(new_b))
        low, high = (
            PLAIN[loss][1](np.float64(y), x @ new_w + new_b + side * (score_off + EPS))
            for side in (-1.0, 1.0)
        )
        slack = 1e-10 * scale + score_off / (omega * q)
        assert low - slack <= slope <= high + slack
        # gradient over w: omega slope x + alpha w + (w - w0) / rates = 0, times the rate
        gradient = rates * (omega * slope * x + alpha * new_w) + (new_w - w)
        size = rates * omega * abs(x) * slack + rates * alpha * abs(new_w) + abs(w) + abs(new_w)
        assert (abs(gradient) <= 1e-9 * size + rates * omega * abs(x) * slack).all()


@pytest.mark.parametrize("loss", SCALAR, ids=repr)
def test_one_rate_is_the_case_of_equal_rates(loss):
    rng = np.random.default_rng(31)
    for _ in range(100):
        row = random_row(loss, 3, rng)
        w, b = rng.standard_normal(3), float(rng.standard_normal())
        a, k = float(10.0 ** rng.uniform(-3, 3)), float(rng.choice([0.0, 1.0, 0.3]))
        one = scalar_update(loss, w, b, *row, a, k, 0.5)
        many = implicit_update(loss, w, b, *row, np.full(3, a), k * a, 0.5)
        np.testing.assert_allclose(one[0], many[0], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(one[1], many[1], rtol=1e-9, atol=1e-12)


def found_by_optimiser(loss, start, row, rates, k, alpha):
    """Minimiser of the proximal objective by BFGS from the origin."""

    def objective(v):
        return proximal_objective(loss, v[:-1], v[-1], start, row, rates, k, alpha)

    origin = np.zeros(len(rates) + 1)
    return minimize(objective, origin, method="BFGS", options={"gtol": 1e-9}).x


def test_numerical_optimiser_finds_the_update_of_a_smooth_loss():
    """An off-the-shelf optimiser, started elsewhere, ends at the same weights."""
    rng = np.random.default_rng(32)
    for loss in (losses.LogLoss(), losses.SquaredError(), losses.Poisson()):
        for _ in range(5):
            row = random_row(loss, 3, rng)
            w, b = rng.standard_normal(3), float(rng.standard_normal())
            rates, k, alpha = 10.0 ** rng.uniform(-1, 1, 3), 0.7, 0.2
            new_w, new_b = implicit_update(loss, w, b, *row, rates, k, alpha)
            found = found_by_optimiser(loss, (w, b), row, rates, k, alpha)
            np.testing.assert_allclose(found, [*new_w, new_b], atol=1e-5)


def coupled_objective(loss, new, start, row, rates, alpha):
    """Proximal objective of a weight matrix and intercepts, one row per class."""
    (V, v), (W, b) = new, start
    x, y, omega = row
    a, k = rates
    f = V @ x + v
    if loss.name == "softmax":
        value = np.logaddexp.reduce(f) - f[y]
    else:
        value = max(0.0, 1.0 + np.delete(f, y).max() - f[y])
    near = ((V - W) ** 2).sum() / (2 * a) + ((v - b) ** 2).sum() / (2 * k * a)
    return omega * value + 0.5 * alpha * (V**2).sum() + near


@pytest.mark.parametrize("loss", [losses.Softmax(), losses.MulticlassHinge()], ids=repr)
def test_coupled_update_is_the_argmin_over_the_weight_matrix(loss):
    rng = np.random.default_rng(33)
    for _ in range(30):
        W, b = rng.standard_normal((4, 3)), rng.standard_normal(4)
        x, y, omega = row = rng.standard_normal(3), int(rng.integers(4)), 2.0
        a, k = rates = float(10.0 ** rng.uniform(-2, 2)), 0.5
        s = 1.0 / (1.0 + a * 0.1)
        g = loss.prox(y, (s * W @ x + b)[None], a * omega * (s * x @ x + k))[0]
        new_W, new_b = s * (W + a * omega * np.outer(g, x)), b + k * a * omega * g
        best = coupled_objective(loss, (new_W, new_b), (W, b), row, rates, 0.1)
        for _ in range(60):
            size = 10.0 ** rng.uniform(-4, 0)
            other = (
                new_W + size * rng.standard_normal(W.shape),
                new_b + size * rng.standard_normal(b.shape),
            )
            moved = coupled_objective(loss, other, (W, b), row, rates, 0.1)
            assert best <= moved + 1e-13 * (1.0 + abs(best))
