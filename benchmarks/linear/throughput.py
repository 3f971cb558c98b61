"""One implicit pass of ours against one explicit pass of scikit-learn, at one fixed rate.

Whole fits are timed: with one pass, as the requirement says, and with six, so that the slope
between them is the cost of a pass without what every fit pays once (checks, copies, encoding).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.linear_model import SGDClassifier

from benchmarks.common import Cases, interleave
from benchmarks.datasets import Dataset, load
from benchmarks.linear import ours
from benchmarks.linear.problem import Problem

SETS = ("covtype", "mnist", "a9a", "20newsgroups")
RATE = 0.01
MORE = 6


def binary(name: str, rows: int | None = None) -> Problem:
    """Build a binary problem: the first half of the classes against the second."""
    data = load(name)
    if rows is not None and data.n_rows > rows:
        data = data.head(rows)
    y = data.y if data.n_classes == 2 else (data.y >= data.n_classes // 2).astype(np.int64)
    return Problem(Dataset(data.name, data.X, y, data.preparation), "log_loss", 1.0)


def run(
    sets: Sequence[str],
    repeats: int = 9,
    rows: int | None = None,
    report: Callable[[str], None] = print,
) -> Cases:
    """Measure every data set and yield its name and its results."""
    for name in sets:
        entry = measure(binary(name, rows), repeats)
        report(
            f"throughput {name}: one-pass fit {entry['fit_ratio']:.2f}x, "
            f"per pass {entry['pass_ratio']:.2f}x"
        )
        yield name, entry


def measure(case: Problem, repeats: int) -> dict[str, Any]:
    """Time both tools with one and with several passes."""
    ours.warm_up(case, **_words(1))
    runs: dict[str, Callable[[int], Any]] = {}
    for passes in (1, MORE):
        runs[f"ours{passes}"] = lambda k, p=passes: ours.fit(case, _words(p), k)
        runs[f"sgd{passes}"] = lambda k, p=passes: _explicit(case, p, k)
    timings, _ = interleave(runs, repeats)
    # processor time of the fastest run: a pass is the same work every time, and one thread's
    best = {name: min(timing.cpu) for name, timing in timings.items()}
    slope = {
        tool: (best[f"{tool}{MORE}"] - best[f"{tool}1"]) / (MORE - 1) for tool in ("ours", "sgd")
    }
    return {
        "layout": case.data.layout,
        "rows": case.data.n_rows,
        "values": case.data.n_values,
        "timings": {name: timing.to_json() for name, timing in timings.items()},
        "pass_seconds": slope,
        "fit_ratio": timings["sgd1"].median / timings["ours1"].median,
        "pass_ratio": slope["sgd"] / slope["ours"],
        "values_per_second": case.data.n_values / slope["ours"],
    }


def _words(passes: int) -> dict[str, Any]:
    from likelier import SGD

    solver = SGD(learning_rate="constant", eta0=RATE, average=False)
    return {"solver": solver, "max_iter": passes, "tol": None}


def _explicit(case: Problem, passes: int, seed: int) -> Any:
    model = SGDClassifier(
        loss=case.loss,
        alpha=case.alpha,
        fit_intercept=False,
        learning_rate="constant",
        eta0=RATE,
        max_iter=passes,
        tol=None,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(case.data.X, case.data.y)
