"""`OnePassClassifier` where classes do not come together, and calls that are interrupted."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import likelier
from likelier import OnePassClassifier
from likelier.one_pass import streaming, updates


def rows(seed, n=40_000, d=15, K=5):
    """Training and test rows of a softmax model."""
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(K, d)) * 1.5
    X = rng.normal(size=(n + 8000, d))
    y = (X @ W.T + rng.gumbel(size=(len(X), K))).argmax(axis=1)
    return X[:n], y[:n], X[n:], y[n:]


def merged(X, y, first):
    one, two = (OnePassClassifier().fit(X[s], y[s]) for s in (first, ~first))
    return one.merge(two)


@pytest.mark.parametrize("seed", range(3))
def test_merging_models_of_different_classes_loses_half_a_point_at_most(seed):
    X, y, test_X, test_y = rows(seed)
    whole = OnePassClassifier().fit(X, y).score(test_X, test_y)
    frozen = OnePassClassifier(update="frozen").fit(X, y).score(test_X, test_y)
    found = merged(X, y, y < 2).score(test_X, test_y)
    assert found > whole - 0.005
    assert found > frozen


@pytest.mark.parametrize("seed", range(3))
def test_rows_sorted_by_class_lose_half_a_point_at_most(seed):
    X, y, test_X, test_y = rows(seed)
    whole = OnePassClassifier().fit(X, y).score(test_X, test_y)
    order = np.argsort(y, kind="stable")
    found = OnePassClassifier().fit(X[order], y[order]).score(test_X, test_y)
    assert found > whole - 0.005


def test_order_and_merging_do_not_touch_rows_that_are_shuffled(monkeypatch):
    X, y, test_X, _ = rows(0, n=20_000)
    plain = OnePassClassifier().fit(X, y).predict_proba(test_X)
    parts = [OnePassClassifier().fit(X[k::2], y[k::2]) for k in range(2)]
    both = parts[0].merge(parts[1]).predict_proba(test_X)
    monkeypatch.setattr("likelier.one_pass.inference.MAX_SHIFTED", 2.0)  # never
    np.testing.assert_array_equal(OnePassClassifier().fit(X, y).predict_proba(test_X), plain)
    parts = [OnePassClassifier().fit(X[k::2], y[k::2]) for k in range(2)]
    np.testing.assert_array_equal(parts[0].merge(parts[1]).predict_proba(test_X), both)


def test_a_column_that_varies_only_later_keeps_its_size(monkeypatch):
    """In units of the first rows it is hundreds of thousands: the sample must hold that."""
    monkeypatch.setattr(streaming, "initial_batch_size", lambda n_features, block: block)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8000, 12))
    y = (X @ rng.normal(size=(12, 4)) * 1.2 + rng.gumbel(size=(8000, 4))).argmax(axis=1)
    late = np.where(y == 2, 2.0, 4.0) + 0.5 * rng.normal(size=8000)
    X[:, 0] = np.where(y < 2, 0.0, 1e5 * late)
    train, test = slice(5000), slice(5000, None)
    whole = OnePassClassifier().fit(X[train], y[train]).score(X[test], y[test])
    found = merged(X[train], y[train], y[train] < 2).score(X[test], y[test])
    assert found > whole - 0.02


@pytest.fixture
def short_initial_batch(monkeypatch):
    monkeypatch.setattr(streaming, "initial_batch_size", lambda n_features, block: block)


@pytest.mark.parametrize("params", [{}, {"fit_intercept": False}, {"half_life": 20_000}])
def test_cuts_of_sorted_rows_do_not_matter(params, short_initial_batch, tmp_path):
    X, y, test_X, test_y = rows(1, n=6000, d=4)
    order = np.argsort(y, kind="stable")
    X, y = X[order], np.array(list("abcde"))[y[order]]
    whole = OnePassClassifier(**params).partial_fit(X, y, classes=["z"])
    model = OnePassClassifier(**params)
    for part in np.split(np.arange(6000), [7, 900, 2500, 2501, 5999]):
        model.partial_fit(X[part], y[part], classes=["z"])
    likelier.save(model, tmp_path / "m")
    again = likelier.load(tmp_path / "m")
    assert whole.stats_["shifted_weight"] > 1000.0
    for one in (model, again):
        assert one.classes_.tolist() == [*"abcde", "z"]
        np.testing.assert_array_equal(one.predict(test_X), whole.predict(test_X))
        np.testing.assert_array_equal(one.coef_, whole.coef_)
    p = model.predict_proba(test_X)
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(test_X))
    assert (model.predict(test_X) == np.array(list("abcde"))[test_y]).mean() > 0.6


@pytest.mark.parametrize("params", [{}, {"half_life": 20_000}, {"fit_intercept": False}])
def test_predicting_in_between_does_not_matter(params, short_initial_batch, tmp_path):
    X, y, test_X, _ = rows(1, n=2000, d=4)
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    asked = OnePassClassifier(**params).partial_fit(X[:1200], y[:1200])
    for i in range(1200, 2000, 41):
        asked.partial_fit(X[i : i + 41], y[i : i + 41]).predict(test_X[:1])
        if i % 7 == 0:
            likelier.save(asked, tmp_path / str(i))
            asked = likelier.load(tmp_path / str(i))
        if i % 5 == 0:
            quiet = OnePassClassifier(**params).fit(X[: i + 41], y[: i + 41])
            np.testing.assert_array_equal(asked.coef_, quiet.coef_)
    np.testing.assert_array_equal(asked.coef_, OnePassClassifier(**params).fit(X, y).coef_)
    asked.set_params(prior_precision=0.3).partial_fit(X[:1], y[:1])
    other = OnePassClassifier(**params).partial_fit(X, y)
    other.set_params(prior_precision=0.3).partial_fit(X[:1], y[:1])
    np.testing.assert_array_equal(asked.coef_, other.coef_)


def test_scores_are_compared_at_few_numbers_of_rows(short_initial_batch, monkeypatch):
    X, y, test_X, _ = rows(1, n=1600, d=4)
    order = np.argsort(y, kind="stable")
    model = OnePassClassifier().fit(X[order], y[order])
    calls, real = [], streaming.stream_mixing
    monkeypatch.setattr(streaming, "stream_mixing", lambda *args: calls.append(1) or real(*args))
    for i in range(40):  # from 64 rows after a block
        model.partial_fit(X[i : i + 1], y[i : i + 1]).predict(test_X[:5])
    assert len(calls) == 2  # after 80 and 96
    model.forget(0.5)
    assert len(calls) == 3
    before = len(calls)
    model.partial_fit(X[:300], np.full(300, 9)).predict(test_X[:5])  # a class not seen by then
    assert len(calls) == before + 1


def test_marks_are_close_to_every_number_of_rows():
    marks = [streaming.last_refresh(n) for n in range(3000)]
    assert all(0.8 * n <= mark <= n for n, mark in enumerate(marks))
    assert len(set(marks)) < 50


@pytest.mark.parametrize("unit", [1e-3, 1e-4, 1e3])
def test_the_unit_of_weights_does_not_end_the_mixing(unit):
    X, y, test_X, test_y = rows(0)
    parts = [y < 2, y >= 2]
    plain = [OnePassClassifier().fit(X[s], y[s]) for s in parts]
    scaled = [
        OnePassClassifier().fit(X[s], y[s], sample_weight=np.full(s.sum(), unit)) for s in parts
    ]
    one, two = plain[0].merge(plain[1]), scaled[0].merge(scaled[1])
    assert two.stats_["shifted_weight"] == pytest.approx(
        unit * one.stats_["shifted_weight"], rel=1e-9
    )
    assert two.score(test_X, test_y) > one.score(test_X, test_y) - 0.01


@pytest.mark.parametrize("unit", [1.0, 1e-4, 1e-6])
def test_announced_classes_stay_below_whatever_the_unit_of_weights(unit):
    X, y, test_X, _ = rows(0)
    order = np.argsort(y, kind="stable")
    X, y, weight = X[order], y[order], np.full(len(y), unit)
    model = OnePassClassifier().partial_fit(X, y, classes=[*range(7)], sample_weight=weight)
    assert model.classes_.tolist() == [*range(7)]
    assert (model.predict(test_X) < 5).all()


def test_many_sorted_classes_are_mixed_too(short_initial_batch):
    rng = np.random.default_rng(0)
    means, y = rng.normal(size=(70, 20)), rng.integers(0, 70, 6000)
    X = means[y] + 0.9 * rng.normal(size=(len(y), 20))
    test_X, test_y, X, y = X[4500:], y[4500:], X[:4500], y[:4500]
    order = np.argsort(y, kind="stable")
    found = OnePassClassifier().fit(X[order], y[order]).score(test_X, test_y)
    assert found > OnePassClassifier(update="frozen").fit(X, y).score(test_X, test_y)


@pytest.mark.parametrize("kind", [sparse.csr_array, np.float32])
def test_two_classes_one_after_the_other(kind, short_initial_batch):
    X, y, test_X, test_y = rows(2, n=8000, d=6, K=2)
    order = np.argsort(y, kind="stable")
    X = sparse.csr_array(X[order]) if kind is sparse.csr_array else X[order].astype(kind)
    shuffled = OnePassClassifier(shuffle=True, random_state=0).fit(X, y[order])
    sorted_ = OnePassClassifier().fit(X, y[order])
    assert sorted_.score(test_X, test_y) > shuffled.score(test_X, test_y) - 0.02


def test_forgetting_forgets_the_disorder_too(short_initial_batch):
    X, y, test_X, test_y = rows(0, n=12_000)
    first = np.argsort(y[:6000], kind="stable")
    model = OnePassClassifier().fit(X[:6000][first], y[:6000][first]).forget(1e-3)
    model.partial_fit(X[6000:], y[6000:])
    assert model.stats_["shifted_weight"] < 0.05 * model.stats_["class_weight"].sum()
    assert model.score(test_X, test_y) > 0.8


# -- interruptions ----------------------------------------------------------------------------
def stopping(monkeypatch, module, name, at):
    """Make a function raise as Ctrl-C does when it is called for the ``at``-th time."""
    real, calls = getattr(module, name), []

    def stopped(*args):
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(module, name, stopped)


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize("before", [0, 700])
def test_an_interrupted_partial_fit_is_undone_and_can_be_repeated(
    at, before, short_initial_batch, monkeypatch
):
    X, y, test_X, _ = rows(0, n=3000, d=4)
    model, whole = OnePassClassifier(), OnePassClassifier()
    for one in (model, whole):
        if before:
            one.partial_fit(X[:before], y[:before])
    with monkeypatch.context() as patch:
        stopping(patch, streaming, "learn_block", at)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X[before:], y[before:], classes=[9])
    assert hasattr(model, "classes_") == bool(before)
    if before:
        assert model.n_rows_seen_ == before
        np.testing.assert_array_equal(model.predict(test_X), whole.predict(test_X))
    for one in (model, whole):
        one.partial_fit(X[before:], y[before:])
    assert model.n_rows_seen_ == 3000 and model.classes_.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(model.coef_, whole.coef_)


@pytest.mark.parametrize("update", ["streaming", "frozen"])
def test_interrupted_merging_and_forgetting_are_undone(update, short_initial_batch, monkeypatch):
    X, y, _, _ = rows(0, n=3000, d=4)
    model = OnePassClassifier(update=update).fit(X[:2000], y[:2000])
    other = OnePassClassifier(update=update).fit(X[2000:], y[2000:])
    before = model.coef_.copy()
    frozen = update == "frozen"
    place = (updates, "frozen_weights") if frozen else (streaming, "stream_weights")
    for call in (lambda: model.merge(other), lambda: model.forget(0.5)):
        with monkeypatch.context() as patch:
            stopping(patch, *place, 1)
            with pytest.raises(KeyboardInterrupt):
                call()
        assert model.n_rows_seen_ == 2000
        np.testing.assert_array_equal(model.coef_, before)
        np.testing.assert_array_equal(model.forget(1.0).coef_, before)
    assert model.merge(other).n_rows_seen_ == 3000


def test_a_refused_batch_leaves_the_model_as_it_was():
    X, y, _, _ = rows(0, n=600, d=4)
    model = OnePassClassifier().partial_fit(X, y)
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :3], y)
    with pytest.raises(ValueError, match="features"):
        OnePassClassifier().partial_fit(X, y).partial_fit(X[:, :2], y)
    assert model.n_features_in_ == 4 and model.n_rows_seen_ == 600
    np.testing.assert_array_equal(model.coef_, OnePassClassifier().fit(X, y).coef_)


# -- weights of classes -------------------------------------------------------------------------
@pytest.mark.parametrize("update", ["streaming", "frozen"])
def test_balanced_weights_count_rows_by_their_weight(update):
    X, y, _, _ = rows(0, n=600, d=4, K=2)
    weight = np.where(y == 1, 3.0, 1.0)
    often = np.repeat(np.arange(600), weight.astype(int))
    params = {"update": update, "class_weight": "balanced"}
    one = OnePassClassifier(**params).fit(X, y, sample_weight=weight)
    two = OnePassClassifier(**params).fit(X[often], y[often])
    np.testing.assert_allclose(one.coef_, two.coef_, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("weight", "error"),
    [
        (-5.0, ValueError),
        (np.nan, ValueError),
        (np.inf, ValueError),
        ("a", TypeError),
        (True, TypeError),
    ],
)
@pytest.mark.parametrize("update", ["streaming", "frozen"])
def test_invalid_class_weights_raise(weight, error, update):
    X, y, _, _ = rows(0, n=100, d=4, K=2)
    model = OnePassClassifier(update=update, class_weight={0: weight})
    for learn in (
        lambda: model.fit(X, y),
        lambda: model.partial_fit(X, y),
        lambda: model.fit(iter([(X, y)])),
    ):
        with pytest.raises(error, match=r"class_weight\[0\] must be"):
            learn()


@pytest.mark.parametrize("factor", [True, False, np.True_, np.nan, "a", None])
def test_forget_takes_a_fraction(factor):
    X, y, _, _ = rows(0, n=100, d=4, K=2)
    with pytest.raises(ValueError, match="factor must be a number above 0"):
        OnePassClassifier().fit(X, y).forget(factor)
