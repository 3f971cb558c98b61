"""The losses once more, as plain NumPy formulas that share nothing with the library."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from likelier import losses

EPS = np.finfo(float).eps


def exp(x):
    with np.errstate(over="ignore"):  # bisection looks far out, where infinity is the answer
        return np.exp(x)


# Value and derivative of each loss, written from their definitions.
PLAIN = {
    losses.LogLoss(): (
        lambda y, f: np.logaddexp(0.0, -y * f),
        lambda y, f: -y * expit(-y * f),
    ),
    losses.Hinge(): (
        lambda y, f: np.maximum(0.0, 1.0 - y * f),
        lambda y, f: np.where(y * f < 1.0, -y, 0.0),
    ),
    losses.SquaredHinge(): (
        lambda y, f: np.maximum(0.0, 1.0 - y * f) ** 2,
        lambda y, f: np.where(y * f < 1.0, -2.0 * y * (1.0 - y * f), 0.0),
    ),
    losses.ModifiedHuber(): (
        lambda y, f: np.where(y * f >= -1.0, np.maximum(0.0, 1.0 - y * f) ** 2, -4.0 * y * f),
        lambda y, f: np.where(y * f >= -1.0, -2.0 * y * np.maximum(0.0, 1.0 - y * f), -4.0 * y),
    ),
    losses.SquaredError(): (
        lambda y, f: (y - f) ** 2 / 2.0,
        lambda y, f: f - y,
    ),
    losses.Squared(): (
        lambda y, f: (y - f) ** 2,
        lambda y, f: 2.0 * (f - y),
    ),
    losses.Huber(delta=0.7): (
        lambda y, f: np.where(
            abs(y - f) <= 0.7, (y - f) ** 2 / 2.0, 0.7 * abs(y - f) - 0.7**2 / 2.0
        ),
        lambda y, f: np.where(abs(y - f) <= 0.7, f - y, 0.7 * np.sign(f - y)),
    ),
    losses.EpsilonInsensitive(epsilon=0.3): (
        lambda y, f: np.maximum(0.0, abs(y - f) - 0.3),
        lambda y, f: np.where(abs(y - f) > 0.3, np.sign(f - y), 0.0),
    ),
    losses.EpsilonInsensitive(epsilon=0.0): (
        lambda y, f: abs(y - f),
        lambda y, f: np.sign(f - y),
    ),
    losses.SquaredEpsilonInsensitive(epsilon=0.3): (
        lambda y, f: np.maximum(0.0, abs(y - f) - 0.3) ** 2,
        lambda y, f: 2.0 * np.sign(f - y) * np.maximum(0.0, abs(y - f) - 0.3),
    ),
    losses.Quantile(tau=0.9): (
        lambda y, f: np.maximum(0.9 * (y - f), -0.1 * (y - f)),
        lambda y, f: np.where(f > y, 0.1, np.where(f < y, -0.9, 0.0)),
    ),
    losses.Poisson(): (
        lambda y, f: exp(f) - y * f,
        lambda y, f: exp(f) - y,
    ),
}
SCALAR = sorted(PLAIN, key=repr)

# Where each loss has a kink (of itself or of its derivative): target and parameter to scores.
KINKS = {
    "hinge": lambda y: [y],
    "squared_hinge": lambda y: [y],
    "modified_huber": lambda y: [y, -y],
    "huber": lambda y, delta: [y - delta, y + delta],
    "epsilon_insensitive": lambda y, epsilon: [y - epsilon, y + epsilon],
    "squared_epsilon_insensitive": lambda y, epsilon: [y - epsilon, y + epsilon],
    "quantile": lambda y, tau: [y],
}


def kinks(loss, y):
    """Scores at which the loss or its derivative has a kink."""
    return KINKS[loss.name](y, *loss.get_params().values()) if loss.name in KINKS else []


def rounding(y, m, c, g):
    """How far the score ``m + c g`` may be off by rounding alone."""
    return 8.0 * EPS * (1.0 + abs(y) + abs(m) + abs(c * g))
