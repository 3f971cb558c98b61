"""Sums of many logistic regressions against plain NumPy, for any number of labels."""

import numpy as np
import pytest
from scipy.special import expit

from likelier.multilabel.loops import TILE, line_sums, residuals


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_labels", [1, 7, TILE - 1, TILE, TILE + 5])
@pytest.mark.parametrize("n_rows", [1, 45])
def test_sums_are_those_of_numpy(dtype, n_labels, n_rows):
    rng = np.random.default_rng(n_labels)
    F, G = (3.0 * rng.normal(size=(n_rows, n_labels)).astype(dtype) for _ in range(2))
    T = (rng.random(F.shape) < 0.3).astype(dtype)
    W = rng.choice([0.0, 1.0, 2.5], size=F.shape).astype(dtype)
    t = rng.random(n_labels).astype(dtype)
    one, two, R = np.empty_like(t), np.empty_like(t), np.empty_like(F)
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == np.float32 else {"rtol": 1e-11, "atol": 1e-11}
    line_sums(F, G, T, W, t, one, two)
    p = expit((F + t * G).astype(np.float64))
    np.testing.assert_allclose(one, (W * (p - T) * G).sum(axis=0), **close)
    np.testing.assert_allclose(two, (W * p * (1.0 - p) * G * G).sum(axis=0), **close)
    residuals(F, T, W, R, one, two)
    p = expit(F.astype(np.float64))
    rest = W * (p - T)
    np.testing.assert_allclose(R, rest, **close)
    np.testing.assert_allclose(two, rest.sum(axis=0), **close)
    bend = np.maximum((W * p * (1.0 - p)).sum(axis=0), abs(rest).sum(axis=0) / 4.0)
    np.testing.assert_allclose(one, bend, **close)
