"""Which power a regression is trained with, judged by rows held out.

The energy of power one cannot tell noise from spread of the function. Where the noise is small, or
differs from place to place, the spread is the better of both and stands for it; where the noise is
most of the target, a spread that follows the training rows is too sure of them. With few rows it
always is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from likelier.deep_gp.probe import MOST_HELD, Probe, gains, judged_rows, may_judge
from likelier.deep_gp.recipe import Task

FULL, HALF = 1.0, 0.5
MANY_ROWS, LEAST_ROWS = 3000, 20
HELD_SHARE = 4  # one row of so many
# One layer takes a fraction of the time, and where it gains by the full power two do. Where it
# loses, two may still gain: their samples make tails that no Gaussian has.
STAGES = ((1, 500), (2, 400))  # layers, minibatches


def find_power(estimator: Any, task: Task) -> float:
    """The power to train with; cost of the choice: two or four short fits for many rows."""
    if estimator.power != "auto":
        return float(estimator.power)
    if task.total < MANY_ROWS:
        return HALF
    if not may_judge(estimator):
        return FULL
    rows = judged_rows(task)
    if rows.n < LEAST_ROWS:  # they weigh much, but are few
        return HALF
    order = np.random.default_rng([task.seed, 5]).permutation(rows.n)
    out = np.sort(order[: max(1, min(rows.n // HELD_SHARE, MOST_HELD))])
    for layers, steps in STAGES:
        if layers > 1 and int(estimator.layers) == 1:
            break
        probes = (Probe(layers, steps, FULL), Probe(layers, steps, HALF))
        if gains(estimator, rows, out, task.seed, probes).sum() > 0.0:
            return FULL
    return HALF
