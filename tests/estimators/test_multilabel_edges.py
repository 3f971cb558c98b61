"""`MultilabelClassifier`: edge cases of the data."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.exceptions import DataConversionWarning, NotFittedError

import likelier
from likelier.base import Batch
from likelier.multilabel.folds import count_folds
from likelier.multilabel.recipe import choose_thresholds
from likelier.multilabel.rows import MATRIX, Rows

from .multilabel_problem import multilabel

RNG = np.random.default_rng(0)
N, D, L = 120, 4, 3
X = RNG.normal(size=(N, D))
SCORES = 2.0 * X @ RNG.normal(size=(D, L)) - [0.0, 1.0, 2.0]
Y = (RNG.random((N, L)) < expit(SCORES)).astype(float)
COUNTS = RNG.poisson(2.0, size=(N, D)).astype(float)
PRESENCE = (COUNTS > 1.0).astype(float)
NAMES = ["red", "green", "blue"]
GROUPS = np.arange(N)
FAST = {"kernel": False, "n_components": 4, "n_folds": 3, "max_iter": 10, "random_state": 0}


def fast(**params):
    return multilabel(**{**FAST, **params})


def spoiled(rows, value):
    """Rows with a wrong value in column 2 (and a later one in column 3, which is not first)."""
    rows = rows.copy()
    rows[5, 2], rows[1, 3] = value, value
    return rows


# -- features -------------------------------------------------------------------------------
BAD_FEATURES = [("bernoulli", PRESENCE, 2.0), ("bernoulli", PRESENCE, 0.5),
                ("bernoulli", PRESENCE, -1.0), ("multinomial", COUNTS, -1.0)]  # fmt: skip


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(("distribution", "rows", "value"), BAD_FEATURES)
def test_features_that_do_not_match_the_distribution_raise(distribution, rows, value, form):
    bad = form(spoiled(rows, value))
    message = rf"features='{distribution}'.*column 2 .* {value:g}.*(features=|before)"
    with pytest.raises(ValueError, match=message):
        fast(features=distribution).fit(bad, Y)
    with pytest.raises(ValueError, match=message):
        fast(features=distribution).partial_fit(bad, Y)
    model = fast(features=distribution).fit(form(rows), Y)
    for ask in (model.predict, model.predict_proba, model.predict_topk, model.decision_function,
                model.predict_uncertainty):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            ask(bad)
    before = model.predict_proba(rows)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(bad, Y)
    assert model.predict_proba(rows).tobytes() == before.tobytes()


def test_the_column_of_bad_features_is_named():
    columns = list("abcd")
    with pytest.raises(ValueError, match="column 'c' contains -3"):
        fast(features="multinomial").fit(pd.DataFrame(spoiled(COUNTS, -3.0), columns=columns), Y)


def test_an_inferred_distribution_applies_to_batches_but_not_to_predictions():
    """The distribution was inferred, but cannot learn values outside its support."""
    model = fast().partial_fit(COUNTS, Y)
    assert model.mixture_["features"] == "multinomial"
    assert np.isfinite(model.predict_proba(spoiled(COUNTS, -1.0))).all()
    with pytest.raises(ValueError, match="'auto' has chosen 'multinomial'.*features='gaussian'"):
        model.partial_fit(spoiled(COUNTS, -1.0), Y)


# -- names of labels ------------------------------------------------------------------------
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_labels_of_a_stream_are_aligned_by_name(frame):
    first, more = Y[:60].astype(int), Y[60:].astype(int)
    named = dict(zip(NAMES, more.T, strict=True))
    start = {"X": X[:60], "y": frame(dict(zip(NAMES, first.T, strict=True)))}
    same = fast().partial_fit(**start).partial_fit(X[60:], frame(named))
    turned = {name: named[name] for name in ("blue", "red", "green")}
    other = fast().partial_fit(**start).partial_fit(X[60:], frame(turned))
    assert other.predict_proba(X).tobytes() == same.predict_proba(X).tobytes()
    plain = fast().partial_fit(**start).partial_fit(X[60:], more)
    assert plain.predict_proba(X).tobytes() == same.predict_proba(X).tobytes()


@pytest.mark.parametrize("names", [["red", "green", "black"], ["red", "red", "green"]])
def test_labels_of_other_names_are_refused(names):
    model = fast().partial_fit(X, pd.DataFrame(Y, columns=NAMES))
    with pytest.raises(ValueError, match=r"columns of y.*red.*green.*blue"):
        model.partial_fit(X, pd.DataFrame(Y, columns=names))


def test_names_after_a_first_call_without_names_are_taken_by_place():
    one = fast().partial_fit(X[:60], Y[:60]).partial_fit(X[60:], Y[60:])
    two = fast().partial_fit(X[:60], Y[:60])
    two.partial_fit(X[60:], pd.DataFrame(Y[60:], columns=NAMES))
    assert one.predict_proba(X).tobytes() == two.predict_proba(X).tobytes()


def test_whole_numbers_stay_names(tmp_path):
    frame = pd.DataFrame(Y, columns=[30, 10, 20])
    model = fast(n_components=0).partial_fit(X, frame)
    assert model.label_names_.tolist() == [30, 10, 20]
    assert model.label_names_.dtype == model.classes_.dtype == np.int64
    assert set(model.predict_topk(X, 1)[0].ravel().tolist()) <= {10, 20, 30}
    likelier.save(model, tmp_path / "numbers")
    again = likelier.load(tmp_path / "numbers")
    for one, labels in ((model, frame), (again, frame[[10, 20, 30]])):
        one.partial_fit(X, labels)
    assert model.predict_proba(X).tobytes() == again.predict_proba(X).tobytes()
    with pytest.raises(ValueError, match="labels of the first call"):
        model.partial_fit(X, pd.DataFrame(Y, columns=[1, 2, 3]))


@pytest.mark.parametrize("names", [["a", 2, 3], [True, False, 2], [2**70, 1, 2], [(1, 2), 3, 4]])
def test_other_names_become_strings(names):
    frame = pd.DataFrame(Y)
    frame.columns = pd.Index(names, dtype=object, tupleize_cols=False)
    model = fast(n_components=0).fit(X, frame)
    assert model.label_names_.tolist() == [str(name) for name in names]


def test_a_single_label_stays_a_label_when_a_batch_knows_all_of_it():
    holes = Y[:, :1].copy()
    holes[:5] = np.nan
    model = fast().partial_fit(X, holes).partial_fit(X, Y[:, :1])
    assert model.predict(X).shape == (N, 1)


# -- unknown labels -------------------------------------------------------------------------
@pytest.mark.parametrize("label_distribution", ["bernoulli", "multinomial"])
@pytest.mark.parametrize("combine", ["log_odds", "product"])
@pytest.mark.parametrize("n_components", [0, 4])
def test_an_unknown_label_is_not_predicted(label_distribution, combine, n_components):
    holes = Y.copy()
    holes[:, 1] = np.nan
    model = fast(label_distribution=label_distribution, combine=combine, n_components=n_components)
    with pytest.warns(UserWarning, match="label 'green' has no known value") as caught:
        model.fit(X, pd.DataFrame(holes, columns=NAMES))
    assert len(caught) == 1
    for objective in ("micro", "macro", "hamming"):
        assert model.use_threshold(objective).predict(X)[:, 1].sum() == 0
    np.testing.assert_array_equal(model.predict_proba(X)[:, 1], 0.5)  # nothing is known
    assert np.isfinite(model.predict_uncertainty(X).total).all()


def test_an_unknown_label_does_not_affect_other_thresholds():
    holes = Y.copy()
    holes[:, 1] = np.nan
    two, weight = [0, 2], np.ones(N)
    with_it = choose_thresholds(SCORES, Rows(X, holes, weight, GROUPS), MATRIX, True)
    without = choose_thresholds(
        SCORES[:, two], Rows(X, holes[:, two], weight, GROUPS), MATRIX, True
    )
    for objective, cuts in without.items():
        np.testing.assert_array_equal(with_it[objective][two], cuts)
        assert with_it[objective][1] == 0.0


def test_unlabelled_rows_do_not_drown_labelled_ones():
    """For thresholds, unlabelled rows in total count no more than labelled ones."""
    holes = Y.copy()
    holes[N // 2 :] = np.nan
    weight = np.where(np.arange(N) < N // 2, 1.0, 1e4)
    heavy = choose_thresholds(SCORES, Rows(X, holes, weight, GROUPS), MATRIX, True)
    even = choose_thresholds(SCORES, Rows(X, holes, np.ones(N), GROUPS), MATRIX, True)
    for objective, cuts in even.items():
        np.testing.assert_allclose(heavy[objective], cuts)


def test_fewer_folds_only_where_many_cells_make_them_dear():
    assert count_folds(5000, 10, 2, 5) == 5
    assert count_folds(5000, 5000, 100, 5) == 3


def test_an_unknown_label_is_learned_when_it_comes():
    holes = Y[:60].copy()
    holes[:, 1] = np.nan
    with pytest.warns(UserWarning, match="has no known value"):
        model = fast().partial_fit(X[:60], holes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a stream only the first batch is spoken of
        model.partial_fit(X[:30], holes[:30]).partial_fit(X, Y)
    assert (model.predict(X)[:, 1] == Y[:, 1]).mean() > 0.75


def test_rows_of_weight_zero_do_not_count_as_labelled():
    holes = np.full((N, L), np.nan)
    holes[:10] = Y[:10]
    weight = np.ones(N)
    weight[:10] = 0.0
    for learn in (fast().fit, fast().partial_fit):
        with pytest.raises(ValueError, match="no known label"):
            learn(X, holes, sample_weight=weight)


@pytest.mark.parametrize("kind", ["Int64", "boolean", "Float64", "mixed"])
def test_nullable_labels_may_be_unknown(kind):
    holes = Y.copy()
    holes[::4, 1] = np.nan
    holes[:7] = np.nan
    frame = pd.DataFrame(holes, columns=NAMES)
    kinds = dict(zip(NAMES, ["Int64", "boolean", "Float64"], strict=True))
    given = frame.astype(kinds if kind == "mixed" else kind)
    assert given.isna().to_numpy().sum() == np.isnan(holes).sum()
    one, two = fast().fit(X, frame), fast().fit(X, given)
    assert one.predict_proba(X).tobytes() == two.predict_proba(X).tobytes()
    nulls = pl.DataFrame({name: [None if v != v else bool(v) for v in column]
                          for name, column in zip(NAMES, holes.T, strict=True)})  # fmt: skip
    assert fast().fit(X, nulls).predict_proba(X).tobytes() == one.predict_proba(X).tobytes()


def test_a_nullable_column_is_a_label_with_holes_or_classes_without():
    holes = pd.DataFrame({"red": Y[:, 0]}).astype("Int64")
    holes.iloc[:9, 0] = pd.NA
    assert fast().fit(X, holes).predict(X).shape == (N, 1)
    classes = pd.Series(Y[:, 0].astype(int), dtype="Int64")
    assert fast().fit(X, classes).predict(X).shape == (N,)
    classes[3] = pd.NA
    with pytest.raises(ValueError, match="y contains NaN"):
        fast().fit(X, classes)
    params = pd.Series(np.array(["no", "yes"])[Y[:, 0].astype(int)], dtype="string")
    params[3] = pd.NA
    for y in (params, params.astype(object).where(params.notna(), None)):
        with pytest.raises(ValueError, match="y has no class in row 3"):
            fast().fit(X, y)


def test_a_batch_without_labels_teaches_the_mixture_and_takes_nothing_away():
    model = fast().partial_fit(X[:60], Y[:60])
    before, table = model.mixture_, model.label_patterns_
    model.partial_fit(X[60:], np.full((60, L), np.nan))
    after = model.mixture_
    assert after["step"] == before["step"] + 1 and model.n_seen_ == N
    assert not np.array_equal(after["params"]["features"], before["params"]["features"])
    np.testing.assert_array_equal(after["params"]["labels"], before["params"]["labels"])
    assert len(model.label_patterns_) == len(table)
    assert np.isfinite(model.predict_proba(X)).all()


def test_a_batch_appends_the_bound_before_its_step():
    """Evidence and divergences belong to the same parameters, or their sum bounds nothing."""
    model = fast().partial_fit(X[:60], Y[:60])
    (state, enter), n_before = model._mixture(), len(model.elbo_)
    stats = state.model.stats(state.params, Batch(enter.apply(X[60:]), Y[60:], np.ones(60)))
    model.partial_fit(X[60:], Y[60:])
    assert len(model.elbo_) == n_before + 1
    assert model.elbo_[-1] == pytest.approx(
        state.model.bound(state.params, 2.0 * stats.evidence), rel=1e-12
    )


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_columns_too_large_for_a_variance_are_refused(form):
    """Such a column used to be left out, with a warning about an overflow."""
    large = X.copy()
    large[:, 1] *= 1e200
    with pytest.raises(ValueError, match=r"column 1 of X contains .*rescale"):
        fast().fit(form(large), Y)
    with pytest.raises(ValueError, match=r"column 'b' of X contains .*rescale"):
        fast().fit(pd.DataFrame(large, columns=list("abcdefgh")[: X.shape[1]]), Y)


def test_rows_far_beyond_all_others_are_answered_or_refused():
    model = fast().fit(X, Y)
    found = model.predict_uncertainty(X[:3] * 1e140)
    assert np.isfinite(found.total).all() and (found.epistemic >= 0.0).all()
    with pytest.raises(ValueError, match=r"column 0 of X contains .*rescale"):
        model.predict_proba(X[:3] * 1e160)


def test_unlabelled_batches_do_not_wear_labels_out():
    """However many rows without labels pass, the patterns keep what they have learned."""
    model = fast(max_iter=2).partial_fit(X[:60], Y[:60])
    told = model.mixture_["params"]["labels"].sum()
    for _ in range(20):
        model.partial_fit(X[60:], np.full((60, L), np.nan))
    assert model.mixture_["params"]["labels"].sum() == pytest.approx(told)


def test_the_first_batch_needs_a_label():
    with pytest.raises(ValueError, match="no known label"):
        fast().partial_fit(X, np.full((N, L), np.nan))


# -- params ----------------------------------------------------------------------------------
def test_thresholds_need_a_fit():
    with pytest.raises(NotFittedError):
        fast().use_threshold("micro")


@pytest.mark.parametrize("k", [1.5, "a", None, True])
def test_the_number_of_labels_must_be_whole(k):
    model = fast(n_components=0).fit(X, Y)
    with pytest.raises(TypeError, match="k must be an integer"):
        model.predict_topk(X, k=k)
    with pytest.raises(ValueError, match="k must be at least 1"):
        model.predict_topk(X, k=0)
    assert model.predict_topk(X, k=np.int64(2))[0].shape == (N, 2)


@pytest.mark.parametrize("announced", [[0, 1, 1], [1, 0], [0, 1]])
def test_announced_classes_are_sorted_and_distinct(announced):
    y = (Y[:, 0]).astype(int)
    model = fast(n_components=0).partial_fit(X, y, classes=announced)
    np.testing.assert_array_equal(model.classes_, [0, 1])
    plain = fast(n_components=0).fit(X, y)
    assert model.predict_proba(X).tobytes() == plain.predict_proba(X).tobytes()
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
    model.partial_fit(X, y, classes=announced)
    with pytest.raises(ValueError, match="classes must be those of the first call"):
        model.partial_fit(X, y, classes=[0, 1, 2])


def test_parameters_set_after_the_fit_apply_to_the_next_fit(tmp_path):
    model = fast().fit(PRESENCE, Y)
    before = model.predict_proba(X)
    model.set_params(combine="product", mixture__features="multinomial")
    assert model.predict_proba(X).tobytes() == before.tobytes()
    likelier.save(model, tmp_path / "m")
    assert likelier.load(tmp_path / "m").predict_proba(X).tobytes() == before.tobytes()
    assert model.fit(PRESENCE, Y).predict_proba(PRESENCE).tobytes() == (
        fast(combine="product", features="multinomial").fit(PRESENCE, Y)
        .predict_proba(PRESENCE).tobytes()
    )  # fmt: skip


# -- forms of y -----------------------------------------------------------------------------
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("kind", [float, int, bool])
def test_a_frame_of_one_column_is_one_label_with_its_name(frame, kind):
    model = fast(n_components=0).fit(X, frame({"spam": Y[:, 0].astype(kind)}))
    assert list(model.label_names_) == ["spam"] and model.predict(X).shape == (N, 1)
    model.partial_fit(X, frame({"spam": Y[:, 0].astype(kind)}))
    assert 0.5 < model.score(X, frame({"spam": Y[:, 0].astype(kind)})) <= 1.0


def test_a_frame_of_one_column_of_classes_holds_classes():
    y = np.array(["no", "yes"])[Y[:, 0].astype(int)]
    with pytest.warns(DataConversionWarning):
        model = fast(n_components=0).fit(X, pd.DataFrame({"spam": y}))
    assert set(model.predict(X)) <= {"no", "yes"}


def test_base_rates_follow_a_stream():
    holes = Y[:60].copy()
    holes[:, 1] = np.nan
    with pytest.warns(UserWarning, match="no known value"):
        model = fast().partial_fit(X[:60], holes)
    model.partial_fit(X[60:], Y[60:], sample_weight=np.full(60, 2.0))
    first, more = holes.copy(), Y[60:]
    known = np.isfinite(first)
    positive = np.where(known, first, 0.0).sum(axis=0) + 2.0 * more.sum(axis=0)
    np.testing.assert_allclose(
        model.base_rates_, (positive + 0.5) / (known.sum(axis=0) + 120.0 + 1.0)
    )


def test_a_score_needs_known_labels():
    model = fast(n_components=0).fit(X, pd.DataFrame(Y, columns=NAMES))
    holes = pd.DataFrame(Y, columns=NAMES)
    assert model.score(X, holes[["blue", "red", "green"]]) == model.score(X, Y)
    holes.iloc[4, 1] = np.nan
    with pytest.raises(ValueError, match=r"row 4 of label 'green' is NaN.*Remove such rows"):
        model.score(X, holes)
    with pytest.raises(ValueError, match=r"row 4 of label 1 is NaN"):
        model.score(X, holes.to_numpy())


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (pd.Series([{"a"}, {"b"}] * (N // 2)), "row 0 of y is a set.*MultiLabelBinarizer"),
        ([["a", "b"], ["a"]] * (N // 2), "MultiLabelBinarizer"),
        ([None, *["a", "b"] * (N // 2 - 1), "a"], "no class in row 0; remove"),
        (pd.DataFrame({"red": Y[:, 0], "tone": ["warm"] * N}),
         "row 0 of label 'tone' is 'warm'.*drop it"),
    ],
)  # fmt: skip
def test_invalid_y_raises(y, message):
    with pytest.raises(ValueError, match=message):
        fast().fit(X, y)
