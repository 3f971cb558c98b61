"""What the naive Bayes estimators promise beyond scikit-learn's numbers."""

from __future__ import annotations

import functools
import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

import likelier
from likelier import BernoulliNB, GaussianNB, MultinomialNB

ALL = [GaussianNB, MultinomialNB, BernoulliNB]
every = pytest.mark.parametrize("kind", ALL)
every_mode = pytest.mark.parametrize("bayesian", [False, True])
every_matrix = pytest.mark.parametrize("matrix", [np.asarray, sparse.csr_array])


def rows(n=400, d=6, K=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    X = rng.poisson(1.0 + 3.0 * rng.random((K, d))[y]).astype(float)
    return X, y


def assert_same_model(one, two, rtol=1e-12):
    np.testing.assert_array_equal(one.classes_, two.classes_)
    names = [
        n for n in vars(one) if n.endswith("_") and n not in ("classes_", "stats_", "encoding_")
    ]
    names = [n for n in names if not n.startswith("inlier") and not n.startswith("feature_name")]
    for name in names:
        a, b = getattr(one, name), getattr(two, name)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max(), err_msg=name)


# -- streams and merges ---------------------------------------------------------------------
@every
@every_mode
@every_matrix
@pytest.mark.parametrize("weighted", [False, True])
def test_batches_of_any_size_give_what_a_fit_gives(kind, bayesian, matrix, weighted):
    X, y = rows()
    X += 1e4 * (kind is GaussianNB)  # far from zero, where sums of squares would cancel
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    whole = kind(bayesian=bayesian).fit(matrix(X), y, weight if weighted else None)
    parts = kind(bayesian=bayesian)
    for part in np.split(np.arange(len(y)), [1, 2, 50, 51, 300]):
        given = weight[part] if weighted else None
        parts.partial_fit(matrix(X[part]), y[part], sample_weight=given)
    assert_same_model(parts, whole)
    np.testing.assert_allclose(parts.predict_proba(X), whole.predict_proba(X), atol=1e-9)


@every
def test_classes_may_come_at_any_time(kind):
    X, y = rows()
    labels = np.array(["pear", "apple", "quince"])[y]
    order = np.argsort(y, kind="stable")
    model = kind()
    for part in np.array_split(order, 7):
        model.partial_fit(X[part], labels[part])
    assert list(model.classes_) == ["apple", "pear", "quince"]
    assert_same_model(model, kind().fit(X, labels))


@every
def test_announced_classes_have_no_probability_until_they_come(kind):
    X, y = rows()
    model = kind().partial_fit(X, y, classes=[0, 1, 2, 9])
    assert list(model.classes_) == [0, 1, 2, 9]
    assert (model.predict_proba(X)[:, 3] == 0.0).all()
    np.testing.assert_allclose(model.predict_proba(X)[:, :3], kind().fit(X, y).predict_proba(X))
    certain = kind(bayesian=True).partial_fit(X, y, classes=[0, 1, 2, 9])
    assert (certain.predict_proba(X)[:, 3] > 0.0).any()


@every
@every_matrix
def test_merged_models_have_seen_both(kind, matrix):
    X, y = rows()
    left = kind().fit(matrix(X[y != 2][:150]), y[y != 2][:150])
    right_rows = np.concatenate([np.flatnonzero(y != 2)[150:], np.flatnonzero(y == 2)])
    right = kind().fit(matrix(X[right_rows]), y[right_rows])
    before = {k: v.copy() for k, v in right.stats_.items()}
    merged = left.merge(right)
    assert merged is left
    assert_same_model(merged, kind().fit(X, y))
    for name, array in before.items():
        np.testing.assert_array_equal(right.stats_[name], array)
    assert merged.is_outlier(X).mean() < 0.05


def test_merging_what_does_not_belong_together_is_refused():
    X, y = rows()
    model = GaussianNB().fit(X, y)
    with pytest.raises(TypeError, match="other must be a GaussianNB"):
        model.merge(BernoulliNB().fit(X, y))
    with pytest.raises(ValueError, match="other has 3 features and this model 6"):
        model.merge(GaussianNB().fit(X[:, :3], y))
    with pytest.raises(NotFittedError):
        model.merge(GaussianNB())
    with pytest.raises(ValueError, match="binarize=0.5"):
        BernoulliNB().fit(X, y).merge(BernoulliNB(binarize=0.5).fit(X, y))
    frame = pd.DataFrame(X, columns=list("abcdef"))
    with pytest.raises(ValueError, match="other names"):
        GaussianNB().fit(frame, y).merge(GaussianNB().fit(frame.rename(columns={"a": "z"}), y))


@every
def test_blocks_from_an_iterator_are_one_pass(kind):
    X, y = rows()
    parts = np.array_split(np.arange(len(y)), 5)
    blocks = ((X[p], y[p], np.ones(len(p))) for p in parts)
    model = kind(random_state=0).fit(blocks)
    assert_same_model(model, kind().fit(X, y))
    again = kind(random_state=0).fit([(X[p], y[p]) for p in parts])
    assert_same_model(again, model)
    assert abs(model.is_outlier(X, 0.9).mean() - 0.1) < 0.05


def test_a_file_is_read_in_one_pass(tmp_path):
    X, y = rows()
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(kind=np.array(["u", "v", "w"])[y])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    model = GaussianNB(random_state=0).fit(str(tmp_path / "rows.csv"), "kind")
    assert list(model.feature_names_in_) == list("abcdef")
    assert_same_model(model, GaussianNB().fit(X, frame["kind"]))
    with pytest.raises(ValueError, match="sample_weight of a stream"):
        GaussianNB().fit(str(tmp_path / "rows.csv"), "kind", sample_weight=np.ones(3))
    with pytest.raises(TypeError, match="name of the target column"):
        GaussianNB().fit(str(tmp_path / "rows.csv"), frame["kind"])


@every
def test_an_interrupted_stream_changes_nothing(kind):
    X, y = rows()

    def blocks():
        yield X[:100], y[:100]
        raise KeyboardInterrupt

    model = kind(random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(blocks())
    assert not hasattr(model, "classes_")
    model.fit(X, y)
    with pytest.raises(KeyboardInterrupt):
        model.fit(blocks())
    assert_same_model(model, kind().fit(X, y))


@every
def test_an_interrupted_batch_changes_nothing(kind, monkeypatch):
    X, y = rows()
    model = kind(random_state=0).fit(X, y)
    before = model.predict_proba(X)

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(kind, "_publish", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), before)


# -- outliers ---------------------------------------------------------------------------------
@every
@every_mode
def test_the_share_of_outliers_is_what_was_asked_for(kind, bayesian):
    """Fresh rows of the same distribution: within four standard errors of ``1 - coverage``."""
    X, y = rows(n=4000)
    model = kind(bayesian=bayesian, random_state=0).fit(X[:2000], y[:2000])
    assert len(model.inlier_scores_) == 1000
    for coverage in (0.8, 0.95):
        share = model.is_outlier(X[2000:], coverage).mean()
        error = np.sqrt(coverage * (1 - coverage) * (1 / 2000 + 1 / 1000))
        tie = 0.03 * (kind is BernoulliNB)  # few different rows, so scores have ties
        assert abs(share - (1 - coverage)) < 4 * error + tie


def test_scores_behind_the_threshold_are_out_of_fold():
    """Few rows in many dimensions: in-sample scores would be far too high."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 80)), np.arange(30) % 3
    model = GaussianNB(random_state=0).fit(X, y)
    fresh = rng.normal(size=(2000, 80))
    assert model.is_outlier(fresh, 0.8).mean() < 0.35
    naive = np.quantile(model.score_samples(X), 0.2)
    assert (model.score_samples(fresh) < naive).mean() > 0.6


@every
def test_held_out_scores_are_those_of_a_model_without_the_rows(kind):
    from likelier.base import Batch
    from likelier.naive_bayes.closed_form import ClosedForm, ClosedState

    X, y = rows()
    for matrix in (np.asarray, sparse.csr_array):
        for bayesian in (False, True):
            model = kind(bayesian=bayesian, random_state=0).fit(matrix(X), y)
            stats = model._stats(model.classes_)
            inference = ClosedForm(model._prior(3))
            part = Batch(matrix(X[:50]), y[:50])
            found = inference.out_of_fold_scores(
                ClosedState(model._model(3, 6), stats), part, len(y)
            )[0]
            rest = kind(bayesian=bayesian).fit(matrix(X[50:]), y[50:])
            expected = rest._posterior().typicality(matrix(X[:50]))
            np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_too_few_rows_call_nothing_an_outlier():
    model = GaussianNB(random_state=0).fit([[0.0], [1.0]], [0, 1])
    assert not model.is_outlier([[1e9]], 0.99).any()
    single = GaussianNB(random_state=0).fit([[0.0]], [0])
    assert not single.is_outlier([[1e9]]).any()


def test_length_alone_makes_no_document_an_outlier():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(50))
    lengths = rng.integers(20, 400, 1000)
    X = np.array([rng.multinomial(n, p) for n in lengths], dtype=float)
    model = MultinomialNB(random_state=0).fit(X, np.zeros(1000))
    long_rows = np.array([rng.multinomial(2000, p) for _ in range(200)], dtype=float)
    assert model.is_outlier(long_rows, 0.95).mean() < 0.05
    other = np.array([rng.multinomial(200, rng.permutation(p)) for _ in range(200)], dtype=float)
    assert model.is_outlier(other, 0.95).mean() > 0.95


@pytest.mark.parametrize("kind", [GaussianNB, BernoulliNB])
def test_noise_and_shuffled_pixels_score_below_digits(data_set, kind):
    """Ranks of ``log p(x)`` of test digits against rows that are none (10,000 training rows)."""
    from sklearn.metrics import roc_auc_score

    data = data_set("mnist")
    rng = np.random.default_rng(0)
    train = rng.choice(len(data.X), 10_000, replace=False)
    model = kind(**({"binarize": 127.0} if kind is BernoulliNB else {}), random_state=0)
    model.fit(data.X[train], data.y[train])
    digits = data.Xt[:2000]
    good = model.score_samples(digits)
    noise = rng.integers(0, 256, digits.shape).astype(float)
    shuffled = rng.permuted(digits, axis=1)
    one_order = digits[:, rng.permutation(784)]
    for odd in (noise, shuffled, one_order):
        bad = model.score_samples(odd)
        auc = roc_auc_score(np.r_[np.ones(2000), np.zeros(2000)], np.r_[good, bad])
        assert auc >= 0.9
    assert abs(model.is_outlier(digits, 0.95).mean() - 0.05) < 0.04


# -- uncertainty ------------------------------------------------------------------------------
@every
def test_uncertainty_shrinks_with_data(kind):
    X, y = rows(n=2000, seed=3)
    epistemic = []
    for n in (20, 2000):
        found = kind(bayesian=True, random_state=0).fit(X[:n], y[:n]).predict_uncertainty(X[:200])
        np.testing.assert_allclose(found.total, found.aleatoric + found.epistemic)
        assert (found.epistemic >= 0.0).all()
        epistemic.append(found.epistemic.mean())
    assert epistemic[1] < 0.2 * epistemic[0]
    plain = kind(random_state=0).fit(X, y).predict_uncertainty(X[:200])
    assert abs(plain.epistemic).max() < 1e-12
    p = kind().fit(X, y).predict_proba(X[:200])
    np.testing.assert_allclose(plain.total, -(p * np.log(np.maximum(p, 1e-300))).sum(axis=1))


@every
def test_the_same_seed_gives_the_same_bits(kind):
    X, y = rows()
    one, two = (kind(bayesian=True, random_state=7).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(one.inlier_scores_, two.inlier_scores_)
    np.testing.assert_array_equal(
        one.predict_uncertainty(X).total, two.predict_uncertainty(X).total
    )
    a, b = one.sample(9)[0], two.sample(9)[0]
    assert abs(a - b).sum() == 0.0
    threaded = kind(bayesian=True, random_state=7, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(threaded.predict_proba(X), one.predict_proba(X))


# -- what may be passed in --------------------------------------------------------------------
@every
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames(kind, frame):
    X, y = rows()
    table = frame({f"c{j}": X[:, j] for j in range(6)})
    model = kind(random_state=0).fit(table, y)
    assert list(model.feature_names_in_) == [f"c{j}" for j in range(6)]
    np.testing.assert_array_equal(model.predict(table), kind().fit(X, y).predict(X))


@every
@pytest.mark.parametrize(
    "names",
    [
        np.array(["no", "a longer label", "yes"]),
        np.array([-1, 5, 7]),
        np.array([0.0, 1.0, 2.0]),
        np.array(["x", "y", "z"], dtype=object),
        np.array([10, 200, 255], dtype=np.uint8),
        np.array([-(2**62), 0, 2**62]),
    ],
    ids=["text", "integers", "floats", "objects", "small_integers", "huge_integers"],
)
def test_any_labels(kind, names):
    X, y = rows()
    names = np.sort(names)
    model = kind(random_state=0).fit(X, names[y])
    np.testing.assert_array_equal(model.classes_, names)
    np.testing.assert_array_equal(model.predict(X), names[kind().fit(X, y).predict(X)])
    assert model.predict(X).dtype == names.dtype


def test_true_and_false():
    X, y = rows(K=2)
    assert BernoulliNB().fit(X, y.astype(bool)).predict(X).dtype == bool


@every
def test_order_and_precision_of_the_memory_do_not_matter(kind):
    X, y = rows()
    base = kind(random_state=0).fit(X, y)
    wide = np.repeat(X, 2, axis=1)
    for other in (np.asfortranarray(X), wide[:, ::2], X.astype(np.float32), X.astype(int)):
        model = kind(random_state=0).fit(other, y)
        np.testing.assert_allclose(model.predict_proba(other), base.predict_proba(X), rtol=1e-12)


@every
@every_matrix
def test_weights_repeat_and_remove_rows(kind, matrix):
    X, y = rows()
    weight = np.random.default_rng(5).integers(0, 3, len(y))
    weight[y == 2] = 0
    repeated = np.repeat(np.arange(len(y)), weight)
    one = kind().fit(matrix(X), y, weight)
    two = kind().fit(matrix(X[repeated]), y[repeated])
    assert list(one.classes_) == [0, 1, 2] and list(two.classes_) == [0, 1]
    p = one.predict_proba(X)
    np.testing.assert_array_equal(p[:, 2], 0.0)  # a class, but nothing says that it occurs
    np.testing.assert_allclose(p[:, :2], two.predict_proba(X), rtol=1e-6, atol=1e-9)


@every
def test_single_precision_rows_are_not_copied(kind):
    X = np.random.default_rng(0).poisson(2.0, size=(50_000, 60)).astype(np.float32)
    y = np.arange(50_000) % 4
    model = kind(random_state=0).fit(X, y)
    model.predict(X)
    tracemalloc.start()
    model.fit(X, y)
    model.predict(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.6 * X.nbytes  # a copy in double precision would be twice as large


@every
@every_matrix
def test_infinity_is_refused_everywhere(kind, matrix):
    X, y = rows()
    model = kind(random_state=0).fit(X, y)
    bad = X.copy()
    bad[3, 2] = np.inf
    learn = [functools.partial(call, y=y) for call in (kind().fit, kind().partial_fit)]
    judge = [model.predict, model.predict_proba, model.score_samples, model.is_outlier]
    for call in learn + judge:
        with pytest.raises(ValueError, match="infinity"):
            call(matrix(bad))


@every
def test_invalid_parameters(kind):
    X, y = rows()
    with pytest.raises(ValueError, match="bayesian"):
        kind(bayesian="yes").fit(X, y)
    if kind is GaussianNB:
        cases = {"priors": [[0.5, 0.5], [0.5, 0.6, 0.7], [-1.0, 1.0, 1.0]], "var_smoothing": [-1]}
    else:
        cases = {"alpha": [-1.0, np.ones(4), -np.ones(6)], "class_prior": [[0.5, 0.5]],
                 "fit_prior": [3]}  # fmt: skip
    for word, values in cases.items():
        for value in values:
            with pytest.raises(ValueError, match=r"(?i)alpha|prior|smoothing"):
                kind(**{word: value}).fit(X, y)


def test_more_invalid_parameters():
    X, y = rows()
    with pytest.raises(ValueError, match="Negative values in data.*column 4"):
        MultinomialNB().fit(X - 10.0 * (np.arange(6) == 4), y)
    with pytest.raises(ValueError, match="zeros and ones"):
        BernoulliNB(binarize=None).fit(X, y)
    with pytest.raises(ValueError, match="alpha must be positive with bayesian"):
        MultinomialNB(alpha=0.0, bayesian=True).fit(X, y)
    with pytest.warns(UserWarning, match="alpha too small"):
        MultinomialNB(alpha=0.0, force_alpha=False).fit(X, y)
    with pytest.raises(ValueError, match="at least one non-zero"):
        GaussianNB().fit(X, y, np.zeros(len(y)))
    with pytest.raises(ValueError, match="n_jobs must not be 0"):
        GaussianNB(n_jobs=0).fit(X, y)


@every
def test_before_fitting(kind):
    X, _ = rows()
    for name in ("predict", "predict_proba", "score_samples", "is_outlier", "predict_uncertainty"):
        with pytest.raises(NotFittedError):
            getattr(kind(), name)(X)
    with pytest.raises(NotFittedError):
        kind().sample(3)


# -- drawing rows ------------------------------------------------------------------------------
@every
@every_mode
def test_rows_of_the_classes_asked_for(kind, bayesian):
    X, y = rows()
    model = kind(bayesian=bayesian, random_state=0).fit(X, np.array(["a", "b", "c"])[y])
    drawn, labels = model.sample(50, y="b")
    assert drawn.shape == (50, 6)
    assert set(labels) == {"b"}
    _, labels = model.sample(3, y=["c", "a", "c"])
    assert list(labels) == ["c", "a", "c"]
    with pytest.raises(ValueError, match="y contains np.str_\\('z'\\)|y contains 'z'"):
        model.sample(3, y="z")
    with pytest.raises(ValueError, match="one label or 3 labels"):
        model.sample(3, y=["a", "b"])
    for n in (0, 2.5, True):
        with pytest.raises(ValueError, match="n must be an integer"):
            model.sample(n)


# -- life as an estimator ------------------------------------------------------------------------
@every
def test_search_and_clone(kind):
    X, y = rows()
    word = "var_smoothing" if kind is GaussianNB else "alpha"
    search = GridSearchCV(
        kind(random_state=0), {word: [1e-9, 0.5], "bayesian": [False, True]}, cv=3
    )
    assert search.fit(X, y).best_score_ > 0.5
    assert clone(search.best_estimator_).get_params() == search.best_estimator_.get_params()


@every
@every_mode
@every_matrix
def test_save_and_load(kind, bayesian, matrix, tmp_path):
    X, y = rows()
    model = kind(bayesian=bayesian, random_state=0).fit(matrix(X[:300]), y[:300])
    likelier.save(model, tmp_path / "m")
    loaded = likelier.load(tmp_path / "m")
    for name in ("predict_proba", "score_samples", "is_outlier"):
        assert getattr(loaded, name)(X).tobytes() == getattr(model, name)(X).tobytes()
    for each in (model, loaded):
        each.partial_fit(matrix(X[300:]), y[300:])
    assert loaded.predict_proba(X).tobytes() == model.predict_proba(X).tobytes()
    assert loaded.merge(model).class_count_.sum() == 800
