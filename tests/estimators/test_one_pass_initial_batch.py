"""Initial batch of `OnePassClassifier`: its first rows, kept in a bounded buffer and converged."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import likelier
from likelier import OnePassClassifier
from likelier.one_pass import streaming

SIZE = 2048  # of the initial batch, where a test makes it short


@pytest.fixture
def short_initial_batch(monkeypatch):
    monkeypatch.setattr(streaming, "initial_batch_size", lambda n_features, block: SIZE)


def crowded(n, seed=0, K=9, d=4):
    """Rows of many classes around centres that are close to each other."""
    centres = np.random.default_rng(7).normal(size=(K, d)) * 2.0
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    return centres[y] + rng.normal(size=(n, d)) * np.linspace(0.3, 1.5, d), y


@pytest.mark.parametrize("K", [2, 9])
def test_small_data_get_the_converged_answer(K):
    X, y = crowded(1500, K=K)
    test_X, test_y = crowded(3000, seed=1, K=K)
    mean, sd = X.mean(axis=0), X.std(axis=0)
    peer = LogisticRegression(max_iter=1000).fit((X - mean) / sd, y)
    model = OnePassClassifier(prior_precision=1.0).fit(X, y)
    theirs = peer.predict_proba((test_X - mean) / sd)
    agreed = model.predict(test_X) == theirs.argmax(axis=1)
    assert agreed.mean() > 0.99
    assert log_loss(test_y, model.predict_proba(test_X)) < log_loss(test_y, theirs) + 0.005


def test_an_initial_batch_is_a_better_start_for_the_blocks_after_it(monkeypatch):
    X, y = crowded(6000)
    test_X, test_y = crowded(4000, seed=1)
    losses = []
    for size in (512, 4096):
        monkeypatch.setattr(streaming, "initial_batch_size", lambda n, block, size=size: size)
        model = OnePassClassifier().fit(X, y)
        losses.append(log_loss(test_y, model.predict_proba(test_X)))
        assert len(model.pending_["y"]) == (6000 - size) % 512
    assert losses[1] < losses[0]


def test_the_order_of_an_initial_batch_does_not_matter():
    X, y = crowded(1500)
    order = np.argsort(y, kind="stable")
    one, two = OnePassClassifier().fit(X, y), OnePassClassifier().fit(X[order], y[order])
    np.testing.assert_allclose(one.predict_proba(X), two.predict_proba(X), atol=1e-5)


def test_few_rows_of_a_late_class_are_enough_within_the_initial_batch():
    X, y = crowded(6000)
    rng = np.random.default_rng(3)
    new = X.mean(axis=0) + 3.0 * X.std(axis=0) + 0.3 * rng.normal(size=(40, X.shape[1]))
    model = OnePassClassifier().partial_fit(X, y).partial_fit(new, np.full(40, 9))
    assert (model.predict(new) == 9).mean() > 0.9
    assert (model.predict(X) == 9).mean() < 0.02


def test_weights_are_computed_on_demand(monkeypatch):
    X, y = crowded(1500)
    calls, learn = [], streaming.learn_block

    def counted(*args):
        calls.append(1)
        return learn(*args)

    monkeypatch.setattr(streaming, "learn_block", counted)
    model = OnePassClassifier()
    assert not hasattr(model, "coef_")
    for start in range(0, 1500, 100):
        model.partial_fit(X[start : start + 100], y[start : start + 100])
    assert not calls
    assert model.classes_.tolist() == list(range(9)) and model.n_rows_seen_ == 1500
    assert model.coef_.shape == (9, 4) and model.predict(X).shape == (1500,)
    assert len(calls) == 1
    np.testing.assert_array_equal(model.coef_, OnePassClassifier().fit(X, y).coef_)


def test_deferred_weights_are_computed_after_saving_merging_and_fourier_features(tmp_path):
    X, y = crowded(900)
    params = {"features": "fourier", "n_components": 50, "gamma": 0.5, "random_state": 0}
    whole = OnePassClassifier(**params).fit(X, y).predict_proba(X)
    model = OnePassClassifier(**params).partial_fit(X, y, classes=[20])
    assert model.classes_.tolist() == [*range(9), 20]
    likelier.save(model, tmp_path / "m")
    seen = likelier.load(tmp_path / "m").predict_proba(X)[:, :9]
    assert seen.sum(axis=1).min() > 0.9  # the class never seen takes the little that is left
    np.testing.assert_allclose(seen / seen.sum(axis=1, keepdims=True), whole, atol=1e-9)
    one, two = (
        OnePassClassifier(**params).partial_fit(X[s], y[s]) for s in (slice(400), slice(400, 900))
    )
    assert one.merge(two).n_rows_seen_ == 900
    np.testing.assert_array_equal(one.predict_proba(X), whole)


def test_initial_batches_that_fit_in_one_merge_exactly():
    X, y = crowded(1500)
    X = np.where(X > 0.0, X, 0.0)
    low = y < 5
    order = np.argsort(~low, kind="stable")
    whole = OnePassClassifier().fit(X[order], y[order])
    one = OnePassClassifier().fit(X[low], y[low])
    one.merge(OnePassClassifier().fit(sparse.csr_array(X[~low]), y[~low]))
    assert one.classes_.tolist() == list(range(9)) and one.n_rows_seen_ == 1500
    np.testing.assert_array_equal(one.predict_proba(X), whole.predict_proba(X))


def test_initial_batches_too_large_for_one_add_up_their_sites(short_initial_batch):
    X, y = crowded(3000)
    test_X, test_y = crowded(3000, seed=1)
    whole = OnePassClassifier().fit(X, y).score(test_X, test_y)
    one = OnePassClassifier().fit(X[:1500], y[:1500])
    one.merge(OnePassClassifier().fit(X[1500:], y[1500:]))
    assert not one.pending_ and one.n_rows_seen_ == 3000
    assert one.score(test_X, test_y) > whole - 0.02
