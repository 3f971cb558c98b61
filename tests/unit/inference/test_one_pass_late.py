"""How far the weights of late classes go: the largest posterior along two directions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

from likelier.inference.one_pass_late import raised


@pytest.mark.parametrize("has_level", [True, False])
def test_no_step_along_the_two_directions_does_better(has_level):
    rng = np.random.default_rng(0)
    Z = np.hstack([rng.normal(size=(300, 3)), np.ones((300, 1))])
    codes = rng.integers(0, 4, 300)
    Z[codes == 3] += [1.0, 0.5, 0.0, 0.0]
    weight, prior = rng.uniform(0.5, 2.0, 300), np.array([2.0, 2.0, 2.0, 0.01])
    mean = 0.3 * rng.normal(size=(4, 5))
    mean[0, 3] += 0.2
    late, factor = np.array([1, 3]), 1.3
    found = raised(mean, late, (Z, codes, weight), prior, factor, has_level)

    def energy(w):
        scores = factor * (Z @ w)
        loss = logsumexp(scores, axis=1) - scores[np.arange(300), codes]
        return weight @ loss + 0.5 * (prior @ w[:, late] ** 2).sum()

    np.testing.assert_array_equal(found[:, [0, 2]], mean[:, [0, 2]])
    best = energy(found)
    assert best < energy(mean[:, :-1])
    for k in late:
        away = mean[:, k] - mean[:, -1]
        apart = found[:, k] - mean[:, -1]
        directions = [away / np.linalg.norm(away), np.eye(4)[3]][: 1 + has_level]
        basis = np.array(directions).T
        np.testing.assert_allclose(basis @ np.linalg.lstsq(basis, apart)[0], apart, atol=1e-9)
        at_bound = np.linalg.lstsq(basis, apart)[0][0] < 1e-9  # the first goes no way back
        for direction in directions[int(at_bound) :]:
            for step in (0.03, -0.03):
                tried = found.copy()
                tried[:, k] += step * direction
                assert energy(tried) > best
