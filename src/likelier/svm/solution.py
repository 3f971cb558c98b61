"""Solutions of dual problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from likelier.base import Array, Matrix, Posterior
from likelier.svm.model import KernelExpansion, Subset


@dataclass(frozen=True)
class Solution:
    """Coefficients of all rows, and what is told of them; plain values for a checkpoint."""

    beta: Array
    intercept: float
    n_iter: int
    gap: float
    converged: bool


@dataclass(frozen=True)
class KernelPosterior(Posterior):
    """A point estimate: coefficients, intercept and convergence information."""

    model: KernelExpansion
    rows: Subset
    beta: Array
    intercept: float
    n_iter: int
    gap: float
    objective: float
    converged: bool

    @property
    def solution(self) -> Solution:
        """The result without model and rows."""
        return Solution(self.beta, self.intercept, self.n_iter, self.gap, self.converged)

    @property
    def theta(self) -> Array:
        """Coefficients and intercept in one column."""
        return np.append(self.beta, self.intercept)[:, None]

    def scores(self, X: Matrix) -> Array:
        """Scores of the rows of ``X``, one column."""
        used = np.flatnonzero(self.beta)
        rows = self.rows.take(self.rows.exact).take(used)
        return self.model.scores(self.beta[used, None], np.array([self.intercept]), rows, X)

    def predictive(self, X: Matrix) -> Any:
        raise ValueError(
            f"loss {self.model.loss.name!r} has no distribution of the target; calibrate the scores"
        )
