"""Prediction with a fitted deep Gaussian process, in NumPy alone.

Training learns the cavity; prediction uses the posterior ``q`` itself. Samples are propagated
through the layers as in training, with one difference: the normal draws ``xi`` of a sample are the
same for all rows, so that the prediction of a row does not depend on the other rows. They are
points of a scrambled Sobol sequence, which needs fewer samples than independent draws. Rows are
propagated in padded blocks of one size, because the rounding of a matrix product depends on its
shape: so the prediction of a row is reproducible bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg
from scipy.special import ndtri
from scipy.stats import qmc

from likelier.base import Array, Matrix, Posterior
from likelier.deep_gp.kernels import (
    JITTER,
    MIN_VARIANCE,
    correlation,
    half_squares,
    root_shrinkage,
)
from likelier.predictive import Gaussian

BLOCK_VALUES = 250_000  # kernel values, or moments, of one block: they fit in the cache
MIN_BLOCK, MAX_BLOCK = 8, 64  # rows of a block
HELD_VALUES = 4_000_000  # moments of the outputs in memory at a time
MAX_CAVITY_FRACTION = 0.5  # of q that a cavity leaves out, reached at total weights below 2


def cavity_fraction(power: float, total: float) -> float:
    """``e = alpha / N``: the fraction of ``q`` that the cavity of one row leaves out."""
    return min(power / total, MAX_CAVITY_FRACTION)


def posterior_of(mean: Array, root: Array, e: float) -> tuple[Array, Array]:
    """``mu`` and ``I - S`` of a node from its learned cavity; cost ``M^3``.

    ``mu = R mu_c`` and ``S = (1-e) R S_c`` with ``R = (I - e S_c)^{-1}``, so ``I - S`` is
    ``R (I - S_c)``, which avoids a difference of nearly equal matrices.
    """
    T = np.tril(root, -1) + np.diag(np.exp(np.diagonal(root)))
    T = T * root_shrinkage(np, T, e)
    S, eye = T @ T.T, np.eye(len(T))
    both = np.column_stack([mean, eye - S])
    solved = linalg.solve(eye - e * S, both, assume_a="pos") if e > 0.0 else both
    shrinkage = solved[:, 1:]
    return solved[:, 0], 0.5 * (shrinkage + shrinkage.T)


def shared_normals(n_samples: int, n_nodes: int, seed: int) -> Array:
    """Standard normal draws for all samples and hidden nodes, ``(S, nodes)``."""
    if n_nodes == 0:
        return np.zeros((1, 0))
    bits = int(np.ceil(np.log2(n_samples))) if n_samples > 1 else 0
    points = qmc.Sobol(n_nodes, scramble=True, rng=np.random.default_rng(seed))
    uniform = points.random_base2(bits)[:n_samples]
    return np.asarray(ndtri(np.clip(uniform, 1e-12, 1.0 - 1e-12)))


@dataclass(frozen=True)
class PosteriorLayer:
    """One layer with ``L_z^{-1}`` folded in.

    Attributes
    ----------
    inducing : array of shape (M, D)
    inverse_scale : array of shape (Q, D)
    log_amplitude : array of shape (Q,)
    mean_weights : array of shape (P, M)
        ``L_z^{-T} mu``.
    folded : array of shape (P, M, M)
        ``L_z^{-T} (I - S) L_z^{-1}``.
    projection : array of shape (D, P)
        The mean function.
    noise : float
        Noise before the next layer.
    """

    inducing: Array
    inverse_scale: Array
    log_amplitude: Array
    mean_weights: Array
    folded: Array
    projection: Array
    noise: float

    @classmethod
    def of(
        cls, plain: Mapping[str, Array], projection: Array, kernel: str, cavity_fraction: float
    ) -> PosteriorLayer:
        """From the fitted arrays of a layer and its cavity fraction. Cost ``P M^3``."""
        given = {name: np.asarray(value, dtype=np.float64) for name, value in plain.items()}
        inverse_scale = np.exp(-given["log_scale"])
        Z = given["inducing"] * inverse_scale[:, None]
        K = correlation(np, kernel, half_squares(np, Z, Z), given["log_amplitude"][:, None, None])
        eye = np.eye(len(given["inducing"]))
        K = K + JITTER * np.exp(given["log_amplitude"])[:, None, None] * eye
        inverses = [linalg.solve_triangular(np.linalg.cholesky(k), eye, lower=True) for k in K]
        mean_weights, folded = np.empty_like(given["mean"]), np.empty_like(given["root"])
        for p, root in enumerate(given["root"]):
            inverse = inverses[p % len(inverses)]
            mean, shrinkage = posterior_of(given["mean"][p], root, cavity_fraction)
            mean_weights[p] = inverse.T @ mean
            folded[p] = inverse.T @ shrinkage @ inverse
        return cls(
            given["inducing"], inverse_scale, given["log_amplitude"], mean_weights, folded,
            np.asarray(projection, dtype=np.float64), float(np.exp(given["log_noise"])),
        )  # fmt: skip

    def moments(self, kernel: str, X: Array) -> tuple[Array, Array]:
        """Mean and variance of every node, ``(R, P)`` each."""
        mean, variance = X @ self.projection, np.empty((len(X), len(self.mean_weights)))
        n_kernels = len(self.inverse_scale)
        for q in range(n_kernels):
            inverse, log_amplitude = self.inverse_scale[q], self.log_amplitude[q]
            halves = half_squares(np, X * inverse, self.inducing * inverse)
            K = correlation(np, kernel, halves, log_amplitude)
            amplitude = np.exp(log_amplitude)
            for p in range(len(self.mean_weights)) if n_kernels == 1 else (q,):
                mean[:, p] += K @ self.mean_weights[p]
                inside = np.einsum("rm,rm->r", K @ self.folded[p], K)
                variance[:, p] = np.maximum(amplitude - inside, MIN_VARIANCE * amplitude)
        return mean, variance


@dataclass(frozen=True)
class DeepPosterior(Posterior):
    """Posterior of a fitted deep Gaussian process, for standardised rows.

    Attributes
    ----------
    layers : sequence of mappings
        Fitted arrays of every layer; see `likelier.deep_gp.layer.Layer`.
    projections : sequence of arrays
        Mean functions.
    kernel : str
    normals : array of shape (S, hidden nodes)
    cavity_fraction : float
        Fraction of ``q`` that the cavities in ``layers`` leave out; zero if they are ``q``.
    """

    layers: Sequence[Mapping[str, Array]]
    projections: Sequence[Array]
    kernel: str
    normals: Array
    cavity_fraction: float = 0.0

    def is_finite(self) -> bool:
        """Whether predictions are finite, which they are not if training has diverged."""
        middle = np.zeros((1, len(self.projections[0])))
        with np.errstate(all="ignore"):
            try:
                parts = [part for pair in self.moments(middle) for part in pair]
            except (ValueError, np.linalg.LinAlgError):
                return False
        return all(np.isfinite(part).all() for part in parts)

    def predictive(self, X: Matrix) -> Gaussian:
        """Distribution of the first output of standardised rows, without observation noise."""
        parts = list(self.moments(np.asarray(X)))
        mean = np.concatenate([mean[..., 0] for mean, _ in parts])
        return Gaussian(mean, np.sqrt(np.concatenate([var[..., 0] for _, var in parts])))

    @cached_property
    def _prepared(self) -> list[PosteriorLayer]:
        return [
            PosteriorLayer.of(plain, projection, self.kernel, self.cavity_fraction)
            for plain, projection in zip(self.layers, self.projections, strict=True)
        ]

    @property
    def n_samples(self) -> int:
        """Number of mixture components of a prediction."""
        return len(self.normals)

    @property
    def block_rows(self) -> int:
        """Rows of a block, a power of two: matrix products round remainder rows differently."""
        layers = self._prepared
        width = max(max(len(layer.inducing), len(layer.mean_weights)) for layer in layers)
        wanted = BLOCK_VALUES / (self.n_samples * width)
        return int(np.clip(2.0 ** np.floor(np.log2(wanted)), MIN_BLOCK, MAX_BLOCK))

    def moments(self, X: Array) -> Iterator[tuple[Array, Array]]:
        """Yield mean and variance of the outputs, ``(rows, S, P)`` each, for some rows at a time.

        The values of a row do not depend on the other rows, bit for bit.
        """
        size = self.block_rows
        per_row = self.n_samples * len(self._prepared[-1].mean_weights)
        held = size * max(1, HELD_VALUES // (size * per_row))
        for first in range(0, len(X), held):
            rows = X[first : first + held]
            parts = [self._padded_block(rows[i : i + size]) for i in range(0, len(rows), size)]
            mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
            yield mean, variance

    def _padded_block(self, X: Array) -> tuple[Array, Array]:
        """`block_moments` of at most `block_rows` rows, padded to `block_rows`."""
        whole = np.zeros((self.block_rows, X.shape[1]))
        whole[: len(X)] = X
        mean, variance = self.block_moments(whole)
        return mean[: len(X)], variance[: len(X)]

    def block_moments(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance of the outputs of some rows, ``(rows, S, P)`` each."""
        h, used = X, 0
        for depth, layer in enumerate(self._prepared):
            mean, variance = layer.moments(self.kernel, h)
            width = mean.shape[1]
            mean = mean.reshape(len(X), -1, width)
            variance = variance.reshape(mean.shape)
            if depth + 1 == len(self._prepared):
                break
            xi = self.normals[None, :, used : used + width]
            used += width
            h = (mean + np.sqrt(variance + layer.noise) * xi).reshape(-1, width)
        shape = (len(X), self.n_samples, mean.shape[2])
        return np.broadcast_to(mean, shape), np.broadcast_to(variance, shape)


def label_probabilities(p: Array, label_noise: float, n_classes: int) -> Array:
    """Label probabilities ``e/(K-1) + (1 - e - e/(K-1)) p`` from class probabilities ``p``."""
    other = label_noise / (n_classes - 1)
    return np.asarray(other + (1.0 - label_noise - other) * p)


def log_label_probabilities(log_p: Array, label_noise: float, n_classes: int) -> Array:
    """`label_probabilities` in logarithms; the noise may be zero."""
    other = label_noise / (n_classes - 1)
    with np.errstate(divide="ignore"):
        return np.asarray(np.logaddexp(np.log(other), np.log1p(-label_noise - other) + log_p))


def plain_layers(layers: Sequence[Any]) -> list[dict[str, Array]]:
    """Layers as dictionaries of NumPy arrays."""
    return [{k: np.asarray(v) for k, v in layer._asdict().items()} for layer in layers]
