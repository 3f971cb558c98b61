"""The argmax likelihood against mpmath, to 1e-8 in the logarithm, however extreme the scores."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from tests.reference.argmax_mpmath import Contest, log_win
from tests.reference.quick_jit import quick_jit

from likelier.deep_gp.argmax import FAST, PRECISE, argmax_probabilities, log_z_argmax


def contests(n_classes: int, count: int, n_groups: int) -> list[Contest]:
    """Random ones: variance ratios 1e-4 to 1e4 and gaps to 40 standard deviations."""
    rng = np.random.default_rng(n_classes)
    found = []
    for index in range(count):
        sizes = np.full(n_groups, (n_classes - 1) // n_groups)
        sizes[0] += n_classes - 1 - sizes.sum()
        sds = 10.0 ** rng.uniform(-1, 1, n_groups + 1)
        if index % 3 == 0:  # the ends of the range
            sds = 10.0 ** rng.choice([-1.0, 1.0], n_groups + 1)
        gap = [40.0, -40.0, 5.0, 1.0][index % 4] * rng.uniform(0.3, 1.0)
        means = rng.normal(size=n_groups) * 10.0 ** rng.uniform(-1, 1)
        spread = np.hypot(sds[0], sds[1:]).max() if index % 2 else sds[0]
        own = means.max() - gap * spread
        others = zip(means.tolist(), sds[1:].tolist(), sizes.tolist(), strict=True)
        found.append(Contest(float(own), float(sds[0]), tuple(others)))
    return found


def corners(n_classes: int) -> list[Contest]:
    """The ends of the ranges themselves: ratios 1e-4 and 1e4, gaps of -40 and 40 sigma.

    The sigma is that of the own score, and once that of its rivals, whichever is larger.
    With more than two classes some rivals are as the own one, in place and spread.
    """
    found = []
    alike = (n_classes - 1) // 3
    for own, rival, gap in ((0.1, 10.0, 4.0), (0.1, 10.0, 400.0), (10.0, 0.1, 400.0)):
        for mean in (-gap, gap):
            others = ((0.0, rival, n_classes - 1 - alike), (mean, own, alike))
            found.append(Contest(mean, own, tuple(group for group in others if group[2])))
    return found


def stairs(n_classes: int) -> list[Contest]:
    """A wide score above rivals a hundred times as narrow, at many places: a cliff at each."""
    found, n_steps = [], min(n_classes - 1, 11)
    sizes = np.diff(np.linspace(0, n_classes - 1, n_steps + 1).round().astype(int))
    for own, height in ((10.0, 40.0), (15.0, 8.0)):
        places = -height * np.arange(n_steps) / n_steps
        others = zip(places.tolist(), [0.1] * n_steps, sizes.tolist(), strict=True)
        found.append(Contest(own, 10.0, tuple(others)))
    return found


def stacked(cases: list[Contest]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, means and variances, the own class at another place in every case."""
    places = [7 * index % case.n_classes for index, case in enumerate(cases)]
    arrays = [case.arrays(place) for case, place in zip(cases, places, strict=True)]
    return np.array(places), *map(np.stack, zip(*arrays, strict=True))


precise = quick_jit(log_z_argmax)


@pytest.mark.parametrize(("n_classes", "n_groups"), [(2, 1), (10, 4), (100, 3), (1000, 3)])
def test_log_p_is_right_to_1e_8(n_classes, n_groups):
    cases = corners(n_classes) + stairs(n_classes) + contests(n_classes, 8, n_groups)
    exact = np.array([log_win(case) for case in cases])
    assert exact.min() < -100.0  # the extreme ones are there
    with jax.enable_x64(True):
        y, mean, var = map(jnp.asarray, stacked(cases))
        found = np.asarray(precise(y, mean, var))
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-8)


@pytest.mark.parametrize("n_classes", [3, 10, 100])
def test_the_fast_rule_and_float32_are_as_good_as_they_say(n_classes):
    """Against the precise rule, which is right to 1e-8 as the test before this one shows."""
    cases = contests(n_classes, 40, min(n_classes - 1, 9)) + stairs(n_classes)
    rivals = tuple((-0.42, 0.1, 1) for _ in range(n_classes - 1))
    cases.append(Contest(36.678, 10.0, rivals))  # all but sure, with a cliff far out

    @partial(quick_jit, static_argnums=3)
    def value_and_slopes(y, mean, var, rule):
        def of_mean(mean):
            log_p = log_z_argmax(y, mean, var, rule)
            return log_p.sum(), log_p

        (_, log_p), slopes = jax.value_and_grad(of_mean, has_aux=True)(mean)
        return log_p, slopes * jnp.sqrt(var)

    with jax.enable_x64(True):
        y, mean, var = map(jnp.asarray, stacked(cases))
        exact, exact_slopes = value_and_slopes(y, mean, var, PRECISE)
        fast, fast_slopes = value_and_slopes(y, mean, var, FAST)
        single = precise(y, mean.astype(np.float32), var.astype(np.float32))
        assert single.dtype == np.float32
        np.testing.assert_allclose(fast, exact, rtol=0, atol=2e-5)
        np.testing.assert_allclose(fast_slopes, exact_slopes, rtol=0, atol=4e-4)
        np.testing.assert_allclose(single, exact, rtol=3e-6, atol=3e-5)


def test_rows_beside_a_row_change_no_bit_of_it():
    """Searches of a row end by themselves, not when those of a whole block do."""
    y, mean, var = stacked(corners(10) + stairs(10) + contests(10, 8, 4))
    with jax.enable_x64(True):
        together = np.asarray(precise(y, mean, var))
        for row in range(0, len(y), 3):
            copies = [np.repeat(part[row : row + 1], len(y), axis=0) for part in (y, mean, var)]
            assert (np.asarray(precise(*copies)) == together[row]).all()


def test_two_classes_equal_the_closed_form():
    rng = np.random.default_rng(0)
    var = 10.0 ** rng.uniform(-2, 2, (60, 2))
    gap = np.linspace(-40, 35, 60) * np.sqrt(var.sum(1))
    mean = np.stack([gap, np.zeros(60)], axis=1)
    with mp.workdps(40):
        exact = []
        for (m0, m1), (v0, v1) in zip(mean.tolist(), var.tolist(), strict=True):
            z = (mp.mpf(m0) - mp.mpf(m1)) / mp.sqrt(mp.mpf(v0) + mp.mpf(v1))
            exact.append(mp.log1p(-mp.ncdf(-z)) if z > 0 else mp.log(mp.ncdf(z)))
        exact = np.array([float(value) for value in exact])
    with jax.enable_x64(True):
        found = np.asarray(precise(jnp.zeros(60, int), jnp.asarray(mean), jnp.asarray(var)))
    assert np.abs(exact).min() < 1e-200 and np.abs(exact).max() > 800
    np.testing.assert_allclose(found, exact, rtol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 10, 100, 1000])
def test_the_chances_of_all_classes_sum_to_one(n_classes):
    rng = np.random.default_rng(1)
    rows = 8
    places, *extreme = stacked(corners(n_classes))
    var = 10.0 ** rng.uniform(-2, 2, (rows, n_classes))
    var[::3] = 10.0 ** rng.choice([-2, 2], var[::3].shape)
    mean = rng.normal(size=var.shape) * 10.0 ** rng.uniform(-2, 1.5, (rows, 1))
    mean, var = map(np.concatenate, zip((mean, var), extreme, strict=True))
    y = np.concatenate([np.arange(rows) % n_classes, places])
    with jax.enable_x64(True):
        mean, var = jnp.asarray(mean), jnp.asarray(var)
        p = np.asarray(quick_jit(lambda *v: argmax_probabilities(*v, normalise=False))(mean, var))
        one = np.exp(np.asarray(precise(jnp.asarray(y), mean, var)))
    np.testing.assert_allclose(p.sum(1), 1.0, rtol=0, atol=1e-8)
    np.testing.assert_allclose(p[np.arange(len(y)), y], one, rtol=0, atol=1e-8)
