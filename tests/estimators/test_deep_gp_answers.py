"""Deep Gaussian processes: their words and options, units, and answers to bad input."""

from __future__ import annotations

import copy
import importlib.util
from dataclasses import replace

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from likelier import DeepGPClassifier, DeepGPRegressor
from likelier.deep_gp import adam as deep_adam
from likelier.deep_gp.compile import forget_programs
from likelier.deep_gp.start import mean_projection, typical_length
from likelier.deep_gp.target_scale import NOISE_FLOOR, TargetMoments, TargetScale

from .deep_gp_problem import LABELS, TWO, D, N, X, Y, classifier, regressor


def test_inputs_of_one_unit_keep_their_proportions():
    """A column that hardly varies counts little, unless every column has its own unit."""
    small = X * [1.0, 1.0, 1e-3]
    model = regressor(kernel__input_scale="common").fit(small, Y)
    assert len(set(model.input_inverse_)) == 1
    spread = ((small - small.mean(axis=0)) * model.input_inverse_).var(axis=0)
    assert spread.mean() == pytest.approx(1.0)
    same = regressor(kernel__input_scale="common").fit(7.0 * small, Y)
    np.testing.assert_allclose(same.predict(7.0 * small), model.predict(small), rtol=1e-6)
    moved = small + np.array([0.0, 0.0, 1e-3])
    np.testing.assert_allclose(model.predict(moved), model.predict(small), atol=1e-2)
    own = regressor().fit(small, Y)
    assert np.abs(own.predict(moved) - own.predict(small)).max() > 1e-2


def test_the_configuration_of_jax_is_left_alone(fitted, of_three):
    before = dict(jax.config.values)
    regressor().fit(X, Y).predict(X)
    of_three.predict_proba(X)
    assert dict(jax.config.values) == before
    assert jax.numpy.ones(1).dtype == np.float32


@pytest.mark.parametrize(
    "setting",
    [
        {"jax_numpy_rank_promotion": "raise"},
        {"jax_disable_jit": True},
        {"jax_transfer_guard": "disallow"},
    ],
)
def test_settings_of_the_user_for_his_own_programs_do_not_matter(setting, of_three, tmp_path):
    """Programs are made anew, as where nothing is on disk yet."""
    expected = of_three.predict_proba(X)
    ((name, value),) = setting.items()
    before = getattr(jax.config, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIKELIER_CACHE_DIR", str(tmp_path))
        forget_programs()
        jax.config.update(name, value)
        try:
            np.testing.assert_allclose(of_three.predict_proba(X), expected, rtol=1e-6)
            assert getattr(jax.config, name) == value
        finally:
            jax.config.update(name, before)


def test_a_training_that_diverges_is_refused():
    """What it would leave predicts nothing, so an earlier fit is better kept."""
    model = regressor().fit(X, Y)
    before = model.predict(X)
    message = r"training diverged with inference\.learning_rate=1000000\.0.*choose a smaller one"
    with np.errstate(over="ignore"), pytest.raises(ValueError, match=message):
        model.set_params(inference__learning_rate=1e6).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), before)


def test_an_energy_that_is_not_finite_is_told_where_rows_can_be_predicted(monkeypatch):
    step = deep_adam.DeepAdam.step

    def without_energy(self, state, engine):
        state, info = step(self, state, engine)
        return state, replace(info, objective=float("nan"))

    monkeypatch.setattr(deep_adam.DeepAdam, "step", without_energy)
    with pytest.warns(ConvergenceWarning, match=r"training diverged with inference\.learning_rate"):
        model = regressor().fit(X, Y)
    assert np.isfinite(model.predict(X)).all()


def test_without_jax_one_line_says_what_to_install(monkeypatch, fitted, of_two):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "jax" else find(name, *a)
    )
    for model in (regressor(), classifier()):
        with pytest.raises(ImportError, match=r'pip install "likelier\[jax\]"') as error:
            clone(model).fit(X, Y)
        assert "\n" not in str(error.value)
    assert np.isfinite(fitted.predict(X)).all()  # prediction needs NumPy only
    assert np.isfinite(of_two.predict_proba(X)).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"layers": 0}, "'layers' parameter"),
        ({"inference__power": 0.0}, r"inference\.power must be 'auto' or a number in \(0, 1\]"),
        ({"inference__power": 1.5}, r"inference\.power must be"),
        ({"inference__power": "most"}, r"inference\.power must be"),
        ({"kernel__input_scale": "row"}, r"kernel\.input_scale must be one of"),
        ({"kernel": "cosine"}, "kernel='cosine' is not known; choose one of"),
        ({"inference__dtype": "float16"}, r"inference\.dtype must be one of"),
        ({"hidden_dim": "wide"}, "'hidden_dim' parameter"),
        ({"max_iter": 0}, "'max_iter' parameter"),
        ({"inference__validation_fraction": 1.0}, r"inference\.validation_fraction must be"),
        ({"kernel__length_scales": "some"}, r"kernel\.length_scales must be one of"),
        ({"verbose": -1}, "'verbose' parameter"),
        ({"random_state": -1}, "'random_state' parameter"),
    ],
)
def test_words_that_make_no_sense_are_named(words, message):
    with pytest.raises(ValueError, match=message):
        regressor(**words).fit(X, Y)


def test_heteroscedastic_is_true_or_false():
    with pytest.raises(TypeError, match="heteroscedastic"):
        regressor(heteroscedastic="no").fit(X, Y)


def test_return_std_is_true_or_false(fitted):
    with pytest.raises(TypeError, match="return_std must be True or False"):
        fitted.predict(X, return_std="no")


def test_long_length_scales_are_kept():
    """Training does not move them."""
    model = classifier(kernel__length_scales="long").fit(X, LABELS)
    rows = (X - X.mean(axis=0)) / X.std(axis=0)
    expected = 4.0 * typical_length(rows, None)
    np.testing.assert_allclose(np.exp(model.layers_[0]["log_scale"]), expected)
    assert model.layers_[0]["log_amplitude"] == 0.0
    np.testing.assert_allclose(np.exp(model.layers_[-1]["log_amplitude"]), 16.0)
    learned = classifier().fit(X, LABELS).layers_[0]["log_scale"]
    assert len(np.unique(learned)) == D


@pytest.mark.parametrize("seed", range(3))
def test_power_one_finds_two_branches_where_the_variational_bound_finds_none(seed):
    rng = np.random.default_rng([seed, 5])
    rows = rng.uniform(-1.0, 1.0, (300, 1))
    y = rng.choice([-1.0, 1.0], 300) + 0.05 * rng.standard_normal(300)
    words = {"hidden_dim": 2, "n_inducing": 20, "max_iter": 500, "inference__batch_size": 64}
    words["inference__dtype"] = "float32"
    between = {}
    for power in (1.0, 1e-3):
        model = (
            DeepGPRegressor()
            .set_params(inference__power=power, random_state=seed, **words)
            .fit(rows, y)
        )
        between[power] = np.mean(np.abs(model.sample_y([[0.3]], 2000, random_state=0)) < 0.5)
    assert between[1.0] < 0.2
    assert between[1e-3] > 0.3


def test_missing_values_and_wrong_targets_are_answered():
    holes = X.copy()
    holes[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        regressor().fit(holes, Y)
    with pytest.raises(ValueError, match="use DeepGPClassifier"):
        regressor().fit(X, LABELS)
    with pytest.raises(ValueError, match="y contains NaN"):
        regressor().fit(X, np.where(Y > 7.0, np.nan, Y))


@pytest.mark.parametrize(
    "labels",
    [
        np.array([None, "a", "b"], dtype=object),
        np.array([0.0, 1.0, np.nan], dtype=object),
        pd.Series([0, 1, None], dtype="Int64"),
        pd.Series(["a", "b", None], dtype="category"),
    ],
    ids=["none", "nan", "nullable", "category"],
)
def test_missing_labels_are_named(labels, of_two):
    rows = X[:3]
    for data in ((rows, labels), ([(rows, np.asarray(labels, dtype=object))],)):
        with pytest.raises(ValueError, match=r"y (contains (NaN|nan)|holds 1 missing)"):
            classifier().fit(*data)
    with pytest.raises(ValueError, match="y holds 1 missing labels"):
        of_two.log_predictive_density(rows, np.array(["yes", None, "no"], dtype=object))


@pytest.mark.parametrize("layers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_thousand_classes(layers):
    """Training and prediction stay finite with as many classes as rows are few."""
    rng = np.random.default_rng(8)
    rows = rng.standard_normal((2000, 2))
    labels = np.arange(2000) % 1000
    words = {
        "n_inducing": 8,
        "inference__batch_size": 64,
        "max_iter": 20,
        "inference__n_samples": 2,
        "inference__n_draws": 4,
    }
    words |= {"kernel__length_scales": "learned", "inference__dtype": "float32"}
    model = DeepGPClassifier().set_params(layers=layers, random_state=0, **words).fit(rows, labels)
    assert np.isfinite(model.energy_)
    assert all(np.isfinite(a).all() for layer in model.layers_ for a in layer.values())
    p = model.predict_proba(rows[:20])
    assert p.shape == (20, 1000)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-9)


def test_wrong_labels_are_counted_at_a_small_power():
    """Three classes far apart, a fifth of the labels changed: at power 1 scores become wide."""
    rng = np.random.default_rng(6)
    truth = np.arange(240) % 3
    rows = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])[truth] + rng.standard_normal((240, 2))
    labels = np.where(rng.random(240) < 0.2, (truth + rng.integers(1, 3, 240)) % 3, truth)
    words = {
        "layers": 1,
        "max_iter": 600,
        "inference__learning_rate": 0.05,
        "kernel__length_scales": "learned",
    }
    model = classifier(inference__power=0.01, inference__dtype="float32", **words).fit(rows, labels)
    assert 0.1 < model.label_noise_ < 0.3
    assert np.mean(model.predict(rows) == truth) > 0.97


@pytest.mark.slow
def test_noise_that_depends_on_the_inputs():
    rng = np.random.default_rng(3)
    rows = rng.uniform(-1.0, 1.0, (600, 1))
    spread = np.where(rows[:, 0] > 0.0, 1.0, 0.1)
    y = np.sin(3.0 * rows[:, 0]) + spread * rng.standard_normal(600)
    model = (
        DeepGPRegressor().set_params(layers=1, heteroscedastic=True, random_state=0).fit(rows, y)
    )
    noise = np.sqrt(model.predict_uncertainty([[-0.5], [0.5]]).aleatoric)
    assert noise[0] < 0.25
    assert 0.7 < noise[1] < 1.4


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [{"kernel": "matern32"}, {"kernel__per_node": True}, {"layers": 3}]
)
def test_other_kernels_and_depths_learn(words):
    assert regressor(max_iter=400, **words).fit(X, Y).score(X, Y) > 0.8


@pytest.mark.parametrize(
    ("y", "problem"),
    [
        (Y * 1e200, "large .max 1e.150.*; divide"),
        (np.full(N, 1e200), "large .max 1e.150.*; divide"),
        (Y * 1e-200, "small .min 1e-140.*; multiply"),
        (np.where(np.arange(N) % 2, 1e-200, -1e-200), "small .min 1e-140.*; multiply"),
        (np.full(N, 1e-300), "small .min 1e-140.*; multiply"),
    ],
)
def test_targets_that_cannot_be_squared_are_refused(y, problem):
    for data in ((X, y), ([(X, y)],)):
        with pytest.raises(ValueError, match=f"y is too {problem} it by a constant"):
            regressor().fit(*data)


def units_of(y, weight=None, in_two=False):
    """Mean, spread and least noise of targets, as rows in memory and as a stream see them."""
    parts = np.array_split(np.arange(len(y)), 2 if in_two else 1)
    y, weight = np.asarray(y), np.ones(len(y)) if weight is None else np.asarray(weight)
    sizes = [TargetMoments.of(y[rows], weight[rows]) for rows in parts]
    return (sizes[0] + sizes[1] if in_two else sizes[0]).target_scale()


@pytest.mark.parametrize("in_two", [False, True])
@pytest.mark.parametrize("scale", [1e-100, 1e-4, 1.0, 1e100])
def test_targets_have_units_of_their_own(scale, in_two):
    units = units_of(Y * scale, in_two=in_two)
    assert units.mean == pytest.approx(scale * Y.mean())
    assert units.scale == pytest.approx(scale * Y.std())
    constant = units_of(np.full(N, -3.0 * scale), in_two=in_two)
    assert constant.scale == pytest.approx(3e-6 * scale)
    assert constant.noise_floor == units.noise_floor == NOISE_FLOOR


@pytest.mark.parametrize(
    ("y", "weight"), [([-3.0], None), ([-3.0], [0.5]), ([7.0, -3.0, 1e300], [0.0, 1.0, 0.0])]
)
def test_one_row_says_nothing_about_the_noise(y, weight):
    for in_two in (False, True):
        assert units_of(y, weight, in_two) == TargetScale(-3.0, 3.0, 1.0)
    assert units_of([-3.0], [2.0]) == TargetScale(
        -3.0, pytest.approx(3e-6), NOISE_FLOOR
    )  # two rows
    assert units_of([0.0]) == TargetScale(0.0, 1.0, 1.0)
    assert units_of([0.0, 0.0]).scale < 1e-5


@pytest.mark.parametrize(("n_rows", "least", "most"), [(1, 1.0, 2.0), (N, 0.0, 1e-5)])
def test_spreads_of_one_row_and_of_constant_targets_are_of_their_size(n_rows, least, most):
    """The same in memory and from a stream."""
    rows, y = X[:n_rows], np.full(n_rows, 1e-4)
    for data in ((rows, y), ([(rows, y)],)):
        mean, std = regressor(max_iter=20).fit(*data).predict(X, return_std=True)
        np.testing.assert_allclose(mean, 1e-4, atol=1e-4 * most)
        assert (std > 1e-4 * least).all() and (std < 1e-4 * most).all()


def test_rows_far_beyond_all_others_overflow_nothing(fitted, of_two, of_three):
    matern = copy.deepcopy(fitted)
    matern.kernel_ = "matern52"
    for function in (of_two.predict_proba, of_three.predict_proba, fitted.predict, matern.predict):
        far = function(np.full((1, D), 1e50))
        for size in (1e160, 1e300, 1.7e308):
            np.testing.assert_array_equal(function(np.full((1, D), size)), far)


def test_small_targets_are_not_constant(fitted):
    model = regressor(max_iter=400).fit(X, (Y - Y.mean()) * 1e-13)
    assert model.score(X, (Y - Y.mean()) * 1e-13) > 0.9


def test_axes_of_few_rows_are_those_of_many():
    rows = np.random.default_rng(9).normal(size=(8, 30))
    few = mean_projection(rows, None, 4)
    many = mean_projection(np.repeat(rows, 5, axis=0), None, 4)  # more rows than inputs
    np.testing.assert_allclose(few, many, atol=1e-10)
    wide = mean_projection(rows, None, 12)
    np.testing.assert_allclose(wide.T @ wide, np.eye(12), atol=1e-10)


@pytest.mark.parametrize("total", [1e-3, 1.0, 2.0])
def test_weights_that_add_up_to_hardly_a_row(total):
    """The cavity leaves out half of ``q`` there, which must not grow beyond all bounds."""
    weight, quick = np.full(N, total / N), {"max_iter": 200, "inference__learning_rate": 0.1}
    number = regressor(inference__power=1.0, **quick).fit(X, Y, sample_weight=weight)
    label = classifier(inference__power=1.0, **quick).fit(X, TWO, sample_weight=weight)
    assert number.removed_ == label.removed_ == 0.5
    assert np.isfinite([number.energy_, label.energy_]).all()
    std = number.predict(X, return_std=True)[1]
    assert (0.3 * Y.std() < std).all() and (std < 3.0 * Y.std()).all()  # little was learned
    assert np.isfinite(label.predict_proba(X)).all()
