"""Choice between a learned and a fixed kernel by held-out log density.

The energy at power one treats the variance of the outputs like label noise. Where classes overlap
this is favourable, and prior variances and length scales overfit the training rows. A fixed kernel
of nearly linear functions cannot overfit in this way, but misses nonlinearity. One layer is enough
to compare both, in a fraction of the time of a deep fit. But one layer cannot show what hidden
nodes beyond the inputs are for, the branches of a target: nearly linear functions would then seem
as good as any, and could not learn them. So where a regression has such nodes, all layers are
compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_classifier

from likelier.base import Array
from likelier.deep_gp.probe import (
    MAX_HELD_OUT,
    Comparison,
    Probe,
    can_probe,
    comparison_rows,
    is_significant,
)
from likelier.deep_gp.recipe import Task
from likelier.deep_gp.start import LONG, FixedKernel
from likelier.fitting.monitor import Monitor

MIN_ROWS = 12  # with fewer, folds are not informative
FOLDS = 3
# Cross-validation up to so many rows, one split for more; continuous targets are more informative.
FOLDED_CLASSIFICATION, FOLDED_REGRESSION = 2000, 500
STEPS = 500


def find_kernel(estimator: Any, task: Task, monitor: Monitor) -> FixedKernel | None:
    """The fixed kernel of nearly linear functions, or None if the kernel should be learned.

    Cost: two to six fits of one layer, or of all if there are nodes beyond the inputs, of at most
    `STEPS` minibatches each.
    """
    length_scales = estimator._ard.length_scales
    if length_scales != "auto":
        return LONG if length_scales == "long" else None
    if not can_probe(estimator) or task.n_rows < MIN_ROWS:
        return None
    rows = comparison_rows(task)
    if rows.n < MIN_ROWS:  # most were duplicates
        return None
    layers = _n_layers(estimator, len(task.standard.mean))
    probes = (Probe(layers, STEPS, task.power, LONG), Probe(layers, STEPS, task.power))
    found = np.empty(0)
    folded = FOLDED_CLASSIFICATION if is_classifier(estimator) else FOLDED_REGRESSION
    for k, out in enumerate(_parts(rows.n, folded, task.seed)):
        comparison = Comparison(f"long or learned length scales, part {k}", estimator, probes)
        found = np.append(found, comparison.gains(rows, out, task.seed, monitor))
        if is_significant(found):  # the other folds would hardly change the sign
            break
    return LONG if found.sum() > 0.0 else None


def _n_layers(estimator: Any, n_inputs: int) -> int:
    """Layers to compare: one, or all if hidden nodes may tell branches of a target apart."""
    hidden = estimator._widths(n_inputs, 1)[1:-1]
    if is_classifier(estimator) or max(hidden, default=0) <= n_inputs:
        return 1
    return int(estimator.layers)


def _parts(n_rows: int, folded: int, seed: int) -> list[Array]:
    """Rows to hold out in turn: cross-validation folds of few rows, one split of many."""
    order = np.random.default_rng([seed, 4]).permutation(n_rows)
    if n_rows > folded:
        return [np.sort(order[: min(n_rows // FOLDS, MAX_HELD_OUT)])]
    return [np.sort(order[k::FOLDS]) for k in range(FOLDS)]
