"""Inverses of triangular matrices."""

from __future__ import annotations

import numpy as np
import pytest

from likelier.kernel_machine.triangles import LEAF, lower_inverse


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, LEAF, LEAF + 1, 3 * LEAF + 7, 400])
def test_it_is_the_inverse_of_the_lower_triangle(n, dtype, order):
    rng = np.random.default_rng(n)
    factor = np.linalg.cholesky(np.cov(rng.normal(size=(n, 3 * n))).reshape(n, n) + np.eye(n))
    given = np.array(factor + np.triu(rng.normal(size=(n, n)), 1), dtype=dtype, order=order)
    before = given.copy()
    found = lower_inverse(given)
    assert found.dtype == dtype and found.flags.f_contiguous
    np.testing.assert_array_equal(np.triu(found, 1), 0.0)
    digits = np.finfo(dtype).eps
    np.testing.assert_allclose(found, np.linalg.inv(factor), atol=20 * digits)
    np.testing.assert_array_equal(given, before)
