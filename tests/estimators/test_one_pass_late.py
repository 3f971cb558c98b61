"""Classes of few rows that appear long after the initial batch of `OnePassClassifier`."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

import likelier
from likelier import OnePassClassifier
from likelier.one_pass import streaming

BEFORE, FEW, NEW = 6000, 40, 50


@pytest.fixture(autouse=True)
def short_initial_batch(monkeypatch):
    monkeypatch.setattr(streaming, "initial_batch_size", lambda n_features, block: 2048)


def crowded(n, seed=0, K=9, d=4):
    """Rows of many classes around centres that are close to each other."""
    centres = np.random.default_rng(7).normal(size=(K, d)) * 2.0
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    return centres[y] + rng.normal(size=(n, d)) * np.linspace(0.3, 1.5, d), y


def stream(few=FEW, seed=3, **params):
    """Rows, the few of a new class last; then rows of that class to test with."""
    X, y = crowded(BEFORE, **params)
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(few + 500, X.shape[1]))
    new = X.mean(axis=0) + X.std(axis=0) * (2.5 + 0.3 * noise)
    return np.vstack([X, new[:few]]), np.append(y, np.full(few, NEW)), new[few:]


@pytest.mark.parametrize("few", [20, FEW, 200])
@pytest.mark.parametrize("K", [1, 2, 9])
def test_a_late_class_is_found_as_a_converged_logistic_regression_finds_it(few, K):
    X, y, test = stream(few, K=K)
    model = OnePassClassifier().fit(X[:BEFORE], y[:BEFORE])
    model.partial_fit(X[BEFORE:], y[BEFORE:])
    mean, sd = X.mean(axis=0), X.std(axis=0)
    peer = LogisticRegression(max_iter=1000).fit((X - mean) / sd, y)
    theirs = (peer.predict((test - mean) / sd) == NEW).mean()
    assert (model.predict(test) == NEW).mean() > theirs - 0.1
    assert (model.predict(X[:BEFORE]) == NEW).mean() < 0.002
    assert (model.predict_proba(X[:BEFORE])[:, -1]).mean() < 0.02


def test_few_late_rows_leave_the_other_classes_alone():
    X, y, _ = stream()
    model = OnePassClassifier().fit(X[:BEFORE], y[:BEFORE])
    before = model.score(X[:BEFORE], y[:BEFORE])
    model.partial_fit(X[BEFORE:], y[BEFORE:])
    assert model.score(X[:BEFORE], y[:BEFORE]) > before - 0.01


@pytest.mark.parametrize("params", [{}, {"half_life": 3000}, {"fit_intercept": False}])
def test_cuts_do_not_matter(params):
    X, y, test = stream()
    more, labels = crowded(1500, seed=9)
    X, y = np.vstack([X, more]), np.append(y, labels)
    whole = OnePassClassifier(**params).fit(X, y)
    model = OnePassClassifier(**params)
    for part in np.split(np.arange(len(y)), [7, 2500, BEFORE + 3, BEFORE + 39, 7000]):
        model.partial_fit(X[part], y[part])
    np.testing.assert_array_equal(model.coef_, whole.coef_)
    np.testing.assert_array_equal(model.predict_proba(test), whole.predict_proba(test))
    if whole.fit_intercept:
        assert (whole.predict(test) == NEW).mean() > 0.9


def test_late_rows_may_come_one_by_one_among_others():
    X, y, test = stream()
    more, labels = crowded(4000, seed=9)
    order = np.random.default_rng(0).permutation(4000 + FEW)
    model = OnePassClassifier().fit(X[:BEFORE], y[:BEFORE])
    model.partial_fit(np.vstack([more, X[BEFORE:]])[order], np.append(labels, y[BEFORE:])[order])
    assert (model.predict(test) == NEW).mean() > 0.9
    assert model.score(more, labels) > 0.6


def test_sparse_rows_single_precision_and_string_labels():
    X, y, test = stream()
    dense = OnePassClassifier().fit(X, y)
    thin = OnePassClassifier().fit(sparse.csr_array(X), y)
    np.testing.assert_array_equal(thin.coef_, dense.coef_)
    names = np.char.add("class ", y.astype(str))
    single = OnePassClassifier().fit(X.astype(np.float32), names)
    assert (single.predict(test) == "class 50").mean() > 0.9


def test_late_classes_survive_saving_and_forgetting(tmp_path):
    X, y, test = stream()
    model = OnePassClassifier().fit(X[:BEFORE], y[:BEFORE])
    likelier.save(model, tmp_path / "m")
    again = likelier.load(tmp_path / "m")
    for one in (model, again):
        one.partial_fit(X[BEFORE:], y[BEFORE:])
    np.testing.assert_array_equal(again.coef_, model.coef_)
    model.forget(0.5)
    assert (model.predict(test) == NEW).mean() > 0.9


def test_a_class_late_in_one_model_and_absent_from_another_is_found_after_merging():
    X, y, test = stream()
    other_X, other_y = crowded(3000, seed=11)
    one = OnePassClassifier().fit(X, y)
    one.merge(OnePassClassifier().fit(other_X, other_y))
    assert (one.predict(test) == NEW).mean() > 0.9
    two = OnePassClassifier().fit(other_X, other_y).merge(OnePassClassifier().fit(X, y))
    assert (two.predict(test) == NEW).mean() > 0.9
    assert two.score(other_X, other_y) > 0.6


def test_fourier_features():
    X, y, test = stream()
    params = {"features": "fourier", "n_components": 60, "random_state": 0}
    model = OnePassClassifier(**params).fit(X[:BEFORE], y[:BEFORE])
    model.partial_fit(X[BEFORE:], y[BEFORE:])
    assert (model.predict(test) == NEW).mean() > 0.9
    assert (model.predict(X[:BEFORE]) == NEW).mean() < 0.005


def test_weights_are_computed_on_demand(monkeypatch):
    X, y, test = stream()
    calls, learn = [], streaming.learn_block

    def counted(*args):
        calls.append(1)
        return learn(*args)

    monkeypatch.setattr(streaming, "learn_block", counted)
    model = OnePassClassifier()
    for part in np.array_split(np.arange(len(y)), 300):
        model.partial_fit(X[part], y[part], classes=[77])
    assert len(calls) == 1 + (len(y) - 2048) // 512  # full blocks only
    assert model.classes_.tolist() == [*range(9), NEW, 77] and model.n_rows_seen_ == len(y)
    assert "coef_" not in vars(model)
    assert (model.predict(test) == NEW).mean() > 0.9
    # the buffered rows, and those of them at the last refresh of the mixing of scores
    assert model.coef_.shape == (11, 4) and len(calls) == 3 + (len(y) - 2048) // 512
