"""Numbers that are not finite are found by any number of threads, and told as by one."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import sklearn
from scipy import sparse

from likelier import LinearClassifier, LinearRegressor
from likelier.fitting import finite
from likelier.linear import recipe as linear_fit

KINDS = pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "csr"])


def rows(dtype=np.float64):
    return np.random.default_rng(0).standard_normal((400, 5)).astype(dtype)


@pytest.fixture
def many(monkeypatch):
    """Few numbers are already many."""
    monkeypatch.setattr(finite, "FEW", 10)


@KINDS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (207, 3), (399, 4)])
def test_the_error_is_that_of_one_thread(kind, dtype, bad, place, many):
    X = rows(dtype)
    y = X[:, 0] > 0.0
    X[place] = bad
    messages = []
    for n_jobs in (1, 2):
        with pytest.raises(ValueError, match="NaN|infinity") as error:
            LinearClassifier(n_jobs=n_jobs).fit(kind(X), y)
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    assert ("LinearClassifier" in messages[0]) == bool(np.isnan(bad))


def test_few_numbers_are_checked_too():
    X = rows()[:20]
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        LinearRegressor(n_jobs=2).fit(X, np.arange(20.0))


@KINDS
def test_a_sum_that_is_too_large_is_no_error(kind, many):
    X = np.full((400, 5), 1e306)
    finite.check_finite(kind(X), 2, None)
    X[100, 1] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        finite.check_finite(kind(X), 2, None)


def test_opposite_infinities_do_not_hide_each_other(many):
    X = rows()
    X[3, 1], X[3, 2] = np.inf, -np.inf
    with pytest.raises(ValueError, match="infinity"):
        finite.check_finite(X, 2, None)


def test_prediction_checks_its_rows(many):
    X = rows()
    model = LinearClassifier(n_jobs=2).fit(X, X[:, 0] > 0.0)
    X[7, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.predict(X)


def test_who_promises_finite_numbers_is_believed(many):
    X = rows()
    X[0, 0] = np.nan
    with sklearn.config_context(assume_finite=True):
        finite.check_finite(X, 2, None)


def test_no_thread_is_left_behind(many):
    before = threading.active_count()
    finite.check_finite(rows(), 3, None)
    assert threading.active_count() == before


@KINDS
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_the_sum_of_squares_comes_with_the_check(kind, n_threads, many):
    X = rows(np.float32)
    told = finite.check_finite(kind(X), n_threads, None)
    assert told == pytest.approx(float((X.astype(np.float64) ** 2).sum()), rel=1e-12)
    assert finite.check_finite(kind(np.full((40, 5), 1e200)), n_threads, None) == np.inf


def test_columns_are_not_squared_one_by_one_where_all_together_are_small(monkeypatch):
    def fail(*given):
        raise AssertionError("a second reading of the rows")

    monkeypatch.setattr(linear_fit, "column_squares", fail)
    X = rows()
    LinearClassifier(alpha=1.0, fit_intercept=False).fit(X, X[:, 0] > 0.0)
