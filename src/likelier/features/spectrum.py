"""Random frequencies from the spectral density of a stationary kernel.

A stationary kernel is the mean of ``cos(omega^T (x - y))`` over its spectral density. For rows
scaled such that the RBF kernel is ``exp(-|x - y|^2 / 2)``:

=================  ==============================================================
rbf                ``omega ~ N(0, I)``
matern, nu         multivariate t with ``2 nu`` degrees of freedom:
                   ``N(0, I) / sqrt(chi2(2 nu) / (2 nu))``
laplacian          independent Cauchy coordinates (not isotropic)
=================  ==============================================================

`scales` converts to the ``gamma`` of a kernel. All sampling schemes give every single frequency
exactly this distribution, so the features are unbiased; they differ in the dependence between
frequencies.

=================  ==============================================================
independent        none
orthogonal         groups of ``d`` orthogonal vectors with the lengths of
                   independent ones; a product density is reached coordinate by
                   coordinate, through the normal distribution
quasi              a scrambled Sobol sequence
=================  ==============================================================

References
----------
Rahimi and Recht, "Random features for large-scale kernel machines", 2007. Yu, Suresh,
Choromanski, Holtmann-Rice and Kumar, "Orthogonal random features", 2016. Yang, Sindhwani,
Avron and Mahoney, "Quasi-Monte Carlo feature maps for shift-invariant kernels", 2014.
"""

from __future__ import annotations

import numpy as np
from scipy.special import chdtri, ndtr, ndtri

from likelier.base import Array
from likelier.kernels import Kernel, Laplacian, Matern, Rbf

SAMPLINGS = ("independent", "orthogonal", "quasi")


def check_spectral(kernel: Kernel) -> Rbf | Laplacian | Matern:
    """Return the kernel if its spectral density can be sampled, else raise."""
    if not isinstance(kernel, Rbf | Laplacian | Matern):
        raise ValueError(
            f"kernel {kernel.name!r} has no random Fourier features; choose 'rbf', 'laplacian', "
            "'matern32' or 'matern52', or use NystroemFeatures, which takes any kernel"
        )
    return kernel


def scales(kernel: Kernel, n_features: int) -> Array:
    """Per-coordinate factor from standard draws to frequencies of this kernel."""
    kernel = check_spectral(kernel)
    gamma = np.full(n_features, 1.0) * kernel.gamma_for(n_features)
    return gamma if isinstance(kernel, Laplacian) else np.sqrt(2.0 * gamma)


def draw_frequencies(
    kernel: Kernel, n_features: int, count: int, sampling: str, stream: np.random.Generator
) -> Array:
    """Sample ``count`` standard frequencies, as columns.

    Parameters
    ----------
    kernel : Rbf, Laplacian or Matern
        Only its type (and ``nu``) matters; ``gamma`` enters through `scales`.
    n_features, count : int
        Shape of the result.
    sampling : {"independent", "orthogonal", "quasi"}
    stream : Generator

    Returns
    -------
    ndarray of shape (n_features, count)

    Notes
    -----
    Orthogonal groups cost ``O(n_features^2)`` per frequency, the others ``O(n_features)``.
    """
    kernel = check_spectral(kernel)
    if sampling not in SAMPLINGS:
        raise ValueError(f"sampling must be one of {SAMPLINGS}, got {sampling!r}")
    degrees = 2.0 * kernel.nu if isinstance(kernel, Matern) else 0.0
    shrink = None
    if sampling == "quasi":
        points = _normal_points(n_features + (1 if degrees else 0), count, stream)
        draws = points[:n_features]
        if degrees:  # an extra coordinate of the sequence gives the length
            shrink = chdtri(degrees, ndtr(-points[n_features])) / degrees
    else:
        orthogonal = sampling == "orthogonal"
        draw = _orthogonal_normals if orthogonal else _independent_normals
        draws = draw(n_features, count, stream)
        if degrees:
            shrink = stream.chisquare(degrees, count) / degrees
    if shrink is not None:
        draws /= np.sqrt(shrink)
    return _cauchy(draws) if isinstance(kernel, Laplacian) else draws


def _independent_normals(n_features: int, count: int, stream: np.random.Generator) -> Array:
    return stream.standard_normal((n_features, count))


def _orthogonal_normals(n_features: int, count: int, stream: np.random.Generator) -> Array:
    """Standard normal columns, orthogonal in groups of ``n_features``."""
    groups = []
    for start in range(0, count, n_features):
        normals = stream.standard_normal((n_features, min(n_features, count - start)))
        directions, triangle = np.linalg.qr(normals)
        # with these signs the directions are uniform over rotations; LAPACK's are not
        directions *= np.where(np.diagonal(triangle) < 0.0, -1.0, 1.0)
        lengths = np.sqrt(stream.chisquare(n_features, directions.shape[1]))
        groups.append(directions * lengths)
    return np.concatenate(groups, axis=1)


def _normal_points(n_features: int, count: int, stream: np.random.Generator) -> Array:
    """Scrambled Sobol points mapped to normal coordinates, as columns."""
    from scipy.stats import qmc  # takes as long to load as all that a prediction needs

    if n_features > qmc.Sobol.MAXDIM:
        raise ValueError(
            f"sampling='quasi' supports at most {qmc.Sobol.MAXDIM} features, got "
            f"{n_features}; use sampling='orthogonal'"
        )
    sequence = qmc.Sobol(n_features, scramble=True, rng=stream)
    points = sequence.random_base2(int(np.ceil(np.log2(max(count, 2)))))[:count].T
    tiny = 2.0**-40  # coordinates may be 0, where the quantile is infinite
    normals: Array = ndtri(np.clip(points, tiny, 1.0 - tiny))
    return np.ascontiguousarray(normals)


def _cauchy(normals: Array) -> Array:
    """Transform standard normals to standard Cauchy draws, accurate in both tails."""
    upper = np.pi * ndtr(-np.abs(normals))
    return np.asarray(np.copysign(1.0 / np.tan(np.maximum(upper, 1e-300)), normals))
