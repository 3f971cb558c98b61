"""Kernels of deep Gaussian processes against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern

from likelier.deep_gp.kernels import KERNELS, correlation, half_squares

PEERS = {"rbf": RBF(), "matern32": Matern(nu=1.5), "matern52": Matern(nu=2.5)}


@pytest.mark.parametrize("kind", KERNELS)
def test_kernels_equal_those_of_scikit_learn(kind):
    rng = np.random.default_rng(0)
    Z, X = rng.standard_normal((7, 3)), 2.0 * rng.standard_normal((11, 3))
    found = correlation(np, kind, half_squares(np, Z, X), np.log(1.7))
    np.testing.assert_allclose(found, 1.7 * PEERS[kind](Z, X), rtol=1e-12)
    # far from each other, and the same point, where rounding may leave a square below zero
    assert correlation(np, kind, np.array(-1e-17), 0.0) == pytest.approx(1.0, abs=1e-7)
    assert correlation(np, kind, np.array(1e4), 0.0) < 1e-50


def test_an_unknown_kernel_is_named():
    with pytest.raises(ValueError, match="cubic"):
        correlation(np, "cubic", np.zeros(1), 0.0)
