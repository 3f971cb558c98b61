"""Weights: zero is absence to the last bit, classes have them too, and nonsense is refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from likelier import (
    SGD,
    SVC,
    BayesianLinearClassifier,
    LinearClassifier,
    LinearRegressor,
    OnePassClassifier,
)
from likelier.losses import LOSSES

CLASSIFICATION = [n for n, loss in LOSSES.items() if loss.task in ("binary", "multiclass")]
REGRESSION = [n for n, loss in LOSSES.items() if loss.task in ("regression", "count")]
WAYS = {
    "auto": {},
    "constant": {"solver": SGD(learning_rate="constant")},
    "invscaling": {"solver": SGD("explicit", "invscaling", average=30)},
    "explicit": {"solver": SGD("explicit")},
    "early_stopping": {"solver": SGD(early_stopping=True)},
    "alpha": {"alpha": 0.01},
    "l1": {"l1_ratio": 1.0, "alpha": 0.01},
    "two_threads": {"n_jobs": 2},
}
ignore = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def draw(n_classes=3, n=150, d=4, kind=np.asarray, seed=0):
    """Rows, labels and weights of which many are zero; absent rows are unlike the others."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.7)
    y = np.digitize(X[:, 0] + rng.standard_normal(n), np.linspace(-0.7, 0.7, n_classes - 1))
    weight = rng.uniform(0.5, 2.0, n)
    absent = rng.random(n) < 0.4
    weight[absent] = 0.0
    X[absent] *= 100.0
    return kind(X), y, weight, ~absent


def assert_same(one, two, X, names=("coef_", "intercept_")):
    for name in names:
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    np.testing.assert_array_equal(one.predict(X), two.predict(X))


@ignore
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("loss", CLASSIFICATION)
def test_weight_zero_is_absence_for_a_classifier(loss, way):
    X, y, weight, present = draw()
    make = LinearClassifier(loss, random_state=3, **WAYS[way])
    whole = make.fit(X, y, sample_weight=weight)
    rest = LinearClassifier(loss, random_state=3, **WAYS[way])
    rest.fit(X[present], y[present], sample_weight=weight[present])
    assert_same(whole, rest, X, ("coef_", "intercept_", "classes_"))
    np.testing.assert_array_equal(whole.predict_proba(X), rest.predict_proba(X))
    assert whole.n_iter_ == rest.n_iter_


@ignore
@pytest.mark.parametrize("way", ["auto", "constant", "early_stopping", "l1"])
@pytest.mark.parametrize("loss", REGRESSION)
def test_weight_zero_is_absence_for_a_regressor(loss, way):
    X, y, weight, present = draw(n_classes=6)
    whole = LinearRegressor(loss, random_state=3, **WAYS[way]).fit(X, y, sample_weight=weight)
    rest = LinearRegressor(loss, random_state=3, **WAYS[way])
    rest.fit(X[present], y[present], sample_weight=weight[present])
    assert_same(whole, rest, X)
    assert whole.noise_ == pytest.approx(rest.noise_, rel=1e-12)


@ignore
@pytest.mark.parametrize("way", ["auto", "constant", "early_stopping", "alpha"])
@pytest.mark.parametrize("loss", ["log_loss", "hinge", "softmax"])
def test_weight_zero_is_absence_in_a_wide_sparse_matrix(loss, way):
    """Absent rows must not count in the number of nonzeros per row either."""
    rng = np.random.default_rng(1)
    n, d = 120, 2000
    X = sparse.random_array((n, d), density=0.01, rng=rng, format="csr")
    weight = rng.uniform(0.5, 2.0, n)
    weight[::3] = 0.0
    keep = sparse.diags_array((weight > 0.0).astype(float))
    X = sparse.csr_array(keep @ X)  # absent rows are empty
    y, present = rng.integers(0, 2, n), weight > 0.0
    whole = LinearClassifier(loss, random_state=0, **WAYS[way]).fit(X, y, sample_weight=weight)
    rest = LinearClassifier(loss, random_state=0, **WAYS[way])
    rest.fit(X[present], y[present], sample_weight=weight[present])
    assert_same(whole, rest, X)


@ignore
@pytest.mark.parametrize("class_weight", ["balanced", {0: 2.0, 1: 0.5, 2: 1.0}])
@pytest.mark.parametrize("loss", ["log_loss", "hinge", "softmax"])
def test_weight_zero_is_absence_with_class_weights(loss, class_weight):
    X, y, weight, present = draw()
    params = {"class_weight": class_weight, "random_state": 0}
    whole = LinearClassifier(loss, **params).fit(X, y, sample_weight=weight)
    rest = LinearClassifier(loss, **params)
    rest.fit(X[present], y[present], sample_weight=weight[present])
    assert_same(whole, rest, X)


@pytest.mark.parametrize("params", [{}, {"solver": SGD(learning_rate="constant")}])
@pytest.mark.parametrize("loss", ["log_loss", "hinge", "softmax"])
def test_weight_zero_is_absence_in_batches(loss, params):
    X, y, weight, present = draw()
    whole = LinearClassifier(loss, **params)
    rest = LinearClassifier(loss, **params)
    for half in (slice(0, 75), slice(75, 150)):
        chosen = np.flatnonzero(present)[(np.flatnonzero(present) >= half.start)]
        chosen = chosen[chosen < half.stop]
        whole.partial_fit(X[half], y[half], sample_weight=weight[half])
        rest.partial_fit(X[chosen], y[chosen], sample_weight=weight[chosen])
    assert_same(whole, rest, X)
    np.testing.assert_array_equal(whole.predict_proba(X), rest.predict_proba(X))


def test_labels_of_absent_rows_are_classes_too():
    X, y, weight, present = draw()
    labels = np.where(present, y, 99)
    model = LinearClassifier().fit(X, labels, sample_weight=weight)
    np.testing.assert_array_equal(model.classes_, [0, 1, 2, 99])
    assert 99 not in model.predict(X)
    model = LinearClassifier().partial_fit(X, labels, sample_weight=weight)
    np.testing.assert_array_equal(model.classes_, [0, 1, 2, 99])


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("loss", ["log_loss", "softmax", "squared_hinge"])
def test_an_integer_weight_is_a_repetition(loss, kind):
    """The objective divides by rows of positive weight, so alpha has to be rescaled."""
    X, y, _, _ = draw(kind=kind)
    times = np.random.default_rng(0).integers(1, 4, 150)
    ratio = 150 / times.sum()
    weighted = LinearClassifier(loss, alpha=0.01, probability=False)
    weighted.fit(X, y, sample_weight=times.astype(float))
    repeated = LinearClassifier(loss, alpha=0.01 * ratio, probability=False)
    rows = np.repeat(np.arange(150), times)
    repeated.fit(X[rows], y[rows])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-6)


@ignore
@pytest.mark.parametrize("loss", CLASSIFICATION)
@pytest.mark.parametrize("weighted", [True, False])
def test_class_weights_are_sample_weights(loss, weighted):
    X, y, weight, _ = draw()
    weight = np.maximum(weight, 0.1) if weighted else np.ones(150)
    per_class = {0: 0.3, 1: 2.0, 2: 1.5}
    of_rows = np.array([per_class[k] for k in y])
    named = LinearClassifier(loss, class_weight=per_class, random_state=0)
    named.fit(X, y, sample_weight=weight if weighted else None)
    given = LinearClassifier(loss, random_state=0).fit(X, y, sample_weight=weight * of_rows)
    np.testing.assert_array_equal(named.coef_, given.coef_)
    counts = np.bincount(y)
    balanced = LinearClassifier(loss, class_weight="balanced", random_state=0).fit(X, y)
    given = LinearClassifier(loss, random_state=0).fit(X, y, (150 / (3 * counts))[y])
    np.testing.assert_allclose(balanced.coef_, given.coef_, rtol=1e-9, atol=1e-12)


def test_class_weights_of_batches():
    X, y, _, _ = draw()
    per_class = {0: 0.3, 1: 2.0, 2: 1.5}
    named = LinearClassifier(class_weight=per_class).partial_fit(X, y)
    of_rows = np.array([per_class[k] for k in y])
    given = LinearClassifier().partial_fit(X, y, sample_weight=of_rows)
    np.testing.assert_array_equal(named.coef_, given.coef_)


def test_class_weights_may_name_classes_that_are_still_to_come():
    X, y, _, _ = draw()
    first = y < 2
    model = LinearClassifier(class_weight={0: 1.0, 1: 1.0, 2: 5.0})
    model.partial_fit(X[first], y[first]).partial_fit(X, y)
    np.testing.assert_array_equal(model.classes_, [0, 1, 2])


def test_balanced_weights_need_all_rows_at_once():
    X, y, _, _ = draw()
    model = LinearClassifier(class_weight="balanced")
    with pytest.raises(ValueError, match="class_weight"):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match="class_weight"):
        model.fit(iter([(X, y)]))
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize(
    ("class_weight", "reason"),
    [
        ("equal", "balanced"),
        ({7: 1.0}, "not among the classes"),
        ([1.0, 2.0, 3.0], "dict"),
    ],
)
def test_nonsense_class_weights(class_weight, reason):
    X, y, _, _ = draw()
    with pytest.raises(ValueError, match=f"class_weight.*{reason}"):
        LinearClassifier(class_weight=class_weight).fit(X, y)


@pytest.mark.parametrize(
    "estimator",
    [LinearClassifier(), SVC(), BayesianLinearClassifier(), OnePassClassifier()],
    ids=lambda estimator: type(estimator).__name__,
)
def test_class_weights_may_name_classes_that_a_fold_does_not_have(estimator):
    """As in scikit-learn, but for a label that is unknown where another has no weight."""
    X, y, _, _ = draw()
    some = y != 2
    X, y = X[some], y[some]
    weights = {0: 0.5, 1: 2.0}
    usual = clone(estimator).set_params(class_weight=weights, random_state=0).fit(X, y)
    wide = clone(estimator).set_params(class_weight={**weights, 2: 9.0}, random_state=0)
    np.testing.assert_array_equal(wide.fit(X, y).predict(X), usual.predict(X))
    np.testing.assert_array_equal(wide.decision_function(X), usual.decision_function(X))
    typo = clone(estimator).set_params(class_weight={0: 0.5, 7: 2.0})
    with pytest.raises(ValueError, match=r"class_weight names \[7\].*no weight for \[1\]"):
        typo.fit(X, y)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("estimator", [LinearClassifier, LinearRegressor])
@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_bad_weights_are_refused(estimator, method, bad):
    X, y, weight, _ = draw()
    weight[3] = bad
    model = estimator()
    with pytest.raises(ValueError, match="sample_weight"):
        getattr(model, method)(X, y, sample_weight=weight)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("estimator", [LinearClassifier, LinearRegressor])
def test_no_weight_at_all_is_refused(estimator, method):
    X, y, _, _ = draw()
    with pytest.raises(ValueError, match="[Ss]ample.weight.*zero"):
        getattr(estimator(), method)(X, y, sample_weight=np.zeros(150))
    with pytest.raises(ValueError, match="sample_weight"):
        getattr(estimator(), method)(X, y, sample_weight=np.ones(149))


def test_the_caller_keeps_the_weights():
    X, y, weight, _ = draw()
    before = weight.copy()
    for params in ({}, {"solver": SGD(early_stopping=True)}, {"class_weight": "balanced"}):
        LinearClassifier("hinge", **params).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(weight, before)
