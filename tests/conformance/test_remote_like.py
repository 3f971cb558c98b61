"""Every family on rows that live elsewhere: the same bits as on rows at hand.

Where an inference is ``local_only``, another one has to come to the same optimum elsewhere.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from tests.conformance.remote import elsewhere
from threadpoolctl import threadpool_limits

import likelier
from likelier import losses
from likelier.engines import blocks
from likelier.kernel_machine import data as kernel_data
from likelier.kernel_machine.settings import Evidence

N = 1500  # six blocks


def dense(kind="classes", d=6, k=2):
    rng = np.random.default_rng(d)
    X = rng.standard_normal((N, d))
    score = X @ rng.standard_normal((d, k)) + 0.5 * rng.standard_normal((N, k))
    if kind == "numbers":
        return X, score[:, 0]
    if kind == "labels":
        return X, (score > 0.0).astype(int)
    if kind == "counts":
        return rng.poisson(np.exp(0.3 * X)), score.argmax(axis=1)
    return X, score.argmax(axis=1)


def wide(d=3000):
    rng = np.random.default_rng(0)
    X = sparse.random_array((N, d), density=0.01, format="csr", rng=rng)
    return X, (X @ rng.standard_normal(d) > 0.0).astype(int)


PLACES = ("copies", "process")  # where maps are worked on


def case(name, model, data):
    """One case for each place."""
    return [pytest.param(model, data, place, id=f"{name}-{place}") for place in PLACES]


quick = {"random_state": 0}
few = {"n_chains": 2, "n_draws": 3, "n_warmup": 2}
gibbs, hamiltonian = likelier.MCMC("gibbs", **few), likelier.MCMC("hamiltonian", **few)
CASES = [
    *case("gaussian_nb", likelier.GaussianNB(), dense),
    *case("multinomial_nb", likelier.MultinomialNB(), lambda: dense("counts")),
    *case("bernoulli_nb", likelier.BernoulliNB(), lambda: dense("counts")),
    *case("linear_newton", likelier.LinearClassifier(alpha=1e-3, **quick), dense),
    *case(
        "linear_newton_numbers",
        likelier.LinearRegressor(alpha=1e-3, **quick),
        lambda: dense("numbers"),
    ),
    *case(
        "linear_classes",
        likelier.LinearClassifier(alpha=1e-3, **quick),
        lambda: dense(k=4),
    ),
    *case(
        "linear_lbfgs",
        likelier.LinearClassifier(alpha=1e-4, **quick),
        lambda: dense(d=2000),
    ),
    *case(
        "linear_sparse",
        likelier.LinearClassifier(alpha=1e-4, **quick),
        wide,
    ),
    *case(
        "linear_l1",
        likelier.LinearClassifier(alpha=1e-3, l1_ratio=1.0, **quick),
        wide,
    ),
    *case(
        "linear_l1_classes",
        likelier.LinearClassifier(alpha=3e-3, l1_ratio=1.0, **quick),
        lambda: dense(d=1600, k=3),
    ),
    *case(
        "bayesian_linear",
        likelier.BayesianLinearClassifier(
            inference=likelier.MCMC(n_draws=10, n_warmup=10), **quick
        ),
        dense,
    ),
    *case(
        "bayesian_gibbs",
        likelier.BayesianLinearClassifier(inference=gibbs, **quick),
        lambda: dense(k=3),
    ),
    *case(
        "bayesian_softmax",
        likelier.BayesianLinearClassifier("softmax", inference=hamiltonian, **quick),
        lambda: dense(k=3),
    ),
    *case(
        "bayesian_hinge",
        likelier.BayesianLinearClassifier("hinge", inference=gibbs, **quick),
        dense,
    ),
    *case("one_pass", likelier.OnePassClassifier(**quick), lambda: dense(k=3)),
    *case("one_pass_frozen", likelier.OnePassClassifier(update="frozen"), lambda: dense(k=3)),
    *case(
        "one_pass_frozen_fourier",
        likelier.OnePassClassifier(
            update="frozen", features="fourier", n_components=40, gamma=0.1, half_life=500, **quick
        ),
        lambda: dense(k=3),
    ),
    *case("kernel_classes", likelier.BayesianKernelClassifier(**quick), dense),
    *case(
        "kernel_numbers",
        likelier.BayesianKernelRegressor(**quick),
        lambda: dense("numbers"),
    ),
    *case(
        "kernel_hinge",
        likelier.BayesianKernelClassifier(loss="hinge", **quick),
        lambda: dense(k=3),
    ),
    *case(
        "kernel_experts",
        likelier.BayesianKernelClassifier(inference=Evidence(n_experts=2), **quick),
        dense,
    ),
    *case(
        "kernel_experts_numbers",
        likelier.BayesianKernelRegressor(inference=Evidence(n_experts=2), **quick),
        lambda: dense("numbers"),
    ),
    *case(
        "multilabel",
        likelier.MultilabelClassifier(**quick),
        lambda: dense("labels", k=3),
    ),
]


def answers(model, X):
    """What a fitted model says of its rows."""
    methods = ("predict", "predict_proba", "predict_interval", "decision_function")
    return {name: np.asarray(getattr(model, name)(X)) for name in methods if hasattr(model, name)}


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch):
    """Blocks of 256 rows; two threads of BLAS add in another order than one."""
    for name in ("MIN_DENSE_ROWS", "MAX_DENSE_ROWS", "MIN_SPARSE_ROWS", "MAX_SPARSE_ROWS"):
        monkeypatch.setattr(blocks, name, 256)
    monkeypatch.setattr(kernel_data, "SAMPLE_ROWS", 1100)  # fewer than all rows
    with threadpool_limits(1, user_api="blas"):
        yield


def fit_elsewhere(model, X, y, place, monkeypatch):
    """A model fitted on a pretend cluster."""
    with elsewhere(monkeypatch, place):
        return clone(model).fit(X, y)


def fit_stream(model, X, y):
    """A model fitted from blocks of other lengths, read one after another."""
    cuts = [0, 100, 101, 700, 1300, N]
    return clone(model).fit([(X[a:b], y[a:b]) for a, b in itertools.pairwise(cuts)])


def assert_same(found, here):
    assert found.keys() == here.keys()
    for name, values in here.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.parametrize(("model", "data", "place"), CASES)
def test_same_bits_elsewhere(model, data, place, monkeypatch):
    X, y = data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few draws, or that it did not converge
        here = answers(clone(model).fit(X, y), X)
        assert_same(answers(fit_elsewhere(model, X, y, place, monkeypatch), X), here)


INTERIOR = {
    "hinge": (likelier.LinearClassifier("hinge", alpha=1e-3, probability=False, **quick), dense),
    "quantile": (
        likelier.LinearRegressor(loss=losses.Quantile(tau=0.9), alpha=1e-3, **quick),
        lambda: dense("numbers"),
    ),
}


@pytest.mark.parametrize("name", INTERIOR)
def test_newton_takes_the_place_of_interior_methods(name, monkeypatch):
    """Interior methods are ``local_only``; envelopes of the loss lead to the same optimum."""
    model, (X, y) = INTERIOR[name][0], INTERIOR[name][1]()
    here, streamed = clone(model).fit(X, y), fit_stream(model, X, y)
    assert (here.route_, streamed.route_) == ("interior", "newton")
    assert here.converged_ and streamed.converged_
    assert streamed.objective_ == pytest.approx(here.objective_, rel=2.0 * model.tol)
    for place in PLACES:
        found = fit_elsewhere(model, X, y, place, monkeypatch)
        np.testing.assert_array_equal(found.coef_, streamed.coef_)


STREAMED = (
    "gaussian_nb",
    "multinomial_nb",
    "bernoulli_nb",
    "linear_newton",
    "linear_classes",
    "linear_newton_numbers",
    "linear_lbfgs",
    "linear_sparse",
    "linear_l1",
    "linear_l1_classes",
    "bayesian_linear",
    "bayesian_gibbs",
    "bayesian_softmax",
    "bayesian_hinge",
    "one_pass",
    "one_pass_frozen",
    "one_pass_frozen_fourier",
    "kernel_classes",
    "kernel_numbers",
    "kernel_hinge",
    "kernel_experts",
    "kernel_experts_numbers",
)


@pytest.mark.parametrize(
    ("model", "data"),
    [pytest.param(*c.values[:2], id=c.id) for c in CASES
     if c.id in [f"{name}-copies" for name in STREAMED]],
)  # fmt: skip
def test_same_bits_from_a_stream(model, data):
    X, y = data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here = answers(clone(model).fit(X, y), X)
        assert_same(answers(fit_stream(model, X, y), X), here)
