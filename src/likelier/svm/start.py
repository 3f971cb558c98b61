"""Initial coefficients for many rows, from the solution for a small sample.

Pair updates move one row at a time to its bound, and need its kernel row. If most support vectors
end on their bounds, a sample predicts nearly all of them, and one matrix product replaces thousands
of updates. Later updates correct wrong predictions, so for a positive definite kernel the solution
does not depend on the start beyond the tolerance.
"""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt

import numpy as np

from likelier.base import Array
from likelier.svm.kernel_cache import RowCache
from likelier.svm.model import Box, KernelExpansion, Subset
from likelier.svm.smo import SMO
from likelier.svm.solution import KernelPosterior
from likelier.svm.state import blockwise_product

MIN_ROWS = 4000  # rows from which on the sample is cheap relative to the problem
SAMPLE = 1000
PATIENCE = 4  # updates per sampled row; more are needed only if few end on their bounds
MIN_SAMPLE_FRACTION = 2.0 / 3.0  # minimum fraction of the sample's support vectors on their bounds
MIN_BOUND_FRACTION = 0.1  # minimum fraction of all rows predicted to be on their bounds
DIVISORS = (1.0, 10.0)  # divisors of ``C`` to try: with a smaller ``C`` more are on their bounds
GROWTH = sqrt(10.0)


def rough_start(
    inference: SMO, model: KernelExpansion, rows: Subset, y: Array, weight: Array | None,
    cache: RowCache,
) -> tuple[list[KernelExpansion], Array | None]:  # fmt: skip
    """Models with a smaller ``C`` to solve first, and coefficients for the first model.

    All coefficients but one are zero or on a bound. Returns no models and None if it would not
    help. Cost: SMO for 1,000 rows, and kernel values of all rows with their support vectors.
    """
    n = rows.n_rows
    if n < MIN_ROWS or not cache.rows_are_expensive or 0 <= inference.max_iter < n:
        return [], None
    sample = np.sort(np.random.default_rng(0).permutation(n)[:SAMPLE])
    if y[sample].min() == y[sample].max():
        return [], None
    for below in DIVISORS:
        first = replace(model, C=model.C / below)
        found = _solve_sample(inference, first, rows, sample, y, weight)
        if found is None:
            continue
        box = first.box(y, weight)
        used = np.flatnonzero(found.beta)
        product = blockwise_product(cache, cache.values, sample[used], found.beta[used])
        beta = feasible_start(box, box.target - product - found.intercept)
        if np.count_nonzero(beta) < MIN_BOUND_FRACTION * n:
            return [], None
        steps = round(log(below) / log(GROWTH))
        return [replace(model, C=first.C * GROWTH**k) for k in range(steps)], beta
    return [], None


def _solve_sample(
    inference: SMO, model: KernelExpansion, rows: Subset, sample: Array, y: Array,
    weight: Array | None,
) -> KernelPosterior | None:  # fmt: skip
    """Solution for the sample if it converges soon and is mostly on its bounds."""
    # C is scaled to keep the balance of loss and penalty
    small = replace(model, C=model.C * rows.n_rows / len(sample))
    sample_weight = None if weight is None else weight[sample]
    inside = sample if rows.inside is None else rows.inside[sample]
    short = replace(inference, max_iter=PATIENCE * len(sample), watch=None)
    subset = Subset(rows.exact, inside, rows.working)
    found = short.solve(short.start(small, subset, y[sample], sample_weight))
    box = small.box(y[sample], sample_weight)
    full = abs(found.beta) >= np.maximum(box.upper, -box.lower)
    on_bound = np.count_nonzero(full & (found.beta != 0.0))
    if not found.converged or on_bound < MIN_SAMPLE_FRACTION * np.count_nonzero(found.beta):
        return None
    return found


def feasible_start(box: Box, residual: Array) -> Array:
    """Coefficients on the bounds predicted by the residuals ``residual = t - f``, with sum zero.

    The side with the larger sum loses its rows of smallest residuals.
    """
    beta = np.where(residual > box.eps, box.upper, np.where(residual < -box.eps, box.lower, 0.0))
    excess = float(beta.sum())
    side = np.flatnonzero(beta * excess > 0.0)
    side = side[np.argsort(abs(residual[side]), kind="stable")]
    taken = np.cumsum(abs(beta[side]))
    gone = int(np.searchsorted(taken, abs(excess), side="right"))
    beta[side[:gone]] = 0.0
    if gone < len(side):
        beta[side[gone]] -= float(beta.sum())
    return beta
