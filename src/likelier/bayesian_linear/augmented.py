"""Data augmentation: latent variables given which the posterior of the weights is Gaussian.

Logistic: ``sigma(f)^a sigma(-f)^b`` is ``exp(kappa f)`` times a mixture over ``omega ~ PG(a+b, 0)``
of ``exp(-omega f^2 / 2)``; given the score, ``omega ~ PG(a+b, f)``. Hinge: ``exp(-2 max(0, u))`` is
a mixture over ``lambda`` of Gaussians in ``u``; given ``u``, ``1 / lambda`` is inverse Gaussian
with mean ``1 / |u|`` and shape 1. Given the latent variables, two sums over rows suffice,
``X^T D X`` and ``X^T r``. A row of weight ``b`` has ``PG(b, f)``; for the hinge its ``u`` is
multiplied by the weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from polyagamma import random_polyagamma
from scipy.special import logsumexp

from likelier.base import Array, Batch, Matrix
from likelier.bayesian_linear.model import BayesianLinear

SMALL_SHAPE = 1e-3  # Polya-Gamma shape below which draws are sums of gamma variables
TERMS, MAX_TERMS = 64, 512
MAX_PRECISION = 1e12  # 1/lambda is unbounded at a row exactly on its margin


@dataclass(frozen=True)
class Augmented:
    """Sums over rows for each of C chains: ``sum d_i x_i x_i^T`` and ``sum r_i x_i``, raw."""

    gram: Array
    linear: Array

    def __add__(self, other: Augmented) -> Augmented:
        return Augmented(self.gram + other.gram, self.linear + other.linear)


def draw_polya_gamma(b: Array | None, f: Array, stream: np.random.Generator) -> Array:
    """Draws of ``PG(b_i, f_i)``; ``b`` is one if None.

    Small integers ``b`` use the exact Devroye sampler. Other ``b`` use the default method of the
    package, which is slower (a saddle point method above 13, where the distribution is nearly
    normal). Very small ``b`` use sums of gamma variables.
    """
    f = np.ascontiguousarray(f)
    if b is None:
        return np.asarray(random_polyagamma(1.0, f, method="devroye", random_state=stream))
    if (b == np.rint(b)).all() and b.max() <= 4.0:
        return np.asarray(random_polyagamma(b, f, method="devroye", random_state=stream))
    small = b < SMALL_SHAPE
    if not small.any():
        return np.asarray(random_polyagamma(b, f, random_state=stream))
    draws = np.asarray(random_polyagamma(np.maximum(b, SMALL_SHAPE), f, random_state=stream))
    draws[small] = _gamma_sum(b[small], f[small], stream)
    return draws


def _gamma_sum(b: Array, f: Array, stream: np.random.Generator) -> Array:
    """``sum_k g_k c_k`` with ``g_k ~ Gamma(b, 1)`` and ``1 / c_k = 2 pi^2 (k - 1/2)^2 + f^2 / 2``.

    The truncated terms are replaced by their mean, the remainder of the total mean
    ``b tanh(f / 2) / (2 f)``. Cost: at least 64 gamma variables per draw.
    """
    size = np.maximum(np.abs(f), 1e-8)
    remainder = 0.5 * np.tanh(0.5 * size) / size
    draws = np.zeros_like(f)
    for k in range(min(MAX_TERMS, TERMS + int(size.max()))):
        term = 1.0 / (2.0 * np.pi**2 * (k + 0.5) ** 2 + 0.5 * size**2)
        draws += stream.standard_gamma(b) * term
        remainder -= term
    return np.asarray(draws + b * np.maximum(remainder, 0.0))


def draw_inverse_gaussian(a: Array, stream: np.random.Generator) -> Array:
    """Draws of the inverse Gaussian distribution with mean ``1 / a`` and shape 1, ``a >= 0``.

    The root is written in terms of ``a`` to avoid cancellation as ``a`` goes to zero, where the
    limit is the reciprocal of a chi-squared variable.
    """
    y = stream.standard_normal(a.shape) ** 2
    small = 1.0 / np.maximum(a + 0.5 * y + 0.5 * np.sqrt(y * (4.0 * a + y)), 1.0 / MAX_PRECISION)
    other = stream.random(a.shape) * (1.0 + a * small) > 1.0
    with np.errstate(divide="ignore", over="ignore"):
        large = 1.0 / (a * a * small)
    return np.asarray(np.minimum(np.where(other, large, small), MAX_PRECISION))


def augment(
    model: BayesianLinear, raw: Array, batch: Batch, stream: np.random.Generator, output: int = 0
) -> Augmented:
    """Draw the latent variables of a block for each chain, and return the resulting sums.

    ``raw`` has one row per chain. For a multinomial model, ``output`` is the class whose weights
    are to be drawn given those of the others (Holmes and Held).
    """
    X, y = model.coordinates.rows(batch.X), np.asarray(batch.y)
    K, p = model.linear.n_outputs, model.linear.n_rows_theta
    columns = np.ascontiguousarray(raw.reshape(-1, p).T)
    scores = model.linear.scores(columns, X).reshape(batch.n_rows, len(raw), K)
    if model.hinge:
        sign = model.signs(batch)[:, None]
        return _sums(model, X, *_hinge_rows(sign, scores[:, :, 0], batch.weight, stream))
    offset = np.zeros(scores.shape[:2])
    if model.joint:
        offset = np.asarray(logsumexp(np.delete(scores, output, axis=2), axis=2))
    weight = np.ones(batch.n_rows) if batch.weight is None else batch.weight
    positive = y == (output if model.joint else model.positive_class)
    kappa = (weight * (positive - 0.5))[:, None]
    f = scores[:, :, output] - offset
    shapes = None if batch.weight is None else np.repeat(weight, f.shape[1])
    omega = draw_polya_gamma(shapes, f.ravel(), stream).reshape(f.shape)
    return _sums(model, X, omega, kappa + omega * offset)


@dataclass(frozen=True)
class Augment:
    """The map of a pass to these sums; ``streams`` gives the random numbers of each block."""

    model: BayesianLinear
    streams: Callable[[int], np.random.Generator]
    output: int = 0

    def __call__(self, batch: Batch, raw: Array) -> Augmented:
        """Sums of a block."""
        return augment(self.model, raw, batch, self.streams(batch.index), self.output)


def _hinge_rows(
    sign: Array, f: Array, weight: Array | None, stream: np.random.Generator
) -> tuple[Array, Array]:
    """``d_i`` and ``r_i`` of the hinge: ``omega^2 / lambda`` and ``(omega + d_i) y``."""
    omega = np.ones((len(f), 1)) if weight is None else weight[:, None]
    precision = omega**2 * draw_inverse_gaussian(np.abs(omega * (1.0 - sign * f)), stream)
    return precision, (omega + precision) * sign


def _sums(model: BayesianLinear, X: Matrix, precision: Array, linear_term: Array) -> Augmented:
    gram = np.stack([model.linear.gram(X, np.ascontiguousarray(d)) for d in precision.T])
    return Augmented(
        gram, model.linear.pull_back(X, np.broadcast_to(linear_term, precision.shape)).T
    )
