"""Evidence of the kernel machine: gradients, weights and learned scales."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from likelier.engines import LocalEngine
from likelier.fitting.monitor import Monitor
from likelier.fitting.run import run
from likelier.kernel_machine.evidence import (
    NOISE_FLOOR,
    EvidenceAscent,
    Plan,
    median_distance,
    negative_log_joint,
    rbf_matrix,
)


def problem(n=40, d=5, m=3, seed=0):
    rng = np.random.default_rng(seed)
    X, targets = rng.normal(size=(n, d)), rng.normal(size=(n, m))
    theta = np.concatenate([[-1.0, -0.7, 0.4], 0.3 * rng.normal(size=d)])
    return X, targets, theta, rng.integers(1, 4, n).astype(float)


def plain(theta, X, targets, n_independent):
    """The same number from SciPy's density of a Gaussian."""
    n = len(targets)
    scaled = X * np.exp(theta[0] + theta[3:])
    distance = ((scaled[:, None] - scaled[None]) ** 2).sum(axis=2)
    cov = np.exp(theta[2]) * np.exp(-0.5 * distance)
    cov += (np.exp(theta[1]) + NOISE_FLOOR) * np.eye(n)
    log_density = multivariate_normal(np.zeros(n), cov).logpdf(targets.T).mean()
    log_density += 0.5 * n * np.log(2.0 * np.pi)
    return -n_independent * log_density + 0.5 * theta[3:] @ theta[3:]


def climb(ascent, state, engine, monitor):
    return run(ascent, state, engine, monitor, stage="scales", max_steps=ascent.plan.n_steps)


def learned(X, targets, plan):
    """Scales learned from standardised rows and columns of targets."""
    ascent, engine = EvidenceAscent(np.asarray, plan), LocalEngine(X, targets)
    return ascent.posterior(climb(ascent, ascent.init(None, engine), engine, Monitor()).state)


def test_value_is_the_density_of_a_gaussian():
    X, targets, theta, _ = problem()
    value, _ = negative_log_joint(theta, X, targets, None, 2.0)
    assert value == pytest.approx(plain(theta, X, targets, 2.0), rel=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_by_central_differences(weighted):
    X, targets, theta, weight = problem()
    omega = weight if weighted else None
    _, gradient = negative_log_joint(theta, X, targets, omega, 2.0)
    step, differences = 1e-5, np.zeros_like(theta)
    for j in range(len(theta)):
        move = step * (np.arange(len(theta)) == j)
        high, _ = negative_log_joint(theta + move, X, targets, omega, 2.0)
        low, _ = negative_log_joint(theta - move, X, targets, omega, 2.0)
        differences[j] = (high - low) / (2.0 * step)
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-6)


def test_single_precision_is_near_double():
    X, targets, theta, weight = problem(n=200)
    value, gradient = negative_log_joint(theta, X, targets, weight, 1.0)
    near, slope = negative_log_joint(theta, X.astype(np.float32), targets, weight, 1.0)
    assert near == pytest.approx(value, rel=1e-4)
    np.testing.assert_allclose(slope, gradient, atol=1e-3 * np.abs(gradient).max())


def test_a_weight_counts_as_equal_rows():
    X, targets, theta, weight = problem()
    copies = np.repeat(np.arange(len(X)), weight.astype(int))
    value, gradient = negative_log_joint(theta, X, targets, weight, 1.0)
    repeated, slope = negative_log_joint(theta, X[copies], targets[copies], None, 1.0)
    assert value == pytest.approx(repeated, rel=1e-9)
    np.testing.assert_allclose(gradient, slope, rtol=1e-7, atol=1e-8)


def test_learned_scales_find_the_inputs_that_matter():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(600, 6)).astype(np.float32)
    targets = np.sign(np.sin(2.0 * X[:, :1]) + X[:, 1:2])
    scales = learned(X, targets, Plan())
    relevant, rest = scales.gamma[:2], scales.gamma[2:]
    assert relevant.min() > 3.0 * rest.max()
    assert scales.values[-1] < scales.values[0]
    assert len(scales.values) == Plan().n_steps


def test_a_monitor_may_end_the_ascent():
    X, targets, _, _ = problem()
    ascent, engine = EvidenceAscent(np.asarray, Plan()), LocalEngine(X, targets)
    monitor = Monitor()
    monitor.stop = lambda posterior: True
    found = climb(ascent, ascent.init(None, engine), engine, monitor)
    assert len(ascent.posterior(found.state).values) == found.n_steps == 1
    # and resumes to the same scales
    resumed = climb(ascent, found.state, engine, Monitor()).state
    expected = learned(X, targets, Plan()).gamma
    np.testing.assert_array_equal(ascent.posterior(resumed).gamma, expected)


def test_constant_targets_and_equal_rows_do_no_harm():
    X = np.ones((20, 3), dtype=np.float32)
    scales = learned(X, np.ones((20, 1)), Plan())
    assert np.isfinite(scales.gamma).all() and scales.values == ()
    assert median_distance(X) == 1.0


def test_single_precision_falls_back_to_double():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(5, 2)), 120, axis=0).astype(np.float32)
    targets = np.repeat(rng.normal(size=(5, 1)), 120, axis=0)
    scales = learned(X, targets, Plan(((40, 600),)))
    assert np.isfinite(scales.gamma).all()


def test_rbf_matrix_of_two_sets():
    rng = np.random.default_rng(1)
    A, B = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    expected = np.exp(-0.5 * ((A[:, None] - B[None]) ** 2).sum(axis=2))
    np.testing.assert_allclose(rbf_matrix(A, B), expected, rtol=1e-12)
