"""What every inference must do, for those that fit kernel machines by the evidence."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest

from likelier.base import Info
from likelier.engines import LocalEngine
from likelier.kernel_machine.class_experts import CorrectedClasses
from likelier.kernel_machine.evidence import EvidenceAscent, Plan
from likelier.kernel_machine.expert_fit import ExpertFits, Region
from likelier.kernel_machine.search import Choice
from likelier.kernel_machine.weights import (
    ClassLoss,
    FeatureRows,
    Prior,
    WeightProblem,
    WeightSolver,
    ridge,
)

N, D = 300, 4


def engine():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)).astype(np.float32)
    codes = (X[:, 0] + 0.5 * rng.standard_normal(N) > 0.0).astype(float)
    return LocalEngine(X, codes, rng.uniform(0.5, 2.0, N), seed=1, block_rows=64)


def features(X, dtype):
    """The rows themselves, and a constant."""
    return np.column_stack([X, np.ones(len(X))]).astype(dtype)


def evidence():
    """An ascent of the evidence of all rows, and its first state."""
    ascent = EvidenceAscent(lambda y: 2.0 * y[:, None] - 1.0, Plan(((6, 10_000),)))
    return ascent, ascent.init(None, engine())


def weights(certify=False):
    """A fit of weights, and its first state."""
    rows = engine()
    loss = ClassLoss(2, 1.0, 20.0) if certify else ClassLoss(2)
    Phi = rows.map_rows(FeatureRows(features))
    problem = WeightProblem(rows, Phi, loss, Prior(ridge(D + 1, 0.3)), certify=certify)
    solver = WeightSolver(problem, 1e-3)
    return solver, solver.init(np.zeros((D + 1, 1)))


def experts():
    """A fit of twelve experts, and its first state."""
    X, regions = next(iter(engine().blocks())).X, {}
    for number in range(12):
        y = (X[:, 0] > 0.1 * number).astype(float)
        regions[number] = Region(X, y, None, np.zeros((len(X), 1), np.float32))
    fits = ExpertFits(CorrectedClasses(None, None, ClassLoss(2)), regions, Choice(0.1), 8, 0)
    return fits, fits.init()


CASES = {
    "evidence": evidence,
    "weights": weights,
    "weights of a hinge": lambda: weights(certify=True),
    "experts": experts,
}
each = pytest.mark.parametrize("make", CASES.values(), ids=CASES)


def numbers(value):
    """All numbers of a state as one vector."""
    if dataclasses.is_dataclass(value):
        value = [getattr(value, item.name) for item in dataclasses.fields(value)]
    if isinstance(value, list | tuple):
        return np.concatenate([np.zeros(0), *map(numbers, value)])
    return np.asarray(value, dtype=float).ravel()


def end(inference, state):
    """The state when the inference has converged, and what its steps said."""
    infos = []
    while not infos or not infos[-1].converged:
        state, info = inference.step(state, engine())
        infos.append(info)
        assert len(infos) < 200
    return state, infos


@each
def test_an_inference_is_a_frozen_value_that_resumes(make):
    inference, _ = make()
    with pytest.raises(dataclasses.FrozenInstanceError):
        inference.seed = 1
    assert inference.resumable
    assert not type(inference).__subclasses__()


@each
def test_a_step_leaves_the_state_as_it_was(make):
    inference, state = make()
    before = numbers(state).copy()
    after, info = inference.step(state, engine())
    assert isinstance(info, Info) and isinstance(info.converged, bool)
    np.testing.assert_array_equal(numbers(state), before)
    assert len(numbers(after)) != len(before) or (numbers(after) != before).any()
    assert np.isfinite(numbers(after)).all()


@each
def test_a_copied_state_goes_on_alike_in_another_process(make):
    """All that later steps need is in the state."""
    inference, state = make()
    expected, _ = end(inference, state)
    for n_steps in (1, 2):
        twin = state
        for _ in range(n_steps):
            twin, info = inference.step(twin, engine())
        if not info.converged:
            again, _ = make()  # which has seen nothing
            found, _ = end(again, copy.deepcopy(twin))
            np.testing.assert_array_equal(numbers(found), numbers(expected))


@each
def test_steps_lower_the_objective(make):
    inference, state = make()
    _, infos = end(inference, state)
    objectives = [info.objective for info in infos if np.isfinite(info.objective)]
    assert not objectives or objectives[-1] < objectives[0]
