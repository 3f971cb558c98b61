"""What naive Bayes models share: additive statistics per class, and laws of rows per class.

A model maps a block of rows to statistics with one row per class; statistics of different
blocks add up, in any order and partition. From statistics follows a `ClassLaws`: for every
class the law its rows are drawn from, with independent features. Rows are labelled by class
numbers ``0..K-1`` in ``Batch.y``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from likelier.base import Array, Batch, Matrix, Model

NO_WEIGHT = np.empty(0)
CLASS_PSEUDOCOUNT = 1.0  # of the Dirichlet law of the class probabilities


class ClassStatistics(ABC):
    """Additive statistics of rows, one row of every array per class.

    A frozen dataclass of arrays. ``class_count`` is the weight of each class.
    """

    class_count: Array

    @abstractmethod
    def __add__(self, other: Self) -> Self:
        """Statistics of both sets of rows, which have the same classes."""

    @abstractmethod
    def __sub__(self, other: Self) -> Self:
        """Statistics without a set of rows that was added before."""

    @abstractmethod
    def spread(self, places: Array, n_classes: int) -> Self:
        """Return the same statistics among more classes; class ``k`` becomes ``places[k]``."""

    def to_arrays(self) -> dict[str, Array]:
        """Plain form, for saving."""
        return {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """Return the statistics whose plain form this is."""
        return cls(**arrays)


def place_rows(array: Array, places: Array, n_classes: int) -> Array:
    """Array with its rows at the given places among ``n_classes``, the others zero."""
    out = np.zeros((n_classes, *array.shape[1:]))
    out[places] = array
    return out


class ClassLaws(ABC):
    """For every class, the law of a row: independent features."""

    @property
    @abstractmethod
    def n_classes(self) -> int:
        """Number of classes."""

    @abstractmethod
    def log_density(self, X: Matrix) -> Array:
        """``log p(x | class)`` for every row and class, up to `log_measure`; NaN is missing."""

    def log_measure(self, X: Matrix) -> Array:
        """Part of the log density that all classes share."""
        return np.zeros(X.shape[0])

    def size(self, X: Matrix) -> Array:
        """By what to divide log densities of rows before they are compared; one by default."""
        return np.ones(X.shape[0])

    def feature_scores(self) -> tuple[Array, Array] | None:
        """Mean and variance of the log density of every feature under every class, (K, d).

        None where rows of which values are missing are compared by their size.
        """
        return None

    @abstractmethod
    def sample(self, codes: Array, rng: np.random.Generator) -> Matrix:
        """Draw one row for each class number."""


class NaiveBayesModel(Model):
    """Additive statistics of a block, and the laws that follow from statistics.

    ``has_missing`` declares that missing values (NaN) are understood: they are left out of
    the statistics of their feature and integrated out of the density.
    """

    has_stats: ClassVar[bool] = True
    has_missing: ClassVar[bool] = False
    n_classes: int

    @abstractmethod
    def stats(self, batch: Batch) -> Any:
        """Additive statistics of a batch labelled by class numbers."""

    @abstractmethod
    def laws(self, stats: Any) -> ClassLaws:
        """Laws of the classes: plug-in, or the posterior predictive of the next row."""

    def held_out_laws(self, stats: Any, batch: Batch) -> tuple[Array, ClassLaws, Matrix]:
        """Weights and laws of the classes without some rows they were made of, and those rows.

        A model may return laws and rows of the features only that these rows have.
        """
        rest = stats - self.stats(batch)
        return rest.class_count, self.laws(rest), batch.X

    def check_rows(self, X: Matrix) -> None:
        """Raise for rows that are no rows of this model."""

    @abstractmethod
    def draw_laws(self, stats: Any, rng: np.random.Generator) -> ClassLaws:
        """Laws of the classes for parameters drawn from their posterior."""


@dataclass(frozen=True)
class ClassPrior:
    """Log probabilities of the classes: given, uniform, or from their counts.

    ``bayesian`` adds one to every count, the posterior predictive under a uniform prior.
    """

    given: Array | None = None
    learned: bool = True
    bayesian: bool = False

    def log(self, class_count: Array) -> Array:
        """Log probability of every class; minus infinity for a class never seen."""
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
    """Weights of a batch as compiled loops take them: empty for one each."""
    return NO_WEIGHT if batch.weight is None else np.asarray(batch.weight, dtype=np.float64)


def codes_of(batch: Batch) -> Array:
    """Class numbers of a batch."""
    if batch.y is None:
        raise ValueError("the rows have no class numbers")
    return np.asarray(batch.y, dtype=np.intp)
