"""Few rows, many classes, and kernel matrices that are given: where the rest of a fit counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics.pairwise import rbf_kernel

from benchmarks.common import Cases, interleave
from benchmarks.svm.problem import Problem, load

SHORT = 0.05  # seconds that one measurement takes at least: a fit of few rows is repeated
GIVEN = {"kernel": "precomputed"}


def problems() -> list[tuple[str, Problem, dict[str, Any]]]:
    """What is measured, under which name and with which words."""
    iris, digits = (load_(return_X_y=True) for load_ in (load_iris, load_digits))
    two, ten = load("svmguide1", 3000), load("pendigits", 4000)
    few = load("splice", 100)
    return [
        ("iris, 3 classes", Problem("iris", *iris), {}),
        ("digits, 10 classes", Problem("digits", *digits), {}),
        ("vowel, 11 classes", load("vowel"), {}),
        ("generated, 105 classes of 60 rows", _many_classes(), {}),
        ("splice, 100 rows", few, {}),
        ("boston, 100 rows", load("boston", 100), {}),
        ("svmguide1, 3,000 rows, given kernel, 2 classes", _given(two), GIVEN),
        ("pendigits, 4,000 rows, given kernel, 10 classes", _given(ten), GIVEN),
    ]


def _many_classes() -> Problem:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(105), 60)
    return Problem("many", rng.normal(size=(105, 50))[y] + 1.5 * rng.normal(size=(6300, 50)), y)


def _given(problem: Problem) -> Problem:
    """The same problem with its kernel matrix in place of its rows."""
    K = rbf_kernel(problem.X, gamma=1.0 / problem.X.shape[1])
    return Problem(problem.name, K, problem.y)


def run(repeats: int = 5) -> Cases:
    """Median times of a fit, ours and LIBSVM's in turn."""
    for name, problem, words in problems():
        makers = {"ours": problem.ours, "theirs": problem.theirs}
        for make in makers.values():  # compiled, and read from the disk
            make(**words).fit(problem.X, problem.y)
        times, _ = interleave(_fits(problem, makers, words, 1), 1)
        fits = max(1, round(SHORT / times["theirs"].to_json()["cpu_seconds"]))
        times, models = interleave(_fits(problem, makers, words, fits), repeats, budget=20.0)
        ours, theirs = (times[key].to_json()["cpu_seconds"] / fits for key in ("ours", "theirs"))
        mine, peer = (models[key][0].predict(problem.X) for key in ("ours", "theirs"))
        differ = abs(mine - peer).max() if problem.regression else (mine != peer).mean()
        yield name, {"name": name, "ours": ours, "theirs": theirs, "difference": float(differ)}


def _fits(problem: Problem, makers: Any, words: Any, count: int) -> dict[str, Any]:
    """Runs of several fits each, which return the last model."""

    def fits(make: Any) -> Any:
        return lambda _: [make(**words).fit(problem.X, problem.y) for _ in range(count)][-1]

    return {key: fits(make) for key, make in makers.items()}
