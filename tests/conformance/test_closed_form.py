"""What every model with additive statistics per class must do under `ClosedForm`."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
from scipy import sparse

from likelier.base import Batch, Info, Posterior
from likelier.engines import LocalEngine, StreamEngine
from likelier.naive_bayes.closed_form import ClosedForm
from likelier.naive_bayes.count_model import BernoulliModel, MultinomialModel
from likelier.naive_bayes.gaussian_model import GaussianModel
from likelier.naive_bayes.model import NaiveBayesModel
from likelier.predictive import Categorical
from likelier.tables import block_source

ONE = np.ones(1)
MODELS = {
    "gaussian": GaussianModel(3),
    "student": GaussianModel(3, bayesian=True),
    "multinomial": MultinomialModel(3, ONE),
    "dirichlet": MultinomialModel(3, ONE, bayesian=True),
    "bernoulli": BernoulliModel(3, ONE),
}
every = pytest.mark.parametrize("name", MODELS)
every_matrix = pytest.mark.parametrize("matrix", [np.asarray, sparse.csr_array])
RNG = np.random.default_rng(0)
X = RNG.poisson(1.0, size=(300, 5)).astype(float)
Y = RNG.integers(0, 3, 300)
W = RNG.uniform(0.5, 2.0, 300)


def subclasses(kind):
    found = set(kind.__subclasses__())
    return found | {below for sub in found for below in subclasses(sub)}


def engine(matrix, weighted=True, **params):
    return LocalEngine(matrix(X), Y, W if weighted else None, **params)


def run(model, data):
    inference = ClosedForm()
    state, info = inference.step(inference.init(model, data), data)
    return inference, state, info


def close(one, two, rtol=1e-11):
    for name, array in one.to_arrays().items():
        np.testing.assert_allclose(array, two.to_arrays()[name], rtol=rtol, atol=1e-11)


def test_every_model_is_tested():
    assert subclasses(NaiveBayesModel) == {type(model) for model in MODELS.values()}


def test_the_inference_is_a_frozen_value():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ClosedForm().prior = None
    assert not ClosedForm.__subclasses__()


@every
@every_matrix
def test_one_step_is_all_it_takes(name, matrix):
    inference, state, info = run(MODELS[name], engine(matrix))
    assert isinstance(info, Info)
    assert info.converged
    assert info.passes == 1.0
    posterior = inference.posterior(state)
    assert isinstance(posterior, Posterior)
    predictive = posterior.predictive(matrix(X))
    assert isinstance(predictive, Categorical)
    np.testing.assert_allclose(predictive.probabilities().sum(axis=1), 1.0)
    with pytest.raises(ValueError, match="no rows have been seen"):
        inference.posterior(inference.init(MODELS[name], engine(matrix)))


@every
@every_matrix
@pytest.mark.parametrize("weighted", [False, True])
def test_blocks_threads_and_streams_do_not_matter(name, matrix, weighted):
    _, whole, _ = run(MODELS[name], engine(matrix, weighted, block_rows=300))
    for params in ({"block_rows": 7}, {"block_rows": 64, "n_jobs": 2}):
        _, parts, _ = run(MODELS[name], engine(matrix, weighted, **params))
        close(parts.stats, whole.stats)
    blocks = [(b.X, b.y, b.weight) for b in engine(matrix, weighted, block_rows=50).blocks()]
    _, flow, _ = run(MODELS[name], StreamEngine(block_source(lambda: iter(blocks))))
    close(flow.stats, whole.stats)


@every
def test_a_second_step_adds_rows_and_changes_nothing_before_it(name):
    inference, first, _ = run(MODELS[name], LocalEngine(X[:100], Y[:100]))
    kept = copy.deepcopy(first)
    second, _ = inference.step(first, LocalEngine(X[100:], Y[100:]))
    close(first.stats, kept.stats, rtol=0)
    _, whole, _ = run(MODELS[name], LocalEngine(X, Y))
    close(second.stats, whole.stats)


@every
@every_matrix
def test_statistics_form_a_group(name, matrix):
    """They add in any order, and what was added can be taken out again."""
    model = MODELS[name]
    a, b, c = (model.stats(Batch(matrix(X[i::3]), Y[i::3], W[i::3])) for i in range(3))
    close((a + b) + c, a + (c + b))
    close((a + b + c) - c, a + b, rtol=1e-9)
    positions = np.array([0, 2, 5])
    reindexed = a.reindex(positions, 6)
    for field, array in a.to_arrays().items():
        wide = reindexed.to_arrays()[field]
        if field.startswith("row_"):  # of all rows, whatever their class
            np.testing.assert_array_equal(wide, array)
            continue
        np.testing.assert_array_equal(wide[positions], array)
        assert not wide[[1, 3, 4]].any()
    close(type(a).from_arrays(a.to_arrays()), a, rtol=0)


@every
def test_dense_and_sparse_agree(name):
    model = MODELS[name]
    one = model.stats(Batch(X, Y, W))
    two = model.stats(Batch(sparse.csr_array(X), Y, W))
    close(one, two)
    distributions = model.distributions(one)
    np.testing.assert_allclose(
        distributions.log_density(X), distributions.log_density(sparse.csr_array(X)), rtol=1e-12
    )
    np.testing.assert_allclose(
        distributions.log_measure(X), distributions.log_measure(sparse.csr_array(X))
    )


@every
def test_rows_without_labels_are_refused(name):
    with pytest.raises(ValueError, match="no class indices"):
        MODELS[name].stats(Batch(X))
