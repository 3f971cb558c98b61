"""Measurements: accuracy in both orders, time against LogisticRegression, merging."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from threadpoolctl import threadpool_limits

from benchmarks.common import Cases, timed
from benchmarks.onepass.partitions import ODD, even_parts, odd_parts
from benchmarks.onepass.problem import SETS, SMALL, Array, Problem, load, load_small
from likelier import OnePassClassifier

SEEDS = 3
ODDLY_MERGED = ("usps", "mnist", "generated")  # in odd partitions of their classes too
MERGED = (*SETS, "usps")
# Solvers of LogisticRegression with a bound on their iterations: those not listed are slower (the
# Hessian of newton-cholesky has (classes x features)^2 entries), and one that has not converged
# at its bound only gives a lower bound of the time.
SOLVERS = {
    "covtype": {"lbfgs": 300, "newton-cholesky": 100},
    "kddcup99_10pct": {"lbfgs": 200},
    "mnist": {"lbfgs": 200},
    "generated": {"newton-cholesky": 100, "lbfgs": 300},
}
NEEDS_DOUBLE = ("newton-cholesky",)  # which gives up on single precision, and runs lbfgs
VARIANTS: dict[str, dict[str, Any]] = {
    "streaming": {},
    "frozen": {"update": "frozen"},
    "fourier": {"features": "fourier", "n_components": 2048},
}


def evaluate(problem: Problem, model: Any, rows: Array) -> dict[str, float]:
    """Accuracy over all test rows; log loss over those of known classes."""
    known = np.isin(problem.test_y, model.classes_)
    proba = model.predict_proba(rows)
    best = model.classes_[proba.argmax(axis=1)]
    loss = log_loss(problem.test_y[known], proba[known], labels=model.classes_)
    return {"accuracy": float((best == problem.test_y).mean()), "log_loss": float(loss)}


def _median(records: list[dict[str, float]]) -> dict[str, float]:
    return {key: float(np.median([r[key] for r in records])) for key in records[0]}


def ours(problem: Problem, variant: str, order: str, seeds: int) -> dict[str, Any]:
    """Median over seeds (of the order of rows and of the features) of one variant."""
    found = []
    for seed in range(seeds):
        X, y = problem.ordered(order, seed)
        model = OnePassClassifier(**VARIANTS[variant], random_state=seed)
        _, _, cpu = timed(lambda m=model, X=X, y=y: m.fit(X, y))
        found.append({**evaluate(problem, model, problem.test_rows), "seconds": cpu})
    return {"set": problem.name, "variant": variant, "order": order, **_median(found)}


def run_accuracy(sets: tuple[str, ...] = SETS, seeds: int = SEEDS) -> Cases:
    """Every set, shuffled and sorted."""
    for name in sets:
        problem = load(name)
        for variant in VARIANTS if name in ("mnist", "generated") else ("streaming", "frozen"):
            for order in ("shuffled", "sorted"):
                if variant == "fourier" and order == "sorted":
                    continue
                runs = seeds if variant == "streaming" else 1
                with threadpool_limits(1):
                    record = ours(problem, variant, order, runs)
                yield f"{name}/{variant}/{order}", record


def run_peer(sets: tuple[str, ...] = SETS, solvers: tuple[str, ...] = ()) -> Cases:
    """LogisticRegression on standardised rows, and our time right before and after it."""
    for name in sets:
        problem = load(name)
        X, test_X = problem.standardised()
        for solver, bound in SOLVERS[name].items():
            if solvers and solver not in solvers:
                continue
            with threadpool_limits(1), warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                before = ours(problem, "streaming", "shuffled", 1)["seconds"]
                peer = LogisticRegression(solver=solver, max_iter=bound)
                rows = X.astype(np.float64) if solver in NEEDS_DOUBLE else X
                _, _, cpu = timed(lambda p=peer, X=rows, y=problem.y: p.fit(X, y))
                after = ours(problem, "streaming", "shuffled", 1)["seconds"]
            iterations = int(np.max(peer.n_iter_))
            yield f"{name}/{solver}", {
                "set": name, "solver": solver, "seconds": cpu, "ours": (before + after) / 2,
                "iterations": iterations, "converged": iterations < bound,
                "rows": len(problem.y), "features": X.shape[1],
                "classes": len(np.unique(problem.y)), "preparation": problem.preparation,
                **evaluate(problem, peer, test_X),
            }  # fmt: skip


def run_small(sets: tuple[str, ...] = SMALL, seeds: int = 5) -> Cases:
    """Sets about the size of the initial batch: means over orders (or splits) of the rows."""
    for name in sets:
        one_pass, peers = [], []
        for seed in range(seeds):
            problem = load_small(name, seed)
            X, test_X = problem.standardised()
            with threadpool_limits(1):
                model = OnePassClassifier()
                _, _, cpu = timed(lambda m=model, p=problem: m.fit(p.X, p.y))
                one_pass.append({**evaluate(problem, model, problem.test_rows), "seconds": cpu})
                peer = LogisticRegression(max_iter=2000)
                _, _, cpu = timed(lambda m=peer, X=X, p=problem: m.fit(X, p.y))
                peers.append({**evaluate(problem, peer, test_X), "seconds": cpu})
        yield name, {"set": name, "rows": len(problem.y), "features": X.shape[1],
                     "classes": len(np.unique(problem.y)), "ours": _mean(one_pass),
                     "peer": _mean(peers)}  # fmt: skip


def _mean(records: list[dict[str, float]]) -> dict[str, float]:
    return {key: float(np.mean([r[key] for r in records])) for key in records[0]}


def run_merge(sets: tuple[str, ...] = MERGED, seeds: int = SEEDS) -> Cases:
    """Models of disjoint parts of the rows, merged one after another, against one of all rows."""
    for name in sets:
        problem = load_small(name, 0) if name in SMALL else load(name)
        X, y = problem.ordered("shuffled", 0)
        cuts = {kind: [pieces] for kind, pieces in even_parts(y).items()}
        if name in ODDLY_MERGED:
            dealt = [odd_parts(y, seed) for seed in range(seeds)]
            cuts |= {kind: [parts[kind] for parts in dealt] for kind in ODD}
        with threadpool_limits(1):
            whole = evaluate(problem, OnePassClassifier().fit(X, y), problem.test_rows)
            for kind, several in cuts.items():
                found = [_merged(problem, X, y, pieces) for pieces in several]
                yield f"{name}/{kind}", {
                    "set": name, "parts": kind, "whole": whole, "merged": _mean(found),
                    "worst": min(record["accuracy"] for record in found), "times": len(found),
                }  # fmt: skip


def _merged(problem: Problem, X: Array, y: Array, pieces: list[Array]) -> dict[str, float]:
    models = [OnePassClassifier().fit(X[rows], y[rows]) for rows in pieces]
    for other in models[1:]:
        models[0].merge(other)
    return evaluate(problem, models[0], problem.test_rows)
