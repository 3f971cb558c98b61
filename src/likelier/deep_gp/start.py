"""Initial parameters, draws for predictions, and padding to the shapes of a compiled program.

Inducing points start at k-means centres of the inputs. Inner layers start near their mean
function, the identity or a projection on principal components, with little variance; the last
layer starts at its prior. Nodes beyond the inputs of their layer start as noise, which the last
layer passes on: so latent variables, such as the branch of a bimodal target, can be learned. With
an initial mean of zero their gradient would vanish. Everything here is NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import ndtri
from scipy.stats import qmc

from likelier.base import Array
from likelier.deep_gp.kernels import JITTER, correlation, half_squares

KMEANS_ROWS, KMEANS_STEPS = 10_000, 10
INNER_ROOT = 0.01  # initial standard deviation of inner q, relative to the prior
INNER_NOISE = 1e-5


@dataclass(frozen=True)
class Start:
    """Initial parameters, not padded.

    Attributes
    ----------
    layers : list of dict of arrays
        Fields of `likelier.deep_gp.layer.Layer`.
    projections : list of arrays of shape (D, P)
        Mean functions.
    """

    layers: list[dict[str, Array]]
    projections: list[Array]


def start_layers(
    X: Array, weight: Array | None, widths: Sequence[int], n_inducing: int, per_node: bool,
    rng: np.random.Generator,
) -> Start:  # fmt: skip
    """Layers of these widths for standardised rows; k-means costs ``rows x M x D``."""
    Z = kmeans_centres(X, weight, n_inducing, rng)
    layers, projections, rows = [], [], X
    noise = np.zeros_like(Z)  # the components of the inducing points that are noise
    for depth in range(len(widths) - 1):
        last = depth + 2 == len(widths)
        inputs, nodes = widths[depth], widths[depth + 1]
        kernels, M = nodes if per_node else 1, len(Z)
        root = np.zeros((nodes, M, M))
        root[:, np.arange(M), np.arange(M)] = 0.0 if last else np.log(INNER_ROOT)
        root[inputs:, np.arange(M), np.arange(M)] = 0.0
        layers.append({
            "inducing": Z.copy(),
            "log_scale": np.full((kernels, inputs), np.log(typical_length(rows, weight))),
            "log_amplitude": np.zeros(kernels),
            "mean": np.zeros((nodes, M)),
            "root": root,
            "log_noise": np.asarray(np.log(INNER_NOISE)),
        })  # fmt: skip
        if last and noise.any():
            layers[-1]["mean"][0] = whitened_noise(layers[-1], noise)
        B = np.zeros((inputs, nodes)) if last else mean_projection(rows, weight, nodes)
        projections.append(B)
        Z, rows, noise = Z @ B, rows @ B, noise @ B
        if not last and nodes > inputs:
            noise[:, inputs:] = rng.standard_normal((M, nodes - inputs))
            Z[:, inputs:] = noise[:, inputs:]
            rows[:, inputs:] = rng.standard_normal((len(rows), nodes - inputs))
    return Start(layers, projections)


def whitened_noise(layer: dict[str, Array], noise: Array) -> Array:
    """Whitened mean, ``(M,)``, of a node equal to the sum of the noise, scaled to unit variance.

    It uses the RBF kernel for every model: the choice hardly matters for the initial value.
    """
    Z = layer["inducing"] * np.exp(-layer["log_scale"][0])
    K = correlation(np, "rbf", half_squares(np, Z, Z), 0.0) + JITTER * np.eye(len(Z))
    total = noise.sum(axis=1)
    return np.asarray(np.linalg.solve(np.linalg.cholesky(K), total / max(total.std(), 1e-12)))


@dataclass(frozen=True)
class FixedKernel:
    """A fixed kernel with one length scale.

    Attributes
    ----------
    log_ratio : float
        Logarithm of the length scales in units of the typical length of the rows.
    log_amplitude : float
        Logarithm of the prior variance of the last layer's nodes.
    """

    log_ratio: float
    log_amplitude: float


# Nearly linear functions: as the ratio grows, and the variance with its square, the Gaussian
# process converges to a linear function of unit variance with a free offset.
LONG = FixedKernel(log_ratio=np.log(4.0), log_amplitude=2.0 * np.log(4.0))


def with_kernel(start: Start, kernel: FixedKernel) -> Start:
    """A copy with the kernel's length scales, and its prior variance in the last layer."""
    layers = [{**layer, "log_scale": layer["log_scale"] + kernel.log_ratio}
              for layer in start.layers]  # fmt: skip
    layers[-1]["log_amplitude"] = np.full_like(layers[-1]["log_amplitude"], kernel.log_amplitude)
    return Start(layers, start.projections)


def typical_length(X: Array, weight: Array | None) -> float:
    """Square root of the total variance of the rows; ``sqrt(D)`` for ``D`` standardised inputs.

    It differs for principal components, which do not have unit variance, and constant inputs.
    """
    omega = np.ones(len(X)) if weight is None else weight
    normalised = omega / omega.sum()
    total = float((normalised @ (X - normalised @ X) ** 2).sum())
    return float(np.sqrt(total if total > 1e-12 else X.shape[1]))


def mean_projection(X: Array, weight: Array | None, n_nodes: int) -> Array:
    """``B`` of the mean function ``x^T B``: identity, padded identity, or principal axes.

    The axes are the leading right singular vectors of the weighted, centred rows, as orthonormal
    columns of ``B``; their signs do not depend on the linear algebra library.
    """
    inputs = X.shape[1]
    if inputs <= n_nodes:
        return np.eye(inputs, n_nodes)
    omega = np.ones(len(X)) if weight is None else weight
    centred = X - omega @ X / omega.sum()
    if len(X) < inputs:  # more nodes than rows get axes orthogonal to all rows
        scaled = centred * np.sqrt(omega)[:, None]
        axes = np.linalg.svd(scaled, full_matrices=len(X) < n_nodes)[2][:n_nodes].T
    else:
        values, vectors = np.linalg.eigh((centred * omega[:, None]).T @ centred)
        axes = vectors[:, np.argsort(values)[::-1][:n_nodes]]
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(n_nodes)])
    return np.asarray(axes * np.where(signs == 0.0, 1.0, signs))


def kmeans_centres(X: Array, weight: Array | None, count: int, rng: np.random.Generator) -> Array:
    """At most ``count`` centres by Lloyd iterations; all distinct rows if there are no more."""
    omega = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=np.float64)
    rows = np.unique(X, axis=0) if len(X) <= KMEANS_ROWS else X[:0]
    if 0 < len(rows) <= count:
        return rows.astype(np.float64)
    chosen = np.sort(rng.permutation(len(X))[:KMEANS_ROWS])
    X, omega = X[chosen].astype(np.float64), omega[chosen]
    rows = np.unique(X, axis=0)
    centres = rows[np.sort(rng.permutation(len(rows))[:count])]
    for _ in range(KMEANS_STEPS):
        nearest = cdist(X, centres, "sqeuclidean").argmin(axis=1)
        mass = np.bincount(nearest, weights=omega, minlength=len(centres))
        held = np.flatnonzero(mass)
        for j in range(X.shape[1]):
            sums = np.bincount(nearest, weights=omega * X[:, j], minlength=len(centres))
            centres[held, j] = sums[held] / mass[held]
    return np.asarray(centres)


def shared_normals(n_samples: int, n_nodes: int, seed: int) -> Array:
    """Standard normal draws for all samples and hidden nodes, ``(S, nodes)``."""
    if n_nodes == 0:
        return np.zeros((1, 0))
    bits = int(np.ceil(np.log2(n_samples))) if n_samples > 1 else 0
    points = qmc.Sobol(n_nodes, scramble=True, rng=np.random.default_rng(seed))
    uniform = points.random_base2(bits)[:n_samples]
    return np.asarray(ndtri(np.clip(uniform, 1e-12, 1.0 - 1e-12)))


def padded_size(size: int, sizes: Sequence[int]) -> int:
    """The smallest allowed size; beyond the list, a multiple of its last step."""
    for allowed in sizes:
        if size <= allowed:
            return allowed
    step = sizes[-1] - sizes[-2]
    return sizes[-1] + step * -(-(size - sizes[-1]) // step)


def pad(array: Any, shape: Sequence[int], dtype: str) -> Array:
    """Zero-pad every axis at its end. Padded inducing points and nodes have ``q`` = prior."""
    given = np.asarray(array, dtype=dtype)
    out = np.zeros(tuple(shape), dtype=dtype)
    out[tuple(slice(0, n) for n in given.shape)] = given
    return out


def cut(array: Any, shape: Sequence[int]) -> Array:
    """A padded array without its padding."""
    return np.asarray(array)[tuple(slice(0, n) for n in shape)].copy()
