"""Small posteriors of linear classifiers, and their moments by brute force."""

from __future__ import annotations

import numpy as np
from scipy.special import log_expit, log_softmax

from likelier.bayesian_linear.model import BayesianLinear, Coordinates, Prior
from likelier.engines import LocalEngine
from likelier.glm.model import LinearModel
from likelier.glm.penalty import ElasticNet
from likelier.losses import make_loss


def make_model(d, loss="log_loss", precision=1.0, mean=0.0, fit_intercept=False, learned=False,
               n_classes=2):  # fmt: skip
    """A model in plain coordinates: standard and raw parameters are the same."""
    joint = n_classes > 2
    outputs, p = (n_classes if joint else 1), d + int(fit_intercept)
    none = np.zeros(p)
    linear = LinearModel(
        make_loss("softmax" if joint else loss), d, outputs, True, fit_intercept,
        ElasticNet(none, none),
    )  # fmt: skip
    coordinates = Coordinates(np.ones(d), np.zeros(d), None, fit_intercept)
    weights = np.tile(np.append(np.ones(d), [0.0] * int(fit_intercept)), outputs)
    ends = np.tile(np.append(np.zeros(d), [0.01] * int(fit_intercept)), outputs)
    prior = Prior(
        mean * weights, ends if learned else ends + precision * weights,
        weights if learned else 0.0 * weights, 2.0, 0.2,
    )  # fmt: skip
    return BayesianLinear(linear, 1, coordinates, prior)


def small_rows(n, d, seed=0, n_classes=2, slope=1.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    scores = slope * X @ rng.standard_normal((d, n_classes))
    y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    return X, y.astype(float)


def engine_for(X, y, weight=None, seed=0, block_rows=None):
    return LocalEngine(X, y, weight, seed=seed, block_rows=block_rows)


def log_likelihood(kind, X, y, theta, weight=None):
    """Of parameters (S, d), or (S, K, d) for "softmax"; written from the formulas."""
    omega = np.ones(len(X)) if weight is None else weight
    if kind == "softmax":
        logs = log_softmax(np.einsum("nd,skd->snk", X, theta), axis=2)
        return logs[:, np.arange(len(X)), y.astype(int)] @ omega
    z = np.where(y == 1, 1.0, -1.0) * (theta @ X.T)
    each = log_expit(z) if kind == "log_loss" else -2.0 * np.maximum(1.0 - z, 0.0)
    return each @ omega


def grid_moments(kind, X, y, precision=1.0, mean=0.0, weight=None, reach=6.0, n=301):
    """Mean and standard deviations of a posterior of two weights, on a grid around its bulk."""
    low, high = np.full(2, -reach), np.full(2, reach)
    for _ in range(2):  # the second grid covers what the first one found
        axes = [np.linspace(low[j], high[j], n) for j in range(2)]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        value = log_likelihood(kind, X, y, points, weight)
        value = value - 0.5 * precision * ((points - mean) ** 2).sum(axis=1)
        share = np.exp(value - value.max())
        share /= share.sum()
        centre = share @ points
        spread = np.sqrt(share @ (points - centre) ** 2)
        low, high = centre - 7.0 * spread, centre + 7.0 * spread
    return centre, spread
