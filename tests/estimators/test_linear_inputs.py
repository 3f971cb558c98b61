"""What may be passed in, in which form it comes out, and that it is neither changed nor copied."""

from __future__ import annotations

import functools
import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.exceptions import DataConversionWarning, NotFittedError

from likelier import SGD, LinearClassifier, LinearRegressor


def draw(n=100, d=3, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    signal = X[:, 0] - 0.5 * X[:, 1]
    y = np.digitize(
        signal + 0.5 * rng.standard_normal(n), np.linspace(-0.8, 0.8, n_classes + 1)[1:-1]
    )
    return X, y, signal + 0.1 * rng.standard_normal(n)


# -- labels -----------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["log_loss", "hinge", "softmax", "multiclass_hinge"])
@pytest.mark.parametrize(
    "names",
    [
        np.array(["no", "a longer label", "yes"]),
        np.array([-1, 5, 7]),
        np.array([0.5, 1.0, 2.0]) * 2.0,
        np.array(["x", "y", "z"], dtype=object),
        np.array([10, 20, 30], dtype=np.uint8),
    ],
    ids=["text", "integers", "floats", "objects", "small_integers"],
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_any_labels(loss, names, n_classes):
    X, y, _ = draw(n_classes=n_classes)
    names = np.sort(names[:n_classes])
    model = LinearClassifier(loss, probability=False, random_state=0).fit(X, names[y])
    plain = LinearClassifier(loss, probability=False, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.classes_, names)
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    np.testing.assert_array_equal(model.predict(X), names[plain.predict(X)])
    assert model.predict(X).dtype.kind == names.dtype.kind
    model.partial_fit(X, names[y])
    np.testing.assert_array_equal(model.classes_, names)


def test_true_and_false():
    X, y, _ = draw()
    model = LinearClassifier(random_state=0).fit(X, y.astype(bool))
    assert model.classes_.dtype == bool
    assert model.predict(X).dtype == bool
    plain = LinearClassifier(random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.coef_, plain.coef_)


def test_lists_and_columns_of_targets():
    X, y, t = draw()
    model = LinearClassifier(random_state=0)
    expected = model.fit(X, y).coef_
    np.testing.assert_array_equal(model.fit(X.tolist(), y.tolist()).coef_, expected)
    np.testing.assert_array_equal(model.fit(X, pd.Series(y)).coef_, expected)
    with pytest.warns(DataConversionWarning):
        model.fit(X, y[:, None])
    np.testing.assert_array_equal(model.coef_, expected)
    with pytest.raises(ValueError, match="1d array"):
        LinearRegressor().fit(X, np.column_stack([t, t]))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_targets_that_are_not_finite(bad):
    X, y, t = draw()
    t[3] = bad
    with pytest.raises(ValueError, match=r"y contains NaN|y contains infinity"):
        LinearRegressor().fit(X, t)
    with pytest.raises(ValueError, match=r"y contains NaN|y contains infinity"):
        LinearClassifier().fit(X, np.where(np.arange(100) == 3, bad, y))


def test_targets_of_the_wrong_kind():
    X, y, t = draw()
    with pytest.raises(ValueError, match="continuous"):
        LinearClassifier().fit(X, t)
    with pytest.raises(ValueError, match="LinearClassifier"):
        LinearRegressor().fit(X, np.where(y, "a", "b"))
    with pytest.raises(ValueError, match=r"y must be >= 0"):
        LinearRegressor("poisson").fit(X, t)
    with pytest.raises(ValueError, match="y"):
        LinearRegressor().fit(X)


# -- rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [LinearClassifier, LinearRegressor])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_rows_that_are_not_finite(estimator, bad, kind):
    X, y, _ = draw()
    model = estimator().fit(X, y)
    X[5, 1] = bad
    for method in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=r"X contains NaN|X contains infinity"):
            getattr(estimator(), method)(kind(X), y)
    with pytest.raises(ValueError, match=r"X contains NaN|X contains infinity"):
        model.predict(kind(X))


@pytest.mark.parametrize("estimator", [LinearClassifier, LinearRegressor])
def test_shapes_that_do_not_fit(estimator):
    X, y, _ = draw()
    model = estimator(random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="inconsistent"):
        estimator().fit(X, y[:50])
    with pytest.raises(ValueError, match="3 features"):
        model.predict(X[:, :2])
    with pytest.raises(ValueError, match="3 features"):
        model.partial_fit(X[:, :2], y)
    with pytest.raises(ValueError, match="2D array"):
        estimator().fit(X[:, 0], y)
    with pytest.raises(ValueError, match="0 sample"):
        estimator().fit(X[:0], y[:0])
    with pytest.raises(NotFittedError):
        estimator().predict(X)
    again = estimator(random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.coef_, again.coef_)  # nothing above has left a trace


@pytest.mark.parametrize("estimator", [LinearClassifier, LinearRegressor])
@pytest.mark.parametrize(
    "kind",
    [
        np.asfortranarray,
        lambda X: np.repeat(X, 2, axis=1)[:, ::2],
        lambda X: X.astype(">f8"),
        sparse.csr_matrix,
        sparse.csc_array,
        sparse.coo_array,
        lambda X: sparse.csr_array(X).astype(np.float64),
        pd.DataFrame,
        pl.DataFrame,
    ],
    ids=["fortran", "strided", "big_endian", "csr_matrix", "csc", "coo", "csr", "pandas", "polars"],
)
def test_the_same_rows_in_another_form(estimator, kind):
    X, y, _ = draw()
    plain = estimator(random_state=0).fit(X, y)
    other = estimator(random_state=0).fit(kind(X), y)
    np.testing.assert_allclose(other.coef_, plain.coef_, rtol=1e-9)
    np.testing.assert_allclose(
        other.predict(kind(X)).astype(float), plain.predict(X).astype(float), rtol=1e-9
    )


def test_whole_numbers():
    X, y, _ = draw()
    X = np.round(3.0 * X)
    for dtype in (np.int64, np.int8, bool):
        model = LinearClassifier(random_state=0).fit(X.astype(dtype), y)
        plain = LinearClassifier(random_state=0).fit(X.astype(dtype).astype(float), y)
        np.testing.assert_array_equal(model.coef_, plain.coef_)
        assert model.coef_.dtype == np.float64


@pytest.mark.parametrize("loss", ["log_loss", "hinge", "softmax"])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_narrow_floats_stay_narrow(loss, kind):
    X, y, _ = draw()
    model = LinearClassifier(loss, probability=False).fit(kind(X.astype(np.float32)), y)
    assert model.coef_.dtype == model.intercept_.dtype == np.float32
    assert model.decision_function(X.astype(np.float32)).dtype == np.float32
    wide = LinearClassifier(loss, probability=False).fit(kind(X), y)
    np.testing.assert_allclose(model.coef_, wide.coef_, atol=0.02)
    model.partial_fit(kind(X.astype(np.float32)), y)
    assert model.coef_.dtype == np.float32


@pytest.mark.parametrize("estimator", [LinearClassifier, LinearRegressor])
@pytest.mark.parametrize(
    "params", [{}, {"solver": SGD(learning_rate="constant")}, {"solver": SGD(early_stopping=True)}]
)
def test_read_only_data(estimator, params):
    X, y, _ = draw()
    weight = np.ones(100)
    plain = estimator(random_state=0, **params).fit(X, y, sample_weight=weight)
    thin = sparse.csr_array(X)
    arrays = (X, y, weight, thin.data, thin.indices, thin.indptr)
    for array in arrays:
        array.flags.writeable = False
    before = [array.copy() for array in arrays]
    for rows in (X, thin):
        model = estimator(random_state=0, **params).fit(rows, y, sample_weight=weight)
        np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-6)
        model.set_params(solver="auto").partial_fit(rows, y, sample_weight=weight)
    for array, old in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, old)


# -- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_names_of_features(frame):
    X, y, _ = draw()
    data = frame({name: X[:, j] for j, name in enumerate(["age", "height", "weight"])})
    for method in ("fit", "partial_fit"):
        model = getattr(LinearClassifier(), method)(data, y)
        np.testing.assert_array_equal(model.feature_names_in_, ["age", "height", "weight"])
        assert model.n_features_in_ == 3
        model.predict(data)
        with pytest.raises(ValueError, match="feature names"):
            model.predict(data.rename({"age": "name"}) if frame is pl.DataFrame
                          else data.rename(columns={"age": "name"}))  # fmt: skip
        with pytest.warns(UserWarning, match="feature names"):
            model.predict(X)


def test_names_go_when_the_next_data_have_none():
    X, y, _ = draw()
    named = pd.DataFrame(X, columns=["a", "b", "c"])
    for other in (X, iter([(X, y)]), lambda: iter([(X, y)])):
        model = LinearClassifier().fit(named, y)
        model.fit(other, y if other is X else None)
        assert not hasattr(model, "feature_names_in_")
        model.predict(X)


def test_text_columns_are_refused():
    X, y, _ = draw()
    with pytest.raises(ValueError, match=r"could not convert string"):
        LinearClassifier().fit(pd.DataFrame({"a": ["x"] * 100, "b": X[:, 0]}), y)


# -- memory -----------------------------------------------------------------------------------


def peak_bytes(call):
    call()  # compile, import, and fill caches first
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [np.ascontiguousarray, sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"solver": SGD(learning_rate="constant"), "max_iter": 2, "tol": None},
        {
            "solver": SGD(early_stopping=True, validation_fraction=0.01),
            "max_iter": 2,
            "tol": None,
        },
        {"loss": "hinge", "alpha": 1e-3, "probability": False, "tol": 0.1},
    ],
    ids=["auto", "constant", "early_stopping", "dual"],
)
def test_rows_are_not_copied(dtype, kind, params):
    """Vectors with a few numbers per row may grow with the rows, another matrix may not."""
    d = 100
    rng = np.random.default_rng(0)
    peaks = []
    # more than any sample that is taken on the way, and about as many rows in a block
    for n in (16_000, 32_000):
        X = rng.standard_normal((n, d), dtype=np.float32).astype(dtype)
        y = (X[:, 0] + rng.standard_normal(n) > 0).astype(int)
        rows, model = kind(X), LinearClassifier(random_state=0, **params)
        peaks.append(peak_bytes(functools.partial(model.fit, rows, y)))
    assert peaks[1] - peaks[0] < 0.6 * 16_000 * d * np.dtype(dtype).itemsize
