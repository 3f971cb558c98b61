"""Likelihoods of a deep Gaussian process: ``log Z = log E_{N(h | mean, var)}[p(y | h)^power]``.

=====================  ==============================================================
Gaussian               ``N(y; h, noise)``: closed form
heteroscedastic        ``N(y; h_0, exp(h_1))``: closed in ``h_0``, quadrature over ``h_1``
probit                 ``(1 - e) Phi(y h) + e Phi(-y h)``: closed for ``power = 1``
argmax                 ``1 - e`` for the largest score, ``e/(K-1)`` for the others
=====================  ==============================================================

``power`` is the ``alpha`` of power expectation propagation; towards zero ``log Z / power`` becomes
the expectation of ``log p``, and all functions keep their accuracy in this limit. ``e`` is the
probability that a label is wrong. Functions are pure, keep the dtype of ``mean`` and work under
`jax.jit`, `jax.vmap` and `jax.grad`; arguments broadcast, and only shapes are static.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from likelier.deep_gp.normal import factor_and_hazard, log_cdf

LOG_2PI = math.log(2.0 * math.pi)
Scalar = jax.Array | float
_SMALLEST_VARIANCE = 1e-20
_TINY = 1e-37  # nonzero in float32 too


def _like(mean: jax.Array, *values: Scalar) -> list[jax.Array]:
    """Cast scalars to the dtype of ``mean``: a NumPy scalar would promote float32 to float64."""
    return [jnp.asarray(value, mean.dtype) for value in values]


def log_mean_exp(log_z: jax.Array, axis: int = 0) -> jax.Array:
    """``log (1/S) sum_s exp(log_z_s)``, the log mean over samples."""
    return jax.nn.logsumexp(log_z, axis=axis) - math.log(log_z.shape[axis])


# -- regression -----------------------------------------------------------------------------
def gaussian_log_density(y: jax.Array, mean: jax.Array, var: jax.Array) -> jax.Array:
    """``log N(y; mean, var)``."""
    return -0.5 * (LOG_2PI + jnp.log(var) + (y - mean) ** 2 / var)


def log_z_gaussian(
    y: jax.Array, mean: jax.Array, var: jax.Array, noise: Scalar, power: Scalar
) -> jax.Array:
    """``log E[N(y; h, noise)^power]``, where ``noise`` is a variance.

    ``-(power/2) log(2 pi noise) - 1/2 log1p(power var/noise) - (power/2) (y - mean)^2 / (noise +
    power var)``.
    """
    noise, power = _like(mean, noise, power)
    return (
        -0.5 * power * (LOG_2PI + jnp.log(noise))
        - 0.5 * jnp.log1p(power * var / noise)
        - 0.5 * power * (y - mean) ** 2 / (noise + power * var)
    )


_LOG_NOISE_NODES = 128
_REACH = 7.5  # standard deviations; a Gaussian has 6e-14 of its mass beyond


def log_z_heteroscedastic(
    y: jax.Array, mean: jax.Array, var: jax.Array, power: Scalar, floor: Scalar = 0.0
) -> jax.Array:
    """``log E[N(y; h_0, floor + exp(h_1))^power]``; the second output is the log noise variance.

    Parameters
    ----------
    y : array of shape (...)
    mean, var : arrays of shape (..., 2)
    power, floor : number or array of shape ()

    Notes
    -----
    Given ``h_1`` the integral over ``h_0`` is `log_z_gaussian`. The integral over ``h_1`` uses the
    midpoint rule, from 7.5 standard deviations below the mean to 7.5 above the mean or above the
    noise level that matches the residual. Cost: 128 evaluations. The error of ``log Z`` is below
    1e-8 for ``var_1 <= 4``.
    """
    power, floor = _like(mean, power, floor)
    var = jnp.maximum(var, _SMALLEST_VARIANCE)
    centre, sd = mean[..., 1], jnp.sqrt(var[..., 1])
    residual = (y - mean[..., 0]) ** 2
    # upper bound of the modes of the integrand in h_1, from the Gaussian and the residual
    asked = jnp.log(residual + _TINY)
    top = jnp.maximum(centre, jnp.minimum(asked, _likely_log_noise(residual, centre, sd, power)))
    low, high = centre - _REACH * sd, top + _REACH * sd
    u = (jnp.arange(_LOG_NOISE_NODES, dtype=mean.dtype) + 0.5) / _LOG_NOISE_NODES
    low, high = jax.lax.stop_gradient((low, high))
    x = low[..., None] + (high - low)[..., None] * u
    log_weight = gaussian_log_density(x, centre[..., None], var[..., 1:])
    log_weight = log_weight + jnp.log((high - low) / _LOG_NOISE_NODES)[..., None]
    noise = floor + jnp.exp(x)
    value = log_z_gaussian(y[..., None], mean[..., :1], var[..., :1], noise, power)
    return _log_expectation(log_weight, value)


def _likely_log_noise(
    residual: jax.Array, centre: jax.Array, sd: jax.Array, power: Scalar
) -> jax.Array:
    """Upper bound of the mode of ``N(x; centre, sd^2) exp(-power residual exp(-x) / 2)``.

    ``x = centre + sd^2 power residual exp(-x) / 2`` is solved by ``x = centre + w``,
    ``w exp(w) = c``: bounded by ``log1p(c)``.
    """
    return centre + jnp.log1p(0.5 * power * sd * sd * residual * jnp.exp(-centre))


# -- two classes ----------------------------------------------------------------------------
# Ends of panels, in standard deviations of the score around 0 and around the mode, and in the
# argument of Phi; and the Gauss-Legendre rule of each panel.
_PANELS = (-8.0, -4.5, -2.0, 0.0, 2.0, 4.5, 8.0)
_CLIFF = (-1024, -512, -256, -128, -64, -32, -16, -8, -4, -1.5, 1, 3.5, 6.5)
_CORNER = (-1.0, 0.0, 1.0)  # around where Phi(z) equals the label noise
_LEGENDRE = np.polynomial.legendre.leggauss(10)


def log_z_probit(
    y: jax.Array, mean: jax.Array, var: jax.Array, label_noise: Scalar, power: Scalar
) -> jax.Array:
    """``log E[((1 - e) Phi(y h) + e Phi(-y h))^power]`` for ``y`` in {-1, +1}.

    If ``power`` is the Python number 1, this is the closed form ``log(e + (1 - 2e) Phi(y mean /
    sqrt(1 + var)))``; otherwise Gauss-Legendre panels that are narrow where ``Phi`` changes, 290
    evaluations per entry. The error of ``log Z`` is below 1e-8.
    """
    closed = isinstance(power, int | float) and power == 1
    label_noise, power = _like(mean, label_noise, power)
    if closed:
        return _log_flipped(y * mean / jnp.sqrt(1.0 + var), label_noise)
    a, b = y * mean, jnp.sqrt(jnp.maximum(var, _SMALLEST_VARIANCE))
    ends = jax.lax.stop_gradient(_panel_ends(a, b, label_noise, power))
    dtype = mean.dtype
    middle, half = 0.5 * (ends[..., 1:] + ends[..., :-1]), 0.5 * (ends[..., 1:] - ends[..., :-1])
    node, weight = (jnp.asarray(x, dtype) for x in _LEGENDRE)
    t = middle[..., None] + half[..., None] * node
    weight = jnp.maximum(half[..., None] * weight, _TINY)  # of an empty panel negligible
    log_weight = jnp.log(weight) - 0.5 * (t * t + LOG_2PI)
    t, log_weight = (x.reshape(*a.shape, -1) for x in (t, log_weight))
    value = power * _log_flipped(a[..., None] + b[..., None] * t, label_noise)
    return _log_expectation(log_weight, value)


def _log_flipped(z: jax.Array, label_noise: Scalar) -> jax.Array:
    """``log(e + (1 - 2e) Phi(z))``."""
    return jnp.logaddexp(_log(label_noise), jnp.log1p(-2.0 * label_noise) + log_cdf(z))


def _log(e: Scalar) -> jax.Array:
    """Logarithm of a probability; minus infinity at zero, with derivative zero."""
    return jnp.where(jnp.asarray(e) > 0, jnp.log(jnp.maximum(e, _TINY)), -jnp.inf)


def _panel_ends(a: jax.Array, b: jax.Array, label_noise: jax.Array, power: jax.Array) -> jax.Array:
    """Ends of the panels in ``t``, where ``h = mean + sd t``."""
    mode = jnp.maximum(-a * b / (1.0 + b * b), 0.0)
    for _ in range(6):  # Newton's method on -t + power b hazard(a + b t), which is convex
        z = a + b * mode
        rate = factor_and_hazard(z)[1]
        curve = jnp.clip(rate * (rate + z), 0.0, 1.0)
        derivative = power * b * rate - mode
        mode = jnp.maximum(mode + derivative / (1.0 + power * b * b * curve), 0.0)
    panels, cliff, corner = (jnp.asarray(x, a.dtype) for x in (_PANELS, _CLIFF, _CORNER))
    corner = corner - jnp.sqrt(-2.0 * jnp.log(jnp.maximum(label_noise, _TINY)))
    cliff = jnp.concatenate([cliff, corner])
    z_ends = (cliff - a[..., None]) / jnp.maximum(b, _TINY**0.5)[..., None]
    around = jnp.broadcast_to(panels, (*a.shape, panels.shape[0]))
    ends = jnp.concatenate([around, mode[..., None] + panels, z_ends], axis=-1)
    return jnp.sort(jnp.clip(ends, panels[0], mode[..., None] + panels[-1]), axis=-1)


# -- many classes ---------------------------------------------------------------------------
def argmax_label_mixture(
    log_p_samples: jax.Array, label_noise: Scalar, power: Scalar, n_classes: Scalar
) -> jax.Array:
    """``log[(1-e)^power pbar + (e/(K-1))^power (1 - pbar)]``, ``pbar`` the mean over samples.

    Parameters
    ----------
    log_p_samples : array of shape (S, ...)
        From `likelier.deep_gp.argmax.log_z_argmax`.
    label_noise : number or array of shape ()
        ``e``, below ``(K-1)/K``, so that the most likely label is that of the largest score.
    power, n_classes : number or array of shape ()

    Returns
    -------
    array of shape (...)
        ``log (1/S) sum_s Z_s``.
    """
    log_p = log_mean_exp(log_p_samples)
    label_noise, power, n_classes = _like(log_p, label_noise, power, n_classes)
    right = power * jnp.log1p(-label_noise)
    wrong = power * (_log(label_noise) - jnp.log(n_classes - 1.0))
    # Z = B + (A - B) pbar avoids 1 - pbar; for small powers Z - 1 is small
    distant = right + jnp.log(-jnp.expm1(wrong - right)) + log_p
    p = jnp.exp(log_p)
    near_one = jnp.expm1(right) * p - jnp.expm1(wrong) * jnp.expm1(log_p)
    close = near_one > -0.5
    return jnp.where(
        close, jnp.log1p(jnp.where(close, near_one, 0.0)), jnp.logaddexp(wrong, distant)
    )


def bounded_label_noise(raw: jax.Array, n_classes: Scalar) -> jax.Array:
    """``e = (K-1)/K sigmoid(raw)``: always below the error rate of random labels."""
    return (n_classes - 1.0) / n_classes * jax.nn.sigmoid(raw)


def _log_expectation(log_weight: jax.Array, value: jax.Array) -> jax.Array:
    """``log sum_i w_i exp(value_i)`` for weights that sum to one, over the last axis.

    Near zero, as for small powers, it is ``log1p(sum_i w_i expm1(value_i))``, which cancels the
    error of the sum of the weights.
    """
    total = jnp.exp(log_weight) * jnp.expm1(jnp.minimum(value, 1.0))
    near_one = total.sum(-1)
    close = (near_one > -0.5) & (value.max(-1) <= 1.0)
    return jnp.where(
        close,
        jnp.log1p(jnp.where(close, near_one, 0.0)),
        jax.nn.logsumexp(log_weight + value, axis=-1),
    )
