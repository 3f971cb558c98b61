"""Every sampler against quadrature, and against long Hamiltonian runs written independently.

Seeds are fixed. A mean may be off by four Monte Carlo errors (from the effective size), a standard
deviation by a tenth: a correct sampler fails one of these checks for fewer than one seed in a
hundred.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.special import logsumexp
from tests.reference.bayesian_problem import (
    engine_for,
    grid_moments,
    log_likelihood,
    make_model,
    small_rows,
)
from tests.reference.hmc import hmc

from likelier.bayesian_linear.diagnostics import effective_size
from likelier.bayesian_linear.gibbs import Gibbs, log_posterior
from likelier.bayesian_linear.transport_moves import Hamiltonian, Independent

# sampler, steps of warm-up, steps: enough for a few hundred effective draws on these posteriors
SAMPLERS = {
    "gibbs": (Gibbs(16), 30, 120),
    "hamiltonian": (Hamiltonian(16), 40, 80),
    "independent": (Independent(4), 1, 60),
}
every_sampler = pytest.mark.parametrize("name", SAMPLERS)


def run(name, model, engine):
    inference, warm, n = SAMPLERS[name]
    state = inference.init(model, engine)
    for _ in range(warm):
        state, _ = inference.step(state, engine)
    state = state.warmed_up()
    for _ in range(n):
        state, _ = inference.step(state, engine)
    return inference.posterior(state)


def assert_moments(draws, mean, sd, rtol=0.1):
    """``draws`` has shape (chains, draws, parameters)."""
    size = effective_size(draws, ranks=False)
    assert (size > 100).all()
    flat = draws.reshape(-1, draws.shape[2])
    assert (np.abs(flat.mean(axis=0) - mean) < 4.0 * sd / np.sqrt(size)).all()
    np.testing.assert_allclose(flat.std(axis=0), sd, rtol=rtol)


@every_sampler
@pytest.mark.parametrize("loss", ["log_loss", "hinge"])
@pytest.mark.parametrize("weighted", [False, True])
def test_two_weights_by_quadrature(name, loss, weighted):
    X, y = small_rows(25, 2, seed=1)
    weight = np.random.default_rng(2).choice([0.0, 0.4, 1.0, 2.0], 25) if weighted else None
    model = make_model(2, loss, precision=0.7, mean=0.5)
    posterior = run(name, model, engine_for(X, y, weight, block_rows=10))
    mean, sd = grid_moments(loss, X, y, 0.7, 0.5, weight)
    assert_moments(posterior.theta, mean, sd)


@every_sampler
def test_learned_scale_by_quadrature(name):
    """One weight and ``eta = log tau``, on a grid of both."""
    X, y = small_rows(15, 1, seed=3, slope=1.5)
    model = make_model(1, learned=True)
    posterior = run(name, model, engine_for(X, y))
    w, eta = np.linspace(-8.0, 14.0, 1101), np.linspace(-6.0, 5.0, 401)
    value = log_likelihood("log_loss", X, y, w[:, None])[:, None]
    tau = np.exp(eta)
    value = value + (2.0 + 0.5) * eta - tau * (0.2 + 0.5 * w[:, None] ** 2)
    share = np.exp(value - value.max())
    share /= share.sum()
    for draws, axis, grid in ((posterior.theta, 1, w), (posterior.eta[:, :, None], 0, eta)):
        marginal = share.sum(axis=axis)
        mean = marginal @ grid
        sd = np.sqrt(marginal @ (grid - mean) ** 2)
        assert_moments(draws, mean, sd, rtol=0.15)


@pytest.fixture(scope="module")
def three_classes():
    """Rows of three classes, and a long run of the joint posterior of their weights."""
    X, y = small_rows(60, 2, seed=4, n_classes=3)

    def value_of(theta):
        cube = theta.reshape(len(theta), 3, 2)
        return log_likelihood("softmax", X, y, cube) - 0.5 * (theta**2).sum(axis=1)

    def slope_of(theta):
        cube = theta.reshape(len(theta), 3, 2)
        scores = np.einsum("nd,skd->snk", X, cube)
        p = np.exp(scores - logsumexp(scores, axis=2, keepdims=True))
        away = np.eye(3)[y.astype(int)] - p
        return np.einsum("snk,nd->skd", away, X).reshape(theta.shape) - theta

    long = hmc(value_of, slope_of, np.zeros(6), 0.3 * np.eye(6), n_draws=600, seed=5)
    assert (long.r_hat() < 1.02).all()
    return X, y, long.flat()


@pytest.mark.parametrize(
    "name", ["independent", "hamiltonian", pytest.param("gibbs", marks=pytest.mark.slow)]
)
def test_jointly_treated_classes(name, three_classes):
    X, y, flat = three_classes
    model = make_model(2, precision=1.0, n_classes=3)
    posterior = run(name, model, engine_for(X, y, block_rows=25))
    assert_moments(posterior.theta, flat.mean(axis=0), flat.std(axis=0))


@pytest.mark.parametrize("name", ["gibbs", "independent", "hamiltonian"])
def test_hinge_against_a_long_run(name):
    """The pseudo-posterior of five weights; kinks need short steps but no other care."""
    X, y = small_rows(80, 5, seed=6)
    sign = np.where(y == 1, 1.0, -1.0)
    model = make_model(5, "hinge", precision=1.0)
    engine = engine_for(X, y)
    posterior = run(name, model, engine)

    def value_of(theta):
        return log_likelihood("hinge", X, y, theta) - 0.5 * (theta**2).sum(axis=1)

    def slope_of(theta):
        inside = (1.0 - sign * (theta @ X.T) > 0.0) * sign
        return 2.0 * inside @ X - theta

    covariance = np.cov(posterior.theta.reshape(-1, 5).T)
    centre = posterior.theta.mean(axis=(0, 1))
    long = hmc(value_of, slope_of, centre, covariance, n_draws=1000, seed=7)
    assert (long.r_hat() < 1.02).all()
    flat = long.flat()
    assert_moments(posterior.theta, flat.mean(axis=0), flat.std(axis=0))


def test_the_best_hinge_weights_are_the_most_probable_ones():
    """``alpha = precision / (2 N)`` makes the penalised hinge the pseudo-posterior's energy."""
    from likelier import LinearClassifier

    X, y = small_rows(80, 5, seed=6)
    best = LinearClassifier("hinge", alpha=1.0 / 160, fit_intercept=False, tol=1e-7,
                            probability=False, random_state=0).fit(X, y)  # fmt: skip
    model, engine = make_model(5, "hinge"), engine_for(X, y)
    draws = run("independent", model, engine).theta.reshape(-1, 5)
    top = log_posterior(model, engine, best.coef_, np.zeros(1))[0]
    value = log_posterior(model, engine, draws, np.zeros(len(draws)))
    assert (value < top).all()
    # the drop from the top is about half a chi-squared variable of five degrees of freedom
    assert 1.5 < np.mean(top - value) < 4.0


@every_sampler
def test_sparse_and_dense_rows_give_the_same_draws(name):
    X, y = small_rows(60, 3, seed=8)
    X[np.abs(X) < 0.5] = 0.0
    model = make_model(3, fit_intercept=True, learned=True)
    inference = SAMPLERS[name][0]
    draws = []
    for rows in (X, sparse.csr_array(X)):
        engine = engine_for(rows, y, block_rows=20)
        state = inference.init(model, engine)
        for _ in range(3):
            state, _ = inference.step(state, engine)
        draws.append(state.theta)
    np.testing.assert_allclose(draws[0], draws[1], rtol=1e-7)
