"""The tail of importance weights: which proposals are good for independent draws."""

from __future__ import annotations

import numpy as np
import pytest

from likelier.inference.gibbs_moves import tail_shape


@pytest.mark.parametrize("shape", [0.2, 0.5, 0.9])
def test_tail_shape_of_pareto_weights(shape):
    log_weight = shape * np.random.default_rng(0).exponential(size=20_000)
    assert abs(tail_shape(log_weight) - shape) < 0.2 * shape


def test_light_tails_and_edges():
    rng = np.random.default_rng(1)
    assert tail_shape(0.3 * rng.standard_normal(8000)) < 0.2
    assert tail_shape(np.zeros(1000)) == 0.0 and tail_shape(np.zeros(0)) == 0.0
    assert tail_shape(np.where(np.arange(1000) < 5, 0.0, -np.inf)) == np.inf
