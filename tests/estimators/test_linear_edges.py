"""Odd data: empty rows, doubled entries, constant columns, few rows, no penalty, huge rates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import Ridge

from likelier import SGD, LinearClassifier, LinearRegressor
from likelier.losses import LOSSES

CLASSIFICATION = [n for n, loss in LOSSES.items() if loss.task in ("binary", "multiclass")]
REGRESSION = [n for n, loss in LOSSES.items() if loss.task in ("regression", "count")]
ignore = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def draw(n=120, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    signal = X @ np.linspace(1.0, -1.0, d)
    return X, (signal + rng.standard_normal(n) > 0).astype(int), np.round(abs(signal) + 1.0)


def make(loss, **params):
    estimator = LinearClassifier if loss in CLASSIFICATION else LinearRegressor
    return estimator(loss, random_state=0, **params)


def target(loss, y, counts):
    return y if loss in CLASSIFICATION else counts


every_loss = pytest.mark.parametrize("loss", CLASSIFICATION + REGRESSION)


@ignore
@every_loss
def test_empty_rows_and_empty_columns(loss):
    X, y, counts = draw()
    X[::4] = 0.0
    X[:, 2] = 0.0
    t = target(loss, y, counts)
    dense = make(loss, alpha=0.01).fit(X, t)
    thin = make(loss, alpha=0.01).fit(sparse.csr_array(X), t)
    for model in (dense, thin):
        assert np.isfinite(model.coef_).all()
        assert np.isfinite(model.predict(X)).all()
        np.testing.assert_allclose(np.atleast_2d(model.coef_)[:, 2], 0.0, atol=1e-12)
    np.testing.assert_allclose(dense.coef_, thin.coef_, atol=0.02)


@ignore
@every_loss
@pytest.mark.parametrize("params", [{}, {"alpha": 0.0}, {"solver": SGD(learning_rate="constant")}])
def test_nothing_but_zeros(loss, params):
    """Without a feature to learn from, the intercept is the whole model."""
    _, y, counts = draw()
    X = sparse.csr_array((120, 3))
    model = make(loss, **params).fit(X, target(loss, y, counts))
    np.testing.assert_array_equal(model.coef_, np.zeros_like(model.coef_))
    assert np.isfinite(model.intercept_).all()


@pytest.mark.parametrize(
    "params", [{}, {"solver": SGD(learning_rate="constant")}, {"solver": SGD(early_stopping=True)}]
)
def test_doubled_entries_are_summed_and_the_caller_keeps_them(params):
    X, y, _ = draw()
    clean = sparse.csr_array(X)
    rows = np.repeat(np.arange(120), 8)
    data = np.repeat(X.ravel() / 2.0, 2)
    indptr = np.arange(0, 961, 8)
    doubled = sparse.csr_array((data, np.repeat(np.tile(np.arange(4), 120), 2), indptr))
    assert doubled.nnz == 960 == len(rows)
    stored = doubled.data.copy(), doubled.indices.copy(), doubled.indptr.copy()
    one = LinearClassifier(random_state=0, **params).fit(doubled, y)
    two = LinearClassifier(random_state=0, **params).fit(clean, y)
    np.testing.assert_allclose(one.coef_, two.coef_, rtol=1e-9)
    np.testing.assert_allclose(one.predict_proba(doubled), two.predict_proba(X), rtol=1e-9)
    one.set_params(solver="auto").partial_fit(doubled, y)
    for before, after in zip(stored, (doubled.data, doubled.indices, doubled.indptr), strict=True):
        np.testing.assert_array_equal(before, after)
    assert doubled.nnz == 960


def test_unsorted_columns_are_the_same_matrix():
    X, y, _ = draw()
    straight = sparse.csr_array(X)
    mixed = straight.copy()
    for i in range(120):
        here = slice(mixed.indptr[i], mixed.indptr[i + 1])
        mixed.indices[here] = mixed.indices[here][::-1].copy()
        mixed.data[here] = mixed.data[here][::-1].copy()
    mixed.has_sorted_indices = False
    mixed.has_canonical_format = False
    one = LinearClassifier(random_state=0).fit(mixed, y)
    two = LinearClassifier(random_state=0).fit(straight, y)
    np.testing.assert_allclose(one.coef_, two.coef_, rtol=1e-9)
    np.testing.assert_array_equal(one.predict(mixed), two.predict(straight))


@ignore
@every_loss
def test_one_feature(loss):
    X, y, counts = draw()
    model = make(loss).fit(X[:, :1], target(loss, y, counts))
    assert np.shape(model.coef_)[-1] == 1
    assert np.isfinite(model.coef_).all()


@ignore
@every_loss
@pytest.mark.parametrize("alpha", ["auto", 0.0])
def test_a_constant_column_does_no_harm(loss, alpha):
    X, y, counts = draw()
    t = target(loss, y, counts)
    with_constant = np.column_stack([X, np.full(120, 5.0)])
    plain = make(loss, alpha=alpha).fit(X, t)
    model = make(loss, alpha=alpha).fit(with_constant, t)
    assert np.isfinite(model.coef_).all()
    if loss not in ("hinge", "multiclass_hinge", "quantile", "epsilon_insensitive"):
        np.testing.assert_allclose(
            np.atleast_2d(model.coef_)[:, :4], np.atleast_2d(plain.coef_), atol=1e-3
        )


@ignore
@every_loss
def test_more_features_than_rows(loss):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((15, 60))
    y, counts = np.arange(15) % 2, np.arange(15.0) % 4
    model = make(loss, alpha=0.1).fit(X, target(loss, y, counts))
    assert np.isfinite(model.coef_).all()
    if loss in CLASSIFICATION:
        assert model.score(X, y) == 1.0
    if loss == "squared_error":
        peer = Ridge(alpha=0.1 * 15).fit(X, counts)
        np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-6)


@ignore
@pytest.mark.parametrize("loss", CLASSIFICATION)
def test_separable_classes_without_penalty_stay_finite(loss):
    X = np.linspace(-1.0, 1.0, 40)[:, None]
    y = (X[:, 0] > 0.0).astype(int)
    for params in ({"alpha": 0.0}, {"alpha": 0.0, "solver": SGD(learning_rate="constant")}):
        model = make(loss, max_iter=100, **params).fit(X, y)
        assert np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()
        assert model.score(X, y) > 0.9
        assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize("loss", CLASSIFICATION)
def test_two_rows(loss):
    model = make(loss, probability=False).fit([[0.0], [1.0]], ["a", "b"])
    np.testing.assert_array_equal(model.predict([[0.0], [1.0]]), ["a", "b"])


def test_one_row_of_numbers():
    model = LinearRegressor().fit([[2.0]], [3.0])
    assert model.predict([[2.0]]) == pytest.approx(3.0, rel=0.05)


@pytest.mark.parametrize(
    "params", [{}, {"solver": SGD(early_stopping=True, validation_fraction=0.5)}]
)
def test_one_class_is_a_constant(params):
    X, _, _ = draw()
    model = LinearClassifier(**params).fit(X, np.zeros(120))
    fitted = {name for name in vars(model) if name.endswith("_")}
    assert fitted == {"n_features_in_", "classes_", "constant_"}
    np.testing.assert_array_equal(model.predict(X), np.zeros(120))
    np.testing.assert_array_equal(model.predict_proba(X), np.ones((120, 1)))


def test_batches_of_one_class_are_refused():
    X, _, _ = draw()
    model = LinearClassifier()
    with pytest.raises(ValueError, match="two classes"):
        model.partial_fit(X, np.zeros(120))
    assert not any(name.endswith("_") for name in vars(model) if name != "n_features_in_")


def test_a_class_without_weight_leaves_the_model_finite():
    X, y, _ = draw()
    model = LinearClassifier(class_weight={0: 0.0, 1: 1.0}).fit(X, y)
    assert np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()
    assert (model.predict(X) == 1).all()


@pytest.mark.parametrize("loss", ["log_loss", "softmax", "hinge"])
def test_very_rare_class(loss):
    X, _, _ = draw(n=500)
    y = np.zeros(500, dtype=int)
    y[[7, 300]] = 1
    model = make(loss).fit(X, y)
    p = model.predict_proba(X)
    assert np.isfinite(p).all()
    assert p[:, 1].mean() < 0.1


def test_counts_of_zero_only():
    X, _, _ = draw()
    with np.errstate(all="raise", under="ignore"):
        model = LinearRegressor("poisson", alpha=0.1).fit(X, np.zeros(120))
    assert np.isfinite(model.coef_).all()
    assert (model.predict(X) < 0.05).all()


def test_huge_targets():
    X, _, t = draw()
    for size in (1e-12, 1e12):
        model = LinearRegressor(alpha=0.01).fit(X, size * t)
        plain = LinearRegressor(alpha=0.01).fit(X, t)
        np.testing.assert_allclose(model.coef_ / size, plain.coef_, rtol=1e-6)


@pytest.mark.parametrize("params", [{}, {"tol": None, "max_iter": 5}, {"max_iter": 1, "tol": 1.0}])
def test_number_of_iterations(params):
    X, y, _ = draw()
    model = LinearClassifier(**params).fit(X, y)
    assert isinstance(model.n_iter_, int)
    assert 1 <= model.n_iter_ <= params.get("max_iter", 1000)
    if params.get("tol", 1.0) is None:
        assert model.n_iter_ == 5
        assert not model.converged_


def test_running_out_of_iterations_warns():
    X, y, _ = draw()
    with pytest.warns(UserWarning, match=r"max_iter=2 iterations; raise max_iter or tol"):
        LinearClassifier("hinge", max_iter=2, probability=False).fit(X, y)
