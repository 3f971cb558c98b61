"""`OnePassClassifier.merge` of models that have learned different classes."""

from __future__ import annotations

import numpy as np
import pytest

import likelier
from likelier import OnePassClassifier
from likelier.one_pass import reservoir as reservoir_module
from likelier.one_pass import streaming


@pytest.fixture(autouse=True)
def short_initial_batch(monkeypatch):
    """Few rows are more than an initial batch."""
    monkeypatch.setattr(streaming, "initial_batch_size", lambda n_features, block: block)


def rows(n=6000, d=12, K=4):
    """Training and test rows whose classes do not lie about zero."""
    rng = np.random.default_rng(0)
    W, X = 1.2 * rng.normal(size=(K, d)), rng.normal(size=(n + 4000, d))
    y = (X @ W.T + rng.gumbel(size=(len(X), K))).argmax(axis=1)
    return X[:n], y[:n], X[n:], y[n:]


def models(X, y, parts, **params):
    return [OnePassClassifier(**params).fit(X[s], y[s]) for s in parts]


@pytest.mark.parametrize("params", [{}, {"fit_intercept": False}])
@pytest.mark.parametrize("kind", ["disjoint", "overlapping", "leaking", "one class"])
@pytest.mark.parametrize("n_kept", [1 << 14, 2000])  # all rows; a third of them
def test_little_is_lost_whatever_the_classes_have_in_common(kind, params, n_kept, monkeypatch):
    monkeypatch.setattr(reservoir_module, "RESERVOIR_ROWS", n_kept)
    X, y, test_X, test_y = rows()
    odd = np.arange(len(y)) % 2 == 1
    first = {
        "disjoint": y < 2,
        "overlapping": (y == 0) | (y < 3) & odd,
        "leaking": (y < 2) ^ (np.arange(len(y)) % 50 == 0),
        "one class": y == 3,
    }[kind]
    whole = OnePassClassifier(**params).fit(X, y).score(test_X, test_y)
    one, two = models(X, y, (first, ~first), **params)
    found = one.merge(two).score(test_X, test_y)
    assert found > whole - 0.01
    assert one.stats_["shifted_weight"] == 0.0


def dealt(y, kind):
    """Models of a class each, of random rows, or of half the classes with rows of the other."""
    number = np.arange(len(y))
    model = {"classes": y, "rows": number % 3, "leaking": (y < 2) ^ (number % 50 == 0)}[kind]
    return [model == part for part in np.unique(model)]


@pytest.mark.parametrize("kind", ["classes", "rows", "leaking"])
def test_while_all_rows_are_kept_the_parts_do_not_matter(kind, monkeypatch):
    """What is left is the rounding of coordinates to single precision."""
    X, y, test_X, _ = rows()
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    merged, *others = (
        OnePassClassifier(prior_precision=1.0).fit(X[s], y[s], weight[s]) for s in dealt(y, kind)
    )
    for other in others:
        merged.merge(other)
    monkeypatch.setattr(streaming, "initial_batch_size", lambda n_features, block: len(y))
    whole = OnePassClassifier(prior_precision=1.0).fit(X, y, weight)
    np.testing.assert_allclose(merged.predict_proba(test_X), whole.predict_proba(test_X), atol=0.01)
    merged.forget(0.5).partial_fit(X[:3000], y[:3000])
    whole.forget(0.5).partial_fit(X[:3000], y[:3000])
    np.testing.assert_allclose(merged.predict_proba(test_X), whole.predict_proba(test_X), atol=0.02)


def test_merging_loses_little_with_a_class_in_each_model_and_few_rows_kept(monkeypatch):
    monkeypatch.setattr(reservoir_module, "RESERVOIR_ROWS", 1500)
    X, y, test_X, test_y = rows()
    whole = OnePassClassifier().fit(X, y).score(test_X, test_y)
    merged, *others = models(X, y, dealt(y, "classes"))
    for other in others:
        merged.merge(other)
    assert merged.score(test_X, test_y) > whole - 0.01


def test_order_of_merging_hardly_matters_and_the_other_model_is_left_as_it_was():
    X, y, test_X, _ = rows()
    ones, twos = (models(X, y, (y < 2, y >= 2)) for _ in range(2))
    before = ones[1].predict_proba(test_X)
    a = ones[0].merge(ones[1]).predict_proba(test_X)
    b = twos[1].merge(twos[0]).predict_proba(test_X)
    np.testing.assert_allclose(a, b, atol=0.03)
    np.testing.assert_array_equal(ones[1].predict_proba(test_X), before)


def test_a_merged_model_is_saved_learns_more_and_keeps_room_for_announced_classes(tmp_path):
    X, y, test_X, test_y = rows()
    one, two = (OnePassClassifier().partial_fit(X[s], y[s], classes=[9]) for s in (y < 2, y >= 2))
    one.merge(two)
    assert one.classes_.tolist() == [0, 1, 2, 3, 9]
    assert one.predict_proba(test_X)[:, -1].mean() < 0.05
    likelier.save(one, tmp_path / "m")
    again = likelier.load(tmp_path / "m")
    before = one.score(test_X, test_y)
    for model in (one, again):
        model.partial_fit(X, y)
    np.testing.assert_array_equal(again.coef_, one.coef_)
    assert one.score(test_X, test_y) > before - 0.005


def test_a_rare_class_that_one_model_alone_knows_is_not_lost():
    """One row in a hundred or fewer: beyond the sample it must not drown in the other's rows."""
    rng = np.random.default_rng(0)
    K, d, n = 10, 10, 30_000
    centre = 3.0 * rng.normal(size=(K, d))
    y = rng.choice(K, size=2 * n, p=[*np.full(K - 1, 0.991 / (K - 1)), 0.009])
    X = centre[y] + 1.2 * rng.normal(size=(2 * n, d))
    learn, rare = slice(n), y[:n] == K - 1
    whole = OnePassClassifier().fit(X[learn], y[learn])
    one, two = models(X[learn], y[learn], [~rare, rare])
    found = one.merge(two)
    assert found.score(X[n:], y[n:]) > whole.score(X[n:], y[n:]) - 0.005
    chosen = y[n:] == K - 1
    assert found.score(X[n:][chosen], y[n:][chosen]) > 0.9


def test_bits_do_not_depend_on_the_layout_of_the_rows():
    """Column by column, as frames have them: what comes at once and in parts is the same."""
    X, y, _, _ = rows()
    whole, again = (
        OnePassClassifier().fit(order(X), y) for order in (np.asarray, np.asfortranarray)
    )
    parts = OnePassClassifier()
    for start in range(0, len(y), 700):
        parts.partial_fit(np.asfortranarray(X)[start : start + 700], y[start : start + 700])
    np.testing.assert_array_equal(again.coef_, whole.coef_)
    np.testing.assert_array_equal(parts.coef_, whole.coef_)


def test_a_stream_of_vanishing_weight_is_harmless():
    X, y, test_X, test_y = rows()
    whole, gone = models(X, y, [slice(None)] * 2)
    alone = whole.score(test_X, test_y)
    for _ in range(17):  # weights below the root of the smallest number
        gone.forget(1e-10)
    np.testing.assert_allclose(gone.predict_proba(test_X[:5]), 0.25, atol=1e-6)
    assert whole.merge(gone).score(test_X, test_y) > alone - 0.005
    assert gone.partial_fit(X, y).score(test_X, test_y) > alone - 0.02
