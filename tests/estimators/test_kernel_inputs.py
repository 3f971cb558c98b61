"""Kernel machines give the same results for every form of the same rows.

Dense or sparse, in memory or as a stream, near zero or far from it, and in any units.
"""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_diabetes, load_iris

from likelier import BayesianKernelClassifier, BayesianKernelRegressor, Evidence
from likelier.tables import block_source

FORMS = [np.asarray, sparse.csr_matrix, sparse.csc_array]


@pytest.fixture(scope="module")
def times():
    """Unix times within ten minutes (about 1.7e9), and a centred input."""
    rng = np.random.default_rng(0)
    T = 1.7e9 + np.cumsum(rng.exponential(1.0, 600))
    X = np.column_stack([T, rng.normal(size=600)])
    y = (np.sin((T - T[0]) / 60.0) + 0.3 * X[:, 1] > 0.0).astype(int)
    test = np.arange(600) % 3 == 0
    return X[~test], y[~test], X[test], y[test]


@pytest.mark.parametrize(
    "parameters", [{}, {"features": "fourier"}, {"features": "identity"}, {"loss": "hinge"}]
)
@pytest.mark.parametrize("learned", [np.asarray, sparse.csr_matrix])
def test_classes_are_the_same_for_dense_and_sparse_rows(parameters, learned):
    X, y = load_iris(return_X_y=True)
    model = BayesianKernelClassifier(random_state=0, **parameters).fit(learned(X), y)
    expected = model.predict_proba(X)
    assert model.score(X, y) > 0.95
    for form in FORMS:
        np.testing.assert_allclose(model.predict_proba(form(X)), expected, atol=1e-9)
        cover = model.score_samples(form(X))
        np.testing.assert_allclose(cover, model.score_samples(X), rtol=1e-6)


@pytest.mark.parametrize("learned", [np.asarray, sparse.csr_matrix])
def test_regressions_are_the_same_for_dense_and_sparse_rows(learned):
    X, y = load_diabetes(return_X_y=True)
    X = 10.0 * X + 5.0
    model = BayesianKernelRegressor(random_state=0).fit(learned(X[:200]), y[:200])
    expected = model.predict_interval(X)
    for form in FORMS:
        np.testing.assert_allclose(model.predict_interval(form(X)), expected, rtol=1e-9)


def test_single_precision_rows_are_the_same_too():
    X, y = load_iris(return_X_y=True)
    X = X.astype(np.float32)
    model = BayesianKernelClassifier(random_state=0).fit(X, y)
    expected = model.predict_proba(X)
    np.testing.assert_allclose(model.predict_proba(sparse.csr_matrix(X)), expected, atol=1e-5)


def test_experts_take_sparse_rows_as_dense_ones():
    rng = np.random.default_rng(1)
    X = rng.normal(5.0, 1.0, (3000, 2))
    y = (np.sin(4.0 * X[:, 0]) * np.sin(4.0 * X[:, 1]) > 0.0).astype(int)
    model = BayesianKernelClassifier(inference=Evidence(n_experts=4), random_state=0).fit(X, y)
    assert model.n_experts_
    expected = model.predict_proba(X[:500])
    found = model.predict_proba(sparse.csr_matrix(X[:500]))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_large_means_cost_nothing_in_streams_and_sparse_rows(times):
    X, y, X_test, y_test = times
    model = BayesianKernelClassifier(random_state=0)
    blocks = [(X[:200], y[:200]), (X[200:], y[200:])]
    assert model.fit(X, y).score(X_test, y_test) > 0.97
    assert model.fit(blocks).score(X_test, y_test) > 0.97
    assert model.fit(sparse.csr_matrix(X), y).score(sparse.csr_matrix(X_test), y_test) > 0.97
    sparse_blocks = [(sparse.csr_matrix(part), labels) for part, labels in blocks]
    assert model.fit(sparse_blocks).score(X_test, y_test) > 0.97


def test_sparse_rows_stay_sparse_beside_a_column_of_times(times):
    X, y, X_test, y_test = times
    parameters = sparse.random(600, 200, density=0.02, random_state=0, format="csr")
    train = sparse.hstack([sparse.csr_matrix(X), parameters[:400]]).tocsr()
    test = sparse.hstack([sparse.csr_matrix(X_test), parameters[400:]]).tocsr()
    model = BayesianKernelClassifier(random_state=0).fit(train, y)
    assert sparse.issparse(model.posterior_["map"]["landmarks"])
    dense = BayesianKernelClassifier(random_state=0).fit(train.toarray(), y)
    assert model.score(test, y_test) > dense.score(test.toarray(), y_test) - 0.02
    expected = model.predict_proba(test.toarray())
    np.testing.assert_allclose(model.predict_proba(test), expected, atol=1e-9)


def test_large_means_cost_nothing_in_regression_streams():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 2))
    y = np.sin(2.0 * X[:, 0])
    blocks = [(X[i : i + 100] + 1e7, y[i : i + 100] + 1e9) for i in range(0, 400, 100)]
    model = BayesianKernelRegressor(random_state=0).fit(blocks)
    assert model.score(X + 1e7, y + 1e9) > 0.999


def test_a_stream_whose_rows_all_have_weight_zero_is_refused():
    X, y = load_diabetes(return_X_y=True)
    with pytest.raises(ValueError, match="no rows of positive weight"):
        BayesianKernelRegressor().fit([(X, y, np.zeros(len(y)))])


@pytest.mark.parametrize("unit", [1e-13, 1e-30, 1e13])
def test_targets_may_have_any_unit(unit):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(150, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=150)
    one = BayesianKernelRegressor(random_state=0).fit(X, y)
    other = BayesianKernelRegressor(random_state=0).fit(X, unit * y)
    np.testing.assert_allclose(other.predict(X) / unit, one.predict(X), rtol=1e-6, atol=1e-8)
    constant = BayesianKernelRegressor(random_state=0).fit(X, np.full(150, 0.1 * unit))
    np.testing.assert_allclose(constant.predict(X), 0.1 * unit)


def test_wide_sparse_rows_are_never_dense_all_at_once():
    """Densified rows would take 240 MB in single precision."""
    rng = np.random.default_rng(0)
    n, d, k = 3000, 20_000, 20
    places = np.sort(rng.integers(0, d, (n, k)), axis=1)
    X = sparse.csr_matrix(
        (np.ones(n * k, np.float32), places.ravel(), k * np.arange(n + 1)), shape=(n, d)
    )
    X.sum_duplicates()
    y = (rng.random(n) < 0.5).astype(int)
    model = BayesianKernelClassifier(n_components=64, time_budget=0.5, random_state=0)
    tracemalloc.start()
    model.fit(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 150e6
    assert np.isfinite(model.predict_proba(X[:10])).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1e152, 1e160, 1e300])
@pytest.mark.parametrize("thin", [False, True])
def test_inputs_whose_squares_overflow_are_named(size, thin):
    """Such inputs were once dropped silently."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = X[:, 1] > 0
    X[:, 1] *= size
    rows = sparse.csr_array(X) if thin else X
    for model in (BayesianKernelClassifier(), BayesianKernelRegressor()):
        for data in ((rows, y), ([(rows[:30], y[:30]), (rows[30:], y[30:])],)):
            with pytest.raises(ValueError, match="input 1 holds numbers whose squares overflow"):
                model.fit(*data)


@pytest.mark.parametrize("machine", [BayesianKernelClassifier, BayesianKernelRegressor])
@pytest.mark.filterwarnings("ignore:column 1 of X")
def test_inputs_of_a_stream_whose_squares_vanish_are_named(machine):
    X = np.random.default_rng(0).normal(size=(60, 2)) * [1.0, 1e-300]
    y = (X[:, 0] > 0.0).astype(int)
    with pytest.raises(ValueError, match="input 1 of X holds numbers whose squares vanish"):
        machine().fit([(X[:30], y[:30]), (X[30:], y[30:])])


def test_missing_values_of_a_file_are_filled_in_and_marked(tmp_path):
    path = tmp_path / "t.csv"
    lines = [f"{i % 7 if i != 5 else ''},{i % 5},{i % 2}" for i in range(60)]
    path.write_text("a,b,y\n" + "\n".join(lines) + "\n")
    model = BayesianKernelClassifier(random_state=0).fit(str(path), "y")
    assert list(model.feature_names_in_) == ["a", "a is missing", "b"]


def test_faults_of_a_file_are_refused_with_a_remedy(tmp_path):
    path = tmp_path / "t.csv"
    lines = [f"{i % 5},{'tbd' if i == 7 else f'{i}.5'}" for i in range(60)]
    path.write_text("a,y\n" + "\n".join(lines) + "\n")
    model = BayesianKernelRegressor(random_state=0)
    with pytest.raises(ValueError, match=r"'tbd' \(row 8\).*list them in also_missing") as refused:
        model.fit(str(path), "y")
    advice = str(refused.value).split("likelier.tables: ")[1]
    assert advice == f"fit(block_source({str(path)!r}, target='y', ...))"
    call = advice.replace("...", "also_missing=['tbd']")
    eval(call, {"fit": model.fit, "block_source": block_source})
    assert list(model.feature_names_in_) == ["a"]
