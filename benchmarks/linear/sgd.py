"""scikit-learn's SGDClassifier, tuned as well as nine rates and four schedules allow.

Every candidate (schedule, averaging, rate) runs pass by pass side by side with the others;
the worse half is dropped after passes 1, 3, 7 and so on, and the race ends half as many passes
again after the first candidate came within reach. The four fastest are then fitted with three
seeds each, and the winner is the one with the smallest median time, so the "single best run" is
the best of 38 settings, not of nine.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.linear_model import SGDClassifier

from benchmarks.datasets import Array
from benchmarks.linear.problem import Problem
from benchmarks.linear.search import smallest

RATES = tuple(float(4.0**power) for power in range(-5, 4))
CAP = 100
NEVER = 1 << 30
RACE_SECONDS = 120.0


@dataclass
class Candidate:
    """One setting in the race, with the passes and seconds it has used."""

    settings: dict[str, Any]
    model: SGDClassifier
    passes: int = 0
    seconds: float = 0.0
    gap: float = float("inf")
    reached_after: int | None = field(default=None)


def build(problem: Problem, settings: dict[str, Any], passes: int, seed: Any) -> SGDClassifier:
    """Estimator for one setting; ``tol=None`` makes ``max_iter`` the exact number of passes."""
    common = {"loss": problem.loss, "alpha": problem.alpha, "fit_intercept": False}
    return SGDClassifier(**common, **settings, max_iter=passes, tol=None, random_state=seed)


def settings_of_race() -> list[dict[str, Any]]:
    """All settings: nine rates, two schedules and averaging or not, and the own schedule."""
    found: list[dict[str, Any]] = []
    for average in (False, True):
        found.append({"learning_rate": "optimal", "average": average})
        for schedule in ("constant", "invscaling"):
            for rate in RATES:
                found.append({"learning_rate": schedule, "average": average, "eta0": rate})
    return found


def fit(problem: Problem, plan: dict[str, Any], seed: int) -> Array:
    """Fit by a plan; what is timed."""
    model = build(problem, plan["settings"], plan["passes"], seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(problem.data.X, problem.data.y).coef_


def search(problem: Problem, chance: float, budget: float = RACE_SECONDS) -> dict[str, Any]:
    """Race all settings and return the plan of the winner.

    The race is given up after ``budget`` seconds or `CAP` passes, but not before every setting
    that is still in it has run for ``chance`` seconds.
    """
    classes = np.arange(problem.data.n_classes)
    racers = [
        Candidate(settings, build(problem, settings, 1, np.random.RandomState(0)))
        for settings in settings_of_race()
    ]
    start, passes, last, prune_at = time.process_time(), 0, NEVER, 1

    def goes_on() -> bool:
        early = passes < CAP and time.process_time() - start < budget
        return passes < last and (early or min(racer.seconds for racer in racers) < chance)

    while racers and goes_on():
        passes += 1
        for racer in racers:
            if racer.reached_after is None:
                _one_pass(problem, racer, classes)
        if any(racer.reached_after == passes for racer in racers):
            last = min(last, passes + passes // 2)
        racers = [racer for racer in racers if np.isfinite(racer.gap)]
        if passes == prune_at:
            racers = sorted(racers, key=lambda racer: racer.gap)[: max(4, len(racers) // 2)]
            prune_at = 2 * prune_at + 1
    return _plan(problem, racers)


def _one_pass(problem: Problem, racer: Candidate, classes: Array) -> None:
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            racer.model.partial_fit(problem.data.X, problem.data.y, classes=classes)
    except ValueError:
        # scikit-learn's way to report an overflow: this rate is too large
        racer.gap = float("inf")
        return
    racer.seconds += time.process_time() - start
    racer.passes += 1
    racer.gap = problem.gap(racer.model.coef_)
    if problem.reached(racer.model.coef_):
        racer.reached_after = racer.passes


def _plan(problem: Problem, racers: list[Candidate]) -> dict[str, Any]:
    done = [racer for racer in racers if racer.reached_after is not None]
    if not done:
        return _as_plan(min(racers, key=lambda racer: racer.gap), reached=False)
    finalists = [
        _as_plan(racer, reached=True) for racer in sorted(done, key=lambda racer: racer.seconds)[:4]
    ]
    return min(finalists, key=lambda plan: _median_time(problem, plan))


def _as_plan(racer: Candidate, reached: bool) -> dict[str, Any]:
    return {
        "settings": racer.settings,
        "passes": racer.passes,
        "reached": reached,
        "gap": racer.gap,
        "race_seconds": racer.seconds,
    }


def _median_time(problem: Problem, plan: dict[str, Any]) -> float:
    """Time of the fits that suffice for seeds 0, 1 and 2."""
    times = []
    for seed in range(3):
        adapted = adapt(problem, plan, seed)
        start = time.process_time()
        if adapted is not None:
            fit(problem, adapted, seed)
        times.append(float("inf") if adapted is None else time.process_time() - start)
    return float(np.median(times))


def adapt(problem: Problem, plan: dict[str, Any], seed: int) -> dict[str, Any] | None:
    """Return the plan with the smallest number of passes that suffices for this seed."""

    def reached(passes: int) -> bool:
        return problem.reached(fit(problem, {**plan, "passes": passes}, seed))

    passes = smallest(reached, plan["passes"], 2 * max(CAP, plan["passes"]))
    return None if passes is None else {**plan, "passes": passes}


def search_runs(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """List the nine runs of a rate search that spends on each rate what the winner needed."""
    settings = dict(plan["settings"])
    if settings["learning_rate"] == "optimal":
        settings["learning_rate"] = "invscaling"
    return [{**plan, "settings": {**settings, "eta0": rate}} for rate in RATES]


def fit_search(problem: Problem, plan: dict[str, Any], seed: int) -> None:
    """Run the nine fits of the rate search; what is timed as the search."""
    for run in search_runs(plan):
        try:
            fit(problem, run, seed)
        except ValueError:
            # an overflow ends the run early, which makes the search cheaper, not dearer
            continue
