"""Whether the rows are worth a learned kernel, judged by rows held out.

The energy of power one counts the variance of the outputs as if it were noise of the labels, and
where classes overlap this pays: prior variances and length scales follow the training rows. Nearly
linear functions cannot, and miss what is not linear. One layer is enough to see which of both
predicts better, in a fraction of the time of a deep fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_classifier

from likelier.base import Array
from likelier.deep_gp.probe import MOST_HELD, Probe, clear, gains, judged_rows, may_judge
from likelier.deep_gp.recipe import Task
from likelier.deep_gp.start import LONG, KernelStart

LEAST_ROWS = 12  # with fewer, folds tell nothing
FOLDS = 3
FOLDED_LABELS, FOLDED_NUMBERS = 2000, 500  # up to so many rows all are judged: numbers tell more
STEPS = 500


def find_kernel(estimator: Any, task: Task) -> KernelStart | None:
    """The kernel of nearly linear functions, or None where it should be learned.

    Cost of the choice: two to six fits of one layer, of at most `STEPS` minibatches each.
    """
    if estimator.length_scales != "auto":
        return LONG if estimator.length_scales == "long" else None
    if not may_judge(estimator) or task.n_rows < LEAST_ROWS:
        return None
    rows = judged_rows(task)
    if rows.n < LEAST_ROWS:  # most were copies
        return None
    probes = (Probe(1, STEPS, task.power, LONG), Probe(1, STEPS, task.power))
    found = np.empty(0)
    folded = FOLDED_LABELS if is_classifier(estimator) else FOLDED_NUMBERS
    for out in _parts(rows.n, folded, task.seed):
        found = np.append(found, gains(estimator, rows, out, task.seed, probes))
        if clear(found):  # no need to ask the other folds
            break
    return LONG if found.sum() > 0.0 else None


def _parts(n_rows: int, folded: int, seed: int) -> list[Array]:
    """Rows to hold out in turn: folds of all where they are few, else one part."""
    order = np.random.default_rng([seed, 4]).permutation(n_rows)
    if n_rows > folded:
        return [np.sort(order[: min(n_rows // FOLDS, MOST_HELD)])]
    return [np.sort(order[k::FOLDS]) for k in range(FOLDS)]
