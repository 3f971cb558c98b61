"""What an inference over a mixture must do: pure steps, whatever the engine's blocks."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest

from likelier.base import Info, Posterior
from likelier.engines import LocalEngine
from likelier.multilabel.distributions import feature_prior, label_prior
from likelier.multilabel.label_mixture import MergingAscent
from likelier.multilabel.mixture import DirichletMixture
from likelier.multilabel.variational import VariationalMixture
from likelier.predictive import Categorical

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 3))
Y = (RNG.random((200, 2)) < 0.5).astype(float)
W = RNG.uniform(0.5, 2.0, 200)
MODEL = DirichletMixture(feature_prior("gaussian", X), label_prior("bernoulli", Y, W), 5)


def engine(**params):
    return LocalEngine(X, Y, W, **params)


def test_an_inference_is_a_frozen_value():
    with pytest.raises(dataclasses.FrozenInstanceError):
        VariationalMixture().tol = 1.0
    assert not VariationalMixture.__subclasses__()  # abstract or final


@pytest.mark.parametrize("stochastic", [False, True])
def test_a_step_is_pure_and_reports_its_effect(stochastic):
    inference = VariationalMixture(stochastic)
    with engine(block_rows=50) as data:
        state = inference.init(MODEL, data)
        before = copy.deepcopy(state.params.to_arrays())
        one, info = inference.step(state, data)
        two, _ = inference.step(state, data)
    assert isinstance(info, Info) and np.isfinite(info.objective) and info.passes == 1.0
    for name, array in before.items():
        np.testing.assert_array_equal(array, state.params.to_arrays()[name])
        np.testing.assert_array_equal(one.params.to_arrays()[name], two.params.to_arrays()[name])
    posterior = inference.posterior(one)
    assert isinstance(posterior, Posterior)
    distribution = posterior.predictive(X[:4])
    assert isinstance(distribution, Categorical) and distribution.probabilities().shape == (4, 5)


def test_a_step_with_merging_is_pure():
    inference = MergingAscent(VariationalMixture(tol=10.0))  # so that merging is tried at once
    with engine(block_rows=50) as data:
        state = inference.init(MODEL, data)
        for _ in range(3):
            before = copy.deepcopy(state)
            one, info = inference.step(state, data)
            two, _ = inference.step(state, data)
            assert state.bounds == before.bounds and one.bounds == two.bounds
            assert len(one.bounds) == len(state.bounds) + 1 and isinstance(info, Info)
            for name, array in before.mixture.params.to_arrays().items():
                np.testing.assert_array_equal(array, state.mixture.params.to_arrays()[name])
                np.testing.assert_array_equal(
                    one.mixture.params.to_arrays()[name], two.mixture.params.to_arrays()[name]
                )
            state = one
    assert state.mixture.params.n_components < 5
    assert inference.posterior(state).predictive(X[:4]).probabilities().shape[0] == 4


@pytest.mark.parametrize("given", [{"n_jobs": 2}, {"block_rows": 33}])
def test_blocks_and_threads_do_not_matter(given):
    inference = VariationalMixture()
    with engine() as data:
        start = inference.init(MODEL, data)
    found = []
    for options in ({}, given):
        with engine(**options) as data:
            state = start
            for _ in range(3):
                state, _ = inference.step(state, data)
        found.append(state.params.to_arrays())
    for name, array in found[0].items():
        np.testing.assert_allclose(array, found[1][name], rtol=1e-9, atol=1e-9)


def test_rows_of_weight_zero_are_absent():
    inference = VariationalMixture()
    more = np.concatenate([X, 100.0 + X]), np.concatenate([Y, Y]), np.append(W, np.zeros(200))
    found = []
    for rows in ((X, Y, W), more):
        with LocalEngine(*rows, seed=0) as data:
            state, _ = inference.step(inference.init(MODEL, data), data)
        found.append(state.params.features)
    np.testing.assert_array_equal(*found)
