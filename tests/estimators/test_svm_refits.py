"""Fits of `SVC` and `SVR` that fail or are stopped, and what they refuse."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import svm as libsvm
from sklearn.exceptions import NotFittedError

import likelier
from likelier import SVC, SVR, GaussianNB, LinearClassifier, LinearRegressor
from likelier.svm import estimator as svm_words
from likelier.svm import fitted_kernel, recipe, smo


def draw(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.array(["a", "b", "c"])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)]


# -- rows to predict ----------------------------------------------------------------------
@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_intervals_know_the_names_of_the_columns(kind):
    X, _ = draw()
    frame = kind(dict(zip("abc", X.T, strict=True)))
    model = SVR(probability=True, random_state=0).fit(frame, X[:, 0])
    plain = SVR(probability=True, random_state=0).fit(X, X[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none about names, which are there
        found = model.predict_interval(frame)
        mean, std = model.predict(frame, return_std=True)
    np.testing.assert_array_equal(found, plain.predict_interval(X))
    for name in ("predict", "predict_interval"):
        with pytest.raises(ValueError, match="feature names"):
            getattr(model, name)(frame[list("cba")])
        with pytest.raises(ValueError, match="feature names"):
            getattr(model, name)(frame[list("ab")])
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[list("cba")], return_std=True)
    assert len(mean) == len(std) == len(X)


def test_intervals_of_a_given_kernel_need_all_columns():
    X, _ = draw()
    K = X @ X.T
    model = SVR(kernel="precomputed", probability=True, random_state=0).fit(K, X[:, 0])
    assert model.predict_interval(K[:5].tolist()).shape == (5, 2)
    for width in (10, 70):
        with pytest.raises(ValueError, match=f"X has {width} features"):
            model.predict_interval(np.ones((2, width)))


# -- fits that fail -----------------------------------------------------------------------
def same_state(model, before):
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is before[name] for name in before)


@pytest.mark.parametrize("calibrated", [False, True])
def test_a_fit_that_fails_leaves_the_model_as_it_was(calibrated):
    X, y = draw()
    model = SVC(probability=calibrated, random_state=0).fit(X, y)
    before, found = dict(vars(model)), model.predict(X)
    failures = [
        (X, X[:, 0], None, "class"),
        (X[:, :2], y, -np.ones(60), "Negative"),
        (X, np.where(y == "a", "p", "q"), np.zeros(60), "sample_weight"),
        (X[:, :2], y[:7], None, "inconsistent numbers"),
    ]
    for rows, labels, weight, reason in failures:
        with pytest.raises(ValueError, match=reason):
            model.fit(rows, labels, weight)
        same_state(model, before)
    with pytest.raises(ValueError, match="class"):
        model.fit_path(X, ["a"] * 60, [1.0, 10.0])
    same_state(model, before)
    np.testing.assert_array_equal(model.predict(X), found)


def test_a_regression_that_fails_leaves_the_model_as_it_was():
    X, _ = draw()
    model = SVR(probability=True, random_state=0).fit(X, X[:, 0])
    before = dict(vars(model))
    for targets, reason in ((np.full(60, np.nan), "NaN"), (X[:7, 0], "inconsistent numbers")):
        with pytest.raises(ValueError, match=reason):
            model.fit(X[:, :2], targets)
        with pytest.raises(ValueError, match=reason):
            model.fit_path(X[:, :2], targets, [1.0])
        same_state(model, before)


# -- fits that are stopped ----------------------------------------------------------------
def stop_at(monkeypatch, count, target=smo.SMO, name="_burst"):
    """Press Ctrl-C at that call."""
    original, calls = getattr(target, name), []

    def stopped(*parts, **words):
        calls.append(1)
        if len(calls) == count:
            raise KeyboardInterrupt
        return original(*parts, **words)

    monkeypatch.setattr(target, name, stopped)


def many(model, n=400):
    """More rows than a single compiled call is for, with nothing to learn in them."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 3))
    y = np.where(rng.random(n) < 0.5, "q", "p")
    return X, (y if isinstance(model, SVC) else 10.0 * rng.normal(size=n))


def models():
    X, y = draw()
    return [SVC(C=100.0, probability=True, random_state=0).fit(X, y),
            SVR(C=100.0, probability=True, random_state=0).fit(X, X[:, 0])]  # fmt: skip


@pytest.mark.parametrize("number", [0, 1], ids=["SVC", "SVR"])
@pytest.mark.parametrize(
    ("place", "count"),
    [((svm_words, "as_csr"), 1), ((fitted_kernel, "make_kernel"), 1), ((smo.SMO, "_burst"), 1),
     ((smo.SMO, "_burst"), 2), ((recipe, "finite_penalties"), 2)],
    ids=["checks", "kernel", "first update", "later update", "calibration"],
)  # fmt: skip
def test_ctrl_c_leaves_the_model_as_it_was(monkeypatch, number, place, count):
    model = models()[number]
    before = dict(vars(model))
    X, y = many(model)
    stop_at(monkeypatch, count, *place)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    same_state(model, before)
    fresh = type(model)(probability=True)
    monkeypatch.undo()
    stop_at(monkeypatch, count, *place)
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(X, y)
    with pytest.raises(NotFittedError):
        fresh.predict(X)


class Stopping:
    """Asks for the end of a fit after so many steps."""

    def __init__(self, count):
        self.left = count

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context, **data):
        pass

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        self.left -= 1
        return self.left <= 0


@pytest.mark.parametrize("number", [0, 1], ids=["SVC", "SVR"])
def test_a_callback_ends_a_fit_with_what_it_has(number):
    model = models()[number]
    X, y = many(model)
    model.set_callbacks(Stopping(2)).fit(X, y)
    assert model.fit_status_ == 1 and len(model.support_)
    assert np.isfinite(model.decision_function(X) if number == 0 else model.predict(X)).all()
    with pytest.raises(ValueError, match="(not calibrated|not available).*stopped"):
        (model.predict_interval if number else model.predict_proba)(X)


# -- words and labels ---------------------------------------------------------------------
@pytest.mark.parametrize("value", [np.nan, np.inf, -5.0])
def test_weights_of_classes_that_make_no_sense_are_named(value):
    X, y = draw()
    for estimator in (SVC, LinearClassifier):
        with pytest.raises(ValueError, match=r"class_weight\['b'\] must be finite and >= 0"):
            estimator(class_weight={"a": 1.0, "b": value}).fit(X, y)
        with pytest.raises(TypeError, match=r"class_weight\['b'\] must be a number"):
            estimator(class_weight={"b": "heavy"}).fit(X, y)


@pytest.mark.parametrize("estimator", [SVC, SVR])
@pytest.mark.parametrize("Cs", [None, [], [[1.0, 2.0]], [[1.0], [1.0, 2.0]], "ten", [1.0, "ten"],
                                [1.0, None], [1.0, np.nan], 0.0])  # fmt: skip
def test_values_of_C_that_make_no_sense_are_named(estimator, Cs):
    X, y = draw()
    with pytest.raises((TypeError, ValueError), match=r"Cs must be a (list|number)"):
        estimator().fit_path(X, np.where(y == "a", 0.0, 1.0), Cs)


@pytest.mark.parametrize("coverage", ["a", None, True, [0.9], 0.0, 1.0, np.nan])
def test_coverages_that_make_no_sense_are_named(coverage):
    X, y = draw()
    model = SVR(probability=True).fit(X, X[:, 0])
    with pytest.raises((TypeError, ValueError), match="coverage must .* strictly between 0 and 1"):
        model.predict_interval(X, coverage)
    with pytest.raises((TypeError, ValueError), match="coverage must .* strictly between 0 and 1"):
        GaussianNB().fit(X, y).is_outlier(X, coverage)
    with pytest.raises((TypeError, ValueError), match="coverage must .* strictly between 0 and 1"):
        LinearRegressor().fit(X, X[:, 0]).predict_interval(X, coverage)


def test_a_class_may_have_no_weight():
    X, y = draw()
    model = SVC(class_weight={"a": 0.0}).fit(X, y)
    assert np.isfinite(model.decision_function(X)).all()
    assert "a" not in model.predict(X)


def test_balanced_weights_count_rows_as_often_as_their_weight_says():
    X, y = draw(90)
    times = np.random.default_rng(3).integers(0, 4, len(y))
    words = {"class_weight": "balanced", "tol": 1e-6, "gamma": 0.3}
    weighted = SVC(**words).fit(X, y, times)
    repeated = SVC(**words).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_allclose(weighted.class_weight_, repeated.class_weight_)
    scores = repeated.decision_function(X)
    np.testing.assert_allclose(weighted.decision_function(X), scores, atol=1e-4)
    some = (times > 0).astype(float)  # absent rows alone: then as scikit-learn without them
    there = libsvm.SVC(**words).fit(X[some > 0], y[some > 0])
    np.testing.assert_allclose(SVC(**words).fit(X, y, some).class_weight_, there.class_weight_)


@pytest.mark.parametrize("estimator", [SVC, SVR])
def test_the_degree_is_an_integer(estimator):
    X, _ = draw()
    y = np.arange(60) % 2
    for degree in (2.5, 3.0, -1, np.nan):
        with pytest.raises(ValueError, match="'degree' parameter"):
            estimator(kernel="poly", degree=degree).fit(X, y)
        with pytest.raises(ValueError, match="degree"):
            libsvm.SVC(kernel="poly", degree=degree).fit(X, y)
    estimator(kernel="poly", degree=np.int64(2)).fit(X, y)


@pytest.mark.parametrize("estimator", [SVC, SVR])
def test_a_kernel_function_returns_a_value_for_every_two_rows(estimator):
    X, _ = draw()
    y = np.arange(60) % 2
    for size in (40, 70):
        with pytest.raises(ValueError, match=r"kernel must return .* shape \(60, 60\)"):
            estimator(kernel=lambda a, b, size=size: np.eye(size)).fit(X, y)
    model = estimator(kernel=lambda a, b: (a @ b.T)[: 60 if len(a) > 9 else 3]).fit(X, y)
    assert len(model.predict(X[:3])) == 3
    with pytest.raises(ValueError, match=r"shape \(5, 60\); got \(3, 60\)"):
        model.predict(X[:5])


@pytest.mark.parametrize("missing", [np.nan, None, pd.NA, pd.NaT], ids=str)
@pytest.mark.parametrize("estimator", [SVC, LinearClassifier])
def test_missing_labels_are_named(estimator, missing):
    X, y = draw()
    y = y.astype(object)
    y[[7, 9]] = missing
    with pytest.raises(ValueError, match="y holds 2 missing labels .* row 7"):
        estimator().fit(X, y)
    y[[7, 9]] = "a"
    assert len(estimator().fit(X, y).classes_) == 3


def test_probabilities_need_a_row_that_can_be_left_out():
    model = SVC(probability=True)
    with pytest.raises(ValueError, match="probability=True needs at least two rows of some class"):
        model.fit([[0.0], [1.0]], ["x", "y"])
    assert not hasattr(model, "support_")
    few = SVC(probability=True, random_state=0).fit([[0.0], [0.1], [1.0]], ["x", "x", "y"])
    assert np.isfinite(few.predict_proba([[0.0], [1.0]])).all()


@pytest.mark.parametrize("estimator", [SVC, SVR])
def test_absent_rows_do_not_choose_gamma(estimator):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(int) if estimator is SVC else X[:, 0]
    weight = (rng.random(60) < 0.7).astype(float)
    X[np.flatnonzero(weight == 0.0)[0]] = 1e160
    kept = weight > 0.0
    found, wanted = estimator().fit(X, y, weight), estimator().fit(X[kept], y[kept])
    assert found._gamma == wanted._gamma
    score = "decision_function" if estimator is SVC else "predict"
    np.testing.assert_array_equal(getattr(found, score)(X[kept]), getattr(wanted, score)(X[kept]))


def test_a_kernel_object_of_given_matrices_has_intervals():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3))
    K, y = X @ X.T, X[:, 0]
    found, wanted = (
        SVR(kernel=kernel, probability=True, random_state=0).fit(K, y).predict_interval(K)
        for kernel in (likelier.kernels.Precomputed(), "precomputed")
    )
    np.testing.assert_array_equal(found, wanted)
