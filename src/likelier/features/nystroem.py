"""Nystroem features: kernel values with a set of landmarks, whitened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import linalg
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Matrix
from likelier.features.landmarks import METHODS, choose_landmarks, find_candidates
from likelier.features.outputs import block_rows, output_for, resolve_count
from likelier.features.shell import KernelFeatures
from likelier.kernels import Kernel, make_kernel
from likelier.kernels.kinds import Linear
from likelier.matrices import checked_weight

# kernel values whose sums do not overflow, by precision
MAX_VALUE = {np.dtype(np.float32): 1e36, np.dtype(np.float64): 1e300}
# kernel values whose roots (the features) and their inverses are normal float32 numbers
MAX_VALUE_FLOAT32 = 1e60


class _NystroemFit(NamedTuple):
    """Result of a fit: the kernel, the landmark indices, and the arrays that `apply` needs."""

    kernel: Kernel
    indices: Array
    eigenvalues: Array
    params: dict[str, Any]


class NystroemFeatures(KernelFeatures):
    """Nystroem approximation of any kernel.

    With landmarks ``z_1..z_m`` and ``K_zz = U D U^T``, ``phi(x) = D^{-1/2} U^T k(z, x)``: the best
    approximation of the kernel by these landmarks, exact among themselves. Eigenvalues at the level
    of rounding error are dropped.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        Number of landmarks, at most the number of distinct rows. "auto": about
        ``2 sqrt(n) log(n)``, between 64 and 1024.
    kernel : str, Kernel or callable, default="rbf"
        "rbf", "laplacian", "matern32", "matern52", "poly", "sigmoid", "linear" or "precomputed"; a
        `likelier.kernels.Kernel`, which brings its own parameters; or a function of two matrices
        that returns the kernel matrix.
    gamma : float, array of shape (n_features,), or {"scale", "auto", "median"}
        Inverse width of the kernel; see `likelier.kernels.gamma_from_data`.
    degree, coef0 : int and float
        For "poly" and "sigmoid".
    landmarks : {"kmeans++", "uniform", "leverage"}, default="kmeans++"
        Landmark selection; see `likelier.features.landmarks`. "uniform" is free but misses rare
        regions; "kmeans++" costs about as much as `transform` of 10,000 rows.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the landmark selection.

    Attributes
    ----------
    landmarks_ : ndarray or CSR matrix of shape (m, n_features)
        The landmarks; for a precomputed kernel their indices among the training rows.
    landmark_indices_ : ndarray of shape (m,)
        Indices of the landmarks among the training rows.
    projection_ : ndarray of shape (m, n_components_)
        Maps kernel values with the landmarks to features.
    eigenvalues_ : ndarray of shape (n_components_,)
        Retained eigenvalues of the landmarks' kernel matrix, in decreasing order.
    rank_ : int
        Number of retained eigenvalues. If it is zero, there is one feature that is always 0.
    kernel_ : Kernel
        The kernel, with the resolved ``gamma``.
    n_components_ : int
        Number of features.

    Notes
    -----
    `fit` costs ``m^3`` plus the landmark selection; a row costs ``m`` kernel values and
    ``m n_components_`` multiplications. Directions with negative eigenvalues of an indefinite
    kernel (sigmoid) are dropped.

    Rows of weight zero are ignored; equal rows count once, with the sum of their weights.

    References
    ----------
    Williams and Seeger, "Using the Nystroem method to speed up kernel machines", 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from likelier import NystroemFeatures
    >>> X = np.array([[0.0], [1.0], [1.0], [2.0]])
    >>> features = NystroemFeatures(kernel="linear").fit(X)
    >>> features.rank_
    1
    >>> phi = features.transform(X)
    >>> (phi @ phi.T).round(6)[3]
    array([0., 2., 2., 4.])
    """

    def __init__(
        self,
        n_components: int | str = "auto",
        *,
        kernel: Any = "rbf",
        gamma: Any = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        landmarks: str = "kmeans++",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.landmarks = landmarks
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Choose landmarks and decompose their kernel matrix.

        Parameters
        ----------
        X : array, frame or sparse matrix of shape (n_samples, n_features)
        y : ignored
        sample_weight : array of shape (n_samples,), optional
            Non-negative; landmarks are drawn in proportion to it.
        """
        X = self._rows(X, reset=True)
        if sample_weight is not None:
            sample_weight = checked_weight(sample_weight, X)
        fitted = self._fit(self._stream(), X, sample_weight)
        self.kernel_ = fitted.kernel
        self.landmark_indices_ = fitted.indices
        self.landmarks_ = fitted.params["landmarks"]
        self.projection_ = fitted.params["projection"]
        self.eigenvalues_ = fitted.eigenvalues
        self.rank_ = len(fitted.eigenvalues)
        self.n_components_ = int(self.projection_.shape[1])
        return self

    def transform(self, X: Any, out: Array | None = None) -> Array:
        """Features of the rows.

        Parameters
        ----------
        X : array, frame or sparse matrix of shape (n_samples, n_features)
            With a precomputed kernel, kernel values with all training rows.
        out : ndarray of shape (n_samples, n_components_), optional
            C-contiguous, of the type of ``X``; written to and returned.

        Returns
        -------
        ndarray of shape (n_samples, n_components_), float32 if ``X`` is, else float64
        """
        check_is_fitted(self)
        params = {"landmarks": self.landmarks_, "projection": self.projection_}
        return self._apply(self.kernel_, params, self._rows(X, reset=False), out)

    # -- FeatureMap interface -----------------------------------------------------------
    def init(self, key: np.random.Generator, sample: Matrix) -> Mapping[str, Array]:
        """Choose ``landmarks`` and compute their ``projection`` (and ``gamma``)."""
        return self._fit(key, sample, None).params

    def apply(self, params: Mapping[str, Array], X: Matrix, out: Array | None = None) -> Array:
        """Features of the rows of ``X`` for these parameters."""
        gamma: Any = params.get("gamma", 1.0)
        kernel = self._kernel(gamma if np.ndim(gamma) else float(gamma))
        return self._apply(kernel, params, X, out)

    def _kernel(self, gamma: Any, **data: Any) -> Kernel:
        params = {"gamma": gamma, "degree": self.degree, "coef0": self.coef0}
        return make_kernel(self.kernel, **params, **data)

    def _fit(self, key: np.random.Generator, X: Matrix, weight: Array | None) -> _NystroemFit:
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
        return _NystroemFit(kernel, indices, eigenvalues, params)

    def _apply(
        self, kernel: Kernel, params: Mapping[str, Any], X: Matrix, out: Array | None
    ) -> Array:
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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        return tags


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
