"""The pair updates against their definition in plain NumPy."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from likelier.svm import newton as smo_newton
from likelier.svm.loops import smo
from likelier.svm.loops.smo import (
    CONVERGED,
    EXTERNAL,
    NEEDS_ROW,
    PAUSED,
    RBF,
    compact_rows,
    gather_block,
    likely_rows,
    move_terms,
    smo_updates,
    subtract_rows,
)
from likelier.svm.newton import newton_move


class Problem:
    """A random dual with its kernel matrix."""

    def __init__(self, n=60, eps=0.1, C=2.0, dtype=np.float64, seed=0, held=True, d=3):
        rng = np.random.default_rng(seed)
        self.X = rng.standard_normal((n, d))
        square = ((self.X[:, None] - self.X) ** 2).sum(axis=2)
        self.K = np.exp(-0.5 * square)
        self.t = np.sin(self.X.sum(axis=1)) + 0.3 * rng.standard_normal(n)
        self.lower, self.upper = np.full(n, -C), np.full(n, C)
        if eps == 0.0:
            self.t = np.sign(self.t)
            self.lower, self.upper = np.where(self.t > 0, 0, -C), np.where(self.t > 0, C, 0.0)
        self.eps, self.n = eps, n
        self.F, self.beta = self.t.copy(), np.zeros(n)
        self.up, self.down = move_terms(self.beta, self.lower, self.upper, eps)
        self.slots = self.K.astype(dtype).copy()
        self.slot_of = np.arange(n) if held else np.full(n, -1)
        self.row_of = np.arange(n) if held else np.full(n, -1)
        self.count = np.array([n if held else 0])
        self.stamps, self.budget = np.zeros(n, dtype=np.int64), np.zeros(1, dtype=np.int64)
        none = np.zeros(1, dtype)
        self.row_source = (EXTERNAL, none, none[:, None], none, np.arange(n))

    def run(self, tol=1e-8, max_updates=1_000_000):
        return smo_updates(
            self.F, self.beta, self.lower, self.upper, self.eps, self.up, self.down,
            np.diag(self.K).astype(self.slots.dtype), tol, max_updates, self.slots, self.slot_of,
            self.row_of, self.stamps, self.budget, self.count, *self.row_source,
        )  # fmt: skip

    def objective(self, beta=None):
        b = self.beta if beta is None else beta
        return self.t @ b - self.eps * abs(b).sum() - 0.5 * b @ self.K @ b


@pytest.mark.parametrize("eps", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_updates_reach_the_optimum_of_the_dual(eps, dtype):
    problem = Problem(eps=eps, dtype=dtype)
    status, _, _, gap = problem.run(1e-6)
    assert status == CONVERGED
    assert gap <= 1e-6
    assert abs(problem.beta.sum()) < 1e-10
    assert (problem.beta >= problem.lower).all() and (problem.beta <= problem.upper).all()
    np.testing.assert_allclose(problem.F, problem.t - problem.K @ problem.beta, atol=2e-6)
    best = brute_force(eps)
    assert problem.objective() >= best - 1e-6 * abs(best)


@cache
def brute_force(eps):
    """The dual by projected gradient steps, independent of pairs: slow and simple."""
    problem = Problem(eps=eps)
    beta = np.zeros(problem.n)
    step = 1.0 / np.linalg.eigvalsh(problem.K)[-1]
    for _ in range(4000):
        z = beta + step * (problem.t - problem.K @ beta)
        low, high = -50.0, 50.0
        for _ in range(60):  # the multiplier of sum beta = 0, by bisection
            b = 0.5 * (low + high)
            v = z - step * b
            v = np.sign(v) * np.maximum(abs(v) - step * problem.eps, 0.0)
            v = np.clip(v, problem.lower, problem.upper)
            low, high = (b, high) if v.sum() > 0 else (low, b)
        beta = v
    return problem.objective(beta)


def test_one_update_is_the_best_move_of_the_chosen_pair():
    """First the row of the largest gain, then the partner that raises the dual most."""
    problem = Problem(eps=0.05)
    before = problem.objective()
    problem.run(max_updates=1)
    moved = np.flatnonzero(problem.beta)
    i = int(np.argmax(problem.t - problem.eps))
    assert i in moved
    best = -np.inf
    for j in range(problem.n):
        if j == i:
            continue
        for step in np.linspace(0.0, 2.0, 2001):
            beta = np.zeros(problem.n)
            beta[i], beta[j] = step, -step
            best = max(best, problem.objective(beta))
    assert problem.objective() - before >= best - 1e-6


def test_a_move_stops_where_beta_changes_its_sign():
    problem = Problem(eps=0.5, C=1.0)
    assert problem.run(1e-9)[0] == CONVERGED
    up, down = move_terms(problem.beta, problem.lower, problem.upper, 0.5)
    gap = (problem.F + up).max() - (problem.F + down).min()
    assert gap <= 1e-9
    assert (problem.beta == 0.0).any()


def test_the_loop_asks_for_rows_and_pauses():
    problem = Problem(held=False)
    status, count, wanted, _ = problem.run()
    assert (status, count) == (NEEDS_ROW, 0)
    assert wanted == np.argmax(problem.t)
    problem = Problem()
    status, count, wanted, gap = problem.run(max_updates=7)
    assert (status, count, wanted) == (PAUSED, 7, -1)
    assert gap > 1e-8


@pytest.mark.parametrize("n_slots", [60, 8])
def test_rows_made_inside_the_loop_are_the_same(n_slots):
    """Also when there is room for a few only, so that rows are given up and made again."""
    whole, made = Problem(), Problem(held=False)
    whole.run(1e-6)
    made.slots, made.row_of = np.full((n_slots, 60), np.nan), np.full(n_slots, -1)
    made.stamps = np.zeros(n_slots, dtype=np.int64)
    norms = (made.X**2).sum(axis=1)
    made.row_source = (RBF, np.array([0.5]), np.ascontiguousarray(made.X.T), norms, np.arange(60))
    assert made.run(1e-6)[0] == CONVERGED
    assert made.objective() == pytest.approx(whole.objective(), rel=1e-9)
    held = np.flatnonzero(made.slot_of >= 0)
    assert len(held) <= n_slots
    np.testing.assert_allclose(made.slots[made.slot_of[held]], made.K[held], atol=1e-12)


@pytest.mark.parametrize("kind", [smo.LINEAR, smo.POLY])
def test_other_kernels_inside_the_loop(kind):
    problem = Problem(held=False)
    G = problem.X @ problem.X.T
    problem.K = G + 0.0 if kind == smo.LINEAR else (0.7 * G + 1.5) ** 3
    columns = np.ascontiguousarray(problem.X.T)
    problem.row_source = (kind, np.array([0.7, 1.5, 3.0]), columns, np.zeros(1), np.arange(60))
    problem.run(1e-3, max_updates=50)
    held = np.flatnonzero(problem.slot_of >= 0)
    assert len(held) > 5
    np.testing.assert_allclose(
        problem.slots[problem.slot_of[held]], problem.K[held], rtol=1e-10, atol=1e-10
    )


def test_compaction_in_place():
    rng = np.random.default_rng(0)
    for _ in range(20):
        matrix = rng.standard_normal((7, 11))
        rows = np.flatnonzero(rng.random(7) < 0.6)
        columns = np.flatnonzero(rng.random(11) < 0.6)
        flat = matrix.ravel().copy()
        compact_rows(flat, 11, rows, columns)
        kept = flat[: len(rows) * len(columns)].reshape(len(rows), len(columns))
        np.testing.assert_array_equal(kept, matrix[np.ix_(rows, columns)])


def test_a_block_out_of_the_whole_matrix():
    problem = Problem()
    rows = np.array([3, 8, 41, 59])
    out = np.full((4, 4), np.nan)
    gather_block(problem.K, rows, rows, out)
    np.testing.assert_array_equal(out, problem.K[np.ix_(rows, rows)])


def test_likely_rows_are_those_that_violate_most():
    problem = Problem()
    slot_of = np.full(problem.n, -1)
    slot_of[:20] = 3
    rows = likely_rows(problem.F, problem.up, problem.down, slot_of, 30, 8)
    gains, costs = problem.F + problem.up, problem.F + problem.down
    absent = np.setdiff1d(np.arange(20, 60), [30])
    expected = np.union1d(
        absent[np.argsort(-gains[absent])[:4]], absent[np.argsort(costs[absent])[:4]]
    )
    np.testing.assert_array_equal(rows, np.union1d(expected, [30]))
    few = likely_rows(problem.F, problem.up, problem.down, np.zeros(60, dtype=int), 30, 8)
    np.testing.assert_array_equal(few, [30])


def test_likely_rows_fill_a_block():
    """One row that is lacking and an odd number more: as many as the products are fast for."""
    problem = Problem()
    slot_of = np.full(problem.n, -1)
    rows = likely_rows(problem.F, problem.up, problem.down, slot_of, 30, 7)
    gains, costs = problem.F + problem.up, problem.F + problem.down
    others = np.setdiff1d(np.arange(problem.n), [30])
    expected = np.union1d(
        others[np.argsort(-gains[others])[:4]], others[np.argsort(costs[others])[:3]]
    )
    np.testing.assert_array_equal(rows, np.union1d(expected, [30]))


def test_subtract_rows():
    problem = Problem()
    amounts = np.array([0.5, -2.0])
    expected = problem.F - amounts @ problem.K[[3, 9]]
    subtract_rows(problem.F, problem.slots, np.array([3, 9]), amounts)
    np.testing.assert_allclose(problem.F, expected, rtol=1e-12)


def test_a_newton_move_is_the_optimum_of_its_face_where_no_bound_is_met():
    problem = Problem(n=30)
    far = np.full(30, 1e6)
    move, whole = newton_move(problem.K, problem.t, -far, far)
    assert whole and abs(move.sum()) < 1e-8
    pull = problem.t - problem.K @ move  # equal for all: the multiplier of the constraint
    np.testing.assert_allclose(pull, pull.mean(), atol=1e-6)


@pytest.mark.parametrize("ridge", [0.0, 0.01])
@pytest.mark.parametrize("seed", range(5))
def test_a_newton_move_stays_inside_and_never_loses(seed, ridge):
    problem = Problem(n=40, seed=seed)
    rng = np.random.default_rng(seed)
    low, high = -rng.random(40), rng.random(40)
    move, whole = newton_move(problem.K, problem.t, low, high, ridge)
    assert (move >= low - 1e-12).all() and (move <= high + 1e-12).all()
    assert abs(move.sum()) < 1e-9
    assert problem.t @ move - 0.5 * move @ problem.K @ move > 0.0
    assert whole
    inside = (move > low) & (move < high)
    assert 2 <= inside.sum() < 40  # bounds are met, and what meets none is at its optimum
    pull = (problem.t - problem.K @ move - ridge * move)[inside]
    np.testing.assert_allclose(pull, pull.mean(), atol=1e-7)


def test_a_newton_move_that_cannot_end_inside_is_shortened(monkeypatch):
    monkeypatch.setattr(smo_newton, "MAX_ROUNDS", 1)
    problem = Problem(n=40)
    low, high = np.full(40, -0.1), np.full(40, 0.1)
    move, whole = newton_move(problem.K, problem.t, low, high)
    assert not whole
    assert abs(move).max() == pytest.approx(0.1)
    assert problem.t @ move - 0.5 * move @ problem.K @ move > 0.0


def test_no_newton_move_on_an_indefinite_matrix():
    K = -np.eye(4)
    assert newton_move(K, np.arange(4.0), -np.ones(4), np.ones(4)) is None
