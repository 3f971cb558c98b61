"""Resuming ensembles, and experts on streams."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tests.estimators.test_kernel_resume import (
    data,
    fit,
    interrupt_at,
    interrupted,
    make,
    saved,
    says,
)

from likelier import BayesianKernelClassifier, BayesianKernelRegressor
from likelier.kernel_machine import evidence
from likelier.kernel_machine import expert_fit as kernel_experts
from likelier.kernel_machine.expert_fit import ExpertFit
from likelier.kernel_machine.expert_rows import skip_learned
from likelier.kernel_machine.experts import Region

BOTH = [BayesianKernelClassifier, BayesianKernelRegressor]


# -- several fits ---------------------------------------------------------------------------
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_several_fits_resume_bit_identically(kind, place, monkeypatch, tmp_path):
    """Interrupted in the evidence ascent of one of three fits."""
    rows = data()
    whole = fit(make(kind, n_particles=3), *rows)
    steps = whole._plan(240).n_steps
    model = make(kind, n_particles=3)
    interrupted(monkeypatch, model, rows, evidence, "ascent_step", place * steps + 5)
    assert len(model.checkpoint_.get("finished", [])) == place
    if place:  # fewer fits are a model
        assert len(model.maps_) == place
        assert np.isfinite(says(model, rows[0])).all()
    for again in (saved(model, tmp_path), model):  # also in another process
        with monkeypatch.context() as patch:
            calls = interrupt_at(patch, evidence, "ascent_step", 0)
            fit(again, *rows)
        assert len(calls) == (3 - place) * steps - 4
        assert again.checkpoint_ == {} and len(again.maps_) == 3
        np.testing.assert_array_equal(says(again, rows[0]), says(whole, rows[0]))


@pytest.mark.parametrize("kind", BOTH)
def test_several_fits_are_interrupted_several_times(kind, monkeypatch):
    rows = data()
    whole = fit(make(kind, n_particles=3), *rows)
    model = make(kind, n_particles=3)
    for _ in range(5):
        interrupted(monkeypatch, model, rows, evidence, "ascent_step", 9)
    fit(model, *rows)
    assert model.checkpoint_ == {}
    np.testing.assert_array_equal(says(model, rows[0]), says(whole, rows[0]))


@pytest.mark.parametrize("kind", BOTH)
def test_several_fits_out_of_time_resume(kind):
    rows = data()
    whole = fit(make(kind, n_particles=2), *rows)
    model = fit(make(kind, n_particles=2, time_budget=1e-9), *rows)
    for step in (1, 2):
        assert model.checkpoint_["evidence"]["step"] == step and len(model.maps_) == 1
        fit(model, *rows)
    fit(model.set_params(time_budget=None), *rows)
    assert model.checkpoint_ == {} and len(model.maps_) == 2
    np.testing.assert_array_equal(says(model, rows[0]), says(whole, rows[0]))


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("number", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_several_fits_with_experts_resume(kind, number, monkeypatch, tmp_path):
    """Interrupted while learning experts of the first or second fit."""
    rows, parameters = data(), {"n_particles": 2, "n_experts": 4}
    whole = fit(make(kind, **parameters), *rows)
    model = interrupted(monkeypatch, make(kind, **parameters), rows, ExpertFit, "store", number)
    assert len(model.checkpoint_.get("finished", [])) == number // 5
    for again in (saved(model, tmp_path), model):
        fit(again, *rows)
        assert again.checkpoint_ == {} and len(again.experts_) == 2
        np.testing.assert_array_equal(says(again, rows[0]), says(whole, rows[0]))


def test_another_number_of_fits_is_refused(monkeypatch):
    rows = data()
    model = make(BayesianKernelClassifier, n_particles=2)
    interrupted(monkeypatch, model, rows, evidence, "ascent_step", 5)
    with pytest.raises(ValueError, match="constructor parameters have changed"):
        fit(model.set_params(n_particles=3), *rows)


# -- experts of a stream --------------------------------------------------------------------
@pytest.fixture
def small_buffers(monkeypatch):
    """Use small buffers."""
    monkeypatch.setattr(kernel_experts, "MIN_BUFFER_ROWS", 16)
    monkeypatch.setattr(kernel_experts, "MAX_BUFFER_ROWS", 16)


def blocks(kind, sizes):
    X, y, t = data()
    ends = np.cumsum(sizes)
    target = y if kind is BayesianKernelClassifier else t
    return [(X[e - n : e], target[e - n : e]) for n, e in zip(sizes, ends, strict=True)]


def cut_short(monkeypatch, kind, stream, number):
    """A model whose fit of a stream was interrupted before expert update ``number``."""
    model = make(kind, n_experts=4)
    with monkeypatch.context() as patch:
        interrupt_at(patch, ExpertFit, "store", number)
        with pytest.raises(KeyboardInterrupt):
            model.fit(stream)
    return model


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("number", [1, 3, pytest.param(9, marks=pytest.mark.slow)])
def test_experts_of_a_stream_resume_bit_identically(
    kind, number, monkeypatch, tmp_path, small_buffers
):
    X, stream = data()[0], blocks(kind, [60] * 4)
    whole = make(kind, n_experts=4).fit(stream)
    model = cut_short(monkeypatch, kind, stream, number)
    assert 0 <= model.experts_[0]["counts"].sum() < 240
    for again in (saved(model, tmp_path), model):
        with monkeypatch.context() as patch:
            lessons = interrupt_at(patch, ExpertFit, "store", 0)
            again.set_params(random_state=5).fit(stream)  # the numbers of the first fit count
        assert len(lessons) < 20 - number
        assert again.checkpoint_ == {} and again.experts_[0]["counts"].sum() == 240
        np.testing.assert_array_equal(says(again, X), says(whole, X))


@pytest.mark.parametrize("kind", BOTH)
def test_other_blocks_of_the_same_rows_are_each_learned_once(kind, monkeypatch, small_buffers):
    X = data()[0]
    whole = make(kind, n_experts=4).fit(blocks(kind, [60] * 4))
    model = cut_short(monkeypatch, kind, blocks(kind, [60] * 4), 7)
    model.fit(blocks(kind, [25, 35, 110, 70]))
    np.testing.assert_array_equal(model.experts_[0]["counts"], whole.experts_[0]["counts"])
    close = 1e-3 if kind is BayesianKernelRegressor else 0.05  # closed forms add up, modes do not
    np.testing.assert_allclose(says(model, X), says(whole, X), atol=close)


def test_rows_of_an_expert_after_those_it_has_learned():
    rows = Region(np.arange(6.0)[:, None], np.arange(6), None, np.zeros((6, 1)))
    parts = [(0, rows.take(np.arange(4))), (1, rows), (0, rows.take(np.arange(4, 6)))]
    learned = np.array([3, 6])
    found = [(expert, rows.codes.tolist()) for expert, rows in skip_learned(iter(parts), learned)]
    assert found == [(0, [3]), (0, [4, 5])]
    assert not learned.any()


@pytest.mark.parametrize("kind", BOTH)
def test_experts_of_a_path_out_of_time_resume(kind, monkeypatch, tmp_path, small_buffers):
    X, y, t = data()
    frame, path = pd.DataFrame(X, columns=list("abc")), tmp_path / "rows.csv"
    target = y if kind is BayesianKernelClassifier else t
    frame.assign(y=target).to_csv(path, index=False)
    whole = make(kind, n_experts=4).fit(path, "y")
    model = make(kind, n_experts=4)
    with monkeypatch.context() as patch:
        interrupt_at(patch, kernel_experts, "choose_experts", 1)
        with pytest.raises(KeyboardInterrupt):
            model.fit(path, "y")
    assert model.experts_ == [{}]
    model.fit(path, "y")
    np.testing.assert_array_equal(says(model, frame), says(whole, frame))


def test_rows_in_another_form_are_refused(monkeypatch, small_buffers):
    X, y, _ = data()
    stream = blocks(BayesianKernelClassifier, [60] * 4)
    model = cut_short(monkeypatch, BayesianKernelClassifier, stream, 5)
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match="X of the same kind, a stream"):
        model.fit(X, y)
    with pytest.raises(ValueError, match="X can be read once only"):
        model.fit(iter(stream))
    with pytest.raises(ValueError, match="resumes an interrupted fit and needs the same"):
        model.fit(stream[:3])
    np.testing.assert_array_equal(model.predict_proba(X), before)
    assert model.fit(stream).checkpoint_ == {}


def test_a_stream_to_be_read_once_is_refused_before_experts_too(monkeypatch):
    stream = blocks(BayesianKernelClassifier, [60] * 4)
    model = make(BayesianKernelClassifier)
    with monkeypatch.context() as patch:
        interrupt_at(patch, evidence, "ascent_step", 5)
        with pytest.raises(KeyboardInterrupt):
            model.fit(stream)
    with pytest.raises(ValueError, match="X can be read once only"):
        model.fit(iter(stream))
    assert model.checkpoint_["evidence"]["step"] == 4
