"""Missing counts through everything MultinomialNB does: batches, merging, saving, frames."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

import likelier
from likelier import MultinomialNB
from likelier.base import Batch
from likelier.naive_bayes.closed_form import ClosedForm, ClosedState
from likelier.naive_bayes.count_model import MultinomialModel, TermStats

every_matrix = pytest.mark.parametrize("matrix", [np.asarray, sparse.csr_array])
SHOWN = ("class_count_", "class_log_prior_", "feature_count_", "feature_log_prob_", "mean_length_")


def rows(n=400, d=6, K=3, seed=0, holes=0.2):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    X = rng.poisson(1.0 + 3.0 * rng.random((K, d))[y]).astype(float)
    X[(rng.random(X.shape) < holes) & (rng.random((n, 1)) < 0.6)] = np.nan
    return X, y


def assert_same_model(one, two, rtol=1e-12):
    np.testing.assert_array_equal(one.classes_, two.classes_)
    for name in SHOWN:
        np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol, err_msg=name)


@every_matrix
@pytest.mark.parametrize("weighted", [False, True])
def test_batches_of_any_size_give_what_a_fit_gives(matrix, weighted):
    X, y = rows()
    labels = np.array(["pear", "apple", "quince"])[y]
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    whole = MultinomialNB(random_state=0).fit(matrix(X), labels, weight if weighted else None)
    order = np.argsort(y, kind="stable")  # so that classes come one after the other
    parts = MultinomialNB(random_state=0)
    for part in np.split(order, [1, 2, 50, 51, 300]):
        given = weight[part] if weighted else None
        parts.partial_fit(matrix(X[part]), labels[part], sample_weight=given)
    assert_same_model(parts, whole)
    np.testing.assert_allclose(parts.predict_proba(X), whole.predict_proba(X), rtol=1e-9)


@every_matrix
def test_merged_models_have_seen_both(matrix):
    X, y = rows()
    first = y != 2
    left = MultinomialNB(random_state=0).fit(matrix(X[first][:150]), y[first][:150])
    rest = np.concatenate([np.flatnonzero(first)[150:], np.flatnonzero(~first)])
    right = MultinomialNB(random_state=0).fit(matrix(X[rest]), y[rest])
    before = {name: array.copy() for name, array in right.stats_.items()}
    assert_same_model(left.merge(right), MultinomialNB(random_state=0).fit(X, y))
    for name, array in before.items():
        np.testing.assert_array_equal(right.stats_[name], array)


@every_matrix
def test_statistics_form_a_group(matrix):
    X, y = rows()
    model = MultinomialModel(3, np.ones(1))
    a, b, c = (model.stats(Batch(matrix(X[i::3]), y[i::3])) for i in range(3))

    def same(one, two):
        for name, array in one.to_arrays().items():
            np.testing.assert_allclose(array, two.to_arrays()[name], rtol=1e-12, err_msg=name)

    same((a + b) + c, a + (c + b))
    same((a + b + c) - c, a + b)
    same(TermStats.from_arrays(a.to_arrays()), a)
    d = model.stats(Batch(unsorted(X[::3]), y[::3]))
    same(d, a)
    wide = a.reindex(np.array([0, 2, 5]), 6).to_arrays()
    events = a.to_arrays()["missing_events"]
    np.testing.assert_array_equal(wide["missing_events"][[0, 2, 5]], events)
    assert not wide["missing_events"][[1, 3, 4]].any()
    assert not (a - a).patterns


def test_patterns_are_kept_once():
    X, y = rows(n=2000)
    X = X[~np.isnan(X).any(axis=1)]
    y = y[: len(X)]
    X[::2, 1] = np.nan
    X[1::4, [0, 4]] = np.nan
    model = MultinomialNB(random_state=0).fit(X, y)
    np.testing.assert_array_equal(np.sort(model.stats_["missing_terms"]), [0, 1, 4])
    assert model.stats_["missing_rows"].shape == (3, 2)
    assert model.stats_["missing_rows"].sum() == np.isnan(X).any(axis=1).sum()


def test_models_without_missing_counts_keep_nothing_of_it():
    X, y = rows(holes=0.0)
    model = MultinomialNB(random_state=0).fit(X, y)
    assert set(model.stats_) == {"class_count", "feature_count", "seen"}


@every_matrix
def test_save_and_load(matrix, tmp_path):
    X, y = rows()
    model = MultinomialNB(random_state=0).fit(matrix(X[:300]), y[:300])
    likelier.save(model, tmp_path / "m")
    loaded = likelier.load(tmp_path / "m")
    for name in ("predict_proba", "score_samples", "is_outlier"):
        assert getattr(loaded, name)(X).tobytes() == getattr(model, name)(X).tobytes()
    for each in (model, loaded):
        each.partial_fit(matrix(X[300:]), y[300:])
    assert loaded.predict_proba(X).tobytes() == model.predict_proba(X).tobytes()
    assert loaded.merge(model).class_count_.sum() == 800


@every_matrix
def test_held_out_scores_are_those_of_a_model_without_the_rows(matrix):
    X, y = rows()
    model = MultinomialNB(random_state=0).fit(matrix(X), y)
    state = ClosedState(model._model(3, 6), model._stats(model.classes_))
    found = ClosedForm(model._prior(3)).out_of_fold_scores(
        state, Batch(matrix(X[:50]), y[:50]), len(y)
    )[0]
    rest = MultinomialNB().fit(matrix(X[50:]), y[50:])
    np.testing.assert_allclose(found, rest._posterior().typicality(matrix(X[:50])), rtol=1e-9)


def unsorted(X):
    """Sparse rows with their terms in reverse order."""
    out = sparse.csr_array(X)
    for start, stop in zip(out.indptr[:-1], out.indptr[1:], strict=True):
        out.indices[start:stop] = out.indices[start:stop][::-1].copy()
        out.data[start:stop] = out.data[start:stop][::-1].copy()
    out.has_sorted_indices = out.has_canonical_format = False
    return out


def test_memory_order_and_precision_do_not_matter():
    X, y = rows()
    base = MultinomialNB(random_state=0).fit(X, y)
    wide = np.repeat(X, 2, axis=1)[:, ::2]
    single = X.astype(np.float32)
    for other in (np.asfortranarray(X), wide, single, sparse.csr_array(single), unsorted(X)):
        model = MultinomialNB(random_state=0).fit(other, y)
        assert_same_model(model, base)
        np.testing.assert_allclose(model.predict_proba(other), base.predict_proba(X), rtol=1e-11)
    threads = MultinomialNB(random_state=0, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(threads.predict_proba(X), base.predict_proba(X))


def test_nulls_of_frames_are_missing():
    X, y = rows()
    base = MultinomialNB(random_state=0).fit(X, y)
    values = [[None if np.isnan(x) else int(x) for x in column] for column in X.T]
    table = {f"c{j}": column for j, column in enumerate(values)}
    for frame in (
        pd.DataFrame(table, dtype="Int64"), pd.DataFrame(table, dtype=float), pl.DataFrame(table),
    ):  # fmt: skip
        model = MultinomialNB(random_state=0).fit(frame, y)
        assert_same_model(model, base)
        np.testing.assert_array_equal(model.predict_proba(frame), base.predict_proba(X))


def test_weights_repeat_rows():
    X, y = rows()
    weight = np.random.default_rng(5).integers(0, 3, len(y))
    repeated = np.repeat(np.arange(len(y)), weight)
    one = MultinomialNB().fit(X, y, weight)
    assert_same_model(one, MultinomialNB().fit(X[repeated], y[repeated]))


# -- averaging over the shares ------------------------------------------------------------------
@every_matrix
def test_training_rows_must_be_complete_to_average_over_the_posterior(matrix):
    X, y = rows()
    complete = ~np.isnan(X).any(axis=1)
    with pytest.raises(ValueError, match=r"NaN, in column \d: .*bayesian=False"):
        MultinomialNB(bayesian=True).fit(matrix(X), y)
    model = MultinomialNB(bayesian=True, random_state=0).fit(matrix(X[complete]), y[complete])
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match="not a Dirichlet distribution"):
        model.partial_fit(matrix(X), y)
    with pytest.raises(ValueError, match="fitted to rows with missing counts"):
        model.merge(MultinomialNB(random_state=0).fit(matrix(X), y))
    np.testing.assert_array_equal(model.predict_proba(X), before)
    changed = MultinomialNB(random_state=0).fit(matrix(X), y).set_params(bayesian=True)
    with pytest.raises(ValueError, match="fitted to rows with missing counts"):
        changed.predict(matrix(X))


@pytest.mark.parametrize("bayesian", [False, True])
def test_uncertainty_and_draws(bayesian):
    X, y = rows()
    complete = ~np.isnan(X).any(axis=1) if bayesian else np.ones(len(y), dtype=bool)
    model = MultinomialNB(bayesian=bayesian, random_state=0).fit(X[complete], y[complete])
    found = model.predict_uncertainty(X)
    assert np.isfinite(found.total).all()
    nothing = model.predict_uncertainty(np.full((1, 6), np.nan))
    p = np.exp(model.class_log_prior_)
    np.testing.assert_allclose(nothing.total, -(p * np.log(p)).sum())
    assert abs(nothing.epistemic[0]) < 1e-12  # draws agree where no share is asked about
    drawn, labels = model.sample(4000)
    means = [drawn.toarray()[labels == k].sum(axis=1).mean() for k in range(3)]
    np.testing.assert_allclose(means, model.mean_length_, rtol=0.05)


@every_matrix
def test_what_is_no_count_is_named(matrix):
    X, y = rows()
    bad = X.copy()
    bad[np.isnan(bad[:, 4]), 4] = 0.0
    bad[7, 4] = -1.0
    with pytest.raises(ValueError, match="Negative values in data.*column 4"):
        MultinomialNB().fit(matrix(bad), y)
    model = MultinomialNB(random_state=0).fit(matrix(X), y)
    bad[7, 4] = np.inf
    for call in (MultinomialNB().fit, MultinomialNB().partial_fit):
        with pytest.raises(ValueError, match="infinity"):
            call(matrix(bad), y)
    for call in (model.predict, model.predict_proba, model.score_samples, model.is_outlier):
        with pytest.raises(ValueError, match="infinity"):
            call(matrix(bad))


@pytest.mark.parametrize("kind", [likelier.GaussianNB, MultinomialNB, likelier.BernoulliNB])
@every_matrix
def test_streams_may_have_holes_too(kind, matrix):
    if kind is likelier.GaussianNB and matrix is not np.asarray:
        matrix = np.asarray
    X, y = rows()
    X = np.minimum(X, 1.0) if kind is likelier.BernoulliNB else X
    blocks = [(matrix(X[a : a + 90]), y[a : a + 90]) for a in range(0, len(y), 90)]
    one, two = kind().fit(blocks), kind().fit(matrix(X), y)
    np.testing.assert_allclose(one.predict_proba(X), two.predict_proba(X), rtol=1e-9)
    X[3, 2] = np.inf
    with pytest.raises(ValueError, match=r"block 0.*infinity"):
        kind().fit([(matrix(X), y)])
    if kind is MultinomialNB:  # a model that does not know what NaN means still refuses it
        with pytest.raises(ValueError, match="NaN"):
            likelier.LinearClassifier().fit([(matrix(rows()[0]), y)])
