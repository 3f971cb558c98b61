"""Choice of the power of a regression by held-out log density.

The energy at power one cannot separate noise from variance of the function. Explaining noise by
function variance is an advantage if the noise is small or depends on the inputs. If noise dominates
the target, the function overfits the training rows; with few rows it always does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from likelier.deep_gp.probe import MAX_HELD_OUT, Comparison, Probe, can_probe, comparison_rows
from likelier.deep_gp.recipe import Task
from likelier.fitting.monitor import Monitor

FULL, HALF = 1.0, 0.5
MANY_ROWS, MIN_ROWS = 3000, 20
HELD_OUT_RATIO = 4  # hold out one row in four
# One layer takes a fraction of the time, and if it gains by the full power so do two. If it does
# not, two may still gain, because their predictive mixtures have heavier tails.
STAGES = ((1, 500), (2, 400))  # layers, minibatches


def find_power(estimator: Any, task: Task, monitor: Monitor) -> float:
    """The power to train with; costs two or four short fits if there are many rows."""
    power = estimator._power_ep.power
    if power != "auto":
        return float(power)
    if task.total < MANY_ROWS:
        return HALF
    if not can_probe(estimator):
        return FULL
    rows = comparison_rows(task)
    if rows.n < MIN_ROWS:  # few rows of large weight
        return HALF
    order = np.random.default_rng([task.seed, 5]).permutation(rows.n)
    out = np.sort(order[: max(1, min(rows.n // HELD_OUT_RATIO, MAX_HELD_OUT))])
    for layers, steps in STAGES:
        if layers > 1 and int(estimator.layers) == 1:
            break
        probes = (Probe(layers, steps, FULL), Probe(layers, steps, HALF))
        comparison = Comparison(f"power 1 or 0.5, {layers} layers", estimator, probes)
        if comparison.gains(rows, out, task.seed, monitor).sum() > 0.0:
            return FULL
    return HALF
