"""`OnePassClassifier`: params that change after rows were learned, far columns, uncertainty."""

from __future__ import annotations

import numpy as np
import pytest

from likelier import OnePassClassifier
from likelier.one_pass import streaming

UPDATES = ("streaming", "frozen")


def rows(n=900, d=5, K=4, seed=0):
    rng = np.random.default_rng(seed)
    truth = np.random.default_rng(99).normal(size=(d, K)) * 1.5
    X = rng.normal(size=(n, d))
    return X, np.argmax(X @ truth + rng.gumbel(size=(n, K)), axis=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [("update", "frozen"), ("fit_intercept", False), ("features", "fourier")],
)
@pytest.mark.parametrize("size", [512, 4096])
def test_parameters_of_the_sums_cannot_change_between_batches(name, value, size, monkeypatch):
    monkeypatch.setattr(streaming, "initial_batch_size", lambda n_features, block: size)
    X, y = rows()
    model = OnePassClassifier(gamma=0.5, n_components=30).partial_fit(X, y)
    expected = model.predict_proba(X)
    changed = {name: value}
    model.set_params(**changed)
    for call in (
        lambda: model.partial_fit(X, y),
        lambda: model.forget(0.5),
        lambda: model.merge(OnePassClassifier(gamma=0.5, n_components=30).fit(X, y)),
        lambda: OnePassClassifier(gamma=0.5, n_components=30).fit(X, y).merge(model),
    ):
        with pytest.raises(ValueError, match=f"{name} was .* when the earlier rows"):
            call()
    np.testing.assert_array_equal(model.predict_proba(X), expected)
    assert model.fit(X, y).partial_fit(X, y).n_rows_seen_ == 2 * len(y)


def test_parameters_that_change_while_weights_are_deferred_raise():
    X, y = rows()
    model = OnePassClassifier().partial_fit(X, y).set_params(fit_intercept=False)
    with pytest.raises(ValueError, match="fit_intercept was True"):
        model.predict(X)
    assert model.set_params(fit_intercept=True).predict(X).shape == (900,)


@pytest.mark.parametrize(("name", "value"), [("n_components", 7), ("gamma", 2.0)])
def test_fourier_parameters_cannot_change_but_the_prior_can(name, value):
    X, y = rows()
    params = {"features": "fourier", "n_components": 30, "gamma": np.full(5, 0.5)}
    model = OnePassClassifier(**params).partial_fit(X, y)
    with pytest.raises(ValueError, match=f"{name} was"):
        model.set_params(**{name: value}).partial_fit(X, y)
    linear = OnePassClassifier().partial_fit(X, y)
    linear.set_params(prior_precision=3.0, half_life=1e6, **{name: value}).partial_fit(X, y)


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_columns_far_from_zero_are_no_constants(update, fit_intercept):
    """A spread of a hundred-millionth of the mean is information in double precision."""
    X, y = rows()
    far = X.copy()
    far[:, :2] = 1e4 + 1e-4 * X[:, :2]
    model = OnePassClassifier(update=update, fit_intercept=fit_intercept)
    if not fit_intercept:  # rows are taken as they are, without their mean
        far[:, :2] = 1e4 * X[:, :2]
    near = OnePassClassifier(update=update, fit_intercept=fit_intercept).fit(X, y)
    model.partial_fit(far[:300], y[:300]).partial_fit(far[300:], y[300:])
    np.testing.assert_allclose(model.predict_proba(far), near.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("value", [0.1, 1e7 / 3.0])
def test_constant_columns_still_change_nothing(update, value):
    X, y = rows()
    wide = np.column_stack([X, np.full(len(y), value)])
    params = {"update": update, "prior_precision": 1.0}
    one, two = OnePassClassifier(**params).fit(X, y), OnePassClassifier(**params)
    two.partial_fit(wide[:300], y[:300]).partial_fit(wide[300:], y[300:])
    np.testing.assert_allclose(one.predict_proba(X), two.predict_proba(wide), atol=1e-6)
    assert np.abs(two.coef_[:, -1]).max() * value < 1e-6


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("K", [2, 4])
def test_total_uncertainty_is_the_entropy_of_the_probabilities(update, K):
    X, y = rows(K=K)
    model = OnePassClassifier(update=update, random_state=0).fit(X[:200], y[:200])
    p, found = model.predict_proba(X), model.predict_uncertainty(X)
    np.testing.assert_allclose(found.total, -(p * np.log(p)).sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(found.total, found.aleatoric + found.epistemic)
    assert (found.epistemic >= 0.0).all() and (found.aleatoric >= 0.0).all()
    more = OnePassClassifier(update=update, random_state=0).fit(*rows(8000, K=K))
    assert more.predict_uncertainty(X).epistemic.mean() < 0.3 * found.epistemic.mean()
