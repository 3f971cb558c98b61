"""Where the training of a deep Gaussian process starts."""

from __future__ import annotations

import numpy as np
import pytest

from likelier.deep_gp.adam import mask_kernel_gradient
from likelier.deep_gp.kernels import correlation, half_squares
from likelier.deep_gp.layer import Layer
from likelier.deep_gp.propagation import PosteriorLayer
from likelier.deep_gp.start import (
    LONG,
    FixedKernel,
    start_layers,
    typical_length,
    with_kernel,
)

RNG = np.random.default_rng(0)


def test_length_scales_start_at_the_spread_of_what_they_see():
    X = RNG.standard_normal((400, 40)) @ RNG.standard_normal((40, 40))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    start = start_layers(X, None, (40, 5, 2), 20, False, np.random.default_rng(1))
    assert np.exp(start.layers[0]["log_scale"][0, 0]) == pytest.approx(np.sqrt(40.0))
    hidden = X @ start.projections[0]
    expected = np.sqrt(hidden.var(axis=0).sum())
    assert expected > 1.5 * np.sqrt(5.0)  # leading components vary more than one input does
    np.testing.assert_allclose(np.exp(start.layers[1]["log_scale"]), expected)


def test_constant_inputs_do_not_lengthen_the_scale():
    X = np.column_stack([RNG.standard_normal((100, 2)), np.zeros((100, 7))])
    X[:, :2] = (X[:, :2] - X[:, :2].mean(axis=0)) / X[:, :2].std(axis=0)
    assert typical_length(X, None) == pytest.approx(np.sqrt(2.0))
    assert typical_length(np.zeros((5, 4)), None) == 2.0
    weight = RNG.integers(1, 4, 100)
    repeated = np.repeat(X, weight, axis=0)
    assert typical_length(X, weight) == pytest.approx(typical_length(repeated, None))


def test_another_kernel_to_start_from():
    X = RNG.standard_normal((50, 3))
    start = start_layers(X, None, (3, 3, 1), 10, False, np.random.default_rng(1))
    other = with_kernel(start, FixedKernel(np.log(2.0), 0.7))
    for before, after in zip(start.layers, other.layers, strict=True):
        np.testing.assert_allclose(np.exp(after["log_scale"] - before["log_scale"]), 2.0)
        np.testing.assert_array_equal(after["inducing"], before["inducing"])
    assert [layer["log_amplitude"][0] for layer in other.layers] == [0.0, 0.7]
    assert start.layers[-1]["log_amplitude"][0] == 0.0


def test_a_kernel_moves_or_stays():
    ones = np.ones(2)
    slopes = Layer(ones, np.array([[1.0, 2.0, 6.0]]), np.array([5.0]), ones, ones, ones)
    for moving in (1.0, 0.0):
        found = mask_kernel_gradient(slopes, np.array(moving))
        np.testing.assert_array_equal(found.log_scale, moving * slopes.log_scale)
        assert found.log_amplitude[0] == moving * 5.0
        np.testing.assert_array_equal(found.mean, ones)


def test_long_scales_make_nearly_linear_functions():
    """The prior covariance is that of a linear function of unit variance and an offset."""
    X = RNG.standard_normal((200, 5))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    halves = half_squares(np, X, X) / (5.0 * np.exp(2.0 * LONG.log_ratio))
    K = correlation(np, "rbf", halves, LONG.log_amplitude)
    H = np.eye(200) - 1.0 / 200.0
    wanted, found = H @ (X @ X.T / 5.0) @ H, H @ K @ H
    share = (wanted * found).sum() / np.sqrt((wanted**2).sum() * (found**2).sum())
    assert share > 0.98
    assert 0.7 < np.trace(found) / np.trace(wanted) < 1.1


def test_nodes_beyond_the_inputs_start_as_noise_that_the_last_layer_passes_on():
    X = RNG.standard_normal((300, 1))
    start = start_layers(X, None, (1, 3, 1), 30, False, np.random.default_rng(1))
    inner, last = start.layers
    roots = np.exp(np.diagonal(inner["root"], axis1=1, axis2=2))
    np.testing.assert_allclose(roots, np.repeat([[0.01], [1.0], [1.0]], 30, axis=1))
    noise = last["inducing"][:, 1:]
    assert np.abs(noise.std(axis=0) - 1.0).max() < 0.4
    posterior = PosteriorLayer.of(last, start.projections[1], "rbf", 0.0)
    told = noise.sum(axis=1) / noise.sum(axis=1).std()
    found = posterior.moments("rbf", last["inducing"])[0][:, 0]
    assert np.corrcoef(found, told)[0, 1] > 0.99
    # as many nodes as inputs or fewer: nothing but the mean function
    plain = start_layers(X, None, (1, 1, 1), 30, False, np.random.default_rng(1))
    assert not plain.layers[-1]["mean"].any()
