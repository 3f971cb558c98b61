"""Build kernels from names, JSON dicts and data-dependent scales."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array, Matrix
from likelier.kernels.base import Kernel
from likelier.kernels.kinds import (
    Custom,
    Laplacian,
    Linear,
    Matern,
    Poly,
    Precomputed,
    Rbf,
    Sigmoid,
    products,
)
from likelier.kernels.loops import l1_distances
from likelier.loops.rows import row_norms

KERNELS: dict[str, type[Kernel]] = {
    cls.name: cls for cls in (Rbf, Laplacian, Matern, Poly, Sigmoid, Linear, Precomputed)
}
# nu is part of the name for estimators without a nu parameter
_WITH_NU = {"matern32": 1.5, "matern52": 2.5}
GAMMA_RULES = ("scale", "auto", "median")
MEDIAN_ROWS = 1000
MIN_SQUARE = 1e-300  # of squares; smaller ones have lost digits, and their inverse overflows


def make_kernel(
    kernel: str | Kernel | Mapping[str, Any] | Any,
    *,
    gamma: Any = "scale",
    degree: int = 3,
    coef0: float = 0.0,
    X: Matrix | None = None,
    sample_weight: Array | None = None,
    random_state: np.random.Generator | None = None,
) -> Kernel:
    """Build a kernel from a name, a `Kernel`, its JSON dict, or a function of two matrices.

    Parameters
    ----------
    kernel : str, Kernel, mapping or callable
        One of "rbf", "laplacian", "matern" (or "matern52"), "matern32", "poly", "sigmoid",
        "linear", "precomputed"; a `Kernel` or its JSON dict, which keep their own parameters;
        or a function ``function(X, Y)``.
    gamma : float, array of shape (n_features,), or {"scale", "auto", "median"}
        See `gamma_from_data`. An array is for stationary kernels only.
    degree, coef0 : int and float
        For the kernels that have them.
    X : ndarray or CSR matrix, optional
        Rows for a data-dependent ``gamma``.
    sample_weight : array of shape (n_rows,), optional
        Weights of the rows, for "scale".
    random_state : Generator, optional
        Subsamples the rows for "median"; seed 0 by default.
    """
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, Mapping):
        return kernel_from_json(kernel)
    if callable(kernel):
        return Custom(kernel)
    if not isinstance(kernel, str):
        raise TypeError(f"kernel must be a name, a Kernel or a function, got {kernel!r}")
    nu = _WITH_NU.get(kernel, 2.5)
    name = "matern" if kernel in _WITH_NU else kernel
    if name not in KERNELS:
        raise ValueError(
            f"kernel={kernel!r} is not known; choose one of {sorted([*KERNELS, *_WITH_NU])}, "
            "or pass a function of two matrices"
        )
    cls = KERNELS[name]
    given = {"gamma": gamma, "degree": degree, "coef0": coef0, "nu": nu}
    params = {key: value for key, value in given.items() if key in cls.__dataclass_fields__}
    if isinstance(params.get("gamma"), str) or params.get("gamma", 1.0) is None:
        rule = "auto" if gamma is None else gamma
        params["gamma"] = gamma_from_data(rule, X, cls, sample_weight, random_state)
    return cls(**params)


def kernel_from_json(plain: Mapping[str, Any]) -> Kernel:
    """Inverse of `Kernel.to_json`."""
    params = dict(plain)
    name = params.pop("name", None)
    if not isinstance(name, str) or name not in KERNELS:
        raise ValueError(f"kernel={name!r} is not known; choose one of {sorted(KERNELS)}")
    return KERNELS[name]().set_params(**params)


def gamma_from_data(
    rule: str,
    X: Matrix | None,
    kernel: type[Kernel] = Rbf,
    sample_weight: Array | None = None,
    random_state: np.random.Generator | None = None,
) -> float:
    """Compute ``gamma`` by one of these rules.

    ========  ==================================================================
    auto      ``1 / d``, ``d`` the number of features
    scale     ``1 / (d v)``, ``v`` the variance of all entries of ``X``
              (``1 / (d sqrt(v))`` for the L1 distance of the Laplacian)
    median    ``1 / (2 m^2)``, ``m`` the median distance of distinct rows,
              at most 1000 of them (``1 / m`` in L1 for the Laplacian)
    ========  ==================================================================

    Constant data give 1.
    """
    if rule not in GAMMA_RULES:
        raise ValueError(f"gamma={rule!r} is not known; pass a number or one of {GAMMA_RULES}")
    if X is None:
        raise ValueError(f"gamma={rule!r} is computed from data; pass X")
    if rule == "auto":
        return 1.0 / int(X.shape[1])
    by_l1 = kernel is Laplacian
    with np.errstate(over="ignore", invalid="ignore"):
        if rule == "scale":
            denominator = _variance(X, sample_weight)
            denominator = int(X.shape[1]) * (float(np.sqrt(denominator)) if by_l1 else denominator)
        else:
            denominator = _median_distance(X, by_l1, random_state or np.random.default_rng(0))
            denominator = denominator if by_l1 else float(2.0 * np.square(denominator))
    if denominator == 0.0 and not _is_tiny(X):
        return 1.0
    if not MIN_SQUARE < denominator < 1.0 / MIN_SQUARE:
        size, squares = ("small", "vanish") if denominator < 1.0 else ("large", "overflow")
        raise ValueError(
            f"X is too {size}: gamma={rule!r} cannot be computed from it, because its squares "
            f"{squares}; rescale X (e.g. with StandardScaler) or pass gamma as a number"
        )
    return 1.0 / denominator


def _is_tiny(X: Matrix) -> bool:
    """Whether entries differ, but by so little that their squares underflow."""
    least, most = float(X.min()), float(X.max())
    return least < most and max(most, -least) < MIN_SQUARE**0.5


def _variance(X: Matrix, weight: Array | None) -> float:
    """Variance of all entries, implicit zeros included."""
    if weight is None and not sparse.issparse(X):
        return float(np.var(X, dtype=np.float64))
    weights = np.ones(X.shape[0]) if weight is None else weight.astype(np.float64)
    weights = weights / (weights.sum() * X.shape[1])
    if not sparse.issparse(X):
        mean = float(weights @ X.sum(axis=1, dtype=np.float64))
        return float(weights @ ((X - mean) ** 2).sum(axis=1))
    values = X.data.astype(np.float64)
    weights = np.repeat(weights, np.diff(X.indptr))
    mean = float(weights @ values)
    return float(weights @ (values - mean) ** 2) + (1.0 - float(weights.sum())) * mean * mean


def _median_distance(X: Matrix, by_l1: bool, stream: np.random.Generator) -> float:
    """Median distance of row pairs; of distinct pairs only, if most pairs coincide."""
    if X.shape[0] > MEDIAN_ROWS:
        X = X[np.sort(stream.choice(X.shape[0], MEDIAN_ROWS, replace=False))]
    X = X.astype(np.float64)
    distances = np.empty((X.shape[0], X.shape[0]))
    if by_l1:
        l1_distances(X, X, distances)
    else:
        distances = _distances(X, distances)
    pairs = distances[np.triu_indices(len(distances), 1)]
    if not len(pairs):
        return 0.0
    median = float(np.median(pairs))
    distinct = pairs[pairs > 0]
    return median if median > 0 or not len(distinct) else float(np.median(distinct))


def _distances(X: Matrix, out: Array) -> Array:
    """Euclidean distances of all pairs of rows; 0 where only rounding error remains."""
    if not sparse.issparse(X):
        X = X - X.mean(axis=0)
    products(X, X, out)
    norms = row_norms(X)
    total = norms[:, None] + norms
    squares = total - 2.0 * out
    squares[squares <= 1e-13 * total] = 0.0
    return np.sqrt(squares)
