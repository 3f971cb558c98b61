"""`OnePassClassifier`: any cuts, any order, new classes, merging, forgetting, inputs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import likelier
from likelier import OnePassClassifier
from likelier.one_pass import streaming

UPDATES = ("streaming", "frozen")


@pytest.fixture
def short_initial_batch(monkeypatch):
    """Few rows reach the blocks that come after the initial batch."""
    monkeypatch.setattr(streaming, "initial_batch_size", lambda n_features, block: block)


@pytest.fixture(params=["long", "short"])
def batch_length(request):
    """Rows learned in one initial batch, and in blocks after a short one."""
    if request.param == "short":
        request.getfixturevalue("short_initial_batch")
    return request.param


def blobs(n=900, d=5, K=4, seed=0, noise=1.0):
    """Rows of a softmax model with features of very different scales."""
    rng = np.random.default_rng(seed)
    truth = np.random.default_rng(99).normal(size=(d, K)) * 1.5
    Z = rng.normal(size=(n, d))
    y = np.argmax(Z @ truth + noise * rng.gumbel(size=(n, K)), axis=1)
    return Z * np.geomspace(0.01, 100.0, d) + np.linspace(-5, 5, d), y


def in_batches(model, X, y, cuts, weight=None):
    for start, stop in zip([0, *cuts], [*cuts, len(y)], strict=True):
        if stop > start:
            w = None if weight is None else weight[start:stop]
            model.partial_fit(X[start:stop], y[start:stop], sample_weight=w)
    return model


def assert_same(one, two, X, rtol=0.0, atol=0.0):
    assert one.classes_.tolist() == two.classes_.tolist()
    np.testing.assert_allclose(one.coef_, two.coef_, rtol=rtol, atol=atol)
    np.testing.assert_allclose(one.predict_proba(X), two.predict_proba(X), rtol=rtol, atol=atol)


# -- cuts and orders --------------------------------------------------------------------------
@settings(max_examples=12, deadline=None)
@given(
    cuts=st.lists(st.integers(0, 1700), max_size=6),
    wide=st.booleans(),
    rows=st.sampled_from([512, 1024, 2048]),
)
def test_streaming_gives_the_same_bits_however_rows_are_cut(cuts, wide, rows):
    X, y = blobs(1700)
    X = X if wide else X.astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "initial_batch_size", lambda n_features, block: rows)
        whole = OnePassClassifier().fit(X, y)
        assert_same(in_batches(OnePassClassifier(), X, y, sorted(cuts)), whole, X[:50])


@settings(max_examples=12, deadline=None)
@given(cuts=st.lists(st.integers(0, 900), max_size=6), seed=st.integers(0, 1000))
def test_frozen_gives_the_same_model_in_any_order_and_any_batches(cuts, seed):
    X, y = blobs()
    weight = np.random.default_rng(1).uniform(0.0, 2.0, len(y))
    whole = OnePassClassifier(update="frozen").fit(X, y, weight)
    order = np.random.default_rng(seed).permutation(len(y))
    model = OnePassClassifier(update="frozen")
    in_batches(model, X[order], y[order], sorted(cuts), weight[order])
    scale = np.abs(whole.coef_).max(axis=0)
    np.testing.assert_allclose(model.coef_ / scale, whole.coef_ / scale, atol=1e-9)
    np.testing.assert_allclose(model.predict_proba(X), whole.predict_proba(X), atol=1e-9)


def test_frozen_with_classes_sorted_is_the_batch_model():
    X, y = blobs()
    whole = OnePassClassifier(update="frozen").fit(X, y)
    model, order = OnePassClassifier(update="frozen"), np.argsort(y, kind="stable")
    in_batches(model, X[order], y[order], np.searchsorted(y[order], [1, 2, 3]).tolist())
    assert_same(model, whole, X, atol=1e-9)


def test_frozen_merge_is_exact_with_different_classes():
    X, y = blobs()
    whole = OnePassClassifier(update="frozen").fit(X, y)
    one = OnePassClassifier(update="frozen").fit(X[y < 2], y[y < 2])
    two = OnePassClassifier(update="frozen").fit(X[y >= 1][y[y >= 1] > 1], y[y > 1])
    assert_same(one.merge(two), whole, X, atol=1e-9)
    assert one.n_rows_seen_ == len(y)


def test_streaming_merge_loses_little(batch_length):
    X, y = blobs(8000)
    test_X, test_y = blobs(4000, seed=5)
    whole = OnePassClassifier().fit(X, y)
    one = OnePassClassifier().fit(X[:4100], y[:4100])
    one.merge(OnePassClassifier().fit(X[4100:], y[4100:]))
    assert one.score(test_X, test_y) > whole.score(test_X, test_y) - 0.005


def test_streaming_merge_of_different_classes_knows_them_all():
    X, y = blobs(2000)
    half = y < 2
    one = OnePassClassifier().fit(X[half], y[half])
    one.merge(OnePassClassifier().fit(X[~half], y[~half]))
    assert one.classes_.tolist() == [0, 1, 2, 3]
    assert one.score(X, y) > 0.5  # each has seen its own two classes only


def test_sorted_rows_cost_a_streaming_model_no_more_than_frozen_ones(short_initial_batch):
    X, y = blobs(4000)
    order = np.argsort(y, kind="stable")
    frozen = OnePassClassifier(update="frozen").fit(X, y).score(X, y)
    assert OnePassClassifier().fit(X[order], y[order]).score(X, y) > frozen - 0.02
    shuffled = OnePassClassifier(shuffle=True, random_state=0).fit(X[order], y[order])
    assert shuffled.score(X, y) > OnePassClassifier().fit(X[order], y[order]).score(X, y)


# -- how good one pass is ------------------------------------------------------------------------
@pytest.mark.parametrize("K", [2, 5])
def test_one_pass_comes_close_to_the_converged_optimum(K, batch_length):
    X, y = blobs(20_000, K=K)
    test_X, test_y = blobs(5000, K=K, seed=7)
    mean, sd = X.mean(axis=0), X.std(axis=0)
    peer = LogisticRegression().fit((X - mean) / sd, y)
    theirs = peer.predict_proba((test_X - mean) / sd)
    ours = OnePassClassifier().fit(X, y)
    frozen = OnePassClassifier(update="frozen").fit(X, y)
    loss = [log_loss(test_y, p) for p in (ours.predict_proba(test_X), theirs)]
    assert loss[0] < loss[1] + 0.01
    assert loss[0] < log_loss(test_y, frozen.predict_proba(test_X)) - 0.02
    assert ours.score(test_X, test_y) > (theirs.argmax(axis=1) == test_y).mean() - 0.005


def test_units_of_the_features_do_not_matter(batch_length):
    X, y = blobs(1500)
    one = OnePassClassifier().fit(X, y)
    two = OnePassClassifier().fit(1e3 * X - 7.0, y)
    np.testing.assert_allclose(one.predict_proba(X), two.predict_proba(1e3 * X - 7.0), atol=1e-6)


def test_fourier_features_learn_what_no_line_can():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2))
    y = (np.hypot(*X.T) > 1.2).astype(int)
    params = {"features": "fourier", "n_components": 100, "random_state": 0}
    assert OnePassClassifier().fit(X, y).score(X, y) < 0.7
    whole = OnePassClassifier(**params).fit(X, y)
    assert whole.score(X, y) > 0.95
    assert_same(in_batches(OnePassClassifier(**params), X, y, [3, 100, 513, 2000]), whole, X[:20])
    frozen = OnePassClassifier(update="frozen", gamma=0.5, **params)
    assert frozen.fit(X, y).score(X, y) > 0.9
    parts = [OnePassClassifier(update="frozen", gamma=0.5, **params) for _ in range(2)]
    parts[0].fit(X[:1000], y[:1000]).merge(parts[1].fit(X[1000:], y[1000:]))
    assert_same(parts[0], frozen, X[:20], atol=1e-7)


def test_frozen_fourier_features_need_a_number():
    with pytest.raises(ValueError, match="gamma must be a number"):
        OnePassClassifier(update="frozen", features="fourier").fit(*blobs())


# -- drift ------------------------------------------------------------------------------------
@pytest.mark.parametrize("update", UPDATES)
def test_forgetting_adapts_to_reversed_labels(update, batch_length):
    X, y = blobs(4000, K=2)
    turned = 1 - y
    stubborn = OnePassClassifier(update=update).fit(X, y)
    stubborn.partial_fit(X[:1000], turned[:1000])
    chosen = OnePassClassifier(update=update).fit(X, y).forget(0.01)
    chosen.partial_fit(X[:1000], turned[:1000])
    short = OnePassClassifier(update=update, half_life=300).fit(X, y)
    short.partial_fit(X[:1000], turned[:1000])
    assert stubborn.score(X, turned) < 0.5
    assert min(chosen.score(X, turned), short.score(X, turned)) > 0.75


@pytest.mark.parametrize("update", UPDATES)
def test_half_life_does_not_depend_on_the_cuts(update, batch_length):
    X, y = blobs(1300)
    whole = OnePassClassifier(update=update, half_life=200).fit(X, y)
    cut = in_batches(OnePassClassifier(update=update, half_life=200), X, y, [10, 300, 301])
    assert_same(cut, whole, X, atol=1e-9)


def test_frozen_half_life_is_exactly_old_rows_of_smaller_weight():
    X, y = blobs()
    age = np.arange(len(y) - 1, -1, -1)
    plain = OnePassClassifier(update="frozen").fit(X, y, 0.5 ** (age / 100))
    assert_same(OnePassClassifier(update="frozen", half_life=100).fit(X, y), plain, X, atol=1e-9)


@pytest.mark.parametrize("factor", [0.0, -1.0, 1.5])
def test_forget_rejects_invalid_factors(factor):
    with pytest.raises(ValueError, match="factor must be a number above 0"):
        OnePassClassifier().fit(*blobs()).forget(factor)


# -- classes ----------------------------------------------------------------------------------
@pytest.mark.parametrize("update", UPDATES)
def test_a_stream_may_begin_with_one_class_and_classes_may_be_announced(update):
    X, y = blobs()
    labels = np.array(["a", "bb", "ccc", "dddd"])[y]
    model = OnePassClassifier(update=update)
    model.partial_fit(X[y == 0], labels[y == 0])
    assert model.predict(X[:3]).tolist() == ["a"] * 3
    assert (model.predict_proba(X[:3]) == 1.0).all()
    model.partial_fit(X[y == 1], labels[y == 1], classes=["zz"])
    assert model.classes_.tolist() == ["a", "bb", "zz"]
    assert (model.predict(X[y < 2]) != "zz").all()
    model.partial_fit(X[y > 1], labels[y > 1])
    assert model.classes_.tolist() == ["a", "bb", "ccc", "dddd", "zz"]
    assert model.score(X, labels) > 0.6


def test_a_rare_late_class_is_learned_and_does_not_spoil_the_others(batch_length):
    X, y = blobs(6000)
    model = OnePassClassifier().fit(X, y)
    before, rng = model.score(X, y), np.random.default_rng(0)
    new = X.mean(axis=0) + X.std(axis=0) * (2.5 + 0.3 * rng.normal(size=(200, 5)))
    order = rng.permutation(1200)
    old_X, old_y = blobs(1000, seed=3)
    model.partial_fit(
        np.vstack([old_X, new])[order], np.concatenate([old_y, np.full(200, 9)])[order]
    )
    assert (model.predict(new) == 9).mean() > 0.9
    assert model.score(X, y) > before - 0.02


# -- weights ----------------------------------------------------------------------------------
@pytest.mark.parametrize("update", UPDATES)
def test_rows_of_weight_zero_are_absent(update, batch_length):
    X, y = blobs()
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    weight[::3] = 0.0
    kept = weight > 0.0
    one = OnePassClassifier(update=update).fit(X, y, weight)
    two = OnePassClassifier(update=update).fit(X[kept], y[kept], weight[kept])
    assert_same(one, two, X)
    assert one.n_rows_seen_ == kept.sum()


@pytest.mark.parametrize("update", UPDATES)
def test_class_weight(update):
    X, y = blobs(K=2)
    heavy = OnePassClassifier(update=update, class_weight={1: 10.0}).fit(X, y)
    by_rows = OnePassClassifier(update=update).fit(X, y, np.where(y == 1, 10.0, 1.0))
    assert_same(heavy, by_rows, X)
    few = np.flatnonzero((y == 0) | (np.arange(len(y)) % 20 == 0))
    plain = OnePassClassifier(update=update).fit(X[few], y[few])
    balanced = OnePassClassifier(update=update, class_weight="balanced").fit(X[few], y[few])
    assert (balanced.predict(X) == 1).sum() > (plain.predict(X) == 1).sum()
    with pytest.raises(ValueError, match="class_weight must be a dict"):
        OnePassClassifier(update=update, class_weight="balanced").partial_fit(X, y)


# -- predictions ------------------------------------------------------------------------------
@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("K", [2, 4])
def test_probabilities_agree_with_predictions(update, K):
    X, y = blobs(K=K)
    model = OnePassClassifier(update=update, random_state=0).fit(X, y)
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X))
    np.testing.assert_allclose(np.log(p), model.predict_log_proba(X))
    scores = model.decision_function(X)
    assert scores.shape == ((len(X),) if K == 2 else (len(X), K))
    parts = model.predict_uncertainty(X)
    np.testing.assert_allclose(parts.total, parts.aleatoric + parts.epistemic)
    far = model.predict_uncertainty(X.mean(axis=0) + 20.0 * (X[:50] - X.mean(axis=0)))
    near = model.predict_uncertainty(X[:50])
    share = far.epistemic.sum() / far.total.sum(), near.epistemic.sum() / near.total.sum()
    assert share[0] > share[1]


@pytest.mark.parametrize("update", UPDATES)
def test_coefficients_and_covariance_are_in_the_units_of_the_rows(update):
    X, y = blobs(600, K=2)
    model = OnePassClassifier(update=update).fit(X, y)
    np.testing.assert_allclose(
        model.decision_function(X), X @ model.coef_[0] + model.intercept_[0], rtol=1e-9
    )
    covariance = model.coef_covariance()
    rows = np.hstack([X, np.ones((len(X), 1))])
    variance = np.einsum("ij,jk,ik->i", rows, covariance, rows)
    np.testing.assert_allclose(variance, model._posterior().variance(X), rtol=1e-6)
    fewer = OnePassClassifier(update=update).fit(X[:300], y[:300]).coef_covariance()
    assert np.trace(fewer) > np.trace(covariance)


# -- inputs -----------------------------------------------------------------------------------
@pytest.mark.parametrize("update", UPDATES)
def test_sparse_frames_and_single_precision(update, batch_length):
    X, y = blobs()
    X = np.where(np.abs(X) < 1.0, 0.0, X)
    dense = OnePassClassifier(update=update).fit(X, y)
    assert_same(OnePassClassifier(update=update).fit(sparse.csr_array(X), y), dense, X)
    single = OnePassClassifier(update=update).fit(X.astype(np.float32), y)
    np.testing.assert_allclose(single.predict_proba(X), dense.predict_proba(X), atol=2e-3)
    names = [f"column {j}" for j in range(X.shape[1])]
    for frame in (pd.DataFrame(X, columns=names), pl.DataFrame(X, schema=names)):
        model = OnePassClassifier(update=update).fit(frame, y)
        assert model.feature_names_in_.tolist() == names
        np.testing.assert_array_equal(model.predict(frame), dense.predict(X))


@pytest.mark.parametrize("update", UPDATES)
def test_streams_of_blocks_and_files(update, tmp_path):
    X, y = blobs()
    whole = OnePassClassifier(update=update).fit(X, y)
    blocks = ((X[s : s + 70], y[s : s + 70]) for s in range(0, 900, 70))
    assert_same(OnePassClassifier(update=update).fit(blocks), whole, X, atol=1e-9)
    path = tmp_path / "rows.parquet"
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame.assign(label=y).to_parquet(path)
    from_file = OnePassClassifier(update=update).fit(path, "label")
    assert from_file.feature_names_in_.tolist() == list("abcde")
    np.testing.assert_array_equal(from_file.predict(frame).astype(int), whole.predict(X))


@pytest.mark.parametrize("update", UPDATES)
def test_an_interrupted_refit_keeps_the_earlier_model(update):
    X, y = blobs()

    def blocks():
        yield X[:600], y[:600] + 7
        raise KeyboardInterrupt

    model = OnePassClassifier(update=update)
    with pytest.raises(KeyboardInterrupt):
        model.fit(blocks())
    assert not hasattr(model, "classes_")
    before = dict(vars(model.fit(X[:300], y[:300])))
    with pytest.raises(KeyboardInterrupt):
        model.fit(blocks())
    assert vars(model) == before


def test_an_interrupted_fit_resumes_after_its_last_block(
    short_initial_batch, monkeypatch, tmp_path
):
    X, y = blobs(1800)
    stream = [(X[a : a + 300], y[a : a + 300]) for a in range(0, 1800, 300)]
    calls, learn = [], streaming.learn_block

    def interrupted(*args):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return learn(*args)

    monkeypatch.setattr(streaming, "learn_block", interrupted)
    model = OnePassClassifier(random_state=0, checkpoint=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        model.fit(stream)
    assert not hasattr(model, "classes_")
    model.fit(stream)
    assert len(calls) == 5  # two blocks before, and one, the last rows and these again, after
    assert_same(model, OnePassClassifier(random_state=0).fit(X, y), X)
    assert not list(tmp_path.iterdir())


def test_a_callback_may_end_a_stream():
    class Stop:
        def setup(self, estimator, context): ...

        def teardown(self, estimator, context): ...

        def on_fit_task_begin(self, estimator, context, **data): ...

        def on_fit_task_end(self, estimator, context, **data):
            return context.task_name == "block"

    X, y = blobs()
    model = OnePassClassifier().set_callbacks(Stop())
    model.fit([(X[:600], y[:600]), (X[600:], y[600:])])
    assert_same(model, OnePassClassifier().fit(X[:600], y[:600]), X)


def test_blocks_of_text_and_of_numbers_are_refused():
    X, y = blobs()
    for update in UPDATES:
        with pytest.raises(ValueError, match="all text or all numbers"):
            OnePassClassifier(update=update).fit([(X[:9], y[:9]), (X[:9], y[:9].astype(str))])


@pytest.mark.parametrize("update", UPDATES)
def test_saved_models_resume_learning(update, batch_length, tmp_path):
    X, y = blobs()
    labels = np.array(["a", "b", "c", "d"])[y]
    model = OnePassClassifier(update=update).partial_fit(X[:700], labels[:700])
    likelier.save(model, tmp_path / "m")
    again = likelier.load(tmp_path / "m").partial_fit(X[700:], labels[700:])
    assert_same(again, model.partial_fit(X[700:], labels[700:]), X)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"update": "melted"}, "update"),
        ({"features": "wavelets"}, "features"),
        ({"prior_precision": 0.0}, "prior_precision"),
        ({"half_life": -1.0}, "half_life"),
    ],
)
def test_invalid_parameters_raise(params, message):
    with pytest.raises(ValueError, match=message):
        OnePassClassifier(**params).fit(*blobs())


def test_clear_errors():
    X, y = blobs()
    broken = X.copy()
    broken[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        OnePassClassifier().fit(broken, y)
    with pytest.raises(ValueError, match="at least one non-zero"):
        OnePassClassifier().fit(X, y, np.zeros(len(y)))
    with pytest.raises(ValueError, match="yield"):
        OnePassClassifier().fit(iter([(X, y)]), None, np.ones(len(y)))
    with pytest.raises(ValueError, match="max 16384"):
        OnePassClassifier().fit(sparse.csr_array((3, 20_000)), [0, 1, 1])
    with pytest.raises(ValueError, match="update was .frozen."):
        OnePassClassifier(update="frozen").fit(X, y).set_params(update="streaming").partial_fit(
            X, y
        )
    model = OnePassClassifier().fit(X, y)
    with pytest.raises(TypeError, match="must be a OnePassClassifier"):
        model.merge(LogisticRegression())
    with pytest.raises(ValueError, match="same columns"):
        model.merge(OnePassClassifier().fit(X[:, :2], y))
    with pytest.raises(ValueError, match="another update"):
        model.merge(OnePassClassifier(update="frozen").fit(X, y))


def test_rows_of_vanishing_weight_are_harmless():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(9000, 3))
    y = (X[:, 0] > 0).astype(int)
    model = OnePassClassifier(half_life=2).fit(X, y)
    assert np.isfinite(model.predict_proba(X[:50])).all()
