"""`FourierFeatures`: random Fourier features as a transformer of scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Matrix
from likelier.features.fourier_map import FourierMap, n_features_out
from likelier.features.outputs import new_output
from likelier.features.shell import KernelFeatures
from likelier.kernels import Kernel


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
        stream, plain = self._stream(), self._map()
        self.kernel_ = plain.resolve_kernel(X, stream)
        params = plain.draw(self.kernel_, X, stream)
        self.frequencies_ = params["frequencies"]
        self.phase_ = params["phase"]
        self.n_components_ = n_features_out(params)
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

    # -- FeatureMap interface -----------------------------------------------------------
    def _map(self) -> FourierMap:
        return FourierMap(self.n_components, self.kernel, self.gamma, self.sampling, self.paired)

    def init(self, key: np.random.Generator, sample: Matrix) -> Mapping[str, Array]:
        """Sample ``frequencies`` and ``phase`` for rows like these."""
        return self._map().init(key, sample)

    def apply(self, params: Mapping[str, Array], X: Matrix, out: Array | None = None) -> Array:
        """Features of the rows of ``X`` for these parameters."""
        return self._map().apply(params, X, out)
