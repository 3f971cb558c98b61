"""The normal distribution function in JAX, in a form suited to quadrature over many classes.

For ``x >= 0`` the scaled tail ``q(x) = exp(x^2/2) (1 - Phi(x))`` is smooth, and a polynomial in
``(x - c)/(x + c)`` approximates ``(1 + x) q(x)`` to any accuracy (Shepherd and Laframboise, 1981).
Everything else follows without overflow, underflow or cancellation:

==============  =======================  =========================
..              ``z < 0``                ``z >= 0``
==============  =======================  =========================
``Phi(z)``      ``exp(-z^2/2) q(-z)``    ``1 - exp(-z^2/2) q(z)``
``factor``      ``q(-z)``                ``Phi(z)``
``hazard``      ``1/(sqrt(2 pi) q(-z))`` ``phi(z)/Phi(z)``
==============  =======================  =========================

so that ``log Phi(z) = log factor - min(z, 0)^2 / 2``. The dtype of the argument is kept. The
relative error of the tail is 5e-15 in float64, and rounding in float32. One value takes about 6 ns
on one core in float64 and 2 ns in float32, a tenth of ``jax.scipy.special.log_ndtr``.

References
----------
Shepherd and Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x in 0 <= x < oo",
Mathematics of Computation 36, 1981.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
FARTHEST = 1e15  # sums of squares of this many standard deviations are finite in float32


class TailSeries(NamedTuple):
    """``(1 + x) q(x)`` as a polynomial in ``s = (x - centre)/(x + centre)``, constant first."""

    centre: float
    coefficients: tuple[float, ...]


# Chebyshev interpolants on -1 <= s <= 1, computed with 50 digits.
DOUBLE = TailSeries(
    4.5,
    (
        0.46641865659290194,
        -0.09445675888814464,
        0.023842964769103754,
        0.01892265665960977,
        -0.030376890964672307,
        0.022616310514744924,
        -0.010591085360739232,
        0.0027112454236231627,
        0.00011925592747315907,
        -0.00035299803080724227,
        7.09508442383308e-05,
        3.3822478763177475e-05,
        -1.4891932601980472e-05,
        -3.5591998581320904e-06,
        2.5422952569252386e-06,
        4.897707636276621e-07,
        -4.1667171950981126e-07,
        -7.648807219278306e-08,
        6.008630113478017e-08,
        7.960095471174392e-09,
        -5.384826545064672e-09,
    ),
)  # relative error 5e-15
SINGLE = TailSeries(
    3.0,
    (
        0.4860557934222487,
        -0.09652673371584654,
        -0.016432321142273568,
        0.04516336581453794,
        -0.02272675503958853,
        0.0011643253288702042,
        0.002993102136812593,
        -0.00036574862380308855,
        -0.0004812877560776958,
        3.593166307622856e-05,
        6.261944899485827e-05,
    ),
)  # relative error 3e-8
ROUGH = TailSeries(
    3.0,
    (
        0.4860557934222487,
        -0.09655985385619939,
        -0.016473014520273044,
        0.045432290071499355,
        -0.022394608488397843,
        0.0006028754577899296,
        0.0022878209583581826,
    ),
)  # relative error 3e-5, for searches


def factor_and_hazard(
    z: jax.Array, series: TailSeries | None = None
) -> tuple[jax.Array, jax.Array]:
    """``factor`` and ``hazard = phi(z)/Phi(z)``, see the top of this module.

    The product of the factors and the sum of ``min(z, 0)^2 / 2`` give a product of many ``Phi``
    with a single logarithm.
    """
    tail, bell = _tail_and_bell(z, series)
    below = z < 0
    factor = jnp.where(below, tail, 1.0 - bell * tail)
    return factor, INV_SQRT_2PI * jnp.where(below, 1.0, bell) / factor


def _tail_and_bell(z: jax.Array, series: TailSeries | None = None) -> tuple[jax.Array, jax.Array]:
    """``q(|z|)`` and ``exp(-z^2/2)``."""
    if series is None:
        series = DOUBLE if z.dtype == jnp.float64 else SINGLE
    x = jnp.minimum(jnp.abs(z), FARTHEST)
    s = (x - series.centre) / (x + series.centre)
    return _polynomial(s, series.coefficients) / (x + 1.0), jnp.exp(-0.5 * x * x)


def _polynomial(s: jax.Array, coefficients: tuple[float, ...]) -> jax.Array:
    """Estrin's scheme; it takes half the time of Horner's, whose steps depend on each other."""
    terms = [jnp.asarray(c, s.dtype) for c in coefficients]
    while len(terms) > 1:
        odd = terms[-1:] if len(terms) % 2 else []
        terms = [low + high * s for low, high in zip(terms[::2], terms[1::2], strict=False)] + odd
        s = s * s
    return terms[0]


@jax.custom_jvp
def log_cdf(z: jax.Array) -> jax.Array:
    """``log Phi(z)``, with a relative error of a few roundings in both tails."""
    tail, bell = _tail_and_bell(z)
    below = z < 0
    return jnp.where(
        below,
        jnp.log(tail) - 0.5 * z * z,
        jnp.log1p(-jnp.where(below, 0.0, bell * tail)),
    )


@log_cdf.defjvp
def _log_cdf_jvp(
    primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    return log_cdf(primals[0]), hazard(primals[0]) * tangents[0]


@jax.custom_jvp
def hazard(z: jax.Array) -> jax.Array:
    """``phi(z)/Phi(z)``, the derivative of ``log Phi``."""
    return factor_and_hazard(z)[1]


@hazard.defjvp
def _hazard_jvp(
    primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    (z,) = primals
    rate = hazard(z)
    return rate, -log_cdf_curvature(z, rate) * tangents[0]


def log_cdf_curvature(z: jax.Array, rate: jax.Array) -> jax.Array:
    """``-(log Phi)''(z) = rate (rate + z)``, between 0 and 1 and decreasing."""
    in_tail = z < -30.0  # where rate + z, about 1/|z|, is lost in rounding
    square = jnp.where(in_tail, z * z, 1.0)
    return jnp.where(in_tail, 1.0 - 1.0 / square + 6.0 / square**2, rate * (rate + z))
