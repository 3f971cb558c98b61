"""What natural gradients could gain: the best ``q`` in closed form beside the one Adam found.

With a Gaussian likelihood and a power near zero the energy is minimised over the last layer's
``q`` in closed form, where a natural gradient step of length one on all rows would go: with one
layer given the rows, with more given draws of what comes into the last layer. The difference
bounds what any better way to move this ``q`` can gain once the other parameters are as they are.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
from scipy import linalg

from benchmarks.deepgp.notes import Notes
from benchmarks.kernel.problem import number_split
from likelier import ARD, DeepGPRegressor, PowerEP
from likelier.deep_gp.kernels import JITTER, correlation, half_squares
from likelier.deep_gp.propagation import PosteriorLayer
from likelier.fitting.standardize import Standard

SETS, STEPS, POWER = ("boston", "energy", "winequality-red", "kin8nm"), (200, 500, 2000), 1e-3
LAYERS = (1, 2)
N_DRAWS = 10  # of every row, through the layers below the last


def run(notes: Notes, sets: tuple[str, ...] = SETS) -> None:
    """Fit every set with few and many minibatches."""
    for name in sets:
        for layers in LAYERS:
            for steps in STEPS:
                key = f"{name}/{layers}/{steps}"
                measured = partial(measure, name, layers, steps)
                print(f"{key}: {notes.keep('natural', key, measured)}", flush=True)


def measure(name: str, layers: int, steps: int) -> dict[str, float]:
    """Energy and test log density per row, with the learned ``q`` and with the best one."""
    split = number_split(name, 0)
    words: dict[str, Any] = {"inference": PowerEP(POWER), "max_iter": steps, "random_state": 0}
    words["kernel"] = ARD(length_scales="learned")
    learned = DeepGPRegressor(layers, **words).fit(split.X, split.y)
    best, energies = with_best_q(learned, split.X, split.y)
    out = dict(zip(("energy", "best_energy"), energies, strict=True))
    for label, model in (("density", learned), ("best_density", best)):
        out[label] = float(model.log_predictive_density(split.X_test, split.y_test).mean())
    return out


def last_inputs(model: Any, X: Any) -> Any:
    """Rows that come into the last layer, one after another for every draw."""
    rows = Standard(model.input_mean_, model.input_inverse_).apply(X, np.float64)
    rng = np.random.default_rng(0)
    below = list(zip(model.layers_, model.projections_, strict=True))[:-1]
    if below:
        rows = np.repeat(rows, N_DRAWS, axis=0)
    for plain, projection in below:
        layer = PosteriorLayer.of(plain, projection, model.kernel)
        mean, variance = layer.moments(model.kernel, rows)
        rows = mean + np.sqrt(variance + layer.noise) * rng.standard_normal(mean.shape)
    return rows


def with_best_q(model: Any, X: Any, y: Any) -> tuple[Any, tuple[float, float]]:
    """The same model with the best ``q`` of its last layer; the last layer's energy of both.

    ``S = (I + A A^T / s2)^{-1}``, ``mu = S A y / s2`` with a column of ``A`` for every row and
    draw, each counted as its share of the row. What the layers below are apart from their prior
    is the same for both and is left out.
    """
    layer, rows = model.layers_[-1], last_inputs(model, X)
    n_draws = len(rows) // len(y)
    targets = np.repeat((y - model.target_mean_) / model.target_scale_, n_draws)
    noise = (model.noise_ / model.target_scale_) ** 2
    inverse, log_amplitude = np.exp(-layer["log_scale"][0]), layer["log_amplitude"][0]
    Z = layer["inducing"] * inverse
    K_zz = correlation(np, model.kernel, half_squares(np, Z, Z), log_amplitude)
    K_zz[np.diag_indices(len(Z))] += JITTER * np.exp(log_amplitude)
    K_zx = correlation(np, model.kernel, half_squares(np, Z, rows * inverse), log_amplitude)
    A = linalg.solve_triangular(np.linalg.cholesky(K_zz), K_zx, lower=True)
    root = layer["root"][0]
    T = np.tril(root, -1) + np.diag(np.exp(np.diagonal(root)))
    S = np.linalg.inv(np.eye(len(Z)) + A @ A.T / (n_draws * noise))
    mu, amplitude = S @ A @ targets / (n_draws * noise), float(np.exp(log_amplitude))

    def energy(mean: Any, covariance: Any) -> float:
        """Minus the variational bound, per row."""
        variance = amplitude - (A * A).sum(0) + (A * (covariance @ A)).sum(0)
        told = -0.5 * (
            np.log(2.0 * np.pi * noise) + ((targets - A.T @ mean) ** 2 + variance) / noise
        )
        apart = 0.5 * (np.trace(covariance) + mean @ mean - len(mean)
                       - np.linalg.slogdet(covariance)[1])  # fmt: skip
        return float((apart - told.sum() / n_draws) / len(y))

    best = copy.deepcopy(model)
    factor = np.linalg.cholesky(S)
    kept = np.tril(factor, -1) + np.diag(np.log(np.diagonal(factor)))
    best.layers_ = [*model.layers_[:-1], {**layer, "mean": mu[None], "root": kept[None]}]
    return best, (energy(layer["mean"][0], T @ T.T), energy(mu, S))
