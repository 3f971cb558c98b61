"""How far the weights of late classes go: the largest posterior along two directions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

from likelier.one_pass.late_classes import scale_late_classes


@pytest.mark.parametrize("has_intercept", [True, False])
def test_no_step_along_the_two_directions_does_better(has_intercept):
    rng = np.random.default_rng(0)
    Z = np.hstack([rng.normal(size=(300, 3)), np.ones((300, 1))])
    codes = rng.integers(0, 4, 300)
    Z[codes == 3] += [1.0, 0.5, 0.0, 0.0]
    weight, prior = rng.uniform(0.5, 2.0, 300), np.array([2.0, 2.0, 2.0, 0.01])
    mean = 0.3 * rng.normal(size=(4, 5))
    mean[0, 3] += 0.2
    late, factor = np.array([1, 3]), 1.3
    found = scale_late_classes(mean, late, (Z, codes, weight), prior, factor, has_intercept)

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
        directions = [away / np.linalg.norm(away), np.eye(4)[3]][: 1 + has_intercept]
        basis = np.array(directions).T
        np.testing.assert_allclose(basis @ np.linalg.lstsq(basis, apart)[0], apart, atol=1e-9)
        at_bound = np.linalg.lstsq(basis, apart)[0][0] < 1e-9  # the first goes no way back
        for direction in directions[int(at_bound) :]:
            for step in (0.03, -0.03):
                tried = found.copy()
                tried[:, k] += step * direction
                assert energy(tried) > best


def problem(n_late, seed, separation=1.0):
    """Rows of clusters, two of them held; late classes start near the background output."""
    rng = np.random.default_rng(seed)
    n, d = 40 * (n_late + 2), 6
    centres = separation * rng.normal(size=(n_late + 2, d))
    codes = rng.integers(0, n_late + 2, n)
    Z = np.hstack([centres[codes] + rng.normal(size=(n, d)), np.ones((n, 1))])
    mean = 0.1 * np.hstack([centres, np.zeros((n_late + 2, 1))]).T
    mean = np.column_stack([mean, np.append(0.01 * rng.normal(size=d), -4.0)])
    mean[-1, 2:-1] = -4.0
    weight, prior = rng.uniform(0.5, 20.0, n), np.append(np.full(d, 2.0), 0.01)
    return mean, np.arange(2, n_late + 2), (Z, codes, weight), prior, 1.2


@pytest.mark.parametrize(("n_late", "separation"), [(1, 1.0), (40, 0.5), (40, 3.0)])
def test_many_late_classes_end_at_the_largest_posterior(n_late, separation):
    mean, late, (Z, codes, weight), prior, factor = problem(n_late, 1, separation)
    found = scale_late_classes(mean, late, (Z, codes, weight), prior, factor, True)
    away = mean[:, late] - mean[:, -1:]

    def energy(point):
        w = mean[:, :-1].copy()
        w[:, late] = mean[:, -1:] + point[:n_late] * away
        w[-1, late] += point[n_late:]
        scores = factor * (Z @ w)
        loss = logsumexp(scores, axis=1) - scores[np.arange(len(Z)), codes]
        p = np.exp(scores - logsumexp(scores, axis=1)[:, None])
        p[np.arange(len(Z)), codes] -= 1.0
        gradient = factor * (Z.T @ (weight[:, None] * p)) + prior[:, None] * w
        value = weight @ loss + 0.5 * (prior @ w[:, late] ** 2).sum()
        return value, np.append((gradient[:, late] * away).sum(axis=0), gradient[-1, late])

    start = np.append(np.ones(n_late), np.zeros(n_late))
    best = minimize(energy, start, jac=True, method="L-BFGS-B", tol=1e-14,
                    bounds=[(0, None)] * n_late + [(None, None)] * n_late,
                    options={"maxiter": 5000, "maxfun": 10000})  # fmt: skip
    level = np.eye(len(mean))[-1]
    ours = [
        np.linalg.lstsq(np.column_stack([away[:, k], level]), found[:, late[k]] - mean[:, -1])[0]
        for k in range(n_late)
    ]
    gap = energy(np.array(ours).T.ravel())[0] - best.fun
    assert gap < 1e-3 * 2 * n_late  # nats; one standard deviation of a number is worth a half
