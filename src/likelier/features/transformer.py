"""The feature maps as transformers of scikit-learn."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, FeatureMap, Matrix
from likelier.features.fourier import RandomFourier, n_features
from likelier.features.nystroem import Nystroem, apply_kernel
from likelier.features.outputs import new_output
from likelier.kernels import Kernel, make_kernel
from likelier.matrices import checked_weight, validated_rows


class KernelFeatures(FeatureMap, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base class: a transformer that is also a `FeatureMap`."""

    kernel: Any
    gamma: Any
    random_state: Any
    n_components_: int

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``kernel__gamma`` etc. replace the kernel by a modified one.

        If the kernel is given by name, they set the parameters of the transformer itself.
        """
        own = {k: v for k, v in params.items() if not k.startswith("kernel__")}
        super().set_params(**own)
        nested = {k.removeprefix("kernel__"): v for k, v in params.items() if k not in own}
        if isinstance(self.kernel, str) and nested:
            make_kernel(self.kernel, gamma=1.0).set_params(**nested)  # validates
            own = {k: v for k, v in nested.items() if k in self.get_params(deep=False)}
            super().set_params(**own)
            nested = {k: v for k, v in nested.items() if k not in own}
        if nested:
            self.kernel = make_kernel(self.kernel, gamma=self.gamma).set_params(**nested)
        return self

    @abstractmethod
    def _map(self) -> Any:
        """The feature map of these parameters."""

    def init(self, key: np.random.Generator, sample: Matrix) -> Mapping[str, Array]:
        """Draw or learn the parameters of the map from a sample of rows."""
        params: Mapping[str, Array] = self._map().init(key, sample)
        return params

    def apply(self, params: Mapping[str, Array], X: Matrix, out: Array | None = None) -> Array:
        """Features of the rows of ``X`` for these parameters."""
        return np.asarray(self._map().apply(params, X, out))

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _rows(self, X: Any, reset: bool) -> Matrix:
        """Validated rows: float32 or float64, dense or CSR."""
        return validated_rows(self, X, reset)

    def _stream(self) -> np.random.Generator:
        """Random generator of one fit."""
        if isinstance(self.random_state, np.random.Generator):
            return self.random_state
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return np.random.default_rng(seed)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class FourierFeatures(KernelFeatures):
    """Random Fourier features of a stationary kernel.

    ``phi(x) = D^{-1/2} [cos(omega_i^T x), sin(omega_i^T x)]_{i=1..D}`` with random frequencies
    ``omega_i``. ``phi(x)^T phi(y)`` is an unbiased estimate of the kernel with an error of order
    ``D^{-1/2}``.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        Number of features ``M = 2 D``; if odd, the last one is a cosine with a random phase.
        "auto": about ``4 sqrt(n) log(n)``, rounded up to a power of two between 128 and 2048, and
        at least two per input (up to 2048).
    kernel : {"rbf", "laplacian", "matern32", "matern52"} or Kernel, default="rbf"
        A `likelier.kernels.Kernel` brings its own ``gamma``.
    gamma : float, array of shape (n_features,), or {"scale", "auto", "median"}
        Inverse width, shared or per feature; see `likelier.kernels.gamma_from_data`.
    sampling : {"orthogonal", "independent", "quasi"}, default="orthogonal"
        How frequencies are sampled; see `likelier.features.spectrum`. All are unbiased.
        "orthogonal" has the smallest error for kernels of the Euclidean distance, "quasi" for the
        Laplacian.
    paired : bool, default=True
        A cosine and a sine per frequency; else ``sqrt(2/M) cos(omega^T x + b)`` with a random phase
        ``b`` and one frequency per feature. Pairs cost less and have the smaller error where
        the kernel is large; ``phi(x)^T phi(x)`` is then exactly 1.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the frequencies.

    Attributes
    ----------
    frequencies_ : ndarray of shape (n_features, D)
        Frequencies as columns, of the type of the training rows.
    phase_ : ndarray
        Phases of the last ``len(phase_)`` frequencies, which yield one cosine each; the others
        yield pairs. Empty for an even number of paired features.
    kernel_ : Kernel
        The approximated kernel, with the resolved ``gamma``.
    n_components_ : int
        Number of features.

    Notes
    -----
    A row costs ``n_features * D`` multiplications (``nnz * D`` if sparse) and ``D`` joint
    evaluations of sine and cosine, in cache-sized blocks. Only the output grows with the number of
    rows. `transform` takes ``out`` to write into an existing array; otherwise outputs above 32 MB
    reuse the memory of earlier outputs that have been freed (the process keeps up to 128 MB). For
    at least 128 dense rows with at most 256 inputs, the bits of a row do not depend on the other
    rows; elsewhere the matrix product may round differently for other shapes.

    References
    ----------
    Rahimi and Recht, 2007; Yu et al., 2016: see `likelier.features.spectrum`.

    Examples
    --------
    >>> import numpy as np
    >>> from likelier import FourierFeatures
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 4.0]])
    >>> phi = FourierFeatures(4096, gamma=0.5, random_state=0).fit_transform(X)
    >>> (phi @ phi.T).round(1) + 0.0
    array([[1. , 0.6, 0. ],
           [0.6, 1. , 0. ],
           [0. , 0. , 1. ]])
    """

    def __init__(
        self,
        n_components: int | str = "auto",
        *,
        kernel: str | Kernel = "rbf",
        gamma: Any = "scale",
        sampling: str = "orthogonal",
        paired: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.sampling = sampling
        self.paired = paired
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Sample the frequencies; only the shape, type and scale of the rows matter.

        Parameters
        ----------
        X : array, frame or sparse matrix of shape (n_samples, n_features)
        y : ignored
        """
        X = self._rows(X, reset=True)
        stream = self._stream()
        fourier = self._map()
        self.kernel_ = fourier.resolve_kernel(X, stream)
        params = fourier.draw(self.kernel_, X, stream)
        self.frequencies_ = params["frequencies"]
        self.phase_ = params["phase"]
        self.n_components_ = n_features(params)
        return self

    def transform(self, X: Any, out: Array | None = None) -> Array:
        """Features of the rows.

        Parameters
        ----------
        X : array, frame or sparse matrix of shape (n_samples, n_features)
        out : ndarray of shape (n_samples, n_components_), optional
            C-contiguous, of the type of ``X``; written to and returned.

        Returns
        -------
        ndarray of shape (n_samples, n_components_), float32 if ``X`` is, else float64
        """
        check_is_fitted(self)
        params = {"frequencies": self.frequencies_, "phase": self.phase_}
        rows = self._rows(X, reset=False)
        if out is None:
            out = new_output((rows.shape[0], self.n_components_), rows.dtype)
        return self.apply(params, rows, out)

    def _map(self) -> RandomFourier:
        return RandomFourier(self.n_components, self.kernel, self.gamma, self.sampling, self.paired)


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
        fitted = self._map().choose(self._stream(), X, sample_weight)
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
        return apply_kernel(self.kernel_, params, self._rows(X, reset=False), out)

    def _map(self) -> Nystroem:
        return Nystroem(
            self.n_components, self.kernel, self.gamma, self.degree, self.coef0, self.landmarks
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        return tags
