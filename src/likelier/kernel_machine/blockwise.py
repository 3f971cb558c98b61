"""Predictives of many rows whose components exist for a few rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from likelier.base import Array, Uncertainty
from likelier.predictive import ClassPredictive

PREDICT_ROWS = 4096  # rows of a block

Parts = Iterator[tuple[Any, ClassPredictive]]  # row numbers, and the predictive of these rows


@dataclass(frozen=True, eq=False)
class BlockwisePredictive(ClassPredictive):
    """Distribution over classes, computed block by block whenever it is asked for.

    Parameters
    ----------
    parts : callable
        Yields row numbers and the predictive of these rows, until all rows have had their turn.
    size, n_classes : int
        Number of rows and of classes.
    """

    parts: Callable[[], Parts]
    size: int
    n_classes: int

    @property
    def n_rows(self) -> int:
        """How many rows are predicted."""
        return self.size

    def probabilities(self) -> Array:
        """Probability of each class, ``(n, K)``."""
        out = np.empty((self.size, self.n_classes))
        for rows, part in self.parts():
            out[rows] = part.probabilities()
        return out

    def uncertainty(self) -> Uncertainty:
        """Entropy in nats of the mixture, mean entropy of the components, their difference."""
        out = Uncertainty(*np.empty((3, self.size)))
        for rows, part in self.parts():
            found = part.uncertainty()
            out.total[rows], out.aleatoric[rows] = found.total, found.aleatoric
            out.epistemic[rows] = found.epistemic
        return out

    def _components(self) -> Array:
        """Probabilities of the mixture: its components may differ in number between rows."""
        return self.probabilities()[:, np.newaxis]
