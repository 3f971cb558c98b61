"""The tail of importance weights: which proposals are good for independent draws."""

from __future__ import annotations

import numpy as np
import pytest

from likelier.bayesian_linear.importance import (
    DEFAULT_TAILS,
    HEAVY_TAILS,
    WIDE_TAILS,
    tail_efficiency,
    tail_index,
)


@pytest.mark.parametrize("shape", [0.2, 0.5, 0.9])
def test_tail_shape_of_pareto_weights(shape):
    log_weight = shape * np.random.default_rng(0).exponential(size=20_000)
    assert abs(tail_index(log_weight) - shape) < 0.2 * shape


def test_light_tails_and_edges():
    rng = np.random.default_rng(1)
    assert tail_index(0.3 * rng.standard_normal(8000)) < 0.2
    assert tail_index(np.zeros(1000)) == 0.0 and tail_index(np.zeros(0)) == 0.0
    assert tail_index(np.where(np.arange(1000) < 5, 0.0, -np.inf)) == np.inf


@pytest.mark.parametrize("tails", [DEFAULT_TAILS, WIDE_TAILS, HEAVY_TAILS])
def test_laws_of_proposals_have_the_density_they_claim(tails):
    """It integrates to one, and probabilities of balls are those of the draws.

    Frequencies of 200,000 draws may be off by four standard errors: one seed in five thousand.
    """
    grid = np.linspace(-400.0, 400.0, 400_001)[:, None]
    density = np.exp(tails.log_density(grid)) / np.sqrt(2.0 * np.pi)
    step = float(grid[1, 0] - grid[0, 0])
    assert abs(density.sum() * step - 1.0) < 1e-4
    draws = np.abs(tails.draw(200_000, 1, np.random.default_rng(2))[:, 0])
    for radius in (0.5, 2.0, 4.0):
        p = density[np.abs(grid[:, 0]) < radius].sum() * step
        error = np.sqrt(p * (1.0 - p) / 200_000)
        assert abs((draws < radius).mean() - p) < 4.0 * error + 1e-3 * p


def test_share_of_draws_in_the_worst_tail():
    """Equal weights are worth all; one point of two percent of the weight is not."""
    points = np.random.default_rng(3).standard_normal((2000, 3))
    assert abs(tail_efficiency(points, np.zeros(2000)) - 1.0) < 0.03
    log_weight = np.zeros(2000)
    log_weight[np.argmax(points[:, 1])] = np.log(40.0)
    one = 40.0 / 2039.0
    n_above = 0.05 * 2039.0 - 40.0
    variance = 0.95**2 * (one**2 + n_above / 2039.0**2) + 0.05**2 * 0.95 / 2039.0
    np.testing.assert_allclose(
        tail_efficiency(points, log_weight), 0.05 * 0.95 / 2000.0 / variance, rtol=0.05
    )
    # a point in the middle of every parameter weighs little on any of its ends
    middle = np.zeros(2000)
    middle[np.argmin(np.abs(points).max(axis=1))] = np.log(40.0)
    assert tail_efficiency(points, middle) > 5.0 * tail_efficiency(points, log_weight)
