"""Sums behind late classes: derivatives of their loss, at any size of the scores."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

from likelier.one_pass.loops import late_sums


def test_sums_of_late_classes_are_derivatives_of_their_loss():
    rng = np.random.default_rng(0)
    n, K = 50, 5
    rows = (rng.normal(size=(n, K)), rng.normal(size=n), rng.integers(0, K + 1, n),
            rng.uniform(0.5, 2.0, n))  # fmt: skip
    far, up = rng.uniform(0.5, 1.5, K), rng.normal(size=K)
    loss, gradient, curvatures = late_sums(*rows, far, up, True)
    scores = np.column_stack([rows[1], far * rows[0] + up])
    expected = rows[3] @ (logsumexp(scores, axis=1) - scores[np.arange(n), rows[2]])
    assert loss == pytest.approx(expected, rel=1e-12)
    plain = late_sums(*rows, far, up, False)
    np.testing.assert_allclose(plain[1], gradient, rtol=1e-12)
    assert not plain[2].any()
    for k in range(K):
        step = 1e-5 * np.eye(K)[k]
        for number, (a, b) in enumerate([(step, 0 * step), (0 * step, step)]):
            ahead, behind = (late_sums(*rows, far + s * a, up + s * b, False) for s in (1, -1))
            assert gradient[number, k] == pytest.approx((ahead[0] - behind[0]) / 2e-5, rel=1e-6)
            change = (ahead[1][:, k] - behind[1][:, k]) / 2e-5
            np.testing.assert_allclose(curvatures[number : number + 2, k], change, rtol=1e-6)


def test_a_class_far_from_all_others_overflows_nothing():
    reach = np.array([[2000.0, -2000.0], [-1e5, 1e5]])
    rows = (reach, np.array([-3000.0, 0.0]), np.array([2, 0]), np.ones(2))
    loss, gradient, curvatures = late_sums(*rows, np.ones(2), np.zeros(2), True)
    assert loss == pytest.approx(4000.0 + 1e5)
    assert np.isfinite(gradient).all() and np.isfinite(curvatures).all()
