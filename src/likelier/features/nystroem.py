"""Nystroem features: rows described by their kernel values with a few landmarks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import linalg
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Matrix
from likelier.features.landmarks import METHODS, choose_landmarks, find_candidates
from likelier.features.shell import KernelFeatures, block_rows, count_of, output_for
from likelier.kernels import Kernel, make_kernel
from likelier.kernels.kinds import Linear
from likelier.matrices import checked_weight

# kernel values up to which sums of a few of them can still be told, by precision
LARGEST = {np.dtype(np.float32): 1e36, np.dtype(np.float64): 1e300}
# and up to which their roots, the features, and one over these have all digits in single precision
LARGEST_OF_SINGLE = 1e60


class _Learnt(NamedTuple):
    """What a fit finds: the kernel, the landmarks' numbers, and the arrays `apply` needs."""

    kernel: Kernel
    numbers: Array
    eigenvalues: Array
    params: dict[str, Any]


class NystroemFeatures(KernelFeatures):
    """Features from the kernel values with a few rows of the data, for any kernel.

    With landmarks ``z_1..z_m`` and the eigenvalues and eigenvectors ``K_zz = U D U^T``,
    ``phi(x) = D^{-1/2} U^T k(z, x)``: the best reproduction of the kernel by these landmarks,
    exact among themselves. Eigenvalues that are nothing but rounding are dropped.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        Number of landmarks, at most the number of different rows. With "auto" about
        ``2 sqrt(n) log(n)`` for ``n`` rows, between 64 and 1024.
    kernel : str, Kernel or callable, default="rbf"
        "rbf", "laplacian", "matern32", "matern52", "poly", "sigmoid", "linear" or
        "precomputed"; a `likelier.kernels.Kernel`, which brings its own parameters; or a
        function of two matrices that returns the matrix of kernel values.
    gamma : float, array of shape (n_features,), or {"scale", "auto", "median"}
        Inverse width of the kernel; see `likelier.kernels` and
        `likelier.kernels.gamma_from_data`.
    degree, coef0 : int and float
        For "poly" and "sigmoid".
    landmarks : {"kmeans++", "uniform", "leverage"}, default="kmeans++"
        How landmarks are chosen; see `likelier.features.landmarks`. "uniform" costs nothing and
        misses what is rare; "kmeans++" costs about as much as `transform` of 10,000 rows.
    random_state : int, RandomState, Generator or None, default=None
        Same number, same landmarks.

    Attributes
    ----------
    landmarks_ : ndarray or CSR matrix of shape (m, n_features)
        The landmarks; with a precomputed kernel their positions among the training rows.
    landmark_indices_ : ndarray of shape (m,)
        Their positions among the training rows.
    projection_ : ndarray of shape (m, n_components_)
        From kernel values with the landmarks to features.
    eigenvalues_ : ndarray of shape (n_components_,)
        Eigenvalues of the landmarks' kernel matrix that were kept, largest first.
    rank_ : int
        The effective rank of that matrix: how many eigenvalues were kept. It is the number of
        features unless it is zero, when there is one feature that is always 0.
    kernel_ : Kernel
        The kernel with the ``gamma`` that was used.
    n_components_ : int
        Number of features.

    Notes
    -----
    `fit` costs ``m^3`` and the choice of landmarks; a row then costs ``m`` kernel values and
    ``m n_components_`` multiplications. Of an indefinite kernel (sigmoid) the part with
    negative eigenvalues has no features and is left out.

    Rows of weight zero are absent, and equal rows count once, with the sum of their weights.

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
            Non-negative; a landmark is chosen in proportion to it.
        """
        X = self._rows(X, reset=True)
        if sample_weight is not None:
            sample_weight = checked_weight(sample_weight, X)
        learnt = self._learn(self._stream(), X, sample_weight)
        self.kernel_ = learnt.kernel
        self.landmark_indices_ = learnt.numbers
        self.landmarks_ = learnt.params["landmarks"]
        self.projection_ = learnt.params["projection"]
        self.eigenvalues_ = learnt.eigenvalues
        self.rank_ = len(learnt.eigenvalues)
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

    # -- as a feature map -----------------------------------------------------------------
    def init(self, key: np.random.Generator, sample: Matrix) -> Mapping[str, Array]:
        """Choose ``landmarks`` and compute their ``projection`` (and ``gamma``)."""
        return self._learn(key, sample, None).params

    def apply(self, params: Mapping[str, Array], X: Matrix, out: Array | None = None) -> Array:
        """Features of the rows of ``X`` with these landmarks."""
        gamma: Any = params.get("gamma", 1.0)
        kernel = self._kernel(gamma if np.ndim(gamma) else float(gamma))
        return self._apply(kernel, params, X, out)

    def _kernel(self, gamma: Any, **data: Any) -> Kernel:
        words = {"gamma": gamma, "degree": self.degree, "coef0": self.coef0}
        return make_kernel(self.kernel, **words, **data)

    def _learn(self, key: np.random.Generator, X: Matrix, weight: Array | None) -> _Learnt:
        if self.landmarks not in METHODS:
            raise ValueError(f"landmarks must be one of {METHODS}, got {self.landmarks!r}")
        count = count_of(self.n_components, _automatic(X.shape[0]))
        candidates = find_candidates(X, weight, count, key)
        rows = X[candidates.numbers]
        # the scale is that of the data; the distances between different rows need no weights
        whole = isinstance(self.gamma, str) and self.gamma == "scale"
        data = {"X": X, "sample_weight": weight} if whole else {"X": rows}
        kernel = self._kernel(self.gamma, **data, random_state=key)
        if kernel.precomputed:
            kernel.prepare(X)  # complains unless X is square
            rows = rows[:, candidates.numbers]
        seen = rows if kernel.precomputed else _wide_enough(kernel, rows)
        chosen = choose_landmarks(kernel, seen, candidates.weight, count, self.landmarks, key)
        numbers = candidates.numbers[chosen]
        among = rows[chosen][:, chosen] if kernel.precomputed else rows[chosen]
        projection, eigenvalues = _whitened(kernel.matrix(among.astype(np.float64)), X.dtype)
        params = {
            "landmarks": numbers if kernel.precomputed else rows[chosen],
            "projection": projection,
        }
        gamma = kernel.get_params().get("gamma")
        if gamma is not None:
            params["gamma"] = np.asarray(gamma, dtype=np.float64)
        return _Learnt(kernel, numbers, eigenvalues, params)

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
                here = ready.against(rows, out=values[: rows.shape[0]])
                np.matmul(here, projection, out=part)
            if not (bounded or np.isfinite(part).all()):
                _fill_wide(kernel, params, rows, part)
        return out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        return tags


def _wide_enough(kernel: Kernel, rows: Matrix) -> Matrix:
    """Rows in a precision in which their kernel values do not overflow."""
    if not isinstance(kernel, Linear):
        return rows
    for wide in (rows, rows.astype(np.float64)):
        with np.errstate(over="ignore", invalid="ignore"):
            largest = float(np.abs(kernel.diagonal(wide)).max(initial=0.0))
        if largest < LARGEST[wide.dtype]:  # not where it is NaN
            break
    single = rows.dtype == np.float32
    if not largest < (LARGEST_OF_SINGLE if single else LARGEST[rows.dtype]):
        raise ValueError(_overflow(kernel, " or features in float32" if single else ""))
    return wide


def _fill_wide(kernel: Kernel, params: Mapping[str, Any], rows: Matrix, out: Array) -> None:
    """Features of rows whose kernel values overflow in their own precision."""
    double = np.float64
    with np.errstate(over="ignore", invalid="ignore"):
        values = kernel.matrix(rows.astype(double), params["landmarks"].astype(double))
        out[:] = values @ params["projection"].astype(double)
    if not np.isfinite(out).all():
        raise ValueError(_overflow(kernel, f" or features in {out.dtype}"))


def _overflow(kernel: Kernel, features: str = "") -> str:
    return (
        f"values of kernel {kernel.name!r}{features} overflow; scale the features of X down, or "
        "choose a smaller gamma or degree"
    )


def _whitened(K: Array, dtype: Any) -> tuple[Array, Array]:
    """``U D^{-1/2}`` and ``D`` of a kernel matrix, largest eigenvalue first.

    Eigenvalues below ``m eps64 max`` are rounding of the decomposition (for a handful of landmarks
    it is a few times that, hence 32). In single precision the
    kernel values of a row are rounded too, and an eigenvalue below ``eps32 max`` would blow that
    up to more than it tells.
    """
    K = 0.5 * (K + K.T)
    if not np.isfinite(K).all():
        raise ValueError("the kernel gives values that are not finite; scale the features down")
    values, vectors = linalg.eigh(K)
    values, vectors = values[::-1], vectors[:, ::-1]
    least = max(len(K), 32) * float(np.finfo(np.float64).eps)
    if dtype == np.float32:
        least = max(least, float(np.finfo(np.float32).eps))
    kept = int((values > max(least * values[0], np.finfo(np.float64).tiny)).sum())
    if kept == 0:  # nothing but zeros: one feature that is always 0
        return np.zeros((len(K), 1), dtype=dtype), values[:0]
    values, vectors = values[:kept].copy(), vectors[:, :kept]
    largest = np.abs(vectors).argmax(axis=0)  # LAPACK may return either sign
    vectors = vectors * np.sign(vectors[largest, np.arange(kept)])
    return np.ascontiguousarray(vectors / np.sqrt(values), dtype=dtype), values


def _automatic(n_rows: int) -> int:
    """Landmarks for this many rows: an error below that of learning needs ~ sqrt(n) log(n)."""
    return int(np.clip(2.0 * np.sqrt(n_rows) * np.log(max(n_rows, 2)), 64, 1024))
