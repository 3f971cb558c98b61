"""LIBLINEAR as scikit-learn ships it: dual and primal, at the loosest tolerance that suffices."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from sklearn.svm._base import _fit_liblinear

from benchmarks.datasets import Array
from benchmarks.linear.problem import Problem

TOLERANCES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-4, 1e-5)
SEARCH_SECONDS = 60.0


def fit(problem: Problem, plan: dict[str, Any], seed: int) -> Array:
    """Fit by a plan; what is timed."""
    return run(problem, plan, seed)[0]


def run(problem: Problem, plan: dict[str, Any], seed: int) -> tuple[Array, int]:
    """Fit all classes in one call; LogisticRegression itself refuses more than two classes.

    This is the function behind ``LogisticRegression(solver="liblinear")`` and ``LinearSVC``,
    called with LIBLINEAR's own one-vs-rest, its fastest way through several classes.
    """
    loss = "logistic_regression" if problem.loss == "log_loss" else "hinge"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        coef, _, n_iter = _fit_liblinear(
            problem.data.X,
            problem.data.y,
            C=1 / problem.penalty,
            fit_intercept=False,
            intercept_scaling=1.0,
            class_weight=None,
            penalty="l2",
            dual=plan["dual"],
            verbose=0,
            max_iter=plan["max_iter"],
            tol=plan["tol"],
            random_state=np.random.RandomState(seed),
            loss=loss,
        )
    return coef, int(np.max(n_iter))


def search(problem: Problem, chance: float, budget: float = SEARCH_SECONDS) -> dict[str, Any]:
    """For dual and primal loosen the tolerance as far as 1% allows; keep the faster one.

    A form is given up after ``budget`` seconds, but not before one run took ``chance`` seconds.
    """
    plans: list[dict[str, Any]] = []
    for dual in _forms(problem.loss):
        plans.append(_loosest(problem, dual, budget, chance))
        if plans[-1]["reached"]:
            # the other form matters only if it is faster, so its search may end soon
            budget, chance = min(budget, max(1.0, 10 * plans[-1]["race_seconds"])), 0.0
    reached = [plan for plan in plans if plan["reached"]]
    if reached:
        return min(reached, key=lambda plan: plan["race_seconds"])
    return min(plans, key=lambda plan: plan["gap"])


def _forms(loss: str) -> tuple[bool, ...]:
    return (False, True) if loss == "log_loss" else (True,)


def _loosest(problem: Problem, dual: bool, budget: float, chance: float) -> dict[str, Any]:
    # a dual that needs more than the default of LogisticRegression loses to the primal
    max_iter = 100 if dual and problem.loss == "log_loss" else 1000
    plan: dict[str, Any] = {"dual": dual, "max_iter": max_iter, "reached": False}
    start = time.process_time()
    for tol in TOLERANCES:
        begun = time.process_time()
        plan["tol"] = tol
        coef, iterations = run(problem, plan, seed=0)
        plan["race_seconds"] = time.process_time() - begun
        plan["gap"] = problem.gap(coef)
        plan["reached"] = problem.reached(coef)
        stopped = iterations >= plan["max_iter"]
        late = stopped or time.process_time() - start > budget
        if plan["reached"] or (late and plan["race_seconds"] >= chance):
            break
        if stopped:  # before its chance
            plan["max_iter"] *= 4
    return plan
