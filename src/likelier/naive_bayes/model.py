"""Base classes of naive Bayes: additive class statistics and class-conditional distributions.

A model maps a block of rows to statistics with one row per class; statistics of blocks add up, in
any order and partition. `ClassDistributions` follow from the statistics: for every class the
distribution of its rows, with independent features. ``Batch.y`` holds class indices ``0..K-1``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from likelier.base import Array, Batch, Matrix, Model

NO_WEIGHT = np.empty(0)
CLASS_PSEUDOCOUNT = 1.0  # of the Dirichlet prior on class probabilities


class ClassStatistics(ABC):
    """Additive statistics of rows, one row of every array per class.

    A frozen dataclass of arrays. ``class_count`` is the weight of each class.
    """

    class_count: Array

    @abstractmethod
    def __add__(self, other: Self) -> Self:
        """Statistics of both sets of rows; both must have the same classes."""

    @abstractmethod
    def __sub__(self, other: Self) -> Self:
        """Statistics without rows that were added before."""

    @abstractmethod
    def reindex(self, positions: Array, n_classes: int) -> Self:
        """Return the statistics over more classes; class ``k`` becomes ``positions[k]``."""

    def to_arrays(self) -> dict[str, Array]:
        """Arrays by name, for saving."""
        return {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """Inverse of `to_arrays`."""
        return cls(**arrays)


def scatter_rows(array: Array, positions: Array, n_classes: int) -> Array:
    """Array of ``n_classes`` rows with the given ones at ``positions`` and zeros elsewhere."""
    out = np.zeros((n_classes, *array.shape[1:]))
    out[positions] = array
    return out


class ClassDistributions(ABC):
    """Distribution of a row for every class, with independent features."""

    @property
    @abstractmethod
    def n_classes(self) -> int:
        """Number of classes."""

    @abstractmethod
    def check(self, n_features: int, n_classes: int) -> None:
        """Raise a ValueError unless all arrays have the shapes and ranges that predicting needs."""

    @abstractmethod
    def log_density(self, X: Matrix) -> Array:
        """``log p(x | class)`` for every row and class, without `log_measure`; NaN is missing."""

    def log_measure(self, X: Matrix) -> Array:
        """Term of the log density that is the same for all classes."""
        return np.zeros(X.shape[0])

    def size(self, X: Matrix) -> Array:
        """Divisor that makes log densities of rows comparable; one by default."""
        return np.ones(X.shape[0])

    def feature_scores(self) -> tuple[Array, Array] | None:
        """Mean and variance of the log density of every feature, each of shape (K, d).

        None if `size` already makes incomplete rows comparable.
        """
        return None

    @abstractmethod
    def sample(self, codes: Array, rng: np.random.Generator) -> Matrix:
        """Draw one row for each class index."""


class NaiveBayesModel(Model):
    """Additive statistics of a block, and the distributions that follow from statistics."""

    has_stats: ClassVar[bool] = True
    n_classes: int

    @abstractmethod
    def stats(self, batch: Batch) -> Any:
        """Additive statistics of a batch labelled by class indices."""

    @abstractmethod
    def distributions(self, stats: Any) -> ClassDistributions:
        """Class-conditional distributions: plug-in, or the posterior predictive."""

    def distributions_without(
        self, stats: Any, batch: Batch
    ) -> tuple[Array, ClassDistributions, Matrix]:
        """Class weights and distributions without the rows of a batch, and these rows.

        A model may restrict the distributions and the rows to features that occur in the batch.
        """
        rest = stats - self.stats(batch)
        return rest.class_count, self.distributions(rest), batch.X

    def check_rows(self, X: Matrix) -> None:
        """Raise for rows that are invalid under this model."""

    @abstractmethod
    def draw_distributions(self, stats: Any, rng: np.random.Generator) -> ClassDistributions:
        """Class-conditional distributions with parameters drawn from their posterior."""


@dataclass(frozen=True)
class ClassPrior:
    """Log class probabilities: given, uniform, or estimated from class counts.

    ``bayesian`` adds one to every count: the posterior predictive under a uniform prior.
    """

    given: Array | None = None
    learned: bool = True
    bayesian: bool = False

    def log(self, class_count: Array) -> Array:
        """Log probability of every class; minus infinity for a class without rows."""
        K = class_count.shape[-1]
        if self.given is not None:
            with np.errstate(divide="ignore"):
                return np.broadcast_to(np.log(self.given), class_count.shape)
        if not self.learned:
            return np.full(class_count.shape, -np.log(K))
        count = class_count + CLASS_PSEUDOCOUNT if self.bayesian else class_count
        with np.errstate(divide="ignore"):
            log_count = np.log(count)
        return np.asarray(log_count - np.log(count.sum(axis=-1, keepdims=True)))


def weights_of(batch: Batch) -> Array:
    """Sample weights in the form of compiled loops: empty if all are one."""
    return NO_WEIGHT if batch.weight is None else np.asarray(batch.weight, dtype=np.float64)


def codes_of(batch: Batch) -> Array:
    """Class indices of a batch."""
    if batch.y is None:
        raise ValueError("the batch has no class indices; set batch.y")
    return np.asarray(batch.y, dtype=np.intp)
