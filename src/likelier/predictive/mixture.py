"""What all mixtures share: checked components and weights, and what every predictive answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from likelier.base import Array, Uncertainty


def component_array(value: npt.ArrayLike, name: str, ndim: int) -> Array:
    """Return a finite float64 array with a component axis, which a mixture of one may omit."""
    array = np.atleast_1d(np.asarray(value, dtype=np.float64))
    if array.ndim == ndim - 1:
        array = array[:, np.newaxis]
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim - 1} or {ndim} dimensions, got {array.ndim}")
    if not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be finite; it holds NaN or infinity (of a fitted model: values of X are "
            "too large; rescale them)"
        )
    return array


def mixture_weights(weights: npt.ArrayLike, n: int, n_components: int) -> Array:
    """Return weights of shape ``(n, M)`` whose rows sum to one; a single one stands for all."""
    if n_components == 0:
        raise ValueError("a mixture needs at least one component, got none")
    array = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    if array.shape not in ((1, 1), (1, n_components), (n, n_components)):
        raise ValueError(
            f"weights must have shape ({n_components},) or ({n}, {n_components}), "
            f"got {np.shape(weights)}"
        )
    if not (np.isfinite(array) & (array >= 0.0)).all():
        raise ValueError("weights must be finite and >= 0")
    array = np.broadcast_to(array, (array.shape[0], n_components))
    total = array.sum(axis=1, keepdims=True)
    if not ((total > 0.0) & np.isfinite(total)).all():
        raise ValueError("weights of every row must have a positive, finite sum")
    return np.broadcast_to(array / total, (n, n_components))


def average(weights: Array, values: Array) -> Array:
    """Weighted sum over components; weight zero stays zero, even of an infinite value."""
    parts = np.multiply(weights, values, where=weights > 0.0, out=np.zeros_like(values))
    return np.asarray(parts.sum(axis=1))


def log(p: Array) -> Array:
    """Logarithm; minus infinity of zero."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p))


@dataclass(frozen=True, eq=False)
class Predictive(ABC):
    """Distribution of the target of each row, a weighted mixture.

    Parameters
    ----------
    weights : array of shape (M,) or (n, M)
        Weights of the components, equal by default.
    """

    weights: Array = field(default_factory=lambda: np.ones(1), kw_only=True)

    @property
    def n_rows(self) -> int:
        """How many rows are predicted."""
        return len(self.weights)

    def _set(self, **arrays: Array) -> None:
        """Keep checked arrays; for ``__post_init__`` only, since a predictive is frozen."""
        for name, array in arrays.items():
            object.__setattr__(self, name, array)

    @abstractmethod
    def log_density(self, y: npt.ArrayLike) -> Array:
        """Log probability (classes) or log density (numbers) of one target per row."""

    @abstractmethod
    def point(self) -> Array:
        """One value for each row: the number of the most probable class, or the mean."""

    @abstractmethod
    def uncertainty(self) -> Uncertainty:
        """Uncertainty of each row: entropies in nats for classes, variances for numbers.

        Aleatoric is the average within the components, epistemic their disagreement.
        """
