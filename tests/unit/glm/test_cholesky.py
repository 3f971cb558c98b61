"""Cholesky factors that leave the interpreter alone, against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg

from likelier.glm.loops.cholesky import cholesky, cholesky_solve


@pytest.mark.parametrize("n", [1, 2, 7, 60])
@pytest.mark.parametrize("n_columns", [1, 2, 5])
def test_factor_and_solution(n, n_columns):
    rng = np.random.default_rng(n)
    root, right = rng.standard_normal((n, n + 3)), rng.standard_normal((n, n_columns))
    matrix = root @ root.T
    factor = np.ascontiguousarray(cholesky(matrix))
    np.testing.assert_allclose(factor, linalg.cholesky(matrix, lower=True), atol=1e-12)
    np.testing.assert_allclose(matrix @ cholesky_solve(factor, right), right, atol=1e-9)


def test_a_matrix_that_is_not_definite():
    with pytest.raises(np.linalg.LinAlgError):
        cholesky(-np.eye(3))
