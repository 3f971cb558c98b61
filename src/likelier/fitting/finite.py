"""Whether all numbers of a matrix are finite, and how large they are, asked by several threads."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn import get_config
from sklearn.utils.validation import assert_all_finite

from likelier.base import Matrix
from likelier.engines.threads import ThreadTeam
from likelier.fitting.loops.finite import sum_of_squares

FEW = 1 << 20  # numbers that one thread reads in the time that it takes to start others
PIECES = 4  # per thread: one that is held up leaves some of its share to the others


def check_finite(X: Matrix, n_threads: int, estimator: Any) -> float:
    """Raise scikit-learn's error where a number of ``X`` is not finite.

    Returns the sum of the squares of all numbers; infinite where that is too large, or where
    scikit-learn was told to assume that they are finite. Cost: one reading of the numbers. ``X``
    is CSR, or dense and in C order.
    """
    if get_config()["assume_finite"]:
        return float("inf")
    values = np.asarray(X.data if sparse.issparse(X) else np.reshape(X, -1))
    total = _sum_of_squares(values, n_threads)
    if np.isfinite(total):
        return total
    with np.errstate(invalid="ignore"):  # it begins with a sum: of opposite infinities, NaN
        assert_all_finite(X, estimator_name=type(estimator).__name__, input_name="X")
    return float("inf")


def _sum_of_squares(values: Any, n_threads: int) -> float:
    if values.size <= FEW:
        return float(sum_of_squares(values))
    borders = np.linspace(0, values.size, PIECES * n_threads + 1).astype(np.intp)
    sums = np.empty(len(borders) - 1)

    def add_up(number: int) -> None:
        sums[number] = sum_of_squares(values[borders[number] : borders[number + 1]])

    team = ThreadTeam(n_threads)
    try:
        team.together(add_up, len(sums))
    finally:
        team.close()
    with np.errstate(over="ignore"):
        return float(sums.sum())
