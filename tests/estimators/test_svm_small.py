"""Few rows, many classes and given kernels: other routes to the same answers."""

from __future__ import annotations

import os
import signal
import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn import svm as libsvm
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

from likelier import SVC, SVR
from likelier.fitting.monitor import Monitor
from likelier.svm import kernel_cache as smo_cache
from likelier.svm import pairs as svm_pairs
from likelier.svm import path as smo_path
from likelier.svm import small as smo_small
from likelier.svm import smo
from likelier.svm.fitted_kernel import fitted_kernel
from likelier.svm.watch import Watch


def groups(sizes=(30, 12, 3, 140, 200), d=4, seed=0):
    """Classes of all sizes, so that some pairs have few rows and some many."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return rng.normal(size=(len(sizes), d))[y] + 0.7 * rng.normal(size=(len(y), d)), y


def step_by_step(monkeypatch):
    """Let SMO solve what compiled calls would."""
    monkeypatch.setattr(smo_path, "solve_whole", lambda *parts: None)
    monkeypatch.setattr(svm_pairs.SmallPairs, "among", classmethod(lambda *parts: None))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["dense", "sparse", "given"])
def test_many_at_a_time_is_one_by_one(monkeypatch, kind, weighted):
    X, y = groups()
    weight = np.random.default_rng(1).integers(0, 3, len(y)) if weighted else None
    words = {"tol": 1e-6, "gamma": 0.3, "C": 3.0}
    if kind == "given":
        X, words = rbf_kernel(X, gamma=0.3), {"tol": 1e-6, "kernel": "precomputed", "C": 3.0}
    rows = sparse.csr_matrix(X) if kind == "sparse" else X
    fast = SVC(**words).fit(rows, y, weight)
    paths = SVC(**words).fit_path(rows, y, [3.0, 0.3], weight)
    monkeypatch.setattr(smo_small, "BLOCK_BYTES", 4096)  # not the whole matrix, and few at a time
    parts = SVC(**words).fit(rows, y, weight)
    step_by_step(monkeypatch)
    slow = SVC(**words).fit(rows, y, weight)
    for model in (fast, parts, paths[0]):
        np.testing.assert_array_equal(model.support_, slow.support_)
        np.testing.assert_allclose(model.intercept_, slow.intercept_, atol=1e-5)
        scores = model.decision_function(rows)
        np.testing.assert_allclose(scores, slow.decision_function(rows), atol=1e-5)


def test_what_is_not_soon_solved_is_left_to_smo(monkeypatch):
    X, y = groups((20, 20, 20))
    fast = SVC(tol=1e-6).fit(X, y), SVR(tol=1e-6).fit(X, y)
    monkeypatch.setattr(smo_small, "MAX_COMPILED_UPDATES", 2)
    slow = SVC(tol=1e-6).fit(X, y), SVR(tol=1e-6).fit(X, y)
    assert (slow[0].n_iter_ > 2).all()
    np.testing.assert_allclose(fast[0].intercept_, slow[0].intercept_, atol=1e-5)
    np.testing.assert_allclose(fast[1].predict(X), slow[1].predict(X), atol=1e-5)


def test_the_limit_of_updates_holds_for_few_rows():
    X, y = groups((20, 20, 20))
    with pytest.warns(ConvergenceWarning, match="max_iter=3"):
        model = SVC(max_iter=3).fit(X, y)
    assert (model.n_iter_ == 3).all()
    assert model.fit_status_ == 1


def test_scores_of_many_classes_are_those_of_libsvm():
    X, y = groups((9,) * 12)
    ours, theirs = SVC(tol=1e-6).fit(X, y), libsvm.SVC(tol=1e-6).fit(X, y)
    for shape in ("ovo", "ovr"):
        ours.decision_function_shape = theirs.decision_function_shape = shape
        np.testing.assert_allclose(
            ours.decision_function(X), theirs.decision_function(X), atol=1e-4
        )
    np.testing.assert_array_equal(ours.n_support_, theirs.n_support_)


def test_a_given_matrix_is_not_copied():
    X, y = groups((400, 400, 400))
    K = rbf_kernel(X, gamma=0.3)
    SVC(kernel="precomputed", cache_size=1).fit(K, y)
    tracemalloc.start()
    SVC(kernel="precomputed", cache_size=1).fit(K, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.7 * K.nbytes


@pytest.mark.parametrize("estimator", [SVC, SVR])
@pytest.mark.parametrize("cache_size", [9, 16])
def test_a_path_keeps_to_its_memory(monkeypatch, estimator, cache_size):
    monkeypatch.setattr(smo_cache, "_idle", [])  # what other tests have left would not be counted
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    y = X[:, 0] + 0.3 * rng.normal(size=1000)
    y = y > 0.0 if estimator is SVC else y
    estimator().fit_path(X[:300], y[:300], [0.1, 1.0])  # what is compiled and imported
    smo_cache._idle.clear()
    tracemalloc.start()
    estimator(cache_size=cache_size).fit_path(X, y, [0.1, 1.0])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # some numbers per row, and a panel of 256 rows that is being made
    assert peak < (cache_size << 20) + 8 * 256 * 1000 + 1000 * 300


@pytest.mark.parametrize("n", [80, 400])
@pytest.mark.parametrize("offset", [1e6, 1e12])
def test_a_given_matrix_may_have_a_large_offset(n, offset):
    """It changes nothing, since coefficients add up to zero, but float32 would lose the rest."""
    X, y = groups((n // 2, n - n // 2))
    K = rbf_kernel(X, gamma=0.3)
    plain = SVC(kernel="precomputed").fit(K, y)
    shifted = SVC(kernel="precomputed").fit(K + offset, y)
    far = rbf_kernel(X, gamma=0.3) + offset - offset  # what is left of it
    F = np.where(y == 1, 1.0, -1.0)
    beta = np.zeros(len(y))
    beta[shifted.support_] = shifted.dual_coef_[0]
    F = F - far @ beta
    rising = np.where(y == 1, beta < 1.0, beta < 0.0)
    falling = np.where(y == 1, beta > 0.0, beta > -1.0)
    assert F[rising].max() - F[falling].min() <= 1e-3 + 1e-9 * offset
    if offset < 1e9:
        np.testing.assert_allclose(shifted.dual_coef_.sum(), 0.0, atol=1e-9)
        assert (shifted.predict(K + offset) == plain.predict(K)).mean() > 0.99


def test_sizes_that_float32_cannot_hold():
    X, y = groups((200, 200))
    K = rbf_kernel(X, gamma=0.3)
    plain = SVC(kernel="precomputed", tol=1e-6).fit(K, y)
    scaled = SVC(kernel="precomputed", tol=1e-6, C=1e-40).fit(1e40 * K, y)
    scores = scaled.decision_function(1e40 * K)
    np.testing.assert_allclose(scores, plain.decision_function(K), atol=1e-4)


@pytest.mark.parametrize("words", [{"gamma": 0.0}, {"kernel": "poly", "degree": 0},
                                   {"kernel": "poly", "gamma": 0.0, "coef0": 2.0},
                                   {"kernel": "sigmoid", "gamma": 0.0, "coef0": 0.5}])  # fmt: skip
def test_kernels_that_do_not_see_the_rows(words):
    X, y = groups((30, 20, 10))  # of as many rows as another, no class would win
    for labels in (y, y > 1):
        ours, theirs = SVC(**words).fit(X, labels), libsvm.SVC(**words).fit(X, labels)
        np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    ours, theirs = SVR(**words).fit(X, y), libsvm.SVR(**words).fit(X, y)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=2e-3)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_feature_weights_are_sparse_for_sparse_rows(n_classes):
    X, y = groups((20,) * n_classes)
    for mine, peer in ((SVC, libsvm.SVC), (SVR, libsvm.SVR)):
        ours = mine(kernel="linear", tol=1e-6).fit(sparse.csr_matrix(X), y).coef_
        theirs = peer(kernel="linear", tol=1e-6).fit(sparse.csr_matrix(X), y).coef_
        assert sparse.issparse(ours) and ours.format == theirs.format == "csr"
        np.testing.assert_allclose(ours.toarray(), theirs.toarray(), atol=1e-4)
        plain = mine(kernel="linear", tol=1e-6).fit(X, y).coef_
        np.testing.assert_allclose(plain, ours.toarray(), atol=1e-6)
        with pytest.raises(ValueError, match="read-only"):
            plain[0, 0] = 1.0


@pytest.fixture
def ctrl_c_is_heard():
    """A process that was started in the background may have been told to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_is_heard")
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("size", [40, 200], ids=["few rows", "many rows"])
def test_ctrl_c_ends_all_threads_and_leaves_no_model(monkeypatch, n_jobs, size):
    X, y = groups((size,) * 5)
    target, name = (smo.SMO, "solve") if size > 128 else (svm_pairs.SmallPairs, "solve")
    original, calls = getattr(target, name), []

    def interrupted(self, *parts):
        calls.append(1)
        if len(calls) == 2:  # whichever thread is here, the main one hears of it
            os.kill(os.getpid(), signal.SIGINT)
        if len(calls) > 1:
            time.sleep(0.5)
        return original(self, *parts)

    monkeypatch.setattr(target, name, interrupted)
    model = SVC(n_jobs=n_jobs)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert len(calls) < 10
    assert not hasattr(model, "support_")


def test_other_threads_hear_of_it_and_end():
    """A solve that is told to stop ends with what it had."""
    X, y = groups((200, 200))
    model = SVC()
    model._gamma = 5.0
    prepared = fitted_kernel(model).prepare(X)
    watch = Watch(Monitor(), "pairs", single=True)
    watch.stop()
    inference = model._inference(len(y), watch=watch)
    expansion = smo_path.KernelExpansion(prepared.kernel, svm_pairs.Hinge(), 100.0)
    found = smo_path.solve_path(
        inference, [expansion], smo_path.Subset(prepared), np.where(y == 1, 1.0, -1.0)
    )[0]
    assert not found.converged
    assert np.isfinite(found.beta).all()


def test_a_stream_is_refused_by_name():
    with pytest.raises(TypeError, match="X must be in memory.*does not support files or streams"):
        SVC().fit("rows.csv", [0, 1])


def test_every_model_of_a_path_has_its_own_verdict(monkeypatch):
    """The first value of C is solved and the second is not, or the other way round."""
    X, y = groups((200, 200))
    original = svm_pairs.solve_path
    for first in (True, False):

        def some(*parts, first=first):
            found = original(*parts)
            return [replace(one, converged=first == (c == 0)) for c, one in enumerate(found)]

        monkeypatch.setattr(svm_pairs, "solve_path", some)
        with pytest.warns(ConvergenceWarning):
            models = SVC().fit_path(X, y, [1.0, 10.0])
        assert [model.fit_status_ for model in models] == [int(not first), int(first)]
