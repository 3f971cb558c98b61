"""Likelihoods of deep Gaussian processes against numerical integration and their limits."""

from __future__ import annotations

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr, logsumexp
from scipy.stats import norm
from tests.reference.quick_jit import quick_jit

from likelier.deep_gp.likelihoods import (
    argmax_label_mixture,
    bounded_label_noise,
    gaussian_log_density,
    log_z_gaussian,
    log_z_heteroscedastic,
    log_z_probit,
)
from likelier.deep_gp.posterior import label_probabilities

POWERS = [1.0, 0.5, 0.1]
CASES = [
    (0.3, -0.2, 0.5),
    (-2.0, 1.5, 4.0),
    (1.0, 1.1, 1e-3),
    (4.0, -6.0, 0.04),
    (-3.0, 7.0, 300.0),
]
probit = quick_jit(log_z_probit)
heteroscedastic = quick_jit(log_z_heteroscedastic)
mixture = quick_jit(argmax_label_mixture)  # else every operation is compiled by itself


def log_expectation(log_f, mean, var):
    """``log E[exp(log_f(h))]`` by SciPy, split finely around the peak of the integrand."""
    sd = np.sqrt(var)

    def log_integrand(h):
        return log_f(h) - 0.5 * ((h - mean) / sd) ** 2

    grid = np.linspace(mean - 45 * sd, mean + 45 * sd, 40_001)
    grid = np.sort(np.concatenate([grid, np.linspace(-12.0, 12.0, 4001)]))
    values = log_integrand(grid)
    top = values.max()
    inside = grid[values > top - 45.0]
    ends = np.unique(
        np.concatenate(
            [
                np.linspace(inside[0], inside[-1], 25),
                np.clip([-8, -3, 0, 3, 8], inside[0], inside[-1]),
            ]
        )
    )
    area = sum(
        quad(lambda h: np.exp(log_integrand(h) - top), a, b, epsabs=0, epsrel=1e-12)[0]
        for a, b in pairwise(ends)
    )
    return top + np.log(area) - np.log(sd) - 0.5 * np.log(2.0 * np.pi)


def in_float64(function, *arguments):
    with jax.enable_x64(True):
        return np.asarray(function(*(jnp.asarray(a, jnp.float64) for a in arguments)))


@pytest.mark.parametrize("power", [*POWERS, 1e-6])
def test_gaussian(power):
    y, m, v = np.array(CASES).T
    found = in_float64(log_z_gaussian, y, m, v, 0.3, power)
    for row, (y_i, m_i, v_i) in enumerate(CASES):
        exact = log_expectation(lambda h, y=y_i: power * norm.logpdf(y, h, np.sqrt(0.3)), m_i, v_i)
        assert found[row] == pytest.approx(exact, rel=1e-9, abs=1e-10)


@pytest.mark.parametrize("floor", [0.0, 0.3])
@pytest.mark.parametrize("power", POWERS)
def test_heteroscedastic(power, floor):
    y = np.array([0.3, -2.0, 5.0, 40.0])
    mean = np.array([[0.1, -1.0], [1.0, 0.5], [-1.0, -4.0], [0.0, 0.0]])
    var = np.array([[0.5, 0.3], [2.0, 4.0], [0.01, 1.0], [0.1, 1.0]])
    found = in_float64(heteroscedastic, y, mean, var, power, floor)

    for row in range(4):

        def inner(x, row=row):
            s2, v, r2 = floor + np.exp(x), var[row, 0], (y[row] - mean[row, 0]) ** 2
            return -0.5 * (power * np.log(2 * np.pi * s2) + np.log1p(power * v / s2)) - (
                0.5 * power * r2 / (s2 + power * v)
            )

        exact = log_expectation(inner, mean[row, 1], var[row, 1])
        assert found[row] == pytest.approx(exact, abs=1e-8)


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("noise", [0.0, 1e-6, 0.05])
def test_probit(power, noise):
    y = np.array([1.0, -1.0, 1.0, -1.0, 1.0, 1.0])
    m = np.array([0.4, 1.0, -30.0, 12.0, 3.0, -50.0])
    v = np.array([0.5, 100.0, 1.0, 1e-2, 1e4, 900.0])
    found = in_float64(probit, y, m, v, noise, power)
    if power == 1.0:
        closed = in_float64(lambda *a: log_z_probit(*a, 1), y, m, v, noise)
        np.testing.assert_allclose(found, closed, rtol=0, atol=1e-8)
    with np.errstate(divide="ignore"):
        for row in range(len(y)):

            def log_p(h, row=row):
                return power * np.logaddexp(
                    np.log(noise), np.log1p(-2 * noise) + log_ndtr(y[row] * h)
                )

            assert found[row] == pytest.approx(log_expectation(log_p, m[row], v[row]), abs=1e-8)


def test_probit_towards_power_zero_is_the_expected_logarithm():
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    m, v, noise = 0.7, 0.9, 0.02
    h = m + np.sqrt(v) * nodes
    expected = (
        weights @ np.logaddexp(np.log(noise), np.log1p(-2 * noise) + log_ndtr(h)) / weights.sum()
    )
    shape = np.ones(6)
    small = in_float64(probit, shape, m * shape, v * shape, noise, 1e-6)[0] / 1e-6
    assert small == pytest.approx(expected, abs=1e-5)


def test_derivatives_equal_differences():
    """Gaussian, heteroscedastic, probit and the label mixture, by every argument at once."""
    rng = np.random.default_rng(1)
    pair = (rng.normal(size=(3, 2)), rng.uniform(0.3, 2.0, (3, 2)))
    one = (rng.normal(size=3), rng.uniform(0.3, 2.0, 3))
    y = np.array([1.0, -1.0, 1.0])
    functions = [
        (lambda m, v, s, p: log_z_gaussian(y, m, v, s, p).sum(), (*one, 0.4, 0.6)),
        (lambda m, v, p: log_z_heteroscedastic(y, m, v, p).sum(), (*pair, 0.6)),
        (lambda m, v, e, p: log_z_probit(y, m, v, e, p).sum(), (*one, 0.03, 0.6)),
        (lambda t, e, p: argmax_label_mixture(-t * t, e, p, 5).sum(), (pair[0], 0.03, 0.6)),
    ]
    step = 1e-5
    for function, arguments in functions:
        with jax.enable_x64(True):
            run = quick_jit(jax.value_and_grad(function, tuple(range(len(arguments)))))
            start = [jnp.asarray(a, jnp.float64) for a in arguments]
            slopes = run(*start)[1]
            for place, slope in enumerate(slopes):
                direction = jnp.asarray(rng.normal(size=start[place].shape))
                ends = [
                    run(
                        *start[:place], start[place] + sign * step * direction, *start[place + 1 :]
                    )[0]
                    for sign in (1.0, -1.0)
                ]
                numeric = float(ends[0] - ends[1]) / (2.0 * step)
                assert float((slope * direction).sum()) == pytest.approx(numeric, abs=1e-6)


@pytest.mark.parametrize("power", [1.0, 0.5, 1e-6])
@pytest.mark.parametrize("noise", [1e-3, 0.3])
def test_label_mixture(power, noise):
    log_p = np.array([[-1e-12, -0.5, -30.0, -900.0], [-1e-9, -1.0, -2.0, -800.0]])
    found = in_float64(mixture, log_p, noise, power, 10)
    p = np.exp(log_p.astype(np.longdouble))  # for small powers the digits beyond 1 count
    z = (1 - np.longdouble(noise)) ** power * p + (np.longdouble(noise) / 9) ** power * (1 - p)
    np.testing.assert_allclose(found, np.log(z.mean(0)), rtol=1e-9)
    single = mixture(jnp.asarray(log_p, jnp.float32), noise, power, 10)
    np.testing.assert_allclose(single / power, np.log(z.mean(0)) / power, rtol=2e-5)


def test_without_label_noise_the_mixture_is_the_mean_in_log_space():
    log_p = np.array([[-2000.0, -1e5, -0.1], [-2001.0, -1e5, -0.2]])

    def value(t, noise):
        return argmax_label_mixture(t, noise, 1.0, 10)

    found = in_float64(quick_jit(value), log_p, 0.0)
    np.testing.assert_allclose(found, logsumexp(log_p, axis=0) - np.log(2), rtol=1e-12)
    slope_of = quick_jit(jax.grad(lambda t, e: value(t, e).sum()))
    slope = in_float64(slope_of, log_p, 0.0)
    np.testing.assert_allclose(slope.sum(0), 1.0)


def test_label_chances_sum_to_one_and_noise_stays_below_chance():
    p = np.array([[0.7, 0.2, 0.1], [1.0, 0.0, 0.0]])
    labels = label_probabilities(p, 0.2, 3)
    np.testing.assert_allclose(labels.sum(1), 1.0)
    np.testing.assert_allclose(labels[1], [0.8, 0.1, 0.1])
    np.testing.assert_allclose(
        label_probabilities(np.array([0.0, 0.5, 1.0]), 0.2, 2), [0.2, 0.5, 0.8]
    )
    raw = jnp.asarray([-50.0, 0.0, 50.0])
    noise = np.asarray(bounded_label_noise(raw, 3.0))
    assert noise[0] >= 0 and noise[1] == pytest.approx(1 / 3) and noise[2] <= 2 / 3 + 1e-7


def test_float32_stays_float32_with_numpy_scalars():
    with jax.enable_x64(True):
        y, m, v = (jnp.ones(3, jnp.float32) for _ in range(3))
        power, noise = np.float64(0.5), np.float64(0.1)
        pair = jnp.ones((3, 2), jnp.float32)
        results = [
            log_z_gaussian(y, m, v, noise, power),
            jax.eval_shape(log_z_probit, y, m, v, noise, power),
            jax.eval_shape(log_z_heteroscedastic, y, pair, pair, power),
            argmax_label_mixture(-pair, noise, power, 4),
            gaussian_log_density(y, m, v),
        ]
        assert {result.dtype for result in results} == {np.dtype("float32")}
