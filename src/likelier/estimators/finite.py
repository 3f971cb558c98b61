"""Whether all numbers of a matrix are finite, asked by several threads."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn import get_config
from sklearn.utils.validation import assert_all_finite

from likelier.base import Matrix
from likelier.engines.threads import ThreadTeam

FEW = 1 << 20  # numbers that one thread sums in the time that it takes to start others
PIECES = 4  # per thread: one that is held up leaves some of its share to the others


def check_finite(X: Matrix, n_threads: int, estimator: Any) -> None:
    """Raise scikit-learn's error where a number of ``X`` is not finite.

    Its check is a sum, which is finite only if all numbers are; sums of pieces tell the same.
    Cost: one reading of the numbers. ``X`` is CSR, or dense and in C order.
    """
    values = X.data if sparse.issparse(X) else np.reshape(X, -1)
    if get_config()["assume_finite"]:
        return
    if values.size <= FEW or not _sums_are_finite(values, n_threads):
        with np.errstate(invalid="ignore"):  # a sum of huge numbers may be infinite: this knows
            assert_all_finite(X, estimator_name=type(estimator).__name__, input_name="X")


def _sums_are_finite(values: Any, n_threads: int) -> bool:
    borders = np.linspace(0, values.size, PIECES * n_threads + 1).astype(np.intp)
    sums = np.empty(len(borders) - 1)

    def add(number: int) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            sums[number] = values[borders[number] : borders[number + 1]].sum()

    team = ThreadTeam(n_threads)
    try:
        team.together(add, len(sums))
    finally:
        team.close()
    return bool(np.isfinite(sums).all())
