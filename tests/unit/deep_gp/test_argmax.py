"""The argmax likelihood: derivatives, transformations of JAX, float32, labels, memory."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from tests.reference.quick_jit import quick_jit

from likelier.deep_gp.argmax import argmax_probabilities, log_z_argmax
from likelier.deep_gp.argmax_grid import PRECISE, WHOLE

ROWS, K = 6, 5


def case(rows=ROWS, n_classes=K, seed=0):
    rng = np.random.default_rng(seed)
    var = 10.0 ** rng.uniform(-1.5, 1.5, (rows, n_classes))
    mean = 2.0 * rng.normal(size=(rows, n_classes)) * np.sqrt(var)
    return rng.integers(0, n_classes, rows), mean, var


chances = quick_jit(argmax_probabilities)  # few shapes: every new one is compiled


@quick_jit
def value_and_slopes(y, mean, var):
    value, pull = jax.vjp(lambda m, v: log_z_argmax(y, m, v), mean, var)
    return value, *pull(jnp.ones_like(value))


@pytest.mark.parametrize("n_classes", [K, 100])
def test_derivatives_equal_differences(n_classes):
    """The label of the first row is 40 of the largest sigma behind, that of the second ahead."""
    y, mean, var = case(n_classes=n_classes)
    for row, gap in enumerate((-40.0, 40.0)):
        best = np.delete(mean[row], y[row]).max()
        mean[row, y[row]] = best + gap * np.sqrt(var[row].max())
    step = 2e-3
    # all displaced points at once: place on the five-point formula, direction, row; then none
    eye = np.concatenate([np.eye(n_classes), np.zeros((n_classes, n_classes))])
    moves = step * np.array([-2.0, -1.0, 1.0, 2.0])[:, None, None]
    means = (mean + np.sqrt(var) * (moves * eye)[..., None, :]).reshape(-1, n_classes)
    vars_ = (var + var * (moves * eye[::-1])[..., None, :]).reshape(-1, n_classes)
    labels = np.resize(y, len(means) + ROWS)
    with jax.enable_x64(True):
        points = (jnp.asarray(np.concatenate(x)) for x in ((means, mean), (vars_, var)))
        found = map(np.asarray, value_and_slopes(labels, *points))
    value, by_mean, by_var = found
    assert value[-ROWS] < -100.0 and value[1 - ROWS] > -1e-9
    places = value[:-ROWS].reshape(4, 2 * n_classes, ROWS)
    numeric = np.tensordot([1.0, -8.0, 8.0, -1.0], places, axes=1) / (12.0 * step)
    by_mean, by_var = by_mean[-ROWS:], by_var[-ROWS:]
    by_means, by_vars = numeric[:n_classes].T, numeric[n_classes:][::-1].T
    np.testing.assert_allclose(by_mean * np.sqrt(var), by_means, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(by_var * var, by_vars, rtol=1e-6, atol=1e-6)
    # a shift of all means, or another unit, changes nothing
    np.testing.assert_allclose(by_mean.sum(1), 0.0, atol=1e-8)
    np.testing.assert_allclose((mean * by_mean + 2.0 * var * by_var).sum(1), 0.0, atol=1e-7)


def test_under_vmap_and_forward_mode_it_is_the_same():
    y, mean, var = case()

    def both(y, mean, var):
        return jax.jvp(lambda m: jax.vmap(log_z_argmax)(y, m, var), (mean,), (0 * mean + 1.0,))

    with jax.enable_x64(True):
        mean, var = jnp.asarray(mean), jnp.asarray(var)
        p = np.asarray(chances(mean, var))
        mapped, tangent = map(np.asarray, quick_jit(both)(y, mean, var))
    np.testing.assert_allclose(np.exp(mapped), p[np.arange(ROWS), y], atol=1e-8)
    np.testing.assert_allclose(tangent, 0.0, atol=1e-8)  # all means moved together


def test_all_chances_at_once_are_those_of_each_class():
    _, mean, var = case()
    with jax.enable_x64(True):
        mean, var = jnp.asarray(mean), jnp.asarray(var)
        logs = [value_and_slopes(np.full(ROWS, c), mean, var)[0] for c in range(K)]
        p = np.asarray(chances(mean, var))
    np.testing.assert_allclose(np.exp(logs).T, p, atol=1e-8)
    np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-14)


def test_they_are_the_shares_of_simulated_maxima():
    """Chance of a false alarm: five standard errors, below 1e-4 for all entries together."""
    _, mean, var = case()
    rng = np.random.default_rng(3)
    n = 20_000
    drawn = mean + np.sqrt(var) * rng.standard_normal((n, ROWS, K))
    share = (drawn.argmax(-1)[..., None] == np.arange(K)).mean(0)
    p = np.asarray(chances(jnp.asarray(mean), jnp.asarray(var)))
    assert np.abs(share - p).max() <= 5.0 * np.sqrt(0.25 / n)
    assert p.dtype == np.float32  # 64-bit mode is off


def test_float32_survives_everything():
    rng = np.random.default_rng(4)
    var = 10.0 ** rng.uniform(-8, 8, (ROWS, K))
    mean = rng.normal(size=var.shape) * 10.0 ** rng.uniform(-3, 6, (ROWS, 1))
    var[0], mean[0] = 1.0, 0.0
    var[1, 2] = 0.0
    y = np.arange(ROWS) % K
    mean, var = jnp.asarray(mean, jnp.float32), jnp.asarray(var, jnp.float32)
    value, *slopes = map(np.asarray, value_and_slopes(y, mean, var))
    assert np.isfinite(value).all() and value.max() <= 0.0
    assert value[0] == pytest.approx(-np.log(K), abs=1e-6)
    assert all(np.isfinite(slope).all() for slope in slopes)
    assert np.isfinite(chances(mean, var)).all()


def test_a_class_that_is_far_below_is_as_good_as_absent():
    """Three real classes and two padded ones, against the three alone."""
    _, mean, var = case()
    mean[:, 3:] = -1e6
    y = np.arange(ROWS) % 3
    mean, var = jnp.asarray(mean, jnp.float32), jnp.asarray(var, jnp.float32)
    many = np.exp(np.asarray(value_and_slopes(y, mean, var)[0]))
    few = np.asarray(chances(mean[:, :3], var[:, :3]))
    np.testing.assert_allclose(many, few[np.arange(ROWS), y], atol=1e-5)


def test_labels_that_do_not_exist_are_not_answered():
    _, mean, var = case()
    y = np.array([-1, K, K + 3, 0, 1, 2])
    mean, var = jnp.asarray(mean, jnp.float32), jnp.asarray(var, jnp.float32)
    found = np.asarray(value_and_slopes(y, mean, var)[0])
    assert np.isnan(found[:3]).all() and np.isfinite(found[3:]).all()
    with pytest.raises(ValueError, match="at least 2 classes"):
        log_z_argmax(np.zeros(3, int), jnp.zeros((3, 1)), jnp.ones((3, 1)))


def sizes(jaxpr):
    """Sizes of all arrays that a program makes, loops included."""
    for equation in jaxpr.eqns:
        yield from (np.prod(out.aval.shape) for out in equation.outvars)
        for inner in jaxprs_in_params(equation.params):
            yield from sizes(inner)


@pytest.mark.parametrize("function", ["one", "all", "slopes"])
def test_no_array_is_larger_than_classes_times_rows(function):
    rows, n_classes = 3, 700
    y, mean, var = case(rows, n_classes)
    run = {
        "one": lambda m, v: log_z_argmax(y, m, v, PRECISE),
        "all": lambda m, v: argmax_probabilities(m, v, WHOLE),
        "slopes": jax.grad(lambda m, v: log_z_argmax(y, m, v, PRECISE).sum(), (0, 1)),
    }[function]
    program = jax.make_jaxpr(run)(mean.astype("f"), var.astype("f"))
    largest = max(sizes(program.jaxpr))
    assert rows * (n_classes - 1) <= largest <= rows * n_classes
