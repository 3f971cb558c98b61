"""Random Fourier features of stationary kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from likelier.base import Array, FeatureMap, Matrix
from likelier.features.loops.fourier_rows import make_waves, map_rows
from likelier.features.sizes import block_rows, output_for, resolve_count
from likelier.features.spectrum import check_spectral, draw_frequencies, scales
from likelier.kernels import Kernel, make_kernel
from likelier.loops.sincos import fourier_features

# Dense rows are mapped in tiles if there are enough rows to amortise the setup and so few inputs
# that a general matrix product is slower.
MIN_TILED_ROWS, MAX_TILED_INPUTS = 128, 256
TILED_ROWS = 1024  # per call; also bounds the copy, if one is needed


@dataclass(frozen=True, eq=False)
class RandomFourier(FeatureMap):
    """Random Fourier features; see `FourierFeatures`, which has the same parameters."""

    n_components: int | str = "auto"
    kernel: str | Kernel = "rbf"
    gamma: Any = "scale"
    sampling: str = "orthogonal"
    paired: bool = True

    def init(self, key: np.random.Generator, sample: Matrix) -> Mapping[str, Array]:
        """Sample ``frequencies`` and ``phase`` for rows like these."""
        return self.draw(self.resolve_kernel(sample, key), sample, key)

    def resolve_kernel(self, sample: Matrix, key: np.random.Generator) -> Kernel:
        """The kernel, with ``gamma`` computed from these rows if it is a rule."""
        kernel = make_kernel(self.kernel, gamma=self.gamma, X=sample, random_state=key)
        return check_spectral(kernel)

    def apply(self, params: Mapping[str, Array], X: Matrix, out: Array | None = None) -> Array:
        """Features of the rows of ``X`` for these parameters."""
        frequencies = params["frequencies"].astype(X.dtype, copy=False)
        phase = params["phase"].astype(X.dtype, copy=False)
        out = output_for(X, n_features(params), out)
        _check_angles(X, frequencies)
        if isinstance(X, np.ndarray) and _suits_tiles(X):
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

    def draw(self, kernel: Kernel, X: Matrix, stream: np.random.Generator) -> dict[str, Array]:
        """Sample the parameters for a kernel whose ``gamma`` is known."""
        if not isinstance(self.paired, bool | np.bool_):
            raise TypeError(f"paired must be True or False, got {self.paired!r}")
        n_rows, n_inputs = X.shape
        width = resolve_count(self.n_components, _default_components(n_rows, n_inputs))
        single = width % 2 if self.paired else width
        count = (width - single) // 2 + single
        frequencies = draw_frequencies(kernel, n_inputs, count, self.sampling, stream)
        frequencies *= scales(kernel, n_inputs)[:, None]
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


def _suits_tiles(X: Array) -> bool:
    """Whether tiles are faster than a matrix product for these rows."""
    return len(X) >= MIN_TILED_ROWS and X.shape[1] <= MAX_TILED_INPUTS


def _map_tiles(X: Array, frequencies: Array, phase: Array, out: Array) -> None:
    """Write the features of dense rows.

    Rows that are not C-contiguous or not writeable are copied: each memory layout would compile its
    own loop.
    """
    waves = make_waves(np.require(frequencies, None, ["C", "W"]), phase, out.shape[1])
    for start in range(0, len(X), TILED_ROWS):
        rows = np.require(X[start : start + TILED_ROWS], None, ["C", "A", "W"])
        map_rows(rows, waves, out[start : start + TILED_ROWS])


def n_features(params: Mapping[str, Array]) -> int:
    """Number of features."""
    return 2 * int(params["frequencies"].shape[1]) - len(params["phase"])


def _default_components(n_rows: int, n_inputs: int) -> int:
    """Default number of features: ~ sqrt(n) log(n) keeps the error below the learning error."""
    wanted = max(4.0 * np.sqrt(n_rows) * np.log(max(n_rows, 2)), 2.0 * n_inputs)
    return int(2 ** np.ceil(np.log2(np.clip(wanted, 128, 2048))))
