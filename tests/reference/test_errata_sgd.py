"""Errors of the document on explicit and implicit SGD, each as a test.

Every test writes the document's formula down as printed, shows a case in which it fails, and
shows that what the library does instead is right in that case.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from likelier import losses


def implicit_update(loss, w, b, x, y, omega, a, k, alpha):
    """The corrected implicit step: shrinkage, weight and intercept included."""
    s = 1.0 / (1.0 + a * alpha)
    g = float(loss.prox(y, s * x @ w + b, a * omega * (s * x @ x + k)))
    return s * (w + a * omega * g * x), b + k * a * omega * g


def derivative_by_difference(value, f, h=1e-6):
    return (value(f + h) - value(f - h)) / (2.0 * h)


# -- (a) the sign inside the losses --------------------------------------------------------


@pytest.mark.parametrize("name", ["log_loss", "hinge", "squared"])
def test_a_sign_of_the_score_inside_a_loss_has_no_derivative(name):
    """With the sign inside, the printed objective is flat and its printed gradient wrong."""
    loss = losses.make_loss(name)
    y, f = 1.0, -0.4

    def printed(f):
        return float(loss.value(y, np.sign(f)))

    ours = float(loss.derivative(y, f))
    assert ours != 0.0
    assert derivative_by_difference(printed, f) == 0.0
    assert derivative_by_difference(lambda f: float(loss.value(y, f)), f) == pytest.approx(ours)


def test_a_sign_of_the_score_cannot_fit_a_number():
    loss = losses.Squared()
    scores = np.linspace(-10.0, 10.0, 2001)
    assert loss.value(3.0, np.sign(scores)).min() == 4.0
    assert loss.value(3.0, scores).min() == pytest.approx(0.0, abs=1e-20)
    assert scores[loss.value(3.0, scores).argmin()] == pytest.approx(3.0)


# -- (b) the penalty against the sum -------------------------------------------------------


def test_b_penalty_belongs_to_the_mean_loss():
    """Where the document's objective is least, its own steps do not average to zero."""
    rng = np.random.default_rng(0)
    n, alpha, loss = 40, 0.5, losses.LogLoss()
    X = rng.standard_normal((n, 3))
    y = np.where(X @ [1.0, -2.0, 0.5] + rng.standard_normal(n) > 0.0, 1.0, -1.0)

    def minimiser(scale):  # of scale * sum of losses + alpha/2 |w|^2
        def objective(w):
            f = X @ w
            value = scale * loss.value(y, f).sum() + 0.5 * alpha * w @ w
            return value, scale * X.T @ loss.derivative(y, f) + alpha * w

        return minimize(objective, np.zeros(3), jac=True, options={"gtol": 1e-10}).x

    def mean_step(w):  # of the printed update (5): the full penalty at every step
        return np.mean(X * loss.derivative(y, X @ w)[:, None] + alpha * w, axis=0)

    printed, ours = minimiser(1.0), minimiser(1.0 / n)
    assert np.linalg.norm(mean_step(printed)) > 0.1
    assert np.linalg.norm(mean_step(ours)) < 1e-8
    # charged at every row, the penalty of the sum is n times too strong
    assert np.linalg.norm(printed) > 2.0 * np.linalg.norm(ours)


# -- (c) the implicit log-loss step, left unsolved ------------------------------------------


def printed_log_step(theta, start, x, y, a, alpha):
    """Right-hand side of the printed equation, which has the unknown on both sides."""
    return start - a * (-y / (np.exp(y * x @ theta) + 1.0) * x + alpha * theta)


@pytest.mark.parametrize("a", [1.0, 10.0, 1e3])
def test_c_implicit_log_step_is_a_root_not_an_assignment(a):
    start, x, y, alpha = np.array([-1.0, 0.5]), np.array([1.5, 2.0]), 1.0, 0.1
    update, _ = implicit_update(losses.LogLoss(), start, 0.0, x, y, 1.0, a, 0.0, alpha)
    np.testing.assert_allclose(
        update, printed_log_step(update, start, x, y, a, alpha), rtol=1e-10, atol=1e-12
    )
    # evaluated once it is the explicit step, which is not the solution
    explicit = printed_log_step(start, start, x, y, a, alpha)
    assert np.linalg.norm(explicit - update) > 0.1
    # and repeated it does not get there
    theta = start
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(200):
            theta = printed_log_step(theta, start, x, y, a, alpha)
    assert not np.linalg.norm(theta - update) < 0.1


def test_c_root_lies_in_its_bracket():
    rng = np.random.default_rng(1)
    z, c = 5.0 * rng.standard_normal(10_000), 10.0 ** rng.uniform(-8, 8, 10_000)
    u = z + c * losses.LogLoss().prox(1.0, z, c)
    slack = 1e-13 * (1.0 + abs(z) + c * expit(-z))
    assert (u >= z + c * expit(-z) / (1.0 + c / 4.0) - slack).all()
    assert (u <= z + c * expit(-z) + slack).all()


# -- (d) the implicit hinge step ------------------------------------------------------------


def printed_hinge_steps(theta, x, y, a, alpha):
    """Both printed cases, each kept only if its own assumption holds after the step."""
    s = 1.0 / (1.0 + alpha * a)
    safe, violating = s * theta, s * (theta + a * y * x)
    kept = [safe] if 1.0 - y * x @ safe < 0.0 else []
    return kept + ([violating] if 1.0 - y * x @ violating >= 0.0 else [])


def hinge_objective(w, theta, x, y, a, alpha):
    return max(0.0, 1.0 - y * x @ w) + 0.5 * alpha * w @ w + ((w - theta) ** 2).sum() / (2.0 * a)


def test_d_neither_printed_case_holds_near_the_margin():
    theta, x, y, a = np.array([0.5, 0.0]), np.array([1.0, 1.0]), 1.0, 2.0  # z = 0.5, c = 4
    assert printed_hinge_steps(theta, x, y, a, 0.0) == []
    ours, _ = implicit_update(losses.Hinge(), theta, 0.0, x, y, 1.0, a, 0.0, 0.0)
    assert y * x @ ours == pytest.approx(1.0)
    np.testing.assert_allclose(ours, [0.75, 0.25])
    best = hinge_objective(ours, theta, x, y, a, 0.0)
    for fallback in (theta, theta + a * y * x):  # "the other update function should be used"
        assert hinge_objective(fallback, theta, x, y, a, 0.0) > best + 0.1


def test_d_clipped_step_agrees_wherever_a_printed_case_holds():
    rng = np.random.default_rng(2)
    missed = 0
    for _ in range(2000):
        theta, x, y = rng.standard_normal(3), rng.standard_normal(3), rng.choice([-1.0, 1.0])
        a, alpha = 10.0 ** rng.uniform(-2, 1), rng.choice([0.0, 0.1])
        ours, _ = implicit_update(losses.Hinge(), theta, 0.0, x, y, 1.0, a, 0.0, alpha)
        kept = printed_hinge_steps(theta, x, y, a, alpha)
        assert len(kept) <= 1
        if kept:
            np.testing.assert_allclose(ours, kept[0], rtol=1e-9, atol=1e-12)
        else:
            missed += 1
            assert y * x @ ours == pytest.approx(1.0, abs=1e-9)
    assert missed > 100  # the case the document misses is a common one


# -- (e) the implicit squared step -----------------------------------------------------------


def printed_squared_step(theta, x, y, a, alpha):
    eye = np.eye(len(x))
    return np.linalg.solve((1.0 + a * alpha) * eye + 2.0 * a * (x @ x) * eye, theta + 2 * a * y * x)


def test_e_counterexample():
    theta, x = np.array([1.0, 1.0]), np.array([1.0, 0.0])
    ours, _ = implicit_update(losses.Squared(), theta, 0.0, x, 1.0, 1.0, 1.0, 0.0, 0.0)
    np.testing.assert_allclose(ours, [1.0, 1.0])  # already right: nothing to do
    np.testing.assert_allclose(printed_squared_step(theta, x, 1.0, 1.0, 0.0), [1.0, 1.0 / 3.0])


def test_e_matrix_is_rank_one():
    """Ours solves ``((1 + a alpha) I + 2 a x x^T) theta = theta_t + 2 a y x``."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        theta, x, y = rng.standard_normal(4), rng.standard_normal(4), rng.standard_normal()
        a, alpha = 10.0 ** rng.uniform(-3, 3), rng.choice([0.0, 0.3])
        right = np.linalg.solve(
            (1.0 + a * alpha) * np.eye(4) + 2.0 * a * np.outer(x, x), theta + 2.0 * a * y * x
        )
        ours, _ = implicit_update(losses.Squared(), theta, 0.0, x, y, 1.0, a, 0.0, alpha)
        np.testing.assert_allclose(ours, right, rtol=1e-8, atol=1e-10)
        # the printed matrix moves even the part of theta at right angles to x
        printed = printed_squared_step(theta, x, y, a, alpha)
        aside = theta - (theta @ x) / (x @ x) * x
        assert printed @ aside < ours @ aside


# -- (f) intercept, weights, schedule and averaging ------------------------------------------


def test_f_without_intercept_a_shift_cannot_be_learned():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((500, 2))
    y = X @ [1.0, -1.0] + 10.0
    errors = {}
    for k in (0.0, 1.0):
        w, b = np.zeros(2), 0.0
        for _ in range(4):
            for xi, yi in zip(X, y, strict=True):
                w, b = implicit_update(losses.SquaredError(), w, b, xi, yi, 1.0, 0.3, k, 0.0)
        errors[k] = np.mean((y - X @ w - b) ** 2)
    assert errors[0.0] > 50.0
    assert errors[1.0] < 1e-6


def test_f_a_weight_is_part_of_the_proximal_problem():
    """Weight zero is absence; weight two is neither two steps nor a doubled step."""
    loss, x, w = losses.Squared(), np.array([1.0, 2.0]), np.array([0.5, -0.5])
    args = (x, 3.0)
    absent, b = implicit_update(loss, w, 0.2, *args, 0.0, 0.7, 1.0, 0.4)
    np.testing.assert_allclose(absent, w / (1.0 + 0.7 * 0.4))  # only the penalty acts
    assert b == 0.2

    def objective(w_new, omega):
        return omega * (3.0 - x @ w_new) ** 2 + ((w_new - w) ** 2).sum() / (2.0 * 0.7)

    double, _ = implicit_update(loss, w, 0.0, *args, 2.0, 0.7, 0.0, 0.0)
    once, _ = implicit_update(loss, w, 0.0, *args, 1.0, 0.7, 0.0, 0.0)
    twice, _ = implicit_update(loss, once, 0.0, *args, 1.0, 0.7, 0.0, 0.0)
    for other in (twice, w + 2.0 * (once - w)):
        assert objective(double, 2.0) < objective(other, 2.0) - 1e-3


def test_f_a_constant_rate_never_settles_and_an_average_does():
    """Failure rate far below 1e-6: the gap is two orders of magnitude over 200 chains."""
    rng = np.random.default_rng(5)
    loss, n = losses.SquaredError(), 4000
    y = 2.0 + rng.standard_normal((200, n))  # the optimum is the mean, 2
    constant, total, scheduled = np.zeros(200), np.zeros(200), np.zeros(200)
    for t in range(n):
        constant += 0.5 * loss.prox(y[:, t], constant, 0.5)
        total += constant * (t >= n // 2)
        a = 1.0 / (1.0 + t)
        scheduled += a * loss.prox(y[:, t], scheduled, a)
    last, averaged, tuned = (
        np.mean((w - 2.0) ** 2) for w in (constant, total / (n - n // 2), scheduled)
    )
    assert last > 0.05
    assert averaged < 0.05 * last
    assert tuned < 0.05 * last
