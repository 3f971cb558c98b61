"""Moments of the outputs of a fitted deep Gaussian process, in NumPy alone.

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

from likelier.base import Array, Matrix, Posterior
from likelier.deep_gp.kernels import (
    JITTER,
    KERNELS,
    MIN_VARIANCE,
    correlation,
    half_squares,
    root_shrinkage,
)
from likelier.files.declared import check_array, check_number
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

    def check(self, n_features: int, n_classes: int | None) -> None:
        if self.kernel not in KERNELS:
            raise ValueError(f"kernel_ must be one of {list(KERNELS)}, not {self.kernel!r}")
        check_number("removed_", self.cavity_fraction, 0.0, MAX_CAVITY_FRACTION)
        if not len(self.layers) == len(self.projections) > 0:
            raise ValueError("layers_ and projections_ must be as many, and at least one")
        inputs = n_features
        for depth, (layer, projection) in enumerate(
            zip(self.layers, self.projections, strict=True)
        ):
            nodes = _check_layer(f"layers_[{depth}]", layer, inputs)
            check_array(f"projections_[{depth}]", projection, (inputs, nodes))
            inputs = nodes
        check_array("normals_", self.normals, (None, None))
        if not len(self.normals) or self.normals.shape[1] < self.n_hidden:
            raise ValueError(f"normals_ must hold draws for {self.n_hidden} nodes")
        if not self.is_finite():
            raise ValueError("the layers predict NaN or infinity")

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

    @property
    def n_hidden(self) -> int:
        """Nodes of all layers but the last, which are sampled."""
        return sum(len(layer["mean"]) for layer in self.layers[:-1])

    @property
    def held_rows(self) -> int:
        """Rows whose moments are in memory at a time, a multiple of `block_rows`."""
        size = self.block_rows
        per_row = self.n_samples * len(self._prepared[-1].mean_weights)
        return size * max(1, HELD_VALUES // (size * per_row))

    def moments(self, X: Array) -> Iterator[tuple[Array, Array]]:
        """Yield mean and variance of the outputs, ``(rows, S, P)`` each, for some rows at a time.

        The values of a row do not depend on the other rows, bit for bit.
        """
        size, held = self.block_rows, self.held_rows
        for first in range(0, max(1, len(X)), held):  # no rows are a block of none
            rows = X[first : first + held]
            parts = [
                self._padded_block(rows[i : i + size]) for i in range(0, max(1, len(rows)), size)
            ]
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


def _check_layer(name: str, layer: Any, inputs: int) -> int:
    """Raise unless the arrays of a layer belong together; the number of its nodes."""
    mean = layer["mean"]
    check_array(f"{name} mean", mean, (None, None))
    nodes, points = mean.shape
    check_array(f"{name} inducing", layer["inducing"], (points, inputs))
    check_array(f"{name} log_scale", layer["log_scale"], (None, inputs))
    kernels = len(layer["log_scale"])
    if not points or kernels not in (1, nodes):
        raise ValueError(f"{name} has {points} inducing points and {kernels} kernels")
    check_array(f"{name} log_amplitude", layer["log_amplitude"], (kernels,))
    check_array(f"{name} root", layer["root"], (nodes, points, points))
    check_array(f"{name} log_noise", np.asarray(layer["log_noise"]), ())
    return int(nodes)
