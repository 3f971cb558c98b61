"""SMO held to what every inference must do, over the kernel expansion instead of a linear model."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest

from likelier.base import Info, Posterior
from likelier.engines import LocalEngine
from likelier.inference.smo import SMO
from likelier.kernels import Rbf
from likelier.losses import EpsilonInsensitive, Hinge
from likelier.models.kernel_expansion import KernelExpansion

N, D = 400, 3
LOSSES = [Hinge(), EpsilonInsensitive(0.1)]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)


def problem(loss, block_rows=64):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    y = np.sin(X.sum(axis=1)) + 0.3 * rng.standard_normal(N)
    y = np.sign(y) if loss.task == "binary" else y
    weight = rng.uniform(0.5, 2.0, N)
    weight[::7] = 0.0
    model = KernelExpansion(Rbf(0.5), loss, 3.0)
    return model, LocalEngine(X, y, weight, seed=1, block_rows=block_rows)


def run(inference, model, engine, n_steps=1000):
    state, infos = inference.init(model, engine), []
    for _ in range(n_steps):
        state, info = inference.step(state, engine)
        infos.append(info)
        if info.converged:
            break
    return inference.posterior(state), infos


def test_it_is_a_frozen_value():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SMO().tol = 1
    assert not SMO.__subclasses__()


@every_loss
def test_init_step_posterior(loss):
    model, engine = problem(loss)
    state = SMO().init(model, engine)
    start = SMO().posterior(state)
    assert isinstance(start, Posterior)
    n = engine.n_rows
    assert start.theta.shape == (n + 1, 1)
    state, info = SMO().step(state, engine)
    assert isinstance(info, Info) and isinstance(info.converged, bool)
    assert info.passes >= 0.0
    posterior = SMO().posterior(state)
    assert posterior.scores(np.zeros((5, D))).shape == (5, 1)
    with pytest.raises(ValueError, match="no distribution"):
        posterior.predictive(np.zeros((5, D)))


@every_loss
def test_steps_lead_to_the_optimum_and_the_gap_bounds_the_distance(loss):
    model, engine = problem(loss)
    posterior, infos = run(SMO(1e-5), model, engine)
    assert infos[-1].converged and infos[-1].gap <= 1e-5
    rows = engine.present
    X, y, weight = engine._X[rows], engine._y[rows], engine._weight[rows]
    box = model.box(y, weight)
    F = y - model.kernel.matrix(X) @ posterior.beta
    primal = model.energy(posterior.beta, F, posterior.intercept, box)
    assert primal == pytest.approx(posterior.objective, rel=1e-4)  # no duality gap
    assert primal >= posterior.objective - 1e-9
    scores = posterior.scores(X)[:, 0]
    np.testing.assert_allclose(scores, y - F + posterior.intercept, atol=1e-6)


@every_loss
def test_the_same_start_gives_the_same_bits_and_blocks_do_not_matter(loss):
    one, _ = run(SMO(), *problem(loss))
    two, _ = run(SMO(), *problem(loss, block_rows=1000))
    np.testing.assert_array_equal(one.theta, two.theta)


@every_loss
def test_a_copied_state_goes_on_alike(loss):
    model, engine = problem(loss)
    inference = SMO(1e-6)
    state, _ = inference.step(inference.init(model, engine), engine)
    twin = copy.deepcopy(state)
    ends = [inference.solve(s).theta for s in (state, twin)]
    np.testing.assert_array_equal(*ends)


@every_loss
def test_a_start_is_a_start(loss):
    model, engine = problem(loss)
    optimum, _ = run(SMO(1e-5), model, engine)
    state = SMO(1e-3).init(model, engine, optimum.theta)
    state, info = SMO(1e-3).step(state, engine)
    assert info.converged
    np.testing.assert_array_equal(SMO().posterior(state).beta, optimum.beta)
