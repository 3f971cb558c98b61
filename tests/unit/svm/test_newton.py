"""Newton steps between pair updates: who takes part, and what they make of the coefficients."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from likelier.kernels import Rbf
from likelier.losses import EpsilonInsensitive, Hinge
from likelier.svm.model import KernelExpansion, Subset, dual_objective
from likelier.svm.smo import SMO
from likelier.svm.state import SLACK, _with_violators, free_rows, newton_step

LOSSES = [Hinge(), EpsilonInsensitive(0.1), EpsilonInsensitive(0.0)]


def halfway(loss, updates, tol=1e-3, n=400, C=50.0):
    """A state after some pair updates."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 4))
    y = np.sin(X.sum(axis=1)) + 0.3 * rng.standard_normal(n)
    y = np.sign(y) if loss.task == "binary" else y
    kernel = Rbf(0.3)
    inference = SMO(tol, updates)
    state = inference.start(KernelExpansion(kernel, loss, C), Subset(kernel.prepare(X)), y)
    inference.solve(state)
    state.done, state.message = False, ""
    return dataclasses.replace(inference, max_iter=-1), state


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_a_step_raises_the_dual_and_carries_the_residuals_along(loss):
    _, state = halfway(loss, 1000)
    part, K = state.part, state.rows.square(np.arange(400))
    before = dual_objective(state.box, part.beta, part.F)
    assert newton_step(state, free_rows(part, state.box.eps))
    assert dual_objective(state.box, part.beta, part.F) > before
    np.testing.assert_allclose(part.F, state.box.target - K @ part.beta, atol=1e-3)
    assert (part.beta >= part.lower).all() and (part.beta <= part.upper).all()
    assert abs(part.beta.sum()) < 1e-8
    assert state.gap == pytest.approx((part.F + part.up).max() - (part.F + part.down).min())


@pytest.mark.parametrize("loss", LOSSES[:2], ids=str)
def test_rows_that_nothing_holds_take_part_on_the_side_they_are_pulled_to(loss):
    _, state = halfway(loss, 300)
    part, eps = state.part, state.box.eps
    free = free_rows(part, eps)
    some, sign = _with_violators(part, eps, free, SLACK * state.tol)
    assert np.isin(free, some).all()
    new = np.setdiff1d(some, free)
    assert 0 < len(new) <= len(free) // 2
    level = (part.F - eps * np.sign(part.beta))[free].mean()
    rising, falling = part.F + part.up > level, part.F + part.down < level
    assert (rising | falling)[new].all()
    if eps == 0.0:
        assert not sign.any()
        return
    zero = part.beta[some] == 0.0
    np.testing.assert_array_equal(sign[zero] > 0.0, rising[some][zero])
    np.testing.assert_array_equal(sign[~zero], np.sign(part.beta[some][~zero]))


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_steps_after_few_pairs_lead_to_the_optimum(loss):
    """Pairs alone would need many times as many updates."""
    inference, state = halfway(loss, 1000)
    for _ in range(8):
        newton_step(state, free_rows(state.part, state.box.eps))
    assert state.gap < 1e-3
    found = inference.solve(state)
    exact = dataclasses.replace(inference, tol=1e-8)
    best = exact.solve(exact.start(state.model, state.rows, state.box.target))
    assert found.objective == pytest.approx(best.objective, rel=1e-6)


def test_a_step_where_all_coefficients_are_zero_leaves_them_there():
    """Without a zone that costs nothing, coefficients of zero are free."""
    _, state = halfway(EpsilonInsensitive(0.0), 1)
    state.part.beta[:], state.part.F[:], state.gap = 0.0, 0.5, 0.0
    newton_step(state, np.arange(400))
    assert abs(state.part.beta).max() < 1e-9
