"""Where to begin with many rows: at the bounds that a small sample says will be reached.

Pairs move one row to its bound at a time and need its kernel values for that. Where most support
vectors end on their bounds, a sample of the rows tells nearly all of them: one product with all
these rows at once then replaces thousands of updates. A start is only a start: what it gets
wrong is put right by the updates that follow, so the solution of a positive definite kernel does
not depend on it beyond the tolerance.
"""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt

import numpy as np

from likelier.base import Array
from likelier.svm.kernel_cache import RowCache
from likelier.svm.model import Box, KernelExpansion, Subset
from likelier.svm.smo import SMO, InterruptedSolveError, KernelPosterior
from likelier.svm.state import blockwise_product

MANY = 4000  # rows from which on the sample costs little beside the problem
SAMPLE = 1000
PATIENCE = 4  # updates per row of the sample: more are needed only where few end on their bounds
MOSTLY = 2.0 / 3.0  # share of the sample's support vectors that must be on their bounds
ENOUGH = 0.1  # share of all rows that must be expected there
BELOW = (1.0, 10.0)  # the smaller ``C``, the more are on their bounds; from there it grows
GROWTH = sqrt(10.0)


def rough_start(
    inference: SMO, model: KernelExpansion, rows: Subset, y: Array, weight: Array | None,
    cache: RowCache,
) -> tuple[list[KernelExpansion], Array | None]:  # fmt: skip
    """Models with a smaller ``C`` to solve first, and coefficients for the first of all.

    Each coefficient is on a bound or zero but one. No models and None where that would not help.
    Cost: SMO for 1,000 rows, and kernel values of all rows with the support vectors of these.
    """
    n = rows.n_rows
    if n < MANY or not cache.rows_are_dear or 0 <= inference.max_iter < n:
        return [], None
    some = np.sort(np.random.default_rng(0).permutation(n)[:SAMPLE])
    if y[some].min() == y[some].max():
        return [], None
    for below in BELOW:
        first = replace(model, C=model.C / below)
        found = _of_sample(inference, first, rows, some, y, weight)
        if found is None:
            continue
        box = first.box(y, weight)
        used = np.flatnonzero(found.beta)
        product = blockwise_product(cache, cache.values, some[used], found.beta[used])
        beta = balanced(box, box.target - product - found.intercept)
        if np.count_nonzero(beta) < ENOUGH * n:
            return [], None
        steps = round(log(below) / log(GROWTH))
        return [replace(model, C=first.C * GROWTH**k) for k in range(steps)], beta
    return [], None


def _of_sample(
    inference: SMO, model: KernelExpansion, rows: Subset, some: Array, y: Array,
    weight: Array | None,
) -> KernelPosterior | None:  # fmt: skip
    """Solution for the sample if it is soon found and mostly on its bounds."""
    # a row of the sample stands for several: the same balance of loss and penalty
    small = replace(model, C=model.C * rows.n_rows / len(some))
    share = None if weight is None else weight[some]
    inside = some if rows.inside is None else rows.inside[some]
    brief = replace(inference, max_iter=PATIENCE * len(some))
    subset = Subset(rows.exact, inside, rows.working)
    try:
        found = brief.solve(brief.start(small, subset, y[some], share))
    except InterruptedSolveError:  # what it carries is not about all rows
        raise KeyboardInterrupt from None
    box = small.box(y[some], share)
    full = abs(found.beta) >= np.maximum(box.upper, -box.lower)
    on_bound = np.count_nonzero(full & (found.beta != 0.0))
    if not found.converged or on_bound < MOSTLY * np.count_nonzero(found.beta):
        return None
    return found


def balanced(box: Box, pull: Array) -> Array:
    """Coefficients on the bound that ``pull = t - f`` asks for, with sum zero.

    Whichever side has too much gives up its rows in the order of how little they pull.
    """
    beta = np.where(pull > box.eps, box.upper, np.where(pull < -box.eps, box.lower, 0.0))
    excess = float(beta.sum())
    side = np.flatnonzero(beta * excess > 0.0)
    side = side[np.argsort(abs(pull[side]), kind="stable")]
    taken = np.cumsum(abs(beta[side]))
    gone = int(np.searchsorted(taken, abs(excess), side="right"))
    beta[side[:gone]] = 0.0
    if gone < len(side):
        beta[side[gone]] -= float(beta.sum())
    return beta
