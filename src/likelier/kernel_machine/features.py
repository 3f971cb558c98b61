"""Feature maps of the kernel machine ``phi(x)^T W + b``, with learned length scales.

Nystroem features of landmarks ``z_1..z_m``: with ``K_zz + jitter I = L L^T``,
``phi(x) = L^{-1} k_z(x)`` satisfies ``phi(x)^T phi(x') ~ k(x, x')``. The residual
``1 - |phi(x)|^2`` is the variance not explained by the landmarks: near zero among the data, one
far from them. Random Fourier features and the inputs themselves are alternatives without it.

Everything is NumPy, in the precision of the rows, so nothing is compiled at the first call. A map
is a frozen record of arrays. Rows are centred, which changes no distance but avoids cancellation;
for sparse rows most columns have centre zero, so that they stay sparse.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy import linalg, sparse

from likelier.base import Array, Matrix
from likelier.files.declared import check_array
from likelier.kernel_machine.triangles import lower_inverse

JITTER = 1e-5  # relative to a unit diagonal; tolerates duplicate landmarks, also in float32
BLOCK_ROWS = 2048
SPARSE = (sparse.csr_array, sparse.csr_matrix)
DENSE_SHARE = 0.25  # fraction of centred columns above which sparse rows are made dense
# Exponents below which a kernel value is negligible: 1e-13 in single and 4e-18 in double precision
# are below the rounding error of the features.
MIN_EXPONENT = {np.dtype(np.float32): -30.0, np.dtype(np.float64): -40.0}
# Coordinates are clipped here, so that squares and their sums do not overflow.
MAX_COORDINATE = {np.dtype(np.float32): 1e15, np.dtype(np.float64): 1e140}
TINY = 1e-20  # negligible elements of a whitening matrix
DENSE_BLOCK = 256  # rows densified at a time


@dataclass(frozen=True)
class KernelMap(ABC):
    """A feature map; the last feature is one, for the intercept."""

    kind: ClassVar[str]
    local: ClassVar[bool] = False
    """Whether all features except the constant vanish far from the data."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of features, including the constant."""

    @abstractmethod
    def fill(self, X: Matrix, out: Array) -> None:
        """Write the features of a block of rows, in the precision of ``out``."""

    @abstractmethod
    def residual(self, features: Array) -> Array:
        """Fraction of the prior variance of each row that the features do not carry."""

    centre: Array
    gamma: Array

    def check(self, n_inputs: int) -> None:
        """Raise a ValueError unless all arrays have the shapes that rows of these inputs need."""
        check_array("centre", self.centre, (n_inputs,))
        check_array("gamma", self.gamma, (n_inputs,), low=0.0)

    def __call__(self, X: Matrix, dtype: Any = np.float64) -> Array:
        """Features of the rows, by blocks. Costs landmarks x (inputs + landmarks) per row."""
        out = np.empty((X.shape[0], self.n_features), dtype=dtype)
        for start in range(0, X.shape[0], BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            self.fill(X[part], out[part])
        return out

    def scores(self, X: Matrix, W: Array, dtype: Any = np.float32) -> Array:
        """Scores ``phi(x)^T W``, without storing the features."""
        parts = [
            self(X[start : start + BLOCK_ROWS], dtype) @ W.astype(dtype)
            for start in range(0, X.shape[0], BLOCK_ROWS)
        ]
        return np.concatenate(parts)

    def to_arrays(self) -> dict[str, Any]:
        """Dict of arrays."""
        return {"kind": self.kind} | {item.name: getattr(self, item.name) for item in fields(self)}


@dataclass(frozen=True)
class LandmarkMap(KernelMap):
    """Nystroem features.

    Attributes
    ----------
    centre : array of shape (n_inputs,)
        Subtracted from rows; zero in most columns if the training rows were sparse.
    gamma : array of shape (n_inputs,)
        Inverse length scales in the units of the rows.
    landmarks : array or CSR matrix of shape (m, n_inputs)
        Landmarks, centred and multiplied by ``gamma``.
    whiten : array of shape (m, m)
        ``L^{-T}``, upper triangular.
    """

    kind: ClassVar[str] = "nystroem"
    local: ClassVar[bool] = True

    landmarks: Any
    whiten: Array

    @property
    def n_features(self) -> int:
        """Landmarks plus the constant."""
        return len(self.whiten) + 1

    def check(self, n_inputs: int) -> None:
        """Raise a ValueError unless all arrays have the shapes that rows of these inputs need."""
        super().check(n_inputs)
        m = self.landmarks.shape[0]
        check_array("whiten", self.whiten, (m, m))
        if not isinstance(self.landmarks, SPARSE):
            check_array("landmarks", self.landmarks, (m, n_inputs))
            return
        check_array("landmarks", self.landmarks.data, (None,))
        if self.landmarks.shape[1] != n_inputs:
            raise ValueError(f"landmarks must have {n_inputs} columns")

    @cached_property
    def _prepared(self) -> dict[Any, tuple[Any, Array, Array]]:
        return {}

    def _parts(self, dtype: Any) -> tuple[Any, Array, Array]:
        """Landmarks, half their squared norms and the whitening matrix, in one precision."""
        if dtype not in self._prepared:
            Z = self.landmarks.astype(dtype)
            half = half_squares(Z).astype(dtype)
            whiten = self.whiten.astype(dtype)
            whiten[np.abs(whiten) < TINY] = 0.0
            self._prepared[dtype] = (Z, half, whiten)
        return self._prepared[dtype]

    def fill(self, X: Matrix, out: Array) -> None:
        """Write the features of a block of rows."""
        Z, half, whiten = self._parts(out.dtype)
        rows = scale_rows(X, self.centre, self.gamma, out.dtype)
        kernel = rbf_block(rows, Z, half)
        np.matmul(kernel, whiten, out=out[:, :-1])
        out[:, -1] = 1.0

    def scores(self, X: Matrix, W: Array, dtype: Any = np.float32) -> Array:
        """Scores from kernel values: whitening the weights is cheaper than the rows."""
        Z, half, _ = self._parts(np.dtype(dtype))
        raw = (self.whiten.astype(np.float64) @ W[:-1]).astype(dtype)
        parts = []
        for start in range(0, X.shape[0], BLOCK_ROWS):
            rows = scale_rows(X[start : start + BLOCK_ROWS], self.centre, self.gamma, dtype)
            parts.append(rbf_block(rows, Z, half) @ raw + W[-1].astype(dtype))
        return np.concatenate(parts)

    def residual(self, features: Array) -> Array:
        """``1 - |phi|^2``, between zero and one."""
        inside = np.einsum("ij,ij->i", features[:, :-1], features[:, :-1], dtype=np.float64)
        return np.asarray(np.clip(1.0 - inside, 0.0, 1.0))


@dataclass(frozen=True)
class FourierMap(KernelMap):
    """Paired cosines and sines at random frequencies, orthogonal within blocks."""

    kind: ClassVar[str] = "fourier"

    frequencies: Array

    def check(self, n_inputs: int) -> None:
        """Raise a ValueError unless all arrays have the shapes that rows of these inputs need."""
        super().check(n_inputs)
        check_array("frequencies", self.frequencies, (None, n_inputs))
        if not len(self.frequencies):
            raise ValueError("frequencies must not be empty")

    @property
    def n_features(self) -> int:
        """A cosine and a sine per frequency, plus the constant."""
        return 2 * len(self.frequencies) + 1

    def fill(self, X: Matrix, out: Array) -> None:
        """Write the features of a block of rows."""
        m = len(self.frequencies)
        rows = scale_rows(X, self.centre, self.gamma, out.dtype)
        angle = np.asarray(rows @ self.frequencies.T.astype(out.dtype))
        np.cos(angle, out=out[:, :m])
        np.sin(angle, out=out[:, m:-1])
        out[:, :-1] *= out.dtype.type(m**-0.5)
        out[:, -1] = 1.0

    def residual(self, features: Array) -> Array:
        """Zero: the features have norm one everywhere, also far from the data."""
        return np.zeros(len(features))


@dataclass(frozen=True)
class IdentityMap(KernelMap):
    """The standardised and scaled inputs themselves: the linear case."""

    kind: ClassVar[str] = "identity"

    @property
    def n_features(self) -> int:
        """Inputs plus the constant."""
        return len(self.gamma) + 1

    def fill(self, X: Matrix, out: Array) -> None:
        """Write the features of a block of rows."""
        rows = scale_rows(X, self.centre, self.gamma, out.dtype)
        out[:, :-1] = as_dense(rows)
        out[:, -1] = 1.0

    def residual(self, features: Array) -> Array:
        """Zero: a linear function has no other directions."""
        return np.zeros(len(features))


def landmark_map(rows: Matrix, centre: Array, gamma: Array) -> LandmarkMap:
    """Nystroem features with these rows as landmarks. Costs ``2 m^3`` multiplications."""
    Z = scale_rows(rows, centre, gamma, np.float64)
    kernel = rbf_block(Z, Z, half_squares(Z))
    kernel = 0.5 * (kernel + kernel.T)
    kernel[np.diag_indices_from(kernel)] = 1.0 + JITTER
    root = linalg.cholesky(kernel, lower=True, overwrite_a=True, check_finite=False)
    return LandmarkMap(centre, gamma, Z, np.ascontiguousarray(lower_inverse(root).T))


def fourier_map(
    n_features: int, centre: Array, gamma: Array, rng: np.random.Generator
) -> FourierMap:
    """Orthogonal random frequencies of the RBF kernel, with chi-distributed lengths."""
    d, m = len(gamma), max(1, n_features // 2)
    blocks = []
    for start in range(0, m, d):
        directions, _ = np.linalg.qr(rng.standard_normal((d, d)))
        size = min(d, m - start)
        lengths = np.sqrt(rng.chisquare(d, size))
        blocks.append(directions.T[:size] * lengths[:, None])
    return FourierMap(centre, gamma, np.concatenate(blocks))


def restore_map(plain: dict[str, Any]) -> KernelMap:
    """The map of this dict of arrays."""
    kinds: dict[str, Any] = {map.kind: map for map in (LandmarkMap, FourierMap, IdentityMap)}
    return kinds[plain["kind"]](**{k: v for k, v in plain.items() if k != "kind"})  # type: ignore[no-any-return]


def scale_rows(X: Matrix, centre: Array, gamma: Array, dtype: Any) -> Any:
    """Rows centred in double precision and multiplied by ``gamma``.

    Sparse rows stay sparse unless many columns have a nonzero centre.
    """
    if not sparse.issparse(X):
        with np.errstate(over="ignore"):
            rows = (X - centre) * gamma
        furthest = min(MAX_COORDINATE[np.dtype(dtype)], MAX_COORDINATE[rows.dtype])
        return np.clip(rows, -furthest, furthest, out=rows).astype(dtype, copy=False)
    centred = np.flatnonzero(centre)
    if len(centred) > DENSE_SHARE * len(centre):
        out = np.empty(X.shape, dtype=dtype)
        for start in range(0, len(out), DENSE_BLOCK):
            part = slice(start, start + DENSE_BLOCK)
            out[part] = scale_rows(X[part].toarray(), centre, gamma, dtype)
        return out
    scaled = X.astype(dtype)
    scaled = sparse.csr_array(scaled, copy=scaled is X)
    scale = np.where(centre == 0.0, gamma, 0.0) if len(centred) else gamma
    scaled.data *= scale.astype(dtype)[scaled.indices]
    return scaled + _centred_columns(X, centred, centre, gamma, dtype) if len(centred) else scaled


def _centred_columns(X: Any, centred: Array, centre: Array, gamma: Array, dtype: Any) -> Any:
    """Columns with a nonzero centre, densely filled, as a sparse matrix of all columns."""
    n = X.shape[0]
    values = ((X[:, centred].toarray() - centre[centred]) * gamma[centred]).astype(dtype)
    starts = len(centred) * np.arange(n + 1)
    return sparse.csr_array((values.ravel(), np.tile(centred, n), starts), shape=X.shape)


def rbf_block(rows: Any, landmarks: Any, half: Array) -> Array:
    """``exp(-1/2 |x - z|^2)`` of scaled rows; ``half`` is half the landmarks' squared norms."""
    if not sparse.issparse(rows):
        landmarks = as_dense(landmarks)
    products = as_dense(rows @ landmarks.T)
    products -= half_squares(rows)[:, None].astype(products.dtype)
    products -= half
    return kernel_of(products)


def kernel_of(exponents: Array) -> Array:
    """Exponentials, in place, of numbers that are non-positive up to rounding.

    Exponents are clipped so that no value, square or fraction of it is subnormal: subnormal
    arithmetic is about a hundred times slower.
    """
    least = MIN_EXPONENT[exponents.dtype]
    np.clip(exponents, least, 0.0, out=exponents)
    return np.exp(exponents, out=exponents)


def half_squares(rows: Any) -> Array:
    """Half the squared norm of every row, dense or sparse."""
    squares = (rows.multiply(rows) if isinstance(rows, SPARSE) else rows * rows).sum(axis=1)
    return 0.5 * np.asarray(squares).ravel()


def as_dense(rows: Any) -> Array:
    """Dense version of a matrix."""
    return np.asarray(rows.toarray() if isinstance(rows, SPARSE) else rows)
