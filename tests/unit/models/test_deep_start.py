"""Where the training of a deep Gaussian process starts."""

from __future__ import annotations

import numpy as np
import pytest

from likelier.models.deep_gp_start import start_layers, typical_length

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
