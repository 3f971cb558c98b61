"""What every sampler of a Bayesian linear model must do."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
from scipy import sparse
from tests.reference.bayesian_problem import make_model, small_rows

from likelier.base import Batch, Info, Posterior
from likelier.bayesian_linear.gibbs import Gibbs
from likelier.bayesian_linear.transport_moves import Hamiltonian, Independent
from likelier.engines import LocalEngine, StreamEngine, blocks
from likelier.files import states
from likelier.predictive import Predictive
from likelier.tables import block_source

KINDS = [Gibbs, Hamiltonian, Independent]
PROBLEMS = ["log_loss", "hinge", "softmax"]
every_pair = pytest.mark.parametrize(
    ("kind", "problem"), [(kind, problem) for kind in KINDS for problem in PROBLEMS]
)


def parts(problem, n_jobs=1, seed=3):
    K = 3 if problem == "softmax" else 2
    X, y = small_rows(90, 3, seed=0, n_classes=K)
    loss = "log_loss" if problem == "softmax" else problem
    model = make_model(3, loss, n_classes=K, fit_intercept=True, learned=True)
    return model, LocalEngine(X, y, None, seed=seed, n_jobs=n_jobs, block_rows=30)


def advance(inference, model, engine, n=2):
    state = inference.init(model, engine)
    for _ in range(n):
        state, _ = inference.step(state, engine)
    return state


@every_pair
def test_init_step_posterior(kind, problem):
    model, engine = parts(problem)
    inference = kind(n_chains=2)
    state = inference.init(model, engine)
    assert isinstance(inference.posterior(state), Posterior)
    state, info = inference.step(state, engine)
    assert isinstance(info, Info)
    posterior = inference.posterior(state)
    assert posterior.theta.shape == (2, state.n_draws, model.n_parameters)
    assert posterior.eta.shape == posterior.theta.shape[:2]
    assert np.isfinite(posterior.theta).all()
    X = np.ones((5, 3))
    if problem == "hinge":
        with pytest.raises(ValueError, match="no distribution"):
            posterior.predictive(X)
    else:
        predictive = posterior.predictive(X)
        assert isinstance(predictive, Predictive)
        assert predictive.n_rows == 5


@every_pair
def test_the_same_seed_gives_the_same_bits_on_any_number_of_threads(kind, problem):
    found = []
    for n_jobs, seed in ((1, 3), (2, 3), (1, 4)):
        model, engine = parts(problem, n_jobs, seed)
        with engine:
            found.append(advance(kind(n_chains=2), model, engine).draws().theta)
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


class Shaky:
    """An engine whose blocks come last first, each computed twice since a worker was lost."""

    def __init__(self, engine):
        self.engine, self.n_lost = engine, 0

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def reduce(self, compute, merge, state=None):
        found, rest = {}, () if state is None else (state,)
        for batch in reversed(list(self.engine.blocks())):
            compute(batch, *rest)
            found[batch.index] = compute(batch, *rest)
            self.n_lost += 1
        total = found[0]
        for index in range(1, len(found)):
            total = merge(total, found[index])
        return total


@every_pair
def test_retried_blocks_in_another_order_give_the_same_bits(kind, problem):
    model, engine = parts(problem)
    shaky = Shaky(parts(problem)[1])
    plain = advance(kind(n_chains=2), model, engine).draws().theta
    np.testing.assert_array_equal(advance(kind(n_chains=2), model, shaky).draws().theta, plain)
    assert shaky.n_lost > 2


@every_pair
def test_a_copied_state_goes_on_alike(kind, problem):
    model, engine = parts(problem)
    inference = kind(n_chains=2)
    state = advance(inference, model, engine, 1)
    before = inference.posterior(state).theta
    kept, twin = before.copy(), copy.deepcopy(state)
    ends = [inference.step(s, engine)[0].theta for s in (state, twin)]
    np.testing.assert_array_equal(*ends)
    np.testing.assert_array_equal(before, kept)  # what was handed out does not change
    np.testing.assert_array_equal(inference.posterior(state).theta, kept)


@every_pair
def test_a_state_read_from_a_file_goes_on_alike(kind, problem):
    model, engine = parts(problem)
    inference = kind(n_chains=2)
    state = advance(inference, model, engine, 3).warmed_up()
    state = inference.step(state, engine)[0]
    twin = states.decode(states.encode(state, "state"))
    for _ in range(2):
        state, twin = (inference.step(s, engine)[0] for s in (state, twin))
    np.testing.assert_array_equal(twin.draws().theta, state.draws().theta)
    np.testing.assert_array_equal(twin.draws().eta, state.draws().eta)


@pytest.mark.parametrize("kind", KINDS)
def test_an_inference_is_a_frozen_value(kind):
    with pytest.raises(dataclasses.FrozenInstanceError):
        kind().n_chains = 1
    assert not kind.__subclasses__()


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_gives_the_same_draws(kind, monkeypatch):
    for name in ("MIN_DENSE_ROWS", "MAX_DENSE_ROWS"):
        monkeypatch.setattr(blocks, name, 32)
    X, y = small_rows(90, 3, seed=0, n_classes=2)
    model, engine = parts("log_loss")[0], LocalEngine(X, y, seed=3)
    pieces = [Batch(X[i : i + 20], y[i : i + 20]) for i in range(0, 90, 20)]
    stream = StreamEngine(block_source(lambda: iter(pieces)), seed=3, shuffle=False)
    one, two = (advance(kind(n_chains=2), model, e).theta for e in (engine, stream))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_rows_of_single_precision(kind):
    model, engine = parts("log_loss")
    batch = next(iter(engine.blocks()))
    small = LocalEngine(sparse.csr_array(batch.X.astype(np.float32)), batch.y, seed=1)
    assert np.isfinite(advance(kind(n_chains=2), model, small).theta).all()
