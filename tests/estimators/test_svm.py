"""`SVC` and `SVR` as scikit-learn estimators: words, inputs, weights, paths, limits, threads."""

from __future__ import annotations

import inspect
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn import svm as libsvm
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV

import likelier
from likelier import SVC, SVR
from likelier.svm import smo


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def waves():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (400, 2))
    return X, np.sin(X[:, 0]) + 0.2 * rng.standard_normal(400)


@pytest.mark.parametrize(("ours", "theirs"), [(SVC, libsvm.SVC), (SVR, libsvm.SVR)])
def test_every_word_and_attribute_of_scikit_learn_exists(ours, theirs, iris):
    words = inspect.signature(theirs).parameters
    own = inspect.signature(ours).parameters
    assert set(words) <= set(own)
    for name, word in words.items():
        # iterations are bounded by default; probabilities are not deprecated here
        if name not in ("max_iter", "probability"):
            assert own[name].default == word.default, name
    X, y = iris
    one, two = ours(gamma=0.3).fit(X, y), theirs(gamma=0.3).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # attributes that scikit-learn is about to remove
        fitted = [n for n in dir(two) if n.endswith("_") and n[0] != "_" and hasattr(two, n)]
        values = {name: getattr(two, name) for name in fitted}
    for name, reference in values.items():
        assert hasattr(one, name), name
        mine = getattr(one, name)
        assert np.shape(mine) == np.shape(reference), name
        if isinstance(reference, np.ndarray):
            assert mine.dtype == reference.dtype, name


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_frames_and_text_labels(iris, kind):
    X, y = iris
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    frame = kind(dict(zip("abcd", X.T, strict=True)))
    model = SVC().fit(frame, names)
    assert list(model.feature_names_in_) == list("abcd")
    assert set(model.predict(frame)) == set(names)
    np.testing.assert_array_equal(
        model.decision_function(frame), SVC().fit(X, y).decision_function(X)
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_is_the_same_as_dense(iris, dtype):
    X, y = iris
    X = X.astype(dtype)
    dense = SVC(tol=1e-6).fit(X, y)
    for kind in (sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix):
        model = SVC(tol=1e-6).fit(kind(X), y)
        assert sparse.issparse(model.support_vectors_)
        np.testing.assert_allclose(
            model.decision_function(kind(X)), dense.decision_function(X), atol=1e-5
        )


def test_weights_are_repetitions():
    rng = np.random.default_rng(0)
    X, y, w = rng.normal(size=(60, 4)), rng.integers(0, 3, 60), rng.integers(0, 4, 60)
    again = np.repeat(np.arange(60), w)
    for model, method in ((SVC(), "decision_function"), (SVR(), "predict")):
        weighted = getattr(model.fit(X, y, w), method)(X)
        repeated = getattr(model.fit(X[again], y[again]), method)(X)
        np.testing.assert_allclose(weighted, repeated, atol=1e-8)


def test_weights_scale_gamma_on_sparse_rows_too():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 6)) * (rng.random((50, 6)) < 0.3)
    y, w = rng.integers(0, 2, 50), rng.uniform(0, 2, 50)
    one, two = SVC().fit(X, y, w), SVC().fit(sparse.csr_array(X), y, w)
    assert one._gamma == pytest.approx(two._gamma)
    mean = np.average(X, axis=0, weights=w).mean()
    variance = np.average((X - mean) ** 2, axis=0, weights=w).mean()
    assert one._gamma == pytest.approx(1 / (6 * variance))


def test_rows_of_weight_zero_are_absent_and_positions_are_of_the_data(iris):
    X, y = iris
    w = np.ones(150)
    w[::3] = 0.0
    model = SVC().fit(X, y, w)
    assert (w[model.support_] > 0).all()
    np.testing.assert_array_equal(model.support_vectors_, X[model.support_])


@pytest.mark.parametrize("model", [SVC(tol=1e-5), SVR(tol=1e-5)], ids=["SVC", "SVR"])
def test_a_path_gives_what_single_fits_give(iris, model):
    X, y = iris
    Cs = [10.0, 0.01, 1.0, 1000.0]
    path = model.fit_path(X, y, Cs)
    assert [m.C for m in path] == Cs
    method = "decision_function" if isinstance(model, SVC) else "predict"
    for m in path:
        alone = type(model)(C=m.C, tol=1e-5).fit(X, y)
        np.testing.assert_allclose(getattr(m, method)(X), getattr(alone, method)(X), atol=1e-3)
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(ValueError, match="Cs"):
        model.fit_path(X, y, [1.0, -1.0])


def test_a_path_needs_fewer_updates_than_single_fits(waves):
    X, y = waves
    Cs = np.geomspace(0.1, 100, 8)
    along = sum(m.n_iter_ for m in SVR().fit_path(X, y, Cs))
    alone = sum(SVR(C=C).fit(X, y).n_iter_ for C in Cs)
    assert along < 0.7 * alone


@pytest.mark.parametrize("n", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("kernel", ["precomputed", "sigmoid", lambda a, b: a @ b.T])
def test_a_handful_of_rows(n, kernel):
    for seed in range(30):
        X = np.random.default_rng(seed).normal(size=(n, 3))
        y = np.arange(n) % 2
        given = X @ X.T if isinstance(kernel, str) and kernel == "precomputed" else X
        model, peer = SVC(kernel=kernel).fit(given, y), libsvm.SVC(kernel=kernel).fit(given, y)
        assert np.isfinite(model.decision_function(given)).all()
        if kernel != "sigmoid":  # which is no kernel: it has several optima
            assert objective(model, X @ X.T) <= objective(peer, X @ X.T) + 1e-6


def objective(model, K):
    """Dual objective of a binary machine; the intercept of few rows is not unique, this is."""
    a, rows = model.dual_coef_[0], model.support_
    return 0.5 * a @ K[np.ix_(rows, rows)] @ a - np.abs(a).sum()


def test_bad_scales_end_with_a_warning():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5)) * np.array([1e6, 1e-3, 1.0, 1e3, 10.0])
    y = (rng.random(300) < 0.5).astype(int)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = SVC(C=1e5, kernel="linear", max_iter=2000).fit(X, y)
    assert model.fit_status_ == 1
    assert model.n_iter_[0] == 2000
    assert np.isfinite(model.decision_function(X)).all()
    assert SVC().max_iter is None and SVC()._inference(300).max_iter == 10_000_000


def test_bad_scales_end_by_default_too():
    """Inputs as they come and a large C: the default limit of updates ends what cannot converge."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 5)) * np.array([1e6, 1e-3, 1.0, 1e3, 10.0])
    y, numbers = (rng.random(100) < 0.5).astype(int), rng.normal(size=100)
    with pytest.warns(ConvergenceWarning, match="Standardise"):
        model = SVC(C=1e5, kernel="linear").fit(X, y)
    assert model.fit_status_ == 1
    assert model.n_iter_[0] <= 10_000_000
    assert np.isfinite(model.decision_function(X)).all()
    assert SVR(C=1e5).fit(X, numbers).fit_status_ == 0


def test_the_rounds_of_refinement_are_bounded(monkeypatch):
    """Where rounding keeps the tolerance out of reach, the fit ends and says so."""
    monkeypatch.setattr(smo, "MAX_ROUNDS", 1)
    monkeypatch.setattr(smo, "newton_step", lambda state, free: None)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 3)), rng.normal(size=300)
    with pytest.warns(ConvergenceWarning):
        SVR(C=100.0, tol=1e-7, gamma=1.0).fit(X, y)


def test_a_small_cache_gives_the_same_answer(waves):
    X, y = waves
    y = (y > 0).astype(int)
    wide = np.hstack([X, np.zeros((400, 300))])  # kernel rows made by BLAS, not in the loop
    for rows in (X, wide):
        large = SVC(gamma=0.5, C=10, tol=1e-5).fit(rows, y)
        small = SVC(gamma=0.5, C=10, tol=1e-5, cache_size=0.02).fit(rows, y)
        np.testing.assert_allclose(
            large.decision_function(rows), small.decision_function(rows), atol=1e-4
        )


def test_shrinking_and_newton_steps_do_not_change_the_answer(waves, monkeypatch):
    X, y = waves
    plain = SVR(C=1000, tol=1e-5).fit(X, y)
    other = SVR(C=1000, tol=1e-5, shrinking=False).fit(X, y)
    np.testing.assert_allclose(plain.predict(X), other.predict(X), atol=1e-4)
    monkeypatch.setattr(smo, "newton_step", lambda state, free: None)
    pairs = SVR(C=1000, tol=1e-5).fit(X, y)
    assert pairs.n_iter_ > 2 * plain.n_iter_
    np.testing.assert_allclose(plain.predict(X), pairs.predict(X), atol=1e-4)


def test_threads_give_the_same_bits():
    X, y = load_digits(return_X_y=True)
    one, two = SVC(n_jobs=1).fit(X, y), SVC(n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(one.dual_coef_, two.dual_coef_)
    two = SVC(n_jobs=2, gamma=0.01).fit(X, y > 4)  # threads make kernel rows
    one = SVC(gamma=0.01).fit(X, y > 4)
    np.testing.assert_allclose(two.decision_function(X), one.decision_function(X), atol=2e-3)


def test_memory_is_bounded_by_the_cache():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 4)).astype(np.float32)
    y = (X.sum(axis=1) > 0).astype(int)
    SVC(cache_size=8).fit(X[:300], y[:300])
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        SVC(cache_size=8, max_iter=500, C=0.1).fit(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < (8 << 20) + 20_000 * 800  # the whole kernel matrix would be 1.6 GB


def test_probabilities_never_contradict_the_prediction(iris):
    X, y = iris
    rng = np.random.default_rng(0)
    noisy = X + rng.normal(size=X.shape)
    for labels in (y, y == 1):
        for words in ({}, {"break_ties": True}):
            model = SVC(probability=True, random_state=0, **words).fit(noisy, labels)
            p = model.predict_proba(X)
            np.testing.assert_allclose(p.sum(axis=1), 1.0)
            np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X))
            again = SVC(probability=True, random_state=0, **words).fit(noisy, labels)
            np.testing.assert_array_equal(again.predict_proba(X), p)
            assert (model.predict_uncertainty(X).total >= 0).all()
    assert not hasattr(SVC(), "predict_proba")


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_sigmoids_of_the_pairs_are_those_of_libsvm(iris, n_classes):
    """The folds differ, so the parameters agree as far as the data determine them."""
    rng = np.random.default_rng(0)
    X, y = iris[0][iris[1] < n_classes], iris[1][iris[1] < n_classes]
    X = X + rng.normal(size=X.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = libsvm.SVC(probability=True, random_state=0).fit(X, y)
        slopes, levels = peer.probA_, peer.probB_
    model = SVC(probability=True, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.probA_, slopes, rtol=0.25)
    np.testing.assert_allclose(model.probB_, levels, atol=0.25)
    assert SVC().fit(X, y).probA_.shape == SVC().fit(X, y).probB_.shape == (0,)


def test_probabilities_are_calibrated():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2400, 2))
    p = 1 / (1 + np.exp(-2 * X[:, 0] * X[:, 1]))
    y = rng.random(2400) < p
    model = SVC(probability=True, random_state=0).fit(X[:1200], y[:1200])
    found = model.predict_proba(X[1200:])[:, 1]
    assert abs(found - p[1200:]).mean() < 0.1
    base = np.mean((y[:1200].mean() - y[1200:]) ** 2)
    assert np.mean((found - y[1200:]) ** 2) < 0.9 * base


def test_intervals_cover():
    """400 draws of the whole procedure; a coverage of 0.9 is missed by 0.02 once in 1e8 runs."""
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(40):
        X = rng.uniform(-3, 3, (360, 1))
        y = np.sin(2 * X[:, 0]) + rng.standard_t(4, 360) * 0.2
        model = SVR(C=10.0, probability=True, random_state=0).fit(X[:260], y[:260])
        low, high = model.predict_interval(X[260:], coverage=0.9).T
        covered.append(((low <= y[260:]) & (y[260:] <= high)).mean())
    assert 0.87 < np.mean(covered) < 0.95
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_array_equal(mean, model.predict(X))
    assert 0.1 < std[0] < 0.5
    assert np.isinf(model.predict_interval(X, 0.999)).all()
    bare = SVR().fit(X, y)
    assert not hasattr(bare, "predict_interval")
    with pytest.raises(ValueError, match="probability=True"):
        bare.predict(X, return_std=True)


@pytest.mark.parametrize("words", [{"C": 0}, {"C": -1.0}, {"tol": 0.0}, {"cache_size": 0},
                                   {"C": np.nan}, {"gamma": "large"}, {"gamma": -1.0},
                                   {"gamma": np.inf}, {"tol": np.inf}, {"max_iter": -2},
                                   {"kernel": "none"}])  # fmt: skip
def test_bad_words_are_named(iris, words):
    (name,) = words
    with pytest.raises(ValueError, match=name):
        SVC(**words).fit(*iris)


def test_bad_input_is_named(iris):
    X, y = iris
    with pytest.raises(ValueError, match="NaN"):
        SVC().fit(np.where(X > 7, np.nan, X), y)
    with pytest.raises(ValueError, match="class"):
        SVC().fit(X, X[:, 0])
    with pytest.raises(ValueError, match="square"):
        SVC(kernel="precomputed").fit(X, y)
    with pytest.raises(TypeError, match="dense"):
        SVC(kernel="precomputed").fit(sparse.csr_matrix(X @ X.T), y)
    with pytest.raises(ValueError, match="sample_weight"):
        SVC().fit(X, y, np.zeros(150))
    with pytest.raises(ValueError, match="Negative"):
        SVC().fit(X, y, -np.ones(150))
    with pytest.raises(ValueError, match="must be numeric"):
        SVR().fit(X, np.array(["a"] * 150))
    with pytest.raises(ValueError, match="epsilon"):
        SVR(epsilon=-1).fit(X, y)
    with pytest.raises(ValueError, match="break_ties"):
        SVC(break_ties=True, decision_function_shape="ovo").fit(X, y).predict(X)


def test_saved_models_predict_the_same(iris, tmp_path):
    X, y = iris
    for model in (SVC(probability=True, random_state=0), SVR(probability=True, random_state=0)):
        for rows in (X, sparse.csr_matrix(X)):
            model.fit(rows, y)
            likelier.save(model, tmp_path / "model")
            loaded = likelier.load(tmp_path / "model")
            np.testing.assert_array_equal(loaded.predict(rows), model.predict(rows))
            method = "predict_proba" if isinstance(model, SVC) else "predict_interval"
            np.testing.assert_array_equal(
                getattr(loaded, method)(rows), getattr(model, method)(rows)
            )


def test_grid_search(iris):
    search = GridSearchCV(SVC(), {"C": [0.1, 1.0], "gamma": [0.1, 1.0]}, cv=3).fit(*iris)
    assert search.best_score_ > 0.95


def test_words_that_are_neither_true_nor_false_are_named():
    X, y = load_iris(return_X_y=True)
    for name in ("probability", "shrinking", "break_ties"):
        with pytest.raises(ValueError, match=f"'{name}' parameter of SVC must be .*bool"):
            SVC(**{name: "yes"}).fit(X, y)
    with pytest.raises(ValueError, match="'decision_function_shape' parameter of SVC must be"):
        SVC(decision_function_shape="ovx").fit(X, y)


def test_the_words_of_scikit_learns_own_model_are_taken_as_they_are():
    X, y = load_iris(return_X_y=True)
    model = SVC(**libsvm.SVC().get_params()).fit(X, y)
    assert model.calibration_ == {}  # nobody asked for folds
    assert not hasattr(model, "predict_proba")


def test_what_a_kernel_function_returns_is_checked():
    X, y = load_iris(return_X_y=True)
    K = X @ X.T
    K[3, 5] = np.nan
    with pytest.raises(ValueError, match="kernel returned contains NaN"):
        SVC(kernel=lambda a, b: K).fit(X, y)
    with pytest.raises(ValueError, match="kernel must return a matrix"):
        SVC(kernel=lambda a, b: K[0]).fit(X, y)
