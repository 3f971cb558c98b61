"""Sums for samplers against plain NumPy, finite differences and fine quadrature."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_expit, log_softmax

from likelier.bayesian_linear import loops as samplers

NONE = np.empty(0)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    scores = 4.0 * rng.standard_normal((1300, 7))  # more rows than one product takes
    scores[0, 0], scores[1, 0] = 900.0, -900.0
    sign = np.where(rng.random(1300) < 0.4, 1.0, -1.0)
    return scores, sign, rng.uniform(0.0, 3.0, 1300)


def plain(kind, scores, sign):
    z = sign[:, None] * scores
    return log_expit(z) if kind == "logistic" else -2.0 * np.maximum(1.0 - z, 0.0)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["logistic", "hinge"])
def test_sums_and_slopes(kind, weighted, rows):
    scores, sign, weight = rows
    given = weight if weighted else NONE
    omega = weight[:, None] if weighted else 1.0
    wanted = (omega * plain(kind, scores, sign)).sum(axis=0)
    total = np.full(7, 0.5)
    getattr(samplers, f"{kind}_sums")(scores.copy(), sign, given, total)
    np.testing.assert_allclose(total - 0.5, wanted, rtol=1e-12)
    slope, again = scores.copy(), np.zeros(7)
    getattr(samplers, f"{kind}_gradients")(slope, sign, given, again)
    np.testing.assert_allclose(again, wanted, rtol=1e-12)
    step = 1e-5
    up, down = (plain(kind, scores + s, sign) for s in (step, -step))
    np.testing.assert_allclose(slope, omega * (up - down) / (2.0 * step), atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_softmax_sums_and_slopes(weighted):
    rng = np.random.default_rng(1)
    scores, code = 3.0 * rng.standard_normal((300, 5, 4)), rng.integers(0, 4, 300)
    weight = rng.uniform(0.0, 2.0, 300) if weighted else NONE
    omega = weight[:, None] if weighted else 1.0
    logs = log_softmax(scores, axis=2)
    wanted = (omega * logs[np.arange(300), :, code]).sum(axis=0)
    total = np.zeros(5)
    samplers.softmax_sums(scores.copy(), code, weight, total, False)
    np.testing.assert_allclose(total, wanted, rtol=1e-12)
    slope, again = scores.copy(), np.zeros(5)
    samplers.softmax_sums(slope, code, weight, again, True)
    np.testing.assert_allclose(again, wanted, rtol=1e-12)
    exact = np.eye(4)[code][:, None] - np.exp(logs)
    np.testing.assert_allclose(slope, exact * (omega[:, :, None] if weighted else 1.0), atol=1e-13)


@pytest.mark.parametrize("kind", ["logistic", "hinge"])
def test_smoothed_sums_are_expectations(kind):
    """Against a fine grid; the logistic rule has 11 points, so it is near, not exact."""
    rng = np.random.default_rng(2)
    mean, spread = 2.0 * rng.standard_normal(50), rng.uniform(0.01, 1.5, 50)
    sign, weight = np.where(rng.random(50) < 0.5, 1.0, -1.0), rng.uniform(0.5, 2.0, 50)
    grid = np.linspace(-9.0, 9.0, 20001)
    share = np.exp(-0.5 * grid**2)
    share /= share.sum()

    def expected(centre):
        scores = centre[:, None] + spread[:, None] * grid
        return weight * (plain(kind, scores, sign) @ share)

    slope, curvature = np.empty(50), np.empty(50)
    smooth = getattr(samplers, f"smoothed_{kind}")
    total = smooth(mean, spread**2, sign, weight, slope, curvature)
    np.testing.assert_allclose(total, expected(mean).sum(), rtol=1e-6)
    step = 1e-3
    up, down = expected(mean + step), expected(mean - step)
    np.testing.assert_allclose(slope, (up - down) / (2.0 * step), atol=2e-4)
    ahead, behind, unused = np.empty(50), np.empty(50), np.empty(50)
    smooth(mean + 1e-5, spread**2, sign, weight, ahead, unused)
    smooth(mean - 1e-5, spread**2, sign, weight, behind, unused)
    np.testing.assert_allclose(curvature, (behind - ahead) / 2e-5, atol=1e-6)


def test_a_hinge_without_uncertainty_is_finite():
    slope, curvature = np.empty(2), np.empty(2)
    total = samplers.smoothed_hinge(
        np.array([1.0, 3.0]), np.zeros(2), np.ones(2), NONE, slope, curvature
    )
    assert np.isfinite([total, *slope, *curvature]).all()
