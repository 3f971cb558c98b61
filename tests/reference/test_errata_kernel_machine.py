"""Errors of the document on the Bayesian kernel machine, each as a test.

Every test writes the document's formula down as printed, shows a case in which it fails, and
shows that what the library does instead is right in that case.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.spatial.distance import pdist

from likelier.base import Batch
from likelier.kernel_machine.fourier_machine import FourierMachine, draw_frequencies, start_scale
from likelier.losses import MulticlassHinge, Softmax

N, D_IN, D, K = 25, 4, 6, 3
LOSSES = [Softmax(), MulticlassHinge()]
both_losses = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)


def case(loss, seed=0, **options):
    """A machine, one particle away from every kink, and a batch."""
    rng = np.random.default_rng(seed)
    frequencies = draw_frequencies(D, D_IN, rng)
    machine = FourierMachine(loss, D_IN, K, frequencies, 0.6, alpha=0.7, **options)
    theta = machine.start(1, rng) + 0.5 * rng.standard_normal((1, machine.n_parameters))
    X, y = rng.standard_normal((N, D_IN)), rng.integers(0, K, N).astype(float)
    return machine, theta, Batch(X, y)


def difference(function, x, h=1e-5):
    """Central differences of a function of a vector."""
    steps = h * np.eye(len(x))
    return np.array([(function(x + s) - function(x - s)) / (2.0 * h) for s in steps])


def relative_error(found, right):
    return np.abs(found - right).max() / np.abs(right).max()


def parts_of(machine, theta):
    """W as a vector, b and u of one particle."""
    n_weights = machine.n_components * K
    return np.split(theta[0], [n_weights, n_weights + K])


# -- (a) the gradient of the prior of W ------------------------------------------------------


@both_losses
def test_a_prior_gradient_is_a_matrix(loss):
    machine, theta, batch = case(loss)
    n_weights = machine.n_components * K
    numeric = difference(lambda t: machine.energy(t[None], batch, 1.0)[0], theta[0])
    ours = machine.energy_gradient(theta, batch, 1.0)[1][0]
    by_loss = machine.loss_terms(theta, batch).weights.ravel()
    W = theta[0, :n_weights]
    printed = machine.alpha * (W @ W) + by_loss  # a number where a vector belongs
    assert relative_error(ours, numeric) <= 1e-6
    assert relative_error(printed, numeric[:n_weights]) > 0.5


# -- (b) the gradient of the prior of gamma --------------------------------------------------


@both_losses
def test_b_the_prior_of_gamma_has_a_gradient(loss):
    machine, theta, batch = case(loss)
    s, T = machine.prior_scale, 3.0
    W, b, u = parts_of(machine, theta)
    gamma = np.exp(u)

    def in_gamma(gamma):  # the density of gamma itself: no Jacobian
        point = np.concatenate([W, b, np.log(gamma)])[None]
        return machine.energy(point, batch, T)[0] + np.log(gamma).sum()

    numeric = difference(in_gamma, gamma)
    by_loss = T * machine.loss_terms(theta, batch).gamma[0]
    assert relative_error(by_loss + gamma / s**2, numeric) <= 1e-6
    assert relative_error(by_loss, numeric) > 0.05  # as printed: the likelihood alone
    ours = machine.energy_gradient(theta, batch, T)[1][0, -D_IN:]
    expected = gamma * by_loss + (gamma / s) ** 2 - 1.0  # the prior once, and the Jacobian
    np.testing.assert_allclose(ours, expected, rtol=1e-12)
    in_u = difference(lambda u: machine.energy(np.concatenate([W, b, u])[None], batch, T)[0], u)
    assert relative_error(ours, in_u) <= 1e-6
    assert relative_error(gamma * by_loss, in_u) > 0.05


def test_b_without_the_jacobian_it_is_another_prior():
    """Without data ``gamma`` must be half normal: mean ``s sqrt(2 / pi)``."""
    machine = FourierMachine(Softmax(), 1, 2, np.ones((1, 1)), gamma_scale=0.7)
    batch = Batch(np.zeros((1, 1)), np.zeros(1))
    start = np.zeros(machine.n_parameters - 1)

    def mean_gamma(jacobian):
        def density(u):
            energy = machine.energy(np.append(start, u)[None], batch, 0.0)[0]
            return np.exp(-energy - (0.0 if jacobian else u))

        low, high = -12.0, 4.0
        return quad(lambda u: np.exp(u) * density(u), low, high)[0] / quad(density, low, high)[0]

    exact = 0.7 * np.sqrt(2.0 / np.pi)
    assert mean_gamma(True) == pytest.approx(exact, rel=1e-5)
    assert mean_gamma(False) < 0.5 * exact


# -- (c) the scale of the features -----------------------------------------------------------


def printed_gamma_gradient(machine, theta, batch):
    """Mean of the printed ``[-e_i x sin, e_i x cos] d loss/d phi``, written with loops."""
    W, b, u = parts_of(machine, theta)
    W, gamma, E = W.reshape(-1, K), np.exp(u), machine.frequencies
    total = np.zeros(D_IN)
    for x, y in zip(batch.X, batch.y, strict=True):
        angle = E @ (gamma * x)
        phi = np.concatenate([np.cos(angle), np.sin(angle)]) / np.sqrt(D)
        d = W @ machine.loss.derivative([y], (phi @ W + b)[None])[0]
        for i in range(D):
            total += E[i] * x * (-np.sin(angle[i]) * d[i] + np.cos(angle[i]) * d[D + i])
    return total / N


@both_losses
def test_c_gamma_gradient_has_the_scale_of_the_features(loss):
    machine, theta, batch = case(loss)
    W, b, u = parts_of(machine, theta)
    numeric = difference(
        lambda g: machine.loss_terms(np.concatenate([W, b, np.log(g)])[None], batch).value[0],
        np.exp(u),
    )
    ours = machine.loss_terms(theta, batch).gamma[0]
    printed = printed_gamma_gradient(machine, theta, batch)
    assert relative_error(ours, numeric) <= 1e-6
    np.testing.assert_allclose(printed, np.sqrt(D) * ours, rtol=1e-10)
    assert relative_error(printed, numeric) > 1.0


# -- (d) the runner-up -----------------------------------------------------------------------


def test_d_the_runner_up_is_found_in_feature_space():
    """With as many inputs as features the printed argmax can be computed: it is another."""
    rng = np.random.default_rng(0)
    D_two, d = 3, 6
    machine = FourierMachine(MulticlassHinge(), d, 4, draw_frequencies(D_two, d, rng), 0.5)
    theta = machine.start(1, rng) + 0.3 * rng.standard_normal((1, machine.n_parameters))
    W = machine.split(theta).weights[0]
    differ = 0
    for _ in range(20):
        x, y = rng.standard_normal(d), 0
        batch = Batch(x[None], np.array([float(y)]))
        g = machine.scores(theta, x[None])[0, 0]
        assert 1.0 + g[1:].max() - g[y] > 0.0
        ours = machine.loss_terms(theta, batch).intercept[0]
        numeric = difference(
            lambda b, batch=batch: machine.loss_terms(
                machine.join(W[None], b[None], np.log(machine.split(theta).gamma)), batch
            ).value[0],
            machine.split(theta).intercept[0],
        )
        np.testing.assert_allclose(ours, numeric, atol=1e-8)
        printed = np.zeros(4)
        printed[y], printed[1 + np.argmax((x @ W)[1:])] = -1.0, 1.0
        differ += not np.allclose(printed, numeric, atol=1e-3)
    assert differ >= 5


# -- (e) the hinge is no likelihood ----------------------------------------------------------


def test_e_exp_minus_hinge_does_not_sum_to_one():
    scores = np.random.default_rng(0).standard_normal((100, K))
    targets = np.arange(K, dtype=float)
    hinge = np.stack([np.exp(-MulticlassHinge().value(np.full(100, k), scores)) for k in targets])
    soft = np.stack([np.exp(-Softmax().value(np.full(100, k), scores)) for k in targets])
    np.testing.assert_allclose(soft.sum(axis=0), 1.0)
    assert np.ptp(hinge.sum(axis=0)) > 0.3  # not even a constant that could be divided out


def test_e_a_hinge_machine_refuses_probabilities_without_calibration():
    machine, theta, batch = case(MulticlassHinge())
    with pytest.raises(ValueError, match="no probabilities of its own"):
        machine.predictive(theta, batch.X)
    calibrated = machine.predictive(theta, batch.X, Softmax().link)
    np.testing.assert_allclose(calibrated.probabilities().sum(axis=1), 1.0)


# -- (f) the scale of the prior of gamma -----------------------------------------------------


@pytest.mark.parametrize("d", [2, 50, 500])
def test_f_a_unit_prior_makes_the_kernel_vanish(d):
    """Median kernel value between standardised rows when gamma is drawn from its prior."""
    rng = np.random.default_rng(d)
    X = rng.standard_normal((100, d))

    def median_kernel(scale):
        gamma = scale * np.abs(rng.standard_normal((50, d)))
        return np.median([np.median(np.exp(-0.5 * pdist(g * X) ** 2)) for g in gamma])

    machine = FourierMachine(Softmax(), d, 2, np.ones((1, d)), start_scale(X))
    assert 0.1 < median_kernel(machine.prior_scale) < 0.9
    if d >= 50:
        assert median_kernel(1.0) < 1e-10
    # and the start is where the prior of log gamma is highest
    theta = np.append(np.zeros(4 + 2), np.full(d, np.log(machine.gamma0)))[None]
    gradient = machine.energy_gradient(theta, Batch(X, np.zeros(100)), 0.0)[1]
    np.testing.assert_allclose(gradient, 0.0, atol=1e-12)


# -- (g) intercept and log-sum-exp -----------------------------------------------------------


def test_g_printed_softmax_overflows():
    g = np.array([[1000.0, 0.0, -1000.0]])
    with np.errstate(all="ignore"):
        printed = -np.log(np.exp(g[0, 1]) / np.exp(g).sum())
    assert not np.isfinite(printed)
    assert Softmax().value([1.0], g)[0] == pytest.approx(1000.0)
    machine, theta, batch = case(Softmax())
    theta = 1e4 * theta
    theta[:, -D_IN:] = 0.0
    energy, gradient = machine.energy_gradient(theta, batch, float(N))
    assert np.isfinite(energy).all() and np.isfinite(gradient).all()


def test_g_without_intercept_class_shares_cannot_be_learned():
    """Rows that say nothing: the best scores are the log shares, and only ``b`` can be them."""
    shares = np.array([0.7, 0.2, 0.1])
    y = np.repeat(np.arange(3.0), (shares * 100).astype(int))
    machine = FourierMachine(Softmax(), 2, 3, intercept_precision=1e-8)
    batch, theta = Batch(np.zeros((100, 2)), y), np.zeros((1, 9))
    gradient = machine.energy_gradient(theta, batch, 100.0)[1][0]
    assert np.abs(gradient[:6]).max() == 0.0  # no weight can move a score
    np.testing.assert_allclose(gradient[6:], 100.0 * (1.0 / 3.0 - shares))
    theta[0, 6:] = np.log(shares)
    np.testing.assert_allclose(
        machine.energy_gradient(theta, batch, 100.0)[1][0, 6:], 0.0, atol=1e-6
    )


def test_g_the_intercept_needs_its_weak_prior():
    machine, theta, batch = case(Softmax())
    W, b, u = parts_of(machine, theta)

    def curvature(machine):
        def gradient(b):
            point = np.concatenate([W, b, u])[None]
            return machine.energy_gradient(point, batch, float(N))[1][0, -D_IN - K : -D_IN]

        return np.linalg.eigvalsh(difference(gradient, b))

    weak = replace(machine, intercept_precision=1e-300)  # as good as none
    assert abs(curvature(weak)[0]) < 1e-7
    assert curvature(machine)[0] == pytest.approx(machine.intercept_precision, rel=1e-4)


# -- the temperature ---------------------------------------------------------------------------


def test_the_printed_posterior_counts_all_data_as_one_row():
    """With T = 1 doubling the data changes nothing; with T = N it doubles the likelihood."""
    machine, theta, batch = case(Softmax())
    twice = Batch(np.tile(batch.X, (2, 1)), np.tile(batch.y, 2))
    once = machine.energy(theta, batch, 1.0)[0]
    assert machine.energy(theta, twice, 1.0)[0] == pytest.approx(once)
    prior = machine.energy(theta, batch, 0.0)[0]
    right = machine.energy(theta, batch, float(N))[0] - prior
    assert right == pytest.approx(N * (once - prior))
    assert machine.energy(theta, twice, 2.0 * N)[0] - prior == pytest.approx(2.0 * right)
