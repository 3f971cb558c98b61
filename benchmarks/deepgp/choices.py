"""What rows held out choose, on problems whose truth is known: the power, and the kernel.

Every problem is drawn anew for every seed. What is given is the loss against the true chances or
densities, so zero is the best that any method could do.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from benchmarks.deepgp.notes import Notes
from likelier import ARD, DeepGPClassifier, DeepGPRegressor, PowerEP
from likelier.base import Array

N_TEST, COVERAGE = 4000, 0.9
DTYPE = "float32"
POWERS: dict[str, Any] = {"power 0.5": 0.5, "power 1": 1.0, "auto": "auto"}
SCALES = ("long", "learned", "auto")


# mean of a target, and the scale of its noise, which has so many degrees of freedom
NUMBERS: dict[str, tuple[int, int, Callable[[Array], tuple[Array, Array]], float]] = {
    "mostly noise, 3,200 rows": (3200, 4, lambda X: (0.5 * X[:, 0], np.ones(len(X))), np.inf),
    "mostly noise, 10,000 rows": (10_000, 4, lambda X: (0.5 * X[:, 0], np.ones(len(X))), np.inf),
    "noisy wave": (5000, 6, lambda X: (np.sin(2.0 * X[:, 0]), np.full(len(X), 0.7)), np.inf),
    "20 inputs, much noise": (
        4000, 20, lambda X: (X[:, :3].sum(axis=1), np.full(len(X), 2.0)), np.inf,
    ),
    "uneven noise": (5000, 4, lambda X: (X[:, 0], 0.1 + np.abs(X[:, 1])), np.inf),
    "heavy tails": (5000, 4, lambda X: (X[:, 0], np.full(len(X), 0.5)), 4.0),
    "little noise": (
        5000, 4, lambda X: (np.sin(2.0 * X[:, 0]) * X[:, 1], np.full(len(X), 0.05)), np.inf,
    ),
}  # fmt: skip
# few rows: mean of a target, and the spread of its noise
FEW: dict[str, tuple[int, int, Callable[[Array], Array], float]] = {
    "nothing to learn, 50 rows": (50, 5, lambda X: np.zeros(len(X)), 1.0),
    "weak trend, 40 rows": (40, 8, lambda X: 0.3 * X[:, 0], 1.0),
    "strong trend, 12 rows": (12, 5, lambda X: X @ np.array([1.0, -2.0, 0.5, 0.0, 1.0]), 0.02),
    "strong trend, 50 rows": (50, 5, lambda X: X @ np.array([1.0, -2.0, 0.5, 0.0, 1.0]), 0.1),
    "wave, 60 rows": (60, 1, lambda X: np.sin(2.0 * X[:, 0]), 0.1),
    "smooth, 100 rows": (100, 3, lambda X: np.sin(X[:, 0]) * X[:, 1] + 0.5 * X[:, 2] ** 2, 0.2),
}
# chance of the second class
CLASSES: dict[str, tuple[int, int, Callable[[Array], Array]]] = {
    "nothing to learn, 60 rows": (60, 3, lambda X: np.full(len(X), 0.3)),
    "nothing to learn, 150 rows": (150, 2, lambda X: np.full(len(X), 0.3)),
    "nothing to learn, 2,100 rows": (2100, 4, lambda X: np.full(len(X), 0.3)),
    "weak trend, 100 rows": (100, 4, lambda X: expit(X[:, 0] + 0.5 * X[:, 1])),
    "weak trend, 2,400 rows": (2400, 4, lambda X: expit(X[:, 0] + 0.5 * X[:, 1])),
    "strong trend, 60 rows": (60, 3, lambda X: expit(5.0 * X[:, 0] + 3.0 * X[:, 1])),
    "strong trend, 3,000 rows": (3000, 5, lambda X: expit(5.0 * X[:, 0] + 3.0 * X[:, 1])),
    "circle, 60 rows": (60, 2, lambda X: expit(8.0 * (np.hypot(X[:, 0], X[:, 1]) - 1.2))),
    "circle, 2,500 rows": (2500, 6, lambda X: expit(8.0 * (np.hypot(X[:, 0], X[:, 1]) - 1.2))),
    "checkerboard, 150 rows": (150, 2, lambda X: expit(6.0 * np.sign(X[:, 0] * X[:, 1]))),
    "checkerboard, 2,500 rows": (2500, 4, lambda X: expit(6.0 * np.sign(X[:, 0] * X[:, 1]))),
}


def run(notes: Notes, seeds: Iterable[int]) -> None:
    """Measure every problem and seed that is not stored yet."""
    for seed in seeds:
        measures = {f"numbers/{name}": partial(measure_numbers, name, seed) for name in NUMBERS}
        measures |= {f"few/{name}": partial(measure_few, name, seed) for name in FEW}
        measures |= {f"classes/{name}": partial(measure_classes, name, seed) for name in CLASSES}
        for name, measure in measures.items():
            record = notes.keep("choices", f"{name}/{seed}", measure)
            print(f"{name}: {record}", flush=True)


def measure_numbers(name: str, seed: int) -> dict[str, Any]:
    """Log density lost by every power."""
    n_rows, n_inputs, problem, freedom = NUMBERS[name]
    rng = np.random.default_rng([seed, 90])
    X = rng.standard_normal((n_rows + N_TEST, n_inputs))
    mean, scale = problem(X)
    heavy = np.isfinite(freedom)
    noise = rng.standard_t(freedom, len(X)) if heavy else rng.standard_normal(len(X))
    y = mean + scale * noise
    truth = student(freedom if heavy else 1e12, mean, scale).logpdf(y)[n_rows:]
    out: dict[str, Any] = {}
    with threadpool_limits(1):
        for model, power in POWERS.items():
            fitted = DeepGPRegressor(inference=PowerEP(power, dtype=DTYPE), random_state=seed)
            fitted.fit(X[:n_rows], y[:n_rows])
            density = fitted.log_predictive_density(X[n_rows:], y[n_rows:])
            out[model] = float(np.mean(truth - density))
    return {**out, "chosen": fitted.power_}


def measure_few(name: str, seed: int) -> dict[str, Any]:
    """Log density lost by every choice and by scikit-learn's process, and what intervals hold."""
    n_rows, n_inputs, problem, spread = FEW[name]
    rng = np.random.default_rng([seed, 92])
    X = rng.standard_normal((n_rows + N_TEST, n_inputs))
    mean = problem(X)
    y = mean + spread * rng.standard_normal(len(X))
    new, targets = X[n_rows:], y[n_rows:]
    truth = norm.logpdf(targets, mean[n_rows:], spread)
    out: dict[str, Any] = {}
    with threadpool_limits(1):
        for scales in SCALES:
            fitted = DeepGPRegressor(
                kernel=ARD(length_scales=scales), inference=PowerEP(dtype=DTYPE), random_state=seed
            )
            fitted.fit(X[:n_rows], y[:n_rows])
            density = fitted.log_predictive_density(new, targets)
            low, high = fitted.predict_interval(new, COVERAGE).T
            out[scales] = float(np.mean(truth - density))
            out[f"{scales} holds"] = float(np.mean((low <= targets) & (targets <= high)))
        centre, std = _scikit_learn(X[:n_rows], y[:n_rows], new)
    half = -norm.ppf(0.5 - 0.5 * COVERAGE)
    out["scikit-learn"] = float(np.mean(truth - norm.logpdf(targets, centre, std)))
    out["scikit-learn holds"] = float(np.mean(np.abs(targets - centre) <= half * std))
    return {**out, "chosen": fitted.length_scales_}


def _scikit_learn(X: Array, y: Array, new: Array) -> tuple[Array, Array]:
    """Mean and deviation of an exact process: a scale for every input, noise, two starts."""
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel(0.1)
    process = GaussianProcessRegressor(
        kernel, normalize_y=True, n_restarts_optimizer=1, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scales at their bounds
        mean, std = process.fit(X, y).predict(new, return_std=True)
    return mean, std


def measure_classes(name: str, seed: int) -> dict[str, Any]:
    """Log loss beyond that of the true chances, by every choice and by logistic regression."""
    n_rows, n_inputs, problem = CLASSES[name]
    rng = np.random.default_rng([seed, 91])
    X = rng.standard_normal((n_rows + N_TEST, n_inputs))
    chance = problem(X)
    labels = (rng.random(len(X)) < chance).astype(int)
    true = np.column_stack([1.0 - chance, chance])[n_rows:]

    def lost(model: Any) -> float:
        p = np.clip(model.predict_proba(X[n_rows:]), 1e-15, 1.0)
        # terms of no chance are zero, as their limit is
        return float(np.mean(np.sum(true * np.log(np.maximum(true, 1e-300) / p), axis=1)))

    out: dict[str, Any] = {}
    with threadpool_limits(1):
        for scales in SCALES:
            fitted = DeepGPClassifier(
                kernel=ARD(length_scales=scales), inference=PowerEP(dtype=DTYPE), random_state=seed
            )
            out[scales] = lost(fitted.fit(X[:n_rows], labels[:n_rows]))
        out["logistic"] = lost(LogisticRegression().fit(X[:n_rows], labels[:n_rows]))
    return {**out, "chosen": fitted.length_scales_}
