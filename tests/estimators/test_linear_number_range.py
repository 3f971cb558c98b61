"""Values whose squares overflow are refused at once; losses with flat tails at any scale."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from likelier import SGD, LinearClassifier, LinearRegressor
from likelier.losses import Huber

rng = np.random.default_rng(0)
X = rng.standard_normal((300, 5))
z = X @ rng.standard_normal(5)
labels = np.digitize(z + rng.logistic(size=300), [-1.0, 1.0])
y = z + 0.5 * rng.standard_normal(300)
HUGE = np.array([1.0, 1.0, 1e300, 1.0, 1.0])


def blocks(rows, targets):
    return lambda: ((rows[k::3], targets[k::3]) for k in range(3))


@pytest.mark.parametrize(
    "params",
    [{}, {"loss": "hinge"}, {"loss": "softmax"}, {"fit_intercept": False, "alpha": 0.1},
     {"solver": SGD(learning_rate="constant")}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_columns_whose_squares_overflow(params, kind):
    with pytest.raises(ValueError, match="X is too large in column 2: .*rescale"):
        LinearClassifier(**params).fit(kind(X * HUGE), labels)


def test_the_same_in_streams_and_batches():
    for learn in (
        lambda model: model.fit(blocks(X * HUGE, labels)),
        lambda model: model.fit(blocks(X * HUGE, labels)()),
        lambda model: model.partial_fit(X * HUGE, labels),
    ):
        with pytest.raises(ValueError, match="X is too large in column 2"):
            learn(LinearClassifier())


@pytest.mark.parametrize(
    "loss", ["squared_error", "huber", "epsilon_insensitive", "quantile", "squared"]
)
def test_targets_whose_squares_overflow(loss):
    for learn in (
        lambda model: model.fit(X, 1e300 * y),
        lambda model: model.fit(blocks(X, 1e300 * y)),
        lambda model: model.partial_fit(X, 1e300 * y),
    ):
        with pytest.raises(ValueError, match="y is too large: .*rescale"):
            learn(LinearRegressor(loss))


def test_large_values_whose_squares_do_not():
    scale = np.where(HUGE > 1.0, 1e150, 1.0)
    model = LinearClassifier().fit(X * scale, labels)
    np.testing.assert_allclose(model.coef_ * scale, LinearClassifier().fit(X, labels).coef_, 1e-5)
    assert LinearRegressor().fit(X, 1e150 * y).score(X, 1e150 * y) > 0.8


@pytest.mark.parametrize("scale", [1e14, 1e20, 1e100])
def test_huber_far_from_its_length(scale):
    """Then it is the absolute error, whatever the unit of the targets."""
    best = LinearRegressor("quantile").fit(X, y)
    model = LinearRegressor("huber").fit(X, scale * y)
    np.testing.assert_allclose(model.coef_ / scale, best.coef_, atol=0.03)
    small = LinearRegressor(Huber(delta=1.0 / scale)).fit(X, y)
    np.testing.assert_allclose(small.coef_, best.coef_, atol=0.03)


@pytest.mark.parametrize("tol", [1e-3, 1e-8])
def test_streamed_multiclass_hinge_comes_near_the_optimum_or_says_that_it_did_not(tol):
    best = LinearClassifier("multiclass_hinge", tol=1e-8).fit(X, labels).objective_
    model = LinearClassifier("multiclass_hinge", tol=tol, max_iter=60, random_state=0)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        model.fit(blocks(X, labels))
    assert best * (1.0 - 1e-8) <= model.objective_ <= best * 1.001
    assert model.converged_ == (tol == 1e-3)
    assert [w.category for w in warned] == ([] if model.converged_ else [ConvergenceWarning])


def test_stochastic_passes_prove_nothing():
    params = {"alpha": 0.01, "tol": 0.1, "random_state": 0}
    wide = sparse.random(60, 4000, 0.02, random_state=0, format="csr")
    with pytest.warns(ConvergenceWarning, match="stochastic passes cannot verify"):
        model = LinearClassifier(**params).fit(blocks(wide, labels[:60] > 0))
    assert model.route_ == "sgd"
    assert not model.converged_
