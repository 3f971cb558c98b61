"""What every inference must do, for the one that trains deep Gaussian processes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import sparse

from likelier.base import Info, Posterior
from likelier.deep_gp.adam import DeepAdam, DeepState
from likelier.deep_gp.model import DeepGP
from likelier.engines import LocalEngine, StreamEngine
from likelier.files.states import decode, encode
from likelier.fitting.standardize import Standard
from likelier.predictive import Predictive
from likelier.tables import block_source

N, D = 100, 3
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, D)) * (RNG.random((N, D)) < 0.8)
Y = np.sin(2.0 * X[:, 0]) + 0.1 * RNG.standard_normal(N)
MODEL = DeepGP((D, D, 1), 20, 10)  # programs of these shapes serve other tests too


def training(**words):
    return DeepAdam(Standard.of(X), float(N), max_iter=60, batch_size=64, n_draws=8, **words)


def run(engine, n_calls=2, inference=None):
    inference = inference or training()
    state = inference.init(MODEL, engine)
    for _ in range(n_calls):
        state, _ = inference.step(state, engine)
    return state


def same(one, two, **words):
    for a, b in zip(one.arrays, two.arrays, strict=True):
        np.testing.assert_allclose(a, b, **words)


def test_the_inference_is_a_frozen_value():
    with pytest.raises(dataclasses.FrozenInstanceError):
        training().power = 1.0
    assert not DeepAdam.__subclasses__()


def test_a_step_says_what_it_did_and_changes_nothing_before_it():
    engine, inference = LocalEngine(X, Y, seed=1), training()
    state = inference.init(MODEL, engine)
    before = [array.copy() for array in state.arrays]
    after, info = inference.step(state, engine)
    assert isinstance(info, Info) and np.isfinite(info.objective)
    assert info.passes == pytest.approx(20 * 64 / N)
    assert after.step == 20 and state.step == 0
    for a, b in zip(before, state.arrays, strict=True):
        np.testing.assert_array_equal(a, b)
    again, _ = inference.step(state, engine)
    same(again, after, rtol=0)
    posterior = inference.posterior(after)
    assert isinstance(posterior, Posterior)
    assert isinstance(posterior.predictive(Standard.of(X).apply(X, np.float64)), Predictive)


def test_a_state_is_plain_values_and_goes_on_elsewhere():
    """Also in the middle of a pass, by an inference that has not seen the rows before."""
    assert DeepAdam.resumable and DeepAdam.local_only
    inference, engine = training(), LocalEngine(X, Y, seed=1)
    state, _ = inference.step(inference.init(MODEL, engine), engine)
    kept = decode(encode(state, "state"))
    assert isinstance(kept, DeepState)
    one, _ = inference.step(state, engine)
    two, _ = training().step(kept, LocalEngine(X, Y, seed=1))
    same(one, two, rtol=0)


def test_the_energy_falls_and_the_schedule_ends():
    engine, inference = LocalEngine(X, Y, seed=1), training()
    state, first = inference.step(inference.init(MODEL, engine), engine)
    while state.step < state.horizon:
        state, last = inference.step(state, engine)
    assert last.converged and state.step == 60
    assert last.objective < first.objective


def test_sparse_rows_and_streams_are_the_same_rows():
    whole = run(LocalEngine(X, Y, seed=1))
    same(run(LocalEngine(sparse.csr_array(X), Y, seed=1)), whole, rtol=1e-6, atol=1e-9)
    small = training()
    small = dataclasses.replace(small, batch_size=256)  # one minibatch holds everything
    engine = StreamEngine(block_source(lambda: iter([(X[:40], Y[:40]), (X[40:], Y[40:])])), seed=1)
    engine.know_rows(N)
    state = small.init(MODEL, LocalEngine(X, Y, seed=1))
    a, _ = small.step(state, LocalEngine(X, Y, seed=1))
    b, _ = small.step(state, engine)
    same(a, b, rtol=1e-9, atol=1e-12)
