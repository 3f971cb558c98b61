"""Kernel classifiers out of support, and quadrature over scores."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_breast_cancer, load_digits

from likelier import BayesianKernelClassifier, BayesianKernelRegressor, Evidence


def entropy(p):
    return float(-(p * np.log(p)).sum())


@pytest.mark.parametrize("n", [200, 1500])
def test_out_of_support_two_classes_are_at_most_as_confident_as_their_frequencies(n):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    y = ((X**2).sum(axis=1) < 1.0).astype(int)
    shares = np.bincount(y) / n
    model = BayesianKernelClassifier(random_state=0).fit(X, y)
    far = 1000.0 * X[:50]
    p = model.predict_proba(far)
    assert (p[:, 1] > shares[1] - 0.01).all() and (p[:, 1] < 0.51).all()
    told = model.predict_uncertainty(far)
    assert told.total.min() > entropy(shares) - 0.01
    assert told.epistemic.min() > 0.3  # it is not noise but not knowing
    near = model.predict_uncertainty(X)
    assert near.total.mean() < 0.2 and near.epistemic.mean() < 0.05


def test_out_of_support_the_rarer_class_is_not_the_more_probable_one():
    X, y = load_breast_cancer(return_X_y=True)
    model = BayesianKernelClassifier(random_state=0).fit(X, y)
    rng = np.random.default_rng(0)
    far = X[:50] + 1e4 * X.std() * rng.normal(size=(50, X.shape[1]))
    p = model.predict_proba(far)
    assert (p[:, 0] < 0.5).all() and (p[:, 0] > 0.36).all()


def test_out_of_support_after_batches_and_a_late_class():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(4800, 2))
    y = ((X**2).sum(axis=1) < 1.0).astype(int)
    model = BayesianKernelClassifier(random_state=0, n_components=64)
    model.partial_fit(X[:4200], y[:4200])
    far = np.full((1, 2), 1e4)
    assert 0.35 < model.predict_proba(far)[0, 1] < 0.51
    model.partial_fit(X[4200:4500], y[4200:4500])
    assert 0.35 < model.predict_proba(far)[0, 1] < 0.51
    model = BayesianKernelClassifier(random_state=0, n_components=64)
    model.partial_fit(X[:4200], y[:4200], classes=[0, 1, 2])
    late = np.where(X[4500:, 0] > 1.0, 2, y[4500:])
    model.partial_fit(X[4500:], late)
    p = model.predict_proba(far)[0]
    assert p.shape == (3,) and p.max() < 0.5


@pytest.fixture(scope="module")
def wide():
    """Digits with the whole posterior: scores have variances of hundreds."""
    X, y = load_digits(return_X_y=True)
    model = BayesianKernelClassifier(inference=Evidence(posterior_scale=1.0), random_state=0)
    return X[:500], y[:500], model


def test_wide_posteriors_are_integrated_as_draws_say(wide):
    X, y, model = wide
    model.fit(X, y)
    strange = np.random.default_rng(1).uniform(0.0, 16.0, (8, 64))
    rows = np.concatenate([strange, X[:8] + strange, X[:8]])
    fitted = model._restore(model)
    made, posterior = fitted.map, fitted.weights
    Phi = made(rows, np.float64)
    scores, covariance = posterior.scores(Phi), posterior.covariance(Phi, made.residual(Phi))
    assert covariance.max() > 50.0
    z = np.random.default_rng(0).normal(size=(20_000, 10))
    for found, mean, matrix in zip(model.predict_proba(rows), scores, covariance, strict=True):
        expected = softmax(mean + z @ np.linalg.cholesky(matrix).T, axis=1).mean(axis=0)
        # draws have a standard error of at most 0.0036: three of them and 0.008
        np.testing.assert_allclose(found, expected, atol=0.019)


def test_names_of_classes_do_not_matter(wide):
    X, y, model = wide
    strange = np.random.default_rng(1).uniform(0.0, 16.0, (40, 64))
    rows = np.concatenate([strange, X[:100]])
    first = model.fit(X, y).predict_proba(rows)
    names = np.random.default_rng(0).permutation(10)
    second = model.fit(X, names[y]).predict_proba(rows)[:, names]
    np.testing.assert_allclose(second, first, atol=0.01)  # fits that end at their tolerance


def test_a_prior_that_is_too_weak_still_knows_its_rows():
    X, y = load_digits(return_X_y=True)
    model = BayesianKernelClassifier(alpha=1e-6, random_state=0).fit(X[:200], y[:200])
    assert model.score(X[:200], y[:200]) > 0.98


def test_an_input_that_was_constant_in_training_decides_nothing():
    """A constant column, such as the year, is ignored when it changes."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal((200, 2)), np.full(200, 2025.0)])
    later = X + np.array([0.0, 0.0, 1.0])
    for machine, y in (
        (BayesianKernelClassifier(random_state=0), X[:, 0] > 0.0),
        (BayesianKernelRegressor(random_state=0), X[:, 0]),
    ):
        model = machine.fit(X, y)
        np.testing.assert_array_equal(model.predict(later), model.predict(X))
