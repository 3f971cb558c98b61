"""Copies of rows, found by their bits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from likelier.fitting import duplicates as kernel_copies
from likelier.fitting.duplicates import first_equals


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_copies_are_told_from_rows_that_differ_in_one_number(dtype):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)).astype(dtype), rng.normal(size=40)
    assert first_equals(X, y) is None
    X[[7, 30, 31]], y[[7, 30]] = X[2], y[2]  # 31 has another target
    X[35], y[35] = X[2], y[2]
    X[35, 1] = np.nextafter(X[2, 1], dtype(9.0))
    found = first_equals(X, y)
    assert found is not None
    expected = np.arange(40)
    expected[[7, 30]] = 2
    np.testing.assert_array_equal(found, expected)


def test_both_zeros_are_equal():
    X = np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]])
    np.testing.assert_array_equal(first_equals(X, np.array([0.0, -0.0, 0.0])), [0, 0, 2])


def test_rows_of_one_code_are_compared(monkeypatch):
    X = np.repeat(np.arange(3.0), 2)[:, None]
    monkeypatch.setattr(kernel_copies, "_hashed", lambda X, y: np.zeros(len(y), np.uint64))
    # at worst copies are missed, rows that differ are never one
    np.testing.assert_array_equal(first_equals(X, np.zeros(6)), [0, 0, 2, 3, 4, 5])


def test_sparse_rows_are_left_alone():
    assert first_equals(sparse.csr_matrix(np.ones((3, 2))), np.ones(3)) is None
