"""Kernel machines at extremes: kinks, sparse linear models, outliers, units, parameters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning

from likelier import BayesianKernelClassifier, BayesianKernelRegressor, Evidence
from likelier.kernel_machine.class_task import ClassTask
from likelier.kernel_machine.weights import fit_weights

BOTH = [BayesianKernelClassifier, BayesianKernelRegressor]


# -- tolerance of the hinge -----------------------------------------------------------------
@pytest.mark.parametrize("parameters", [{"features": "identity"}, {"n_components": 60}])
@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_the_hinge_ends_within_its_tolerance(monkeypatch, parameters, load):
    """A small expected decrease once passed for convergence, 27% above the optimum."""
    found = []

    optimum = ClassTask._optimum

    def spy(task, problem, rows, start, monitor):
        best = fit_weights(rows, start, 1e-7, 3000)
        found.append((optimum(task, problem, rows, start, monitor), best.value))
        return found[-1][0]

    monkeypatch.setattr(ClassTask, "_optimum", spy)
    X, y = load(return_X_y=True)
    model = BayesianKernelClassifier("hinge", random_state=0, **parameters).fit(X, y)
    fit, best = found[-1]
    assert model.converged_ and model.objective_ == fit.value
    assert fit.value <= best * (1.0 + 1e-3)


def test_an_unconverged_hinge_warns():
    X, y = load_wine(return_X_y=True)
    parameters = {"n_components": 60, "random_state": 0, "inference": Evidence(max_iter=4)}
    with pytest.warns(ConvergenceWarning, match="max_iter=4"):
        model = BayesianKernelClassifier("hinge", **parameters).fit(X, y)
    assert not model.converged_


# -- sparse rows ----------------------------------------------------------------------------
@pytest.mark.parametrize("parameters", [{}, {"alpha": 0.5}, {"gamma": 1.0}])
def test_a_linear_machine_is_the_same_of_sparse_rows(parameters):
    X, y = load_iris(return_X_y=True)
    model = BayesianKernelClassifier(features="identity", random_state=0, **parameters)
    dense = model.fit(X, y).predict_proba(X)
    thin = model.fit(sparse.csr_matrix(X), y).predict_proba(sparse.csr_matrix(X))
    np.testing.assert_allclose(thin, dense, atol=1e-9)


# -- out of support -------------------------------------------------------------------------------
@pytest.mark.parametrize("n_classes", [2, 3])
def test_out_of_support_a_hinge_predicts_class_frequencies(n_classes):
    X, y = load_iris(return_X_y=True)
    kept = np.flatnonzero((y < n_classes) & (np.arange(150) > 20))
    X, y = X[kept], y[kept]
    model = BayesianKernelClassifier("hinge", n_components=40, random_state=0).fit(X, y)
    far = np.full((1, 4), 1e5)
    shares = (np.bincount(y) + 1.0) / (len(y) + n_classes)
    np.testing.assert_allclose(model.predict_proba(far)[0], shares, atol=1e-6)
    told = model.predict_uncertainty(np.r_[X, far])
    entropy = -(shares @ np.log(shares))
    assert told.epistemic[-1] == pytest.approx(entropy, rel=1e-6)
    np.testing.assert_allclose(told.total, told.aleatoric + told.epistemic, atol=1e-12)
    assert told.epistemic[:-1].max() < 0.1 * entropy
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_beyond_all_squares_have_the_prior(dtype):
    """Warnings are errors here."""
    X, y = load_iris(return_X_y=True)
    model = BayesianKernelClassifier(n_components=40, random_state=0).fit(X, y)
    far = np.full((1, 4), np.finfo(dtype).max / 4, dtype=dtype)
    np.testing.assert_allclose(model.predict_proba(far), 1.0 / 3.0, atol=1e-2)
    thin = model.predict_proba(sparse.csr_matrix(far))
    np.testing.assert_allclose(thin, 1.0 / 3.0, atol=1e-2)


# -- units ----------------------------------------------------------------------------------
def numbers():
    X = np.random.default_rng(0).normal(size=(60, 2))
    return X, X[:, 0]


@pytest.mark.parametrize(("scale", "why"), [(1e-300, "vanish"), (1e300, "overflow")])
def test_targets_whose_squares_overflow_are_refused(scale, why):
    X, y = numbers()
    with pytest.raises(ValueError, match=f"y contains values whose squares {why}.*rescale y"):
        BayesianKernelRegressor(n_components=20).fit(X, scale * y)


def test_a_tiny_constant_target_is_one():
    X, _ = numbers()
    model = BayesianKernelRegressor(n_components=20, random_state=0).fit(X, np.full(60, 1e-300))
    np.testing.assert_array_equal(model.predict(X[:2]), 1e-300)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_inputs_whose_squares_vanish_are_refused(kind):
    X, y = numbers()
    with pytest.raises(ValueError, match="input 1 of X holds numbers whose squares vanish"):
        BayesianKernelRegressor(n_components=20).fit(kind(X * [1.0, 1e-300]), y)


# -- parameters ----------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(("word", "value"), [("checkpoint", 3), ("verbose", "x")])
def test_parameters_of_the_wrong_type_are_refused(kind, word, value):
    X, y = numbers()
    with pytest.raises((TypeError, ValueError), match=f"{word}.* must be .*[Gg]ot {value!r}"):
        kind(**{word: value}).fit(X, (y > 0.0).astype(int))
