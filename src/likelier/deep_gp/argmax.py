"""Probability that one Gaussian score exceeds all others, by quadrature adapted to each row.

``p = P(h_y > h_k for all k != y) = integral N(h; mu_y, v_y) prod_{k != y} Phi((h - mu_k)/sd_k) dh``

With ``h = mu_y + sd_y t``, ``a_k = (mu_y - mu_k)/sd_k`` and ``b_k = sd_y/sd_k`` the integrand is
``phi(t) prod_k Phi(z_k)``, ``z_k = a_k + b_k t``; `likelier.deep_gp.argmax_grid` places the nodes
on its support. On the same nodes ``d log p/d a_k = E[hazard(z_k)]`` and ``d log p/d b_k =
E[t hazard(z_k)]``, so value and derivatives come from one pass.

All classes at once share one grid: with ``F(h) = sum_k log Phi((h - mu_k)/sd_k)`` the maximum has
the distribution function ``exp(F)``, and ``p_c = integral exp(F) phi_c/Phi_c dh``; the ``p_c`` sum
to one.

Time is linear in ``K``, for one class as for all; memory is ``K`` times the number of rows.
Everything works under `jax.jit`, `jax.vmap` and `jax.grad` (first derivatives) and keeps the dtype.
"""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp

from likelier.deep_gp.argmax_grid import (
    FAST,
    PRECISE,
    WHOLE,
    Grid,
    Rule,
    grid_of_all,
    grid_of_one,
)
from likelier.deep_gp.normal import factor_and_hazard, log_cdf

__all__ = [
    "FAST",
    "PRECISE",
    "WHOLE",
    "Rule",
    "argmax_probabilities",
    "log_z_argmax",
]

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_SMALLEST_VARIANCE = 1e-20  # cubed ratios of standard deviations stay finite in float32


# -- one class ------------------------------------------------------------------------------
def log_z_argmax(
    y: jax.Array, mean: jax.Array, var: jax.Array, rule: Rule | None = None
) -> jax.Array:
    """``log P(h_y > h_k for all k != y)`` for independent ``h_k ~ N(mean_k, var_k)``.

    Parameters
    ----------
    y : integer array that broadcasts to shape (...)
        Class indices ``0..K-1``; any other integer gives NaN.
    mean, var : arrays of shape (..., K)
    rule : Rule, optional
        By default `PRECISE` for float64 and `FAST` for float32; not used for two classes.

    Returns
    -------
    array of shape (...)
        Differentiable once with respect to ``mean`` and ``var``. Cost: ``K (nodes + 20)``
        evaluations of the normal distribution function per entry, derivatives included.
    """
    n_classes = mean.shape[-1]
    if n_classes < 2:
        raise ValueError(f"mean must have at least 2 classes in its last axis, got {n_classes}")
    y = jnp.broadcast_to(jnp.asarray(y), mean.shape[:-1])[..., None]
    sd = jnp.sqrt(jnp.maximum(var, _SMALLEST_VARIANCE))
    mean_y, mean_others = _split_off(y, mean)
    sd_y, sd_others = _split_off(y, sd)
    if n_classes == 2:  # the difference of two Gaussians is one
        sd_difference = jnp.hypot(sd_y, sd_others)
        return log_cdf((mean_y - mean_others) / sd_difference)[..., 0]
    gap = (mean_y - mean_others) / sd_others
    ratio = sd_y / sd_others
    shape = gap.shape[:-1]
    gap, ratio = (x.reshape(-1, n_classes - 1).T for x in (gap, ratio))
    if rule is None:
        rule = PRECISE if gap.dtype == jnp.float64 else FAST
    return _log_win_probability(rule, gap, ratio).reshape(shape)


def _split_off(y: jax.Array, values: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``values`` at ``y`` and the others in order, by masking, which is faster than a gather."""
    n_classes = values.shape[-1]
    number = jnp.arange(n_classes)
    own = jnp.where(number == y, values, 0.0).sum(-1, keepdims=True)
    own = jnp.where((y >= 0) & (y < n_classes), own, jnp.nan)
    return own, jnp.where(number[:-1] < y, values[..., :-1], values[..., 1:])


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _log_win_probability(rule: Rule, a: jax.Array, b: jax.Array) -> jax.Array:
    """``log integral phi(t) prod_k Phi(a_k + b_k t) dt``; ``a`` and ``b`` are ``(K-1, R)``."""
    grid = grid_of_one(rule, a, b)
    total, log_peak = _sweep(a, b, grid, gradients=False)[:2]
    return _log_total(total, log_peak, grid.centre)


@_log_win_probability.defjvp
def _log_win_jvp(
    rule: Rule, primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """``d log p/d a_k = E[hazard(z_k)]`` and ``d log p/d b_k = E[t hazard(z_k)]`` on the nodes."""
    a, b = primals
    grid = grid_of_one(rule, a, b)
    total, log_peak, sum_hazard, sum_offset_hazard = _sweep(a, b, grid, gradients=True)
    by_a = sum_hazard / total
    by_b = sum_offset_hazard / total + grid.centre * by_a
    tangent = (by_a * tangents[0] + by_b * tangents[1]).sum(0)
    return _log_total(total, log_peak, grid.centre), tangent


def _log_total(total: jax.Array, log_peak: jax.Array, centre: jax.Array) -> jax.Array:
    log_p = jnp.log(total) + log_peak - 0.5 * centre * centre - LOG_SQRT_2PI
    return jnp.minimum(log_p, 0.0)  # quadrature error may push a probability above one


# -- all classes ----------------------------------------------------------------------------
def argmax_probabilities(
    mean: jax.Array, var: jax.Array, rule: Rule = WHOLE, normalise: bool = True
) -> jax.Array:
    """``P(h_c is the largest)`` for every class ``c``, all from one grid.

    Parameters
    ----------
    mean, var : arrays of shape (..., K)
    rule : Rule
    normalise : bool
        Divide by the sum, which differs from one by the error of the rule.

    Returns
    -------
    array of shape (..., K)
        The error of the rule is absolute; for the logarithm of a small probability use
        `log_z_argmax`, at the same cost.
    """
    shape, n_classes = mean.shape, mean.shape[-1]
    sd = jnp.sqrt(jnp.maximum(var, _SMALLEST_VARIANCE))
    mean, sd = (x.reshape(-1, n_classes).T for x in (mean, sd))
    b = 1.0 / sd
    grid = grid_of_all(rule, mean, sd)
    _, log_peak, sum_hazard, _ = _sweep(-mean * b, b, grid, gradients=True)
    p = jnp.exp(log_peak) * b * sum_hazard
    if normalise:
        p = p / p.sum(0)
    return p.T.reshape(shape)


# -- the integral ---------------------------------------------------------------------------
def _sweep(
    a: jax.Array, b: jax.Array, grid: Grid, gradients: bool
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """One pass over the nodes, vectorised over classes and rows.

    With ``w = exp(log_weight) prod_k Phi(z_k) / prod_k Phi(z_k at the centre)``, return the sum of
    ``w``, the logarithm of its normaliser, and the sums of ``w hazard(z_k)`` and
    ``w offset hazard(z_k)``, which are zero unless ``gradients`` is true.
    """
    z0 = a + b * grid.centre
    factor0 = factor_and_hazard(z0)[0]
    inverse0, below0 = 1.0 / factor0, jnp.minimum(z0, 0.0)

    def accumulate(
        sums: tuple[jax.Array, jax.Array, jax.Array], node: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array, jax.Array], None]:
        offset, log_weight = node
        z = z0 + b * offset
        factor, rate = factor_and_hazard(z)
        below = jnp.minimum(z, 0.0)
        # the difference of squares as a product avoids cancellation in the tails
        gain = jnp.log(factor * inverse0) - 0.5 * (below - below0) * (below + below0)
        w = jnp.exp(gain.sum(0) + log_weight)
        total, sum_hazard, sum_offset_hazard = sums
        if not gradients:
            return (total + w, sum_hazard, sum_offset_hazard), None
        weighted_hazard = w * rate
        return (
            total + w,
            sum_hazard + weighted_hazard,
            sum_offset_hazard + weighted_hazard * offset,
        ), None

    start = (jnp.zeros_like(grid.centre), jnp.zeros_like(z0), jnp.zeros_like(z0))
    total, sum_hazard, sum_offset_hazard = jax.lax.scan(
        accumulate, start, (grid.offset, grid.log_weight)
    )[0]
    log_peak = (jnp.log(factor0) - 0.5 * below0 * below0).sum(0)
    return total, log_peak, sum_hazard, sum_offset_hazard
