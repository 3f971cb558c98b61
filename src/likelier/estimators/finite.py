"""Whether all numbers of a matrix are finite, asked by several threads."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn import get_config
from sklearn.utils.validation import assert_all_finite

from likelier.base import Matrix
from likelier.engines.threads import ThreadTeam
from likelier.loops.finite import all_finite

FEW = 1 << 20  # numbers that one thread reads in the time that it takes to start others
PIECES = 4  # per thread: one that is held up leaves some of its share to the others


def check_finite(X: Matrix, n_threads: int, estimator: Any) -> None:
    """Raise scikit-learn's error where a number of ``X`` is not finite.

    Cost: one reading of the numbers. ``X`` is CSR, or dense and in C order.
    """
    values = np.asarray(X.data if sparse.issparse(X) else np.reshape(X, -1))
    if get_config()["assume_finite"]:
        return
    if values.size <= FEW or not _are_finite(values, n_threads):
        with np.errstate(invalid="ignore"):  # it begins with a sum: of opposite infinities, NaN
            assert_all_finite(X, estimator_name=type(estimator).__name__, input_name="X")


def _are_finite(values: Any, n_threads: int) -> bool:
    borders = np.linspace(0, values.size, PIECES * n_threads + 1).astype(np.intp)
    finite = np.empty(len(borders) - 1, dtype=bool)

    def check(number: int) -> None:
        finite[number] = all_finite(values[borders[number] : borders[number + 1]])

    team = ThreadTeam(n_threads)
    try:
        team.together(check, len(finite))
    finally:
        team.close()
    return bool(finite.all())
