"""Nystroem features: kernel values with a set of landmarks, whitened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from likelier.base import Array, FeatureMap, Matrix
from likelier.features.landmarks import METHODS, choose_landmarks, find_candidates
from likelier.features.sizes import block_rows, output_for, resolve_count
from likelier.kernels import Kernel, make_kernel
from likelier.kernels.kinds import Linear

# kernel values whose sums do not overflow, by precision
MAX_VALUE = {np.dtype(np.float32): 1e36, np.dtype(np.float64): 1e300}
# kernel values whose roots (the features) and their inverses are normal float32 numbers
MAX_VALUE_FLOAT32 = 1e60


class NystroemFit(NamedTuple):
    """Result of a fit: the kernel, the landmark indices, and the arrays that `apply` needs."""

    kernel: Kernel
    indices: Array
    eigenvalues: Array
    params: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Nystroem(FeatureMap):
    """Nystroem features; see `NystroemFeatures`, which has the same parameters."""

    n_components: int | str = "auto"
    kernel: Any = "rbf"
    gamma: Any = "scale"
    degree: int = 3
    coef0: float = 0.0
    landmarks: str = "kmeans++"

    def init(self, key: np.random.Generator, sample: Matrix) -> Mapping[str, Array]:
        """Choose ``landmarks`` and compute their ``projection`` (and ``gamma``)."""
        return self.choose(key, sample, None).params

    def apply(self, params: Mapping[str, Array], X: Matrix, out: Array | None = None) -> Array:
        """Features of the rows of ``X`` for these parameters."""
        gamma: Any = params.get("gamma", 1.0)
        kernel = self._kernel(gamma if np.ndim(gamma) else float(gamma))
        return apply_kernel(kernel, params, X, out)

    def _kernel(self, gamma: Any, **data: Any) -> Kernel:
        params = {"gamma": gamma, "degree": self.degree, "coef0": self.coef0}
        return make_kernel(self.kernel, **params, **data)

    def choose(self, key: np.random.Generator, X: Matrix, weight: Array | None) -> NystroemFit:
        """Choose landmarks and decompose their kernel matrix."""
        if self.landmarks not in METHODS:
            raise ValueError(f"landmarks must be one of {METHODS}, got {self.landmarks!r}")
        count = resolve_count(self.n_components, _default_components(X.shape[0]))
        candidates = find_candidates(X, weight, count, key)
        rows = X[candidates.indices]
        # "scale" is that of all rows; distances between distinct rows need no weights
        by_scale = isinstance(self.gamma, str) and self.gamma == "scale"
        data = {"X": X, "sample_weight": weight} if by_scale else {"X": rows}
        kernel = self._kernel(self.gamma, **data, random_state=key)
        if kernel.precomputed:
            kernel.prepare(X)  # raises unless X is square
            rows = rows[:, candidates.indices]
        candidate_rows = rows if kernel.precomputed else _without_overflow(kernel, rows)
        chosen = choose_landmarks(
            kernel, candidate_rows, candidates.weight, count, self.landmarks, key
        )
        indices = candidates.indices[chosen]
        landmark_rows = rows[chosen][:, chosen] if kernel.precomputed else rows[chosen]
        projection, eigenvalues = _whitened(
            kernel.matrix(landmark_rows.astype(np.float64)), X.dtype
        )
        params = {
            "landmarks": indices if kernel.precomputed else rows[chosen],
            "projection": projection,
        }
        gamma = kernel.get_params().get("gamma")
        if gamma is not None:
            params["gamma"] = np.asarray(gamma, dtype=np.float64)
        return NystroemFit(kernel, indices, eigenvalues, params)


def apply_kernel(kernel: Kernel, params: Mapping[str, Any], X: Matrix, out: Array | None) -> Array:
    """Features of the rows of ``X`` for a kernel, its landmarks and their projection."""
    projection = params["projection"].astype(X.dtype, copy=False)
    landmarks = params["landmarks"]
    out = output_for(X, projection.shape[1], out)
    step = block_rows(len(projection))
    if kernel.precomputed:
        X = X[:, landmarks]
        for start in range(0, X.shape[0], step):
            out[start : start + step] = X[start : start + step] @ projection
        return out
    ready = kernel.prepare(landmarks.astype(X.dtype, copy=False))
    values = np.empty((min(step, X.shape[0]), len(projection)), dtype=X.dtype)
    bounded = not isinstance(kernel, Linear)
    for start in range(0, X.shape[0], step):
        rows, part = X[start : start + step], out[start : start + step]
        with np.errstate(over="ignore", invalid="ignore"):
            kernel_block = ready.against(rows, out=values[: rows.shape[0]])
            np.matmul(kernel_block, projection, out=part)
        if not (bounded or np.isfinite(part).all()):
            _fill_double(kernel, params, rows, part)
    return out


def _without_overflow(kernel: Kernel, rows: Matrix) -> Matrix:
    """Rows in a precision in which their kernel values do not overflow."""
    if not isinstance(kernel, Linear):
        return rows
    for wide in (rows, rows.astype(np.float64)):
        with np.errstate(over="ignore", invalid="ignore"):
            largest = float(np.abs(kernel.diagonal(wide)).max(initial=0.0))
        if largest < MAX_VALUE[wide.dtype]:  # False for NaN
            break
    single = rows.dtype == np.float32
    if not largest < (MAX_VALUE_FLOAT32 if single else MAX_VALUE[rows.dtype]):
        raise ValueError(_overflow(kernel, " or features in float32" if single else ""))
    return wide


def _fill_double(kernel: Kernel, params: Mapping[str, Any], rows: Matrix, out: Array) -> None:
    """Features, in double precision, of rows whose kernel values overflow in their own."""
    double = np.float64
    with np.errstate(over="ignore", invalid="ignore"):
        values = kernel.matrix(rows.astype(double), params["landmarks"].astype(double))
        out[:] = values @ params["projection"].astype(double)
    if not np.isfinite(out).all():
        raise ValueError(_overflow(kernel, f" or features in {out.dtype}"))


def _overflow(kernel: Kernel, features: str = "") -> str:
    return (
        f"values of kernel {kernel.name!r}{features} overflow; scale the features of X down, or "
        "use a smaller gamma or degree"
    )


def _whitened(K: Array, dtype: Any) -> tuple[Array, Array]:
    """``U D^{-1/2}`` and ``D`` of a kernel matrix, largest eigenvalue first.

    Eigenvalues below ``m eps64 max`` are rounding error of the decomposition (a few times that for
    small m, hence at least 32). In single precision kernel values are rounded too, so eigenvalues
    below ``eps32 max`` would mostly amplify noise.
    """
    K = 0.5 * (K + K.T)
    if not np.isfinite(K).all():
        raise ValueError("kernel values are not finite; scale the features of X down")
    values, vectors = linalg.eigh(K)
    values, vectors = values[::-1], vectors[:, ::-1]
    threshold = max(len(K), 32) * float(np.finfo(np.float64).eps)
    if dtype == np.float32:
        threshold = max(threshold, float(np.finfo(np.float32).eps))
    rank = int((values > max(threshold * values[0], np.finfo(np.float64).tiny)).sum())
    if rank == 0:  # zero matrix: one feature that is always 0
        return np.zeros((len(K), 1), dtype=dtype), values[:0]
    values, vectors = values[:rank].copy(), vectors[:, :rank]
    largest = np.abs(vectors).argmax(axis=0)  # fix the sign, which LAPACK leaves open
    vectors = vectors * np.sign(vectors[largest, np.arange(rank)])
    return np.ascontiguousarray(vectors / np.sqrt(values), dtype=dtype), values


def _default_components(n_rows: int) -> int:
    """Default number of landmarks: ~ sqrt(n) log(n) keeps the error below the learning error."""
    return int(np.clip(2.0 * np.sqrt(n_rows) * np.log(max(n_rows, 2)), 64, 1024))
