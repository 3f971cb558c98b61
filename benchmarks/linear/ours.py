"""likelier's own fits, as the benchmarks call them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from benchmarks.datasets import Array
from benchmarks.linear.problem import Problem
from benchmarks.linear.search import smallest

CAP = 400


def model(problem: Problem, seed: int, **words: Any) -> Any:
    """Zero-tuning estimator for a problem; ``words`` change it.

    ``probability=False`` leaves out the calibration of the hinge, which no peer does.
    """
    from likelier import LinearClassifier

    settings: dict[str, Any] = {
        "loss": problem.loss,
        "alpha": problem.alpha,
        "fit_intercept": False,
        "probability": False,
        "random_state": seed,
        "n_jobs": 1,
    }
    return LinearClassifier(**{**settings, **words})


def fit(problem: Problem, plan: dict[str, Any], seed: int) -> Any:
    """Fit by a plan; what is timed. Returns the estimator."""
    with warnings.catch_warnings():
        # a fit stopped by max_iter says that it did not converge, as it should
        warnings.simplefilter("ignore")
        return model(problem, seed, **plan).fit(problem.data.X, problem.data.y)


def adapt(problem: Problem, start: int, seed: int, **words: Any) -> dict[str, Any] | None:
    """Return the plan with the smallest ``max_iter`` that comes within 1% for this seed."""

    def reached(max_iter: int) -> bool:
        return problem.reached(coefficients(fit(problem, {**words, "max_iter": max_iter}, seed)))

    max_iter = smallest(reached, start, CAP)
    return None if max_iter is None else {**words, "max_iter": max_iter}


def coefficients(estimator: Any) -> Array:
    """Weights of a fitted estimator, one row per binary problem."""
    return np.atleast_2d(np.asarray(estimator.coef_))


def warm_up(problem: Problem, **words: Any) -> None:
    """Compile everything the fits will need, on a few rows of the same kind."""
    small = Problem(problem.data.head(min(2000, problem.data.n_rows)), problem.loss, 1.0)
    fit(small, {"max_iter": 3, **words}, seed=0)
