"""Posteriors of linear models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from likelier.base import Array, Matrix, Posterior
from likelier.models.linear import LinearModel


@dataclass(frozen=True)
class LinearPosterior(Posterior):
    """A point estimate of ``theta``."""

    model: LinearModel
    theta: Array

    def scores(self, X: Matrix) -> Array:
        """Scores of the rows of ``X``."""
        return self.model.scores(self.theta, X)

    def predictive(self, X: Matrix) -> Array:
        return np.asarray(self.model.loss.link(self.scores(X)))
