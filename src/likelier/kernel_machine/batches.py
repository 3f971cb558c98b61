"""Learning in batches: the posterior after some rows is the prior of the next.

The first rows are buffered, since scales and landmarks depend on all of them; after that features
are fixed, and memory depends on the number of features, not of rows. A state is plain values.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array
from likelier.engines.rows import stack_rows, take_rows
from likelier.fitting.dataset import local_engine
from likelier.fitting.rows import Rows
from likelier.kernel_machine.class_posterior import ClassPosterior
from likelier.kernel_machine.extrapolation import OutOfSupport
from likelier.kernel_machine.laplace import class_curvature, posterior_from_blocks
from likelier.kernel_machine.regression import Sums, regression_sums, solve_weights
from likelier.kernel_machine.regression_posterior import RegressionPosterior
from likelier.kernel_machine.triangles import lower_inverse
from likelier.kernel_machine.weight_posterior import TRUST_ROWS, extrapolation_degree
from likelier.kernel_machine.weights import (
    ClassLoss,
    FeatureRows,
    Prior,
    WeightProblem,
    fit_weights,
    ridge,
)

START_ROWS = 4000  # rows that scales and landmarks are learned from
MOST_ROWS = 5 * START_ROWS

State = dict[str, Any]


def buffered(state: State, rows: Rows) -> State:
    """State with more rows that have not been learned."""
    X, y, omega = rows.X, rows.y, rows.omega
    if "X" in state:
        if sparse.issparse(X) and not sparse.issparse(state["X"]):
            X = X.toarray()
        X = stack_rows([state["X"], X])
        y, omega = np.concatenate([state["y"], y]), np.concatenate([state["omega"], omega])
    else:  # the caller may use its arrays again before they are learned
        X, y, omega = X.copy(), y.copy(), omega.copy()
    if "classes_" in state and len(y) > MOST_ROWS and (y == y[0]).all():  # a single class
        order = np.random.default_rng([state["seed"], len(y)]).permutation(len(y))
        some, total = np.sort(order[:START_ROWS]), omega.sum()
        X, y, omega = take_rows(X, some), y[some], omega[some]
        omega = omega * (total / omega.sum())
    return state | {"X": X, "y": y, "omega": omega, "pending": True}


def without_unseen(state: State, seen: Array) -> State:
    """State in which classes without a row have the average precision of the others.

    All rows were negative examples of such a class, which the curvature at its optimum, where its
    probability is nearly zero, does not tell.
    """
    if seen.all() or len(state["precision"]) != len(seen):
        return state
    precision = state["precision"].copy()
    precision[~seen] = precision[seen].mean(axis=0)
    return state | {"precision": precision}


def class_state(posterior: ClassPosterior) -> State:
    """State that continues a fit."""
    _refuse_experts(posterior)
    return {"precision": posterior.weights.precision(), "outside": 0.0}


def absorb_classes(
    loss: ClassLoss,
    limits: tuple[float, int],
    posterior: ClassPosterior,
    state: State,
    rows: Rows,
) -> tuple[ClassPosterior, State]:
    """Posterior and state after more rows; costs ``rows x features^2`` per class.

    ``limits`` are the tolerance and the number of steps.
    """
    omega, W = rows.omega, posterior.weights.mean
    with local_engine(rows.X, rows.y, omega, 0, 1, False) as engine:
        features = engine.map_rows(FeatureRows(posterior.map))
        prior = Prior(state["precision"], W)
        problem = WeightProblem(engine, features, loss, prior)
        fit = fit_weights(problem, W, *limits)
        precision = state["precision"] + class_curvature(problem, fit.W)
    outside = state["outside"]
    if posterior.map.local:
        residual = posterior.map.residual(posterior.map(rows.X, np.float32))
        outside += float(omega @ extrapolation_degree(residual))
    posterior = replace(
        posterior, objective=float(fit.value), converged=fit.converged,
        weights=posterior_from_blocks(fit.W, precision, posterior.weights.prior_variance),
        # the landmarks are fixed, so the intercept gains trust for rows out of their support
        extrapolation_trust=outside / (outside + TRUST_ROWS),
    )  # fmt: skip
    return posterior, state | {"precision": precision, "outside": outside}


def regression_state(posterior: RegressionPosterior) -> State:
    """State that continues a fit: the sums of the normal equations."""
    _refuse_experts(posterior)
    factor = lower_inverse(posterior.weights.root.astype(np.float64))
    A = factor @ factor.T
    cross = A @ posterior.weights.mean
    A[np.diag_indices_from(A)] -= ridge(len(A), posterior.weights.ratio)
    return {"gram": A, "cross": cross, "weight": float(A[-1, -1]), "outside": 0.0}


def absorb_numbers(
    posterior: RegressionPosterior, state: State, rows: Rows
) -> tuple[RegressionPosterior, State]:
    """Posterior and state after more rows; costs ``rows x features^2``.

    The noise is a running mean of standardised squared residuals of rows before they are learned.
    """
    weights, omega = posterior.weights, rows.omega / posterior.row
    Phi = posterior.map(rows.X, np.float64)
    sums = Sums(state["gram"], state["cross"], state["weight"])
    sums = sums + regression_sums(Phi, rows.y, omega)
    support = OutOfSupport(posterior.map.residual(Phi), 1.0 - posterior.extrapolation_trust)
    constant, noise = float(weights.mean[-1]), posterior.noise
    expected = noise * (1.0 + weights.variance(Phi, support.residual))
    prior = np.asarray(noise * (1.0 + 1.0 / weights.ratio))
    expected += support.variance(constant, posterior.extrapolation_std, prior)
    residual = rows.y - Phi @ weights.mean + support.mean_correction(constant)
    before, more = state["weight"], float(omega.sum())
    noise *= (before + float(omega @ (residual**2 / expected))) / max(before + more, 1e-300)
    outside = state["outside"] + float(omega @ extrapolation_degree(support.residual))
    posterior = replace(
        posterior, weights=solve_weights(sums, weights.ratio), noise=noise, global_noise=noise,
        extrapolation_trust=outside / (outside + TRUST_ROWS),
    )  # fmt: skip
    return posterior, state | vars(sums) | {"outside": outside}


def _refuse_experts(posterior: Any) -> None:
    if not hasattr(posterior, "weights"):
        raise ValueError(
            "partial_fit cannot go on with particles; fit again with inference='evidence'"
        )
    if posterior.experts is not None:
        raise ValueError(
            "partial_fit cannot go on with a model that has local experts; fit it with "
            "inference=Evidence(n_experts=0), or fit all rows at once"
        )
