"""Certified convergence, and the sandwich covariance of the parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from likelier.base import Array, Engine
from likelier.glm.model import LinearModel, LinearStats, SumsAt
from likelier.glm.newton import (
    mean_gradient_and_hessian,
    quadratic_minimum,
    stacked_penalty,
)

MAX_STEPS = 8
# squared distance to the optimum in standard errors, summed over parameters
MAX_DISTANCE = 1e-3
EXACT_DISTANCE = 1e-12
ROUNDING = 1e-12
SMALL = 1e6  # entries of the data
MIN_EIGENVALUE = 1e-11  # of the Hessian, scaled to a unit diagonal


@dataclass(frozen=True)
class Certificate:
    """Proof that the optimum was reached, and the covariance of the parameters there.

    ``covariance`` has one matrix per independent problem: per output, or a single one over
    all outputs for a coupled loss. If it is not available it is empty, and ``reason`` is set.
    """

    covariance: Array
    n_rows: int
    distance: float
    reason: str = ""


def certify(model: LinearModel, engine: Engine, theta: Array) -> tuple[Array, Certificate]:
    """Take Newton steps until the distance to the optimum is far below a standard error.

    Returns the final parameters and their certificate; without convergence, the given parameters.
    Cost: a second-order pass per step, usually one or two, the first with twice the sums.
    """
    if model.penalty.sparse:
        reason = "with an L1 penalty the estimate is not asymptotically normal"
        return theta, Certificate(np.empty(0), 0, np.inf, reason)
    given, best = theta, np.inf
    first = stats = _sums(model, engine, theta, meat=True)
    # on small data, converge to the last digits
    small = stats.n_rows * model.n_rows_theta <= SMALL
    for _ in range(MAX_STEPS):
        objective = float(stats.value.sum()) / stats.n_rows
        objective += float(model.penalty.value(theta).sum())
        if not objective <= best + ROUNDING * abs(best):  # diverged
            break
        best = min(best, objective)
        theta, gap = quadratic_minimum(model, theta, stats)
        distance = 2.0 * gap * stats.n_rows / model.loss.curved_width  # gaps scale with the width
        if distance <= (EXACT_DISTANCE if small else MAX_DISTANCE):
            return theta, _sandwich(model, replace(stats, meat=first.meat), distance)
        stats = _sums(model, engine, theta, meat=False)
    reason = f"the distance to the optimum is {distance:.2g} squared standard errors"
    return given, Certificate(np.empty(0), stats.n_rows, distance, reason)


def _sums(model: LinearModel, engine: Engine, theta: Array, meat: bool) -> LinearStats:
    return engine.reduce(SumsAt(model, 2, meat=meat), LinearStats.__add__, state=theta)


def _sandwich(model: LinearModel, stats: LinearStats, distance: float) -> Certificate:
    """``H^-1 J H^-1 / N`` with the usual correction for the number of parameters."""
    assert stats.meat is not None
    _, hessians = mean_gradient_and_hessian(model, stats)
    ridge = np.diag(stacked_penalty(model).l2)
    n, p = stats.n_rows, model.n_rows_theta
    if n <= p:
        return Certificate(np.empty(0), n, distance, f"{n} rows do not identify {p} parameters")
    out = []
    for hessian, meat in zip(hessians, stats.meat, strict=True):
        matrix = hessian + ridge
        scale = 1.0 / np.sqrt(np.maximum(np.diagonal(matrix), 1e-300))
        scaled = matrix * scale[:, None] * scale
        if linalg.eigvalsh(scaled, subset_by_index=[0, 0])[0] < MIN_EIGENVALUE:
            reason = "some features are linear combinations of others, or constant"
            if model.loss.flat_tails:
                reason = f"too few rows are where the {model.loss.name} loss is curved, or {reason}"
            return Certificate(np.empty(0), n, distance, reason)
        factor = linalg.cho_factor(scaled, lower=True)
        half = linalg.cho_solve(factor, (meat / n) * scale[:, None] * scale)
        middle = linalg.cho_solve(factor, half.T)
        out.append(middle * scale[:, None] * scale / (n - p))
    return Certificate(np.stack(out), n, distance)
