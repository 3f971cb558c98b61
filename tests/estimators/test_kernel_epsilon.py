"""Kernel regression with the epsilon-insensitive loss."""

from __future__ import annotations

import numpy as np
import pytest

from likelier import BayesianKernelRegressor, Evidence
from likelier.losses import EpsilonInsensitive


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.2 * rng.standard_t(2, 150)


def loss(model, X, y):
    """The objective without smoothing."""
    rest = np.abs(y - model.predict(X)) / model.target_scale_
    penalty = 0.5 * model.alpha_ * (model.posterior_["weights"]["mean"][:-1] ** 2).sum()
    return np.maximum(rest - EpsilonInsensitive().epsilon, 0.0).sum() + penalty


@pytest.mark.parametrize("parameters", [{"max_iter": 1}, {"tol": 0.5}])
def test_steps_and_tolerance_are_heard(rows, parameters):
    X, y = rows
    model = BayesianKernelRegressor("epsilon_insensitive", random_state=0)
    best = loss(model.fit(X, y), X, y)
    assert loss(model.set_params(inference=Evidence(**parameters)).fit(X, y), X, y) > 1.01 * best


def test_it_has_no_coverage_to_tell(rows):
    X, y = rows
    model = BayesianKernelRegressor("epsilon_insensitive", random_state=0).fit(X, y)
    assert not hasattr(model, "score_samples")
    with pytest.raises(AttributeError) as error:
        model.score_samples(X)
    assert 'use loss="gaussian"' in str(error.value.__cause__)
    assert hasattr(BayesianKernelRegressor(), "score_samples")
