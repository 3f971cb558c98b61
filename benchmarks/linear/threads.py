"""Two threads against one: time to the same objective, and the same bits twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common import Cases, interleave
from benchmarks.linear import ours
from benchmarks.linear.optimum import solve
from benchmarks.linear.problem import Problem, problem

SETS = ("covtype", "kddcup99_10pct", "20newsgroups", "sector", "mnist")
SAME = 0.001


def run(
    sets: Sequence[str],
    repeats: int = 5,
    rows: int | None = None,
    report: Callable[[str], None] = print,
) -> Cases:
    """Measure every data set and yield its name and its results."""
    for name in sets:
        case = problem(name, "log_loss", 1.0, rows)
        solve(case)
        with threadpool_limits(1):
            ours.warm_up(case)
            near = ours.adapt(case, 1, seed=0) or {}
        for kind, plan in (("1%", near), ("default", {})):
            entry = {"kind": kind, **measure(case, plan, repeats)}
            report(
                f"threads {name}, {kind}: {entry['speedup']:.2f}x on {entry['route']}, "
                f"objective differs by {entry['difference']:.1e}, "
                f"same bits twice: {entry['deterministic']}"
            )
            yield f"{name}/{kind}", entry


def measure(case: Problem, one: dict[str, Any], repeats: int) -> dict[str, Any]:
    """Fit with one thread; find what two threads need for the same objective."""
    with threadpool_limits(1):
        reference = case.objective(ours.coefficients(ours.fit(case, one, 0)))
    two = {**one, "n_jobs": 2}
    for extra in range(4):
        # two threads may need another pass; they are given it, and pay for it
        if one:
            two["max_iter"] = one["max_iter"] + extra
        objective = case.objective(ours.coefficients(ours.fit(case, two, 0)))
        if objective <= reference * (1 + SAME):
            break
    # BLAS keeps its own threads out of both: the threads are the engine's
    runs: dict[str, Callable[[int], Any]] = {
        "one": lambda k: ours.fit(case, one, 0),
        "two": lambda k: ours.fit(case, two, 0),
    }
    timings, told = interleave(runs, repeats, keep=lambda model: _told(case, model))
    routes, bits, gaps = zip(*told["two"], strict=True)
    return {
        "route": routes[0],
        "plan": {"one": one, "two": two},
        "timings": {name: timing.to_json() for name, timing in timings.items()},
        "speedup": timings["one"].median / timings["two"].median,
        "best_speedup": min(timings["one"].wall) / min(timings["two"].wall),
        "difference": float(objective / reference - 1),
        "same_objective": bool(objective <= reference * (1 + SAME)),
        "deterministic": len(set(bits)) == 1,
        "gap": float(np.median(gaps)),
    }


def _told(case: Problem, model: Any) -> tuple[str, str, float]:
    """Route, digest of the coefficients and gap of a fitted model."""
    coefficients = ours.coefficients(model)
    return model.route_, sha256(coefficients.tobytes()).hexdigest(), case.gap(coefficients)
