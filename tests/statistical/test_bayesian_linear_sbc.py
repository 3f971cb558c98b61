"""Simulation-based calibration: the rank of the truth among posterior draws is uniform.

Weights are drawn from the prior, labels given the weights, draws from the posterior; then the truth
is one of them (Talts et al.). The hinge is no probability of labels: there the joint density is
``N(w) prod L(y_i, f_i)``, whose marginal of ``w`` is the prior times ``prod (L(1) + L(-1))``; the
truth comes from that, on a grid. Seeds are fixed. A test fails below p = 1e-4 of a chi-squared test
of the ranks: with all ranks of this file, less than one correct seed in five hundred.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, softmax
from tests.reference.bayesian_problem import engine_for, make_model

from likelier.bayesian_linear.gibbs import Gibbs
from likelier.bayesian_linear.transport_moves import Hamiltonian, Independent

CHAINS = 9  # ranks 0..9
SAMPLERS = {
    "gibbs": (Gibbs(CHAINS), 12),
    "hamiltonian": (Hamiltonian(CHAINS), 6),
    "independent": (Independent(CHAINS, burst=10 * CHAINS), 1),
}


# the two augmentations and the default route; the rest is slow
SOME = ["independent", "gibbs", pytest.param("hamiltonian", marks=pytest.mark.slow)]
FEW = ["independent", *(pytest.param(n, marks=pytest.mark.slow) for n in ("gibbs", "hamiltonian"))]


def hinge_truth(X, n, rng):
    """Weights (n, 2) from the prior times the sum of both labels' pseudo-likelihoods."""
    axis = np.linspace(-4.5, 4.5, 181)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    f = points @ X.T
    both = np.logaddexp(-2.0 * np.maximum(1.0 - f, 0.0), -2.0 * np.maximum(1.0 + f, 0.0))
    value = both.sum(axis=1) - 0.5 * (points**2).sum(axis=1)
    share = np.exp(value - value.max())
    found = points[rng.choice(len(points), n, p=share / share.sum())]
    return found + rng.uniform(-0.025, 0.025, found.shape)


def hinge_labels(f, rng):
    gap = 2.0 * np.maximum(1.0 + f, 0.0) - 2.0 * np.maximum(1.0 - f, 0.0)
    return (rng.random(len(f)) < expit(gap)).astype(float)


def assert_uniform(ranks):
    counts = np.bincount(np.asarray(ranks), minlength=CHAINS + 1)
    assert stats.chisquare(counts).pvalue > 1e-4


# the last state of every chain: chains are independent, so these are independent draws
def final_states(name, model, X, y, seed):
    inference, n_steps = SAMPLERS[name]
    engine = engine_for(X, y, seed=seed)
    state = inference.init(model, engine)
    for _ in range(n_steps):
        state, _ = inference.step(state, engine)
    return state


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("loss", ["log_loss", "hinge"])
def test_given_scale(name, loss):
    rng = np.random.default_rng(10)
    X = rng.standard_normal((12, 2))
    model, ranks, n = make_model(2, loss), [], 160
    truths = hinge_truth(X, n, rng) if loss == "hinge" else rng.standard_normal((n, 2))
    for seed, truth in enumerate(truths):
        f = X @ truth
        y = hinge_labels(f, rng) if loss == "hinge" else (rng.random(12) < expit(f)).astype(float)
        state = final_states(name, model, X, y, seed)
        ranks.append((state.theta < truth).sum(axis=0))
    for column in np.array(ranks).T:
        assert_uniform(column)


@pytest.mark.parametrize("name", FEW)
def test_learned_scale_and_intercept(name):
    rng = np.random.default_rng(11)
    X = rng.standard_normal((12, 2))
    model, ranks = make_model(2, learned=True, fit_intercept=True), []
    for seed in range(100):
        tau = rng.gamma(2.0) / 0.2
        truth = np.append(rng.standard_normal(2) / np.sqrt(tau), 10.0 * rng.standard_normal())
        y = (rng.random(12) < expit(X @ truth[:2] + truth[2])).astype(float)
        state = final_states(name, model, X, y, seed)
        ranks.append(np.append((state.theta < truth).sum(axis=0), (state.eta < np.log(tau)).sum()))
    for column in np.array(ranks).T:
        assert_uniform(column)


@pytest.mark.parametrize("name", FEW)
def test_jointly_treated_classes(name):
    rng = np.random.default_rng(12)
    X = rng.standard_normal((12, 1))
    model, ranks = make_model(1, n_classes=3), []
    for seed in range(120):
        truth = rng.standard_normal(3)
        p = softmax(X * truth, axis=1)
        y = (p.cumsum(axis=1) < rng.random((12, 1))).sum(axis=1).astype(float)
        state = final_states(name, model, X, y, seed)
        ranks.append((state.theta < truth).sum(axis=0))
    for column in np.array(ranks).T:
        assert_uniform(column)


def test_a_wrong_sampler_is_found_out():
    """Draws that are half as wide as they should be fail the same test."""
    rng = np.random.default_rng(13)
    X, ranks, model = rng.standard_normal((12, 2)), [], make_model(2)
    for seed, truth in enumerate(rng.standard_normal((160, 2))):
        y = (rng.random(12) < expit(X @ truth)).astype(float)
        theta = final_states("independent", model, X, y, seed).theta
        narrow = theta.mean(axis=0) + 0.5 * (theta - theta.mean(axis=0))
        ranks.append((narrow < truth).sum(axis=0)[0])
    with pytest.raises(AssertionError):
        assert_uniform(ranks)
