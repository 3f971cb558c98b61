"""Random Fourier features of stationary kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Matrix
from likelier.features.loops.fourier_rows import make_waves, map_rows
from likelier.features.outputs import new_output
from likelier.features.shell import KernelFeatures, block_rows, output_for, resolve_count
from likelier.features.spectrum import check_spectral, draw_frequencies, scales
from likelier.kernels import Kernel, make_kernel
from likelier.loops.sincos import fourier_features

# Dense rows are mapped in tiles if there are enough rows to amortise the setup and so few inputs
# that a general matrix product is slower.
MIN_TILED_ROWS, MAX_TILED_INPUTS = 128, 256
TILED_ROWS = 1024  # per call; also bounds the copy, if one is needed


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
        self.kernel_ = self.resolve_kernel(X, stream)
        params = self._draw(self.kernel_, X, stream)
        self.frequencies_ = params["frequencies"]
        self.phase_ = params["phase"]
        self.n_components_ = _width(params)
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
    def init(self, key: np.random.Generator, sample: Matrix) -> Mapping[str, Array]:
        """Sample ``frequencies`` and ``phase`` for rows like these."""
        return self._draw(self.resolve_kernel(sample, key), sample, key)

    def resolve_kernel(self, sample: Matrix, key: np.random.Generator) -> Kernel:
        """The kernel, with ``gamma`` computed from these rows if it is a rule."""
        kernel = make_kernel(self.kernel, gamma=self.gamma, X=sample, random_state=key)
        return check_spectral(kernel)

    def apply(self, params: Mapping[str, Array], X: Matrix, out: Array | None = None) -> Array:
        """Features of the rows of ``X`` for these parameters."""
        frequencies = params["frequencies"].astype(X.dtype, copy=False)
        phase = params["phase"].astype(X.dtype, copy=False)
        out = output_for(X, _width(params), out)
        _check_angles(X, frequencies)
        if (
            isinstance(X, np.ndarray)
            and len(X) >= MIN_TILED_ROWS
            and X.shape[1] <= MAX_TILED_INPUTS
        ):
            _map_tiles(X, frequencies, phase, out)
            return out
        step = block_rows(frequencies.shape[1])
        angles = np.empty((min(step, X.shape[0]), frequencies.shape[1]), dtype=X.dtype)
        for start in range(0, X.shape[0], step):
            rows = X[start : start + step]
            here = angles[: rows.shape[0]]
            if isinstance(rows, np.ndarray):
                np.matmul(rows, frequencies, out=here)
            else:
                here[:] = rows @ frequencies
            fourier_features(here, phase, out[start : start + step])
        return out

    def _draw(self, kernel: Kernel, X: Matrix, stream: np.random.Generator) -> dict[str, Array]:
        if not isinstance(self.paired, bool | np.bool_):
            raise TypeError(f"paired must be True or False, got {self.paired!r}")
        n_rows, n_features = X.shape
        width = resolve_count(self.n_components, _default_components(n_rows, n_features))
        single = width % 2 if self.paired else width
        count = (width - single) // 2 + single
        frequencies = draw_frequencies(kernel, n_features, count, self.sampling, stream)
        frequencies *= scales(kernel, n_features)[:, None]
        if not np.abs(frequencies).max() < np.finfo(X.dtype).max:
            raise ValueError(
                f"gamma is so large that frequencies overflow in {X.dtype}; give X in larger "
                "units, or use a smaller gamma"
            )
        return {
            "frequencies": np.ascontiguousarray(frequencies, dtype=X.dtype),
            "phase": stream.uniform(0.0, 2.0 * np.pi, single).astype(X.dtype),
        }


def _check_angles(X: Matrix, frequencies: Array) -> None:
    """Raise if an angle ``omega^T x`` might overflow."""
    values = X if isinstance(X, np.ndarray) else X.data
    if not values.size:
        return
    largest = max(float(values.max()), -float(values.min()))
    fastest = max(float(frequencies.max()), -float(frequencies.min()))
    limit = float(np.finfo(X.dtype).max) / X.shape[1]
    if largest > 1.0 and fastest > limit / largest:
        raise ValueError(
            f"X holds numbers up to {largest:.3g}, which overflow when multiplied by frequencies "
            f"up to {fastest:.3g}; scale X down or use a smaller gamma"
        )


def _map_tiles(X: Array, frequencies: Array, phase: Array, out: Array) -> None:
    """Write the features of dense rows.

    Rows that are not C-contiguous or not writeable are copied: each memory layout would compile its
    own loop.
    """
    waves = make_waves(np.require(frequencies, None, ["C", "W"]), phase, out.shape[1])
    for start in range(0, len(X), TILED_ROWS):
        rows = np.require(X[start : start + TILED_ROWS], None, ["C", "A", "W"])
        map_rows(rows, waves, out[start : start + TILED_ROWS])


def _width(params: Mapping[str, Array]) -> int:
    """Number of features."""
    return 2 * int(params["frequencies"].shape[1]) - len(params["phase"])


def _default_components(n_rows: int, n_features: int) -> int:
    """Default number of features: ~ sqrt(n) log(n) keeps the error below the learning error."""
    wanted = max(4.0 * np.sqrt(n_rows) * np.log(max(n_rows, 2)), 2.0 * n_features)
    return int(2 ** np.ceil(np.log2(np.clip(wanted, 128, 2048))))
