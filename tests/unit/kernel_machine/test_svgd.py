"""Particles: directions against loops, minibatches, seeds, weights, interruption."""

from __future__ import annotations

import copy
from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy import sparse
from tests.unit.kernel_machine.particle_targets import StandardNormal, run

from likelier.base import Batch
from likelier.engines import LocalEngine
from likelier.kernel_machine.adam import FLOOR, Moments, adam_change, rate_at
from likelier.kernel_machine.fourier_machine import FourierMachine, draw_frequencies
from likelier.kernel_machine.stein_gaussian import SteinGaussian
from likelier.kernel_machine.svgd import SVGD, ParticlePosterior, median_bandwidth, stein_direction
from likelier.losses import MulticlassHinge, Softmax

N, D, K = 60, 3, 3
INFERENCES = [
    SVGD(n_particles=4, n_updates=30, batch_size=16),
    SteinGaussian(n_particles=2, n_updates=30, batch_size=16),
]
each = pytest.mark.parametrize("inference", INFERENCES, ids=lambda i: type(i).__name__)


def rows(kind=np.asarray, dtype=np.float64):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)).astype(dtype)
    y = np.digitize(X[:, 0] + 0.5 * X[:, 1] ** 2, [-0.3, 0.7]).astype(float)
    return kind(X), y, rng.integers(0, 4, N).astype(float)


def machine(loss=None, **options):
    frequencies = draw_frequencies(8, D, np.random.default_rng(1))
    return FourierMachine(loss or Softmax(), D, K, frequencies, 0.6, **options)


def particles(inference, state):
    posterior = inference.posterior(state)
    return np.hstack(
        [getattr(posterior, "mean", np.empty((0, 0))).ravel(), posterior_theta(posterior)]
    )


def posterior_theta(posterior):
    if isinstance(posterior, ParticlePosterior):
        return posterior.theta.ravel()
    return posterior.scale.ravel()


# -- the Stein direction ---------------------------------------------------------------------


def test_median_over_distinct_pairs():
    """Each pair once, no self-pairs, and the median of distances, not of squares."""
    theta = np.array([[0.0], [1.0], [3.0], [7.0]])  # distances 1 2 3 4 6 7: median 3.5
    assert median_bandwidth(theta) == pytest.approx(3.5**2 / np.log(5.0))
    everyone = np.abs(theta - theta.T)
    assert np.median(everyone) == 2.5  # the convention that pairs particles with themselves
    assert np.median(everyone[np.triu_indices(4, 1)] ** 2) == 12.5  # that of squares


def test_direction_against_loops():
    rng = np.random.default_rng(0)
    theta, slope = rng.standard_normal((2, 6, 5))
    h = median_bandwidth(theta)
    for bandwidth in (None, 0.7):
        width = h if bandwidth is None else bandwidth
        expected = np.zeros_like(theta)
        for p in range(6):
            for q in range(6):
                gap = theta[q] - theta[p]
                k = np.exp(-gap @ gap / width)
                expected[p] += (k * slope[q] - 2.0 / width * gap * k) / 6
        np.testing.assert_allclose(stein_direction(theta, slope, bandwidth), expected, rtol=1e-10)


def test_repulsion_is_the_derivative_of_the_kernel():
    rng = np.random.default_rng(1)
    theta, h, eps = rng.standard_normal((4, 3)), 1.3, 1e-6
    found = stein_direction(theta, np.zeros((4, 3)), h)

    def total(p, moved, j, step):  # sum over q of k(theta_q, theta_p), theta_q moved
        other = theta[moved].copy()
        other[j] += step
        return np.exp(-np.sum((other - theta[p]) ** 2) / h)

    for p in range(4):
        for j in range(3):
            numeric = sum(
                (total(p, q, j, eps) - total(p, q, j, -eps)) / (2 * eps) for q in range(4) if q != p
            )
            assert found[p, j] == pytest.approx(numeric / 4, rel=1e-6)


def test_direction_does_not_feel_where_the_origin_is():
    rng = np.random.default_rng(2)
    theta, slope = rng.standard_normal((2, 5, 4))
    near, far = stein_direction(theta, slope), stein_direction(theta + 1e6, slope)
    np.testing.assert_allclose(near, far, rtol=1e-6)


def test_one_particle_ascends_and_equal_particles_stay_equal():
    slope = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(stein_direction(np.ones((1, 3)), slope[:1]), slope[:1])
    moved = stein_direction(np.ones((2, 3)), slope)
    np.testing.assert_allclose(moved, np.tile(slope.mean(axis=0), (2, 1)))


# -- Adam ------------------------------------------------------------------------------------


def test_adam_moves_by_its_rate_whatever_the_scale():
    moments = Moments.zeros((3,))
    direction = np.array([1e-6, -1.0, 1e6])
    for n in range(1, 4):
        moments, change = adam_change(moments, direction, 0.1)
        np.testing.assert_allclose(change, [0.1, -0.1, 0.1], rtol=1e-5)
        assert moments.n_seen == n
    moments, change = adam_change(moments, -direction, 0.1)
    assert (np.abs(change) < 0.1).all()  # a change of mind is damped


def test_rate_falls_and_never_vanishes():
    rates = [rate_at(0.1, t, 100) for t in range(150)]
    assert rates[:51] == [0.1] * 51
    assert all(a >= b for a, b in pairwise(rates))
    assert rates[75] == pytest.approx(0.05)
    assert rates[-1] == pytest.approx(FLOOR * 0.1)


# -- minibatches -----------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [Softmax(), MulticlassHinge()], ids=lambda loss: loss.name)
def test_minibatches_are_unbiased(loss):
    """The mean over all minibatches of two out of six rows equals the full gradient."""
    X, y, _ = rows()
    weight = np.linspace(0.5, 2.0, 6)
    model = machine(loss)
    theta = model.start(2, np.random.default_rng(2))
    full = model.energy_gradient(theta, Batch(X[:6], y[:6], weight), 6.0)
    parts = [
        model.energy_gradient(
            theta, Batch(X, y, np.append(weight, np.ones(N - 6)), np.array(c)), 6.0
        )
        for c in combinations(range(6), 2)
    ]
    for whole, pieces in zip(full, zip(*parts, strict=True), strict=True):
        np.testing.assert_allclose(np.mean(pieces, axis=0), whole, rtol=1e-10, atol=1e-10)


# -- what every inference promises -----------------------------------------------------------


@each
def test_same_seed_same_bits(inference):
    X, y, weight = rows()
    ends = []
    for seed in (5, 5, 6):
        state, _ = run(inference, machine(), LocalEngine(X, y, weight, seed=seed))
        ends.append(particles(inference, state))
    np.testing.assert_array_equal(ends[0], ends[1])
    assert not np.array_equal(ends[0], ends[2])


@each
def test_a_step_leaves_the_state_as_it_was(inference):
    """States are immutable, so an interrupted step can be repeated."""
    X, y, _ = rows()
    engine = LocalEngine(X, y, seed=5)
    state, _ = inference.step(inference.init(machine(), engine), engine)
    before = copy.deepcopy(state)
    one, _ = inference.step(state, engine)
    two, _ = inference.step(before, engine)
    np.testing.assert_array_equal(particles(inference, one), particles(inference, two))
    np.testing.assert_array_equal(particles(inference, state), particles(inference, before))


@each
def test_weight_zero_is_absence_and_weight_two_is_twice(inference):
    X, y, weight = rows()
    whole = type(inference)(
        n_particles=3, n_updates=20, batch_size=1000
    )  # all rows in every update
    full = np.repeat(np.arange(N), weight.astype(int))
    ends = []
    for engine in (LocalEngine(X, y, weight, seed=5), LocalEngine(X[full], y[full], seed=5)):
        model = machine()
        state = whole.init(model, engine)
        assert state.count == engine.n_rows
        for _ in range(20):
            state, _ = whole.step(state, engine)
        ends.append(particles(whole, state))
    np.testing.assert_allclose(*ends, rtol=1e-6, atol=1e-8)


@each
def test_sparse_is_dense_and_single_precision_is_near(inference):
    ends = []
    for kind, dtype in (
        (np.asarray, np.float64), (sparse.csr_array, np.float64), (np.asarray, np.float32)
    ):  # fmt: skip
        X, y, _ = rows(kind, dtype)
        state, _ = run(inference, machine(), LocalEngine(X, y, seed=5))
        ends.append(particles(inference, state))
        assert ends[-1].dtype == np.float64
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(ends[2], ends[0], rtol=0.02, atol=0.02)


@each
def test_it_learns(inference):
    X, y, _ = rows()
    engine = LocalEngine(X, y, seed=5)
    longer = type(inference)(n_particles=3, n_updates=300, batch_size=32)
    state, info = run(longer, machine(alpha=0.1), engine)
    probabilities = longer.posterior(state).predictive(X).probabilities()
    assert (probabilities.argmax(axis=1) == y).mean() > 0.9
    assert info.converged


def test_probabilities_are_averaged_and_scores_are_not():
    """Two particles confident of opposite classes average to even odds."""
    model = FourierMachine(Softmax(), 1, 2)
    theta = np.array([[0.0, 0.0, 9.0, 0.0], [0.0, 0.0, 0.0, 3.0]])  # intercepts only
    predictive = ParticlePosterior(model, theta).predictive(np.zeros((1, 1)))
    each_one = Softmax().link(np.array([[9.0, 0.0], [0.0, 3.0]]))
    np.testing.assert_allclose(predictive.probabilities()[0], each_one.mean(axis=0))
    of_mean_scores = Softmax().link(np.array([[4.5, 1.5]]))[0]
    assert abs(predictive.probabilities()[0, 0] - of_mean_scores[0]) > 0.4
    assert predictive.uncertainty().epistemic[0] > 0.3


def test_a_given_start_is_where_it_starts():
    theta = np.arange(6.0).reshape(2, 3)
    engine = LocalEngine(np.zeros((1, 1)))
    for inference in (SVGD(), SteinGaussian()):
        state = inference.init(StandardNormal(3), engine, theta)
        np.testing.assert_array_equal(getattr(state, "theta", getattr(state, "mean", None)), theta)
