"""Energy of a kernel machine with random weights, intercepts and kernel scales.

Scores are ``g = W^T phi(x) + b`` on ``phi(x) = D^{-1/2} [cos(omega_i^T x), sin(omega_i^T x)]`` with
``omega_i = gamma * e_i``, one learned scale ``gamma_j`` per input; without frequencies
``phi(x) = x``. A particle is the vector ``(W, b, u)``, ``u = log gamma``, with the energy

    (T/|B|) sum_B weight_n loss_n / dispersion
    + (lambda/2) |W|^2 + (lambda_b/2) |b|^2 + sum_j gamma_j^2 / (2 s^2) - sum_j u_j

up to a constant: Gaussian priors (half-normal for gamma) and the Jacobian of ``gamma = exp(u)``.
All functions take a matrix with one particle per row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from scipy.spatial.distance import pdist

from likelier.base import Array, Batch, Loss, Matrix, Model
from likelier.fitting.standardize import Standard
from likelier.loops.sincos import fourier_features
from likelier.predictive import Categorical, Gaussian, Predictive

CHUNK_BYTES = 1 << 20  # features of a chunk of particles or rows, to stay in the cache
START_WEIGHT = 0.1  # standard deviation of the initial weights
# std of initial log scales: shared by a particle, and per scale
START_SHIFT, START_SCALE_STD = (0.3, 0.1)
TYPICAL = 1.5  # kernel value exp(-TYPICAL^2 / 2) at the median distance
MEDIAN_ROWS = 500


@dataclass(frozen=True)
class Parameters:
    """Unpacked particles: weights (P, features, K), intercepts (P, K), scales (P, d)."""

    weights: Array
    intercept: Array
    gamma: Array


@dataclass(frozen=True)
class LossTerms:
    """Mean weighted loss of a batch for each particle, and its gradients."""

    value: Array
    weights: Array
    intercept: Array
    gamma: Array


@dataclass(frozen=True)
class FourierMachine(Model):
    """Energy of weights, intercepts and kernel scales on random Fourier features.

    Parameters
    ----------
    loss : Loss
        Multiclass (one score per class) or regression (one score).
    n_features, n_outputs : int
        Number of inputs, and of scores: classes, or 1 for regression.
    frequencies : array of shape (D, n_features), optional
        ``e_i``, standard normal (or orthogonal with such norms). None is the linear case.
    gamma0 : float
        Initial kernel scale, for instance `start_scale`.
    alpha : float
        ``lambda``, the prior precision of the weights. With T = N it is N times the strength
        of a penalty on the mean loss.
    intercept_precision : float
        ``lambda_b``: weak, but nonzero since a common shift of all classes changes nothing.
    gamma_scale : float, optional
        ``s``, the prior scale of gamma; by default ``gamma0``, which maximises the prior density
        of log gamma there. A fixed scale would make the kernel vanish in high dimensions.
    dispersion : float
        Divisor of the loss: the noise variance of squared error.
    count : float, optional
        ``T``, the effective number of observations; None is one per row.

    Notes
    -----
    A gradient of P particles on n rows costs ``2 P n D (d + 3 K)`` products (``d`` the nonzeros
    per row of sparse data) and ``P n D`` sines and cosines. Rows are read in their own precision;
    parameters and sums over classes are float64.
    """

    has_energy: ClassVar[bool] = True

    loss: Loss
    n_features: int
    n_outputs: int
    frequencies: Array | None = None
    gamma0: float = 1.0
    alpha: float = 1.0
    intercept_precision: float = 1e-2
    gamma_scale: float | None = None
    dispersion: float = 1.0
    count: float | None = None

    def __post_init__(self) -> None:
        if self.loss.task not in ("multiclass", "regression"):
            raise ValueError(
                f"loss={self.loss.name!r} is not supported; use 'softmax' or 'multiclass_hinge' "
                "(also for two classes), or a regression loss"
            )
        if not self.loss.coupled and self.n_outputs != 1:
            raise ValueError(f"loss={self.loss.name!r} needs n_outputs=1, got {self.n_outputs}")
        E = self.frequencies
        if E is not None and (E.ndim != 2 or E.shape[1] != self.n_features):
            raise ValueError(f"frequencies must have shape (D, {self.n_features}), got {E.shape}")
        names = ("alpha", "intercept_precision", "gamma0", "dispersion")
        given = [(name, getattr(self, name)) for name in names]
        given += [("gamma_scale", self.prior_scale)]
        for name, value in given:
            if not (np.isfinite(value) and value > 0.0):
                raise ValueError(f"{name} must be finite and > 0, got {value}")
        T = self.count
        if T is not None and not (np.isfinite(T) and T >= 0.0):
            raise ValueError(f"count must be finite and >= 0, got {T}")

    @property
    def prior_scale(self) -> float:
        """``s``, the prior scale of gamma."""
        return self.gamma0 if self.gamma_scale is None else self.gamma_scale

    @property
    def n_components(self) -> int:
        """Number of features of ``phi``."""
        return self.n_features if self.frequencies is None else 2 * len(self.frequencies)

    @property
    def n_scales(self) -> int:
        """Number of kernel scales: none in the linear case."""
        return 0 if self.frequencies is None else self.n_features

    @property
    def n_parameters(self) -> int:
        """Dimension of a particle."""
        return (self.n_components + 1) * self.n_outputs + self.n_scales

    # -- particles -------------------------------------------------------------------------
    def split(self, theta: Array) -> Parameters:
        """Unpack particles, with gamma from its logarithm."""
        P, F, K = len(theta), self.n_components, self.n_outputs
        weights = theta[:, : F * K].reshape(P, F, K)
        intercept = theta[:, F * K : (F + 1) * K]
        return Parameters(weights, intercept, np.exp(theta[:, (F + 1) * K :]))

    def join(self, weights: Array, intercept: Array, log_gamma: Array) -> Array:
        """Inverse of `split`, from log gamma."""
        return np.concatenate([weights.reshape(len(weights), -1), intercept, log_gamma], axis=1)

    def start(self, n_particles: int, stream: np.random.Generator) -> Array:
        """Random initial particles: small weights, scales around ``gamma0``."""
        shape = (n_particles, self.n_components, self.n_outputs)
        weights = START_WEIGHT * stream.standard_normal(shape)
        shift = START_SHIFT * stream.standard_normal((n_particles, 1))
        spread = START_SCALE_STD * stream.standard_normal((n_particles, self.n_scales))
        log_gamma = np.log(self.gamma0) + shift + spread
        return self.join(weights, np.zeros((n_particles, self.n_outputs)), log_gamma)

    # -- energy ----------------------------------------------------------------------------
    def energy(self, theta: Array, batch: Batch, count: float) -> Array:
        """Negative log joint of every particle, up to a constant."""
        return self.energy_gradient(theta, batch, count)[0]

    def energy_gradient(self, theta: Array, batch: Batch, count: float) -> tuple[Array, Array]:
        """Energy of every particle and its gradient, of the shape of ``theta``.

        ``count`` is T. On a random batch both are unbiased estimates.
        """
        terms, parts = self.loss_terms(theta, batch), self.split(theta)
        factor = count / self.dispersion
        W, b, gamma = parts.weights, parts.intercept, parts.gamma
        ratio = (gamma / self.prior_scale) ** 2
        energy = factor * terms.value
        energy += 0.5 * self.alpha * np.einsum("pfk,pfk->p", W, W)
        energy += 0.5 * self.intercept_precision * np.einsum("pk,pk->p", b, b)
        energy += (0.5 * ratio - theta[:, theta.shape[1] - self.n_scales :]).sum(axis=1)
        gradient = self.join(
            factor * terms.weights + self.alpha * W,
            factor * terms.intercept + self.intercept_precision * b,
            factor * gamma * terms.gamma + ratio - 1.0,
        )
        return energy, gradient

    def loss_terms(self, theta: Array, batch: Batch) -> LossTerms:
        """Mean weighted loss and its gradients with respect to W, b and gamma."""
        batch = batch.compact()
        item = max(1, batch.n_rows * self.n_components * batch.X.dtype.itemsize)
        size = max(1, CHUNK_BYTES // item)
        chunks = [theta[i : i + size] for i in range(0, len(theta), size)]
        found = [self._loss_terms(self.split(chunk), batch) for chunk in chunks]
        return LossTerms(*(np.concatenate(parts) for parts in zip(*found, strict=True)))

    def _loss_terms(self, parts: Parameters, batch: Batch) -> tuple[Array, Array, Array, Array]:
        X, n = batch.X, batch.n_rows
        phi = self._features(parts.gamma, X)
        value, derivative = self._loss_derivatives(_scores(parts, phi), batch)
        narrow = derivative.astype(X.dtype, copy=False)
        if sparse.issparse(phi):
            by_weight = np.stack([phi.T @ s for s in narrow])
        else:
            by_weight = np.swapaxes(phi, -1, -2) @ narrow
        by_gamma = self._gamma_gradient(parts, phi, narrow, X)
        return value / n, by_weight / n, derivative.sum(axis=1) / n, by_gamma / n

    def _loss_derivatives(self, scores: Array, batch: Batch) -> tuple[Array, Array]:
        """Total weighted loss of each particle, and weighted derivatives by all scores."""
        if batch.y is None:
            raise ValueError("y is missing; the energy needs a target for every row")
        P, n, K = scores.shape
        y = np.tile(batch.y, P)
        flat = scores.reshape(P * n, K) if self.loss.coupled else scores.reshape(P * n)
        value = self.loss.value(y, flat).reshape(P, n)
        derivative = self.loss.derivative(y, flat).reshape(P, n, K)
        if batch.weight is not None:
            value, derivative = value * batch.weight, derivative * batch.weight[:, None]
        return value.sum(axis=1), derivative

    def _features(self, gamma: Array, X: Matrix) -> Matrix:
        """``phi`` of all rows for each particle, (P, rows, 2 D); ``X`` itself if linear."""
        E = self.frequencies
        if E is None:
            return X
        D = len(E)
        omega = (gamma[:, None, :] * E).astype(X.dtype, copy=False)
        phi = np.empty((len(gamma), X.shape[0], 2 * D), dtype=X.dtype)
        no_phase = np.empty(0, dtype=X.dtype)
        for out, frequencies in zip(phi, omega, strict=True):
            angles = np.ascontiguousarray(X @ frequencies.T)
            fourier_features(angles, no_phase, out)
        return phi

    def _gamma_gradient(
        self, parts: Parameters, phi: Matrix, derivative: Array, X: Matrix
    ) -> Array:
        """``sum_i e_i * sum_n x_n (-sin d_cos + cos d_sin)``; ``D^{-1/2}`` is part of phi."""
        E = self.frequencies
        if E is None:
            return np.zeros((len(parts.gamma), 0))
        D = len(E)
        W = parts.weights.astype(X.dtype, copy=False)
        by_phi = derivative @ np.swapaxes(W, 1, 2)
        by_angle = phi[..., :D] * by_phi[..., D:] - phi[..., D:] * by_phi[..., :D]
        return np.stack([np.einsum("ji,ij->j", X.T @ by_angle_row, E) for by_angle_row in by_angle])

    # -- prediction ------------------------------------------------------------------------
    def scores(self, theta: Array, X: Matrix) -> Array:
        """Scores of every particle, (P, rows, K); costs half a gradient."""
        parts = self.split(theta)
        out = np.empty((len(theta), X.shape[0], self.n_outputs))
        size = max(1, CHUNK_BYTES // (self.n_components * X.dtype.itemsize))
        for first in range(0, X.shape[0], size):
            rows = slice(first, first + size)
            for p in range(len(theta)):
                one = Parameters(*(getattr(parts, name)[p : p + 1] for name in PARTS))
                out[p, rows] = _scores(one, self._features(one.gamma, X[rows]))[0]
        return out

    def predictive(
        self, theta: Array, X: Matrix, link: Callable[[Array], Array] | None = None
    ) -> Predictive:
        """Mixture with one component per particle: averages probabilities, not scores.

        ``link`` maps scores (rows x classes) to probabilities. Softmax has its own; a hinge loss is
        not a likelihood and needs a calibrated one.
        """
        scores = self.scores(theta, X)
        if not self.loss.coupled:
            return self._numbers(scores[..., 0].T)
        if link is None and not self.loss.probabilistic:
            raise ValueError(
                f"loss={self.loss.name!r} has no probabilities of its own; pass a calibrated "
                "link, or use loss='softmax'"
            )
        to_probability = self.loss.link if link is None else link
        P, n, K = scores.shape
        probs = np.asarray(to_probability(scores.reshape(P * n, K))).reshape(P, n, K)
        return Categorical(np.swapaxes(probs, 0, 1))

    def _numbers(self, loc: Array) -> Gaussian:
        if self.loss.name != "squared_error":
            raise ValueError(
                f"loss={self.loss.name!r} has no noise distribution; use loss='squared_error', or "
                "calibrate intervals on held-out rows"
            )
        return Gaussian(loc, np.full(loc.shape, np.sqrt(self.dispersion)))


PARTS = ("weights", "intercept", "gamma")


@dataclass(frozen=True)
class ScaledMachine:
    """A `FourierMachine` that standardises rows on the fly.

    With zero means sparse rows are only rescaled, so they stay sparse.
    """

    machine: FourierMachine
    standard: Standard

    @property
    def count(self) -> float | None:
        """Effective number of observations."""
        return self.machine.count

    def scale(self, X: Matrix, dtype: Any = None) -> Matrix:
        """Standardised rows, by default in their own precision; costs a copy."""
        dtype = X.dtype if dtype is None else dtype
        if not sparse.issparse(X) or self.standard.mean.any():
            return self.standard.apply(X, dtype)
        values = (X.data * self.standard.inverse[X.indices]).astype(dtype)
        return type(X)((values, X.indices, X.indptr), shape=X.shape)

    def start(self, n_particles: int, stream: np.random.Generator) -> Array:
        """Random initial particles."""
        return self.machine.start(n_particles, stream)

    def energy_gradient(self, theta: Array, batch: Batch, count: float) -> tuple[Array, Array]:
        """Energy of every particle and its gradient.

        Single precision suffices for standardised rows: minibatch noise is far larger.
        """
        batch = batch.compact()
        scaled = replace(batch, X=self.scale(batch.X, np.float32))
        return self.machine.energy_gradient(theta, scaled, count)

    def scores(self, theta: Array, X: Matrix) -> Array:
        """Scores of every particle, (P, rows, K)."""
        return self.machine.scores(theta, self.scale(X))

    def predictive(
        self, theta: Array, X: Matrix, link: Callable[[Array], Array] | None = None
    ) -> Predictive:
        """Mixture with one component per particle."""
        return self.machine.predictive(theta, self.scale(X), link)


def _scores(parts: Parameters, phi: Matrix) -> Array:
    """``W^T phi + b`` in float64, (P, rows, K); a 2-D ``phi`` is shared by all particles."""
    if sparse.issparse(phi):
        products = np.stack([np.asarray(phi @ W) for W in parts.weights])
    else:
        products = phi @ parts.weights.astype(phi.dtype, copy=False)
    return np.asarray(products + parts.intercept[:, None, :], dtype=np.float64)


def draw_frequencies(n_components: int, n_features: int, stream: np.random.Generator) -> Array:
    """``e_i ~ N(0, I)``: D standard frequencies for ``2 D`` features."""
    return stream.standard_normal((n_components, n_features))


def start_scale(X: Matrix) -> float:
    """Scale ``gamma`` that fits the median distance of distinct rows.

    Uses the first `MEDIAN_ROWS` rows, so ``X`` should be a random sample.
    """
    rows = X[:MEDIAN_ROWS]
    dense = rows.toarray() if sparse.issparse(rows) else np.asarray(rows)
    distance = pdist(np.asarray(dense, dtype=np.float64)) if len(dense) > 1 else np.empty(0)
    distance = distance[distance > 0.0]
    return TYPICAL / float(np.median(distance)) if len(distance) else 1.0
