"""Data term of the energy: ``1/alpha log (1/S) sum_s Z_s`` per row from moments of the outputs.

The likelihoods themselves are in `likelier.deep_gp.likelihoods`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from likelier.deep_gp.argmax import FAST, argmax_probabilities, log_z_argmax
from likelier.deep_gp.likelihoods import (
    argmax_label_mixture,
    bounded_label_noise,
    log_z_gaussian,
    log_z_heteroscedastic,
    log_z_probit,
)

LIKELIHOODS = ("gaussian", "heteroscedastic", "probit", "probit_ep", "argmax")


def log_mean_z(
    likelihood: str,
    y: jax.Array,
    moments: tuple[jax.Array, jax.Array],
    parameter: jax.Array,
    fixed: Any,
) -> jax.Array:
    """``1/alpha log (1/S) sum_s Z_s`` of every row.

    Parameters
    ----------
    likelihood : str
        One of `LIKELIHOODS`; "probit_ep" is the probit with power one, a closed form.
    y : array of shape (B,)
        Continuous targets, signs (probit) or class indices (argmax).
    moments : pair of arrays of shape (S, B, P)
        Mean and variance of the outputs.
    parameter : array of shape ()
        Logarithm of the noise variance, or unconstrained parameter of the label noise.
    fixed : Fixed
        See `likelier.deep_gp.model`.

    Notes
    -----
    The argmax likelihood uses the rule `FAST`, in both precisions. Its error of ``log p``, at most
    2e-5 plus rounding, is far below the noise of ten samples and one minibatch, and `PRECISE` takes
    50 % more time. Prediction, in `class_probabilities_and_sum`, uses `WHOLE`, whose error is 1e-9.
    """
    mean, variance = moments
    power = fixed.power
    if likelihood == "argmax":
        label_noise = bounded_label_noise(parameter, fixed.n_classes)
        log_p = log_z_argmax(jnp.broadcast_to(y, mean.shape[:2]), mean, variance, FAST)
        log_z = argmax_label_mixture(log_p, label_noise, power, fixed.n_classes)
        return jnp.asarray(log_z / power)
    if likelihood == "heteroscedastic":
        y = jnp.broadcast_to(y, mean.shape[:2])
        log_z = log_z_heteroscedastic(y, mean, variance, power, fixed.noise_floor)
    elif likelihood == "gaussian":
        noise = fixed.noise_floor + jnp.exp(parameter)
        log_z = log_z_gaussian(y, mean[..., 0], variance[..., 0], noise, power)
    else:
        label_noise = bounded_label_noise(parameter, fixed.n_classes)
        exact = 1.0 if likelihood == "probit_ep" else power
        log_z = log_z_probit(y, mean[..., 0], variance[..., 0], label_noise, exact)
    return power_mean(log_z / power, power)


def power_mean(t: jax.Array, power: jax.Array) -> jax.Array:
    """``1/alpha log (1/S) sum_s exp(alpha t_s)`` over the first axis.

    Accurate for powers near zero, where it is the mean of ``t``, and for terms far apart: the
    arguments of ``expm1`` are not positive, so its values lie in [-1, 0].
    """
    top = jax.lax.stop_gradient(t.max(0))
    return top + jnp.log1p(jnp.expm1(power * (t - top)).mean(0)) / power


def class_probabilities_and_sum(
    mean: jax.Array, variance: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Probability that each class has the largest score, ``(R, K)``, to 1e-9; and the sum."""
    p = argmax_probabilities(mean, variance)
    return p, p.sum()


def log_class_probability_and_sum(
    codes: jax.Array, mean: jax.Array, variance: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Log probability that class ``codes`` has the largest score, ``(R,)``; and the sum."""
    log_p = log_z_argmax(codes, mean, variance)
    return log_p, log_p.sum()
