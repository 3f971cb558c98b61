"""What the data say: from moments of the outputs to ``1/alpha log (1/S) sum_s Z_s`` per row.

The likelihoods themselves are in `likelier.deep_gp.likelihoods`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from likelier.deep_gp.argmax import FAST, argmax_probabilities, log_z_argmax
from likelier.deep_gp.likelihoods import (
    argmax_label_mixture,
    label_noise_below_chance,
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
        Numbers, signs (probit) or class numbers (argmax).
    moments : pair of arrays of shape (S, B, P)
        Mean and variance of the outputs.
    parameter : array of shape ()
        Logarithm of the noise variance, or what makes the chance of a wrong label.
    fixed : Fixed
        See `likelier.deep_gp.model`.

    Notes
    -----
    The argmax likelihood is taken by the rule `FAST`, in both precisions. Its error of ``log p``,
    at most 2e-5 beside that of rounding, is far below what ten samples and one minibatch leave
    open, and `PRECISE` takes half as long again. Prediction, in `largest_score`, uses `WHOLE`,
    which is right to 1e-9.
    """
    mean, variance = moments
    power = fixed.power
    if likelihood == "argmax":
        label_noise = label_noise_below_chance(parameter, fixed.n_classes)
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
        label_noise = label_noise_below_chance(parameter, fixed.n_classes)
        exact = 1.0 if likelihood == "probit_ep" else power
        log_z = log_z_probit(y, mean[..., 0], variance[..., 0], label_noise, exact)
    return power_mean(log_z / power, power)


def power_mean(t: jax.Array, power: jax.Array) -> jax.Array:
    """``1/alpha log (1/S) sum_s exp(alpha t_s)`` over the first axis.

    Exact for powers near zero, where it is the mean of ``t``, as well as for terms far apart:
    ``expm1`` of numbers that are not positive lies in [-1, 0].
    """
    top = jax.lax.stop_gradient(t.max(0))
    return top + jnp.log1p(jnp.expm1(power * (t - top)).mean(0)) / power


def largest_score(mean: jax.Array, variance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Chance of every class to have the largest score, ``(R, K)``, to 1e-9; and their sum."""
    p = argmax_probabilities(mean, variance)
    return p, p.sum()


def log_score_is_largest(
    codes: jax.Array, mean: jax.Array, variance: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Logarithm of the chance that class ``codes`` has the largest score, ``(R,)``; and a sum."""
    log_p = log_z_argmax(codes, mean, variance)
    return log_p, log_p.sum()
