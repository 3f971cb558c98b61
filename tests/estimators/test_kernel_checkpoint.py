"""Kernel fits that are interrupted and resumed from a checkpoint folder."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import likelier
from likelier import SVGD, Evidence, SteinGaussian
from likelier.kernel_machine.evidence import EvidenceAscent
from likelier.kernel_machine.expert_fit import ExpertFits, ExpertValidator
from likelier.kernel_machine.regression import RegressionValidator
from likelier.kernel_machine.search import ClassValidator
from likelier.kernel_machine.weights import WeightSolver

BOTH = CLASSES, NUMBERS = likelier.BayesianKernelClassifier, likelier.BayesianKernelRegressor
PARTICLES = {"n_particles": 3, "n_updates": 60}


def data(n=240, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    f = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n)
    return X, np.where(f > 0.0, "up", "down"), f


def fit(model, X, y, f):
    return model.fit(X, y if isinstance(model, CLASSES) else f)


def make(kind, folder=None, **parameters):
    return kind(**({"random_state": 0, "n_components": 40, "checkpoint": folder} | parameters))


def answers(model, X):
    if isinstance(model, NUMBERS):
        return np.column_stack(model.predict(X, return_std=True))
    return model.predict_proba(X)


def interrupt_at(monkeypatch, place, name, number):
    """Interrupt call ``number`` of a method; returns the list of calls."""
    calls, call = [], getattr(place, name)

    def spy(*args, **parameters):
        calls.append(1)
        if len(calls) == number:
            raise KeyboardInterrupt
        return call(*args, **parameters)

    monkeypatch.setattr(place, name, spy)
    return calls


def interrupted(monkeypatch, model, rows, place, name, number):
    with monkeypatch.context() as patch:
        interrupt_at(patch, place, name, number)
        with pytest.raises(KeyboardInterrupt):
            fit(model, *rows)


EXPERTS = {"inference": Evidence(n_experts=16)}
STAGES = [
    *[(kind, {}, EvidenceAscent, "step", at) for kind in BOTH for at in (1, 20)],
    (CLASSES, {}, ClassValidator, "losses", 2),
    (NUMBERS, {}, RegressionValidator, "losses", 2),
    (CLASSES, {"inference": Evidence(tol=1e-7)}, WeightSolver, "step", -1),
    (NUMBERS, {"loss": "epsilon_insensitive"}, WeightSolver, "step", -1),
    *[(kind, EXPERTS, ExpertValidator, "losses", 2) for kind in BOTH],
    *[(kind, EXPERTS, ExpertFits, "step", 2) for kind in BOTH],
    *[
        (kind, {"inference": inference(**PARTICLES)}, inference, "step", at)
        for kind in BOTH
        for inference in (SVGD, SteinGaussian)
        for at in (34, 75)
        if kind is NUMBERS or at < 60  # these estimate the noise first
    ],
]


@pytest.mark.parametrize(("kind", "parameters", "place", "name", "number"), STAGES)
def test_every_stage_resumes_bit_identically(
    kind, parameters, place, name, number, monkeypatch, tmp_path
):
    rows = data()
    with monkeypatch.context() as patch:
        calls = interrupt_at(patch, place, name, 0)
        whole = fit(make(kind, **parameters), *rows)
    number = number if number > 0 else len(calls)
    interrupted(monkeypatch, make(kind, tmp_path, **parameters), rows, place, name, number)
    assert list(tmp_path.iterdir())
    again = interrupt_at(monkeypatch, place, name, 0)
    ascents = interrupt_at(monkeypatch, EvidenceAscent, "step", 0)
    model = fit(make(kind, tmp_path, **parameters), *rows)
    np.testing.assert_array_equal(answers(model, rows[0]), answers(whole, rows[0]))
    assert not list(tmp_path.iterdir())
    if name == "step":
        assert len(again) == len(calls) - number + 1  # no step is made twice
    assert place is EvidenceAscent or not ascents


@pytest.mark.parametrize("kind", BOTH)
def test_other_rows_and_parameters_do_not_resume(kind, monkeypatch, tmp_path):
    X, y, f = rows = data()
    interrupted(monkeypatch, make(kind, tmp_path), rows, EvidenceAscent, "step", 5)
    for other, parameters in (
        ((X + 1.0, y, f), {}),
        ((X, y[::-1], f[::-1]), {}),
        (rows, {"alpha": 0.1}),
        (rows, {"gamma": np.linspace(0.1, 1.0, 3)}),
        (rows, {"inference": Evidence(max_iter=101)}),
    ):
        with pytest.warns(UserWarning, match="checkpoint"):
            model = fit(make(kind, tmp_path, **parameters), *other)
        expected = fit(make(kind, **parameters), *other)
        np.testing.assert_array_equal(answers(model, X), answers(expected, X))
    assert len(list(tmp_path.glob("*.checkpoint"))) == 1  # that of the first fit is still there


@pytest.mark.parametrize("kind", BOTH)
def test_an_interrupted_refit_keeps_the_earlier_model(kind, monkeypatch):
    rows, more, model = data(), data(seed=1), make(kind)
    fit(model, *rows)
    before = answers(model, rows[0])
    for place, name in ((EvidenceAscent, "step"), (kind, "_store")):
        interrupted(monkeypatch, model, more, place, name, 1)
        np.testing.assert_array_equal(answers(model, rows[0]), before)


@pytest.mark.parametrize("inference", ["evidence", SVGD(**PARTICLES), SteinGaussian(**PARTICLES)])
@pytest.mark.parametrize("kind", BOTH)
def test_a_fit_out_of_time_is_a_model_and_leaves_no_checkpoint(kind, inference, tmp_path):
    rows = data()
    model = fit(make(kind, tmp_path, inference=inference, time_budget=1e-6), *rows)
    assert np.isfinite(answers(model, rows[0])).all()
    assert not list(tmp_path.iterdir())


def test_a_path_resumes(monkeypatch, tmp_path):
    X, y, _ = data()
    path, frame = tmp_path / "rows.csv", pd.DataFrame(X, columns=list("abc"))
    frame.assign(y=y).to_csv(path, index=False)
    model = make(CLASSES, tmp_path / "fits")
    whole = make(CLASSES).fit(path, "y")
    interrupted(monkeypatch, model, (path, "y", None), EvidenceAscent, "step", 5)
    calls = interrupt_at(monkeypatch, EvidenceAscent, "step", 0)
    again = model.fit(path, "y")
    np.testing.assert_array_equal(again.predict_proba(frame), whole.predict_proba(frame))
    assert len(calls) == model._task().plan(240).n_steps - 4
