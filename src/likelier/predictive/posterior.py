"""A posterior made of posteriors: what an ensemble or a stack of models knows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from likelier.base import Array, Matrix, Posterior, Uncertainty
from likelier.files.declared import check_array
from likelier.predictive.classes import ClassPredictive
from likelier.predictive.mixed import MixedClasses, MixedNumbers


@dataclass(frozen=True)
class MixedPosterior(Posterior):
    """Weighted mixture of the predictions of several models of the same rows and targets.

    Parameters
    ----------
    posteriors : tuple of Posterior
        Of classes or of numbers; they may be of different families.
    weights : array of shape (M,)
        Positive weights, which need not sum to one.
    """

    posteriors: tuple[Posterior, ...]
    weights: Array

    @property
    def most_rows(self) -> int | None:
        """As many rows at a time as every member takes."""
        return min((p.most_rows for p in self.posteriors if p.most_rows), default=None)

    def predictive(self, X: Matrix) -> MixedClasses | MixedNumbers:
        parts = tuple(posterior.predictive(X) for posterior in self.posteriors)
        if isinstance(parts[0], ClassPredictive):
            return MixedClasses(parts, weights=self.weights)
        return MixedNumbers(parts, weights=self.weights)

    def uncertainty(self, X: Matrix) -> Uncertainty:
        """Uncertainties of the members, and what they disagree about."""
        members = [posterior.uncertainty(X) for posterior in self.posteriors]
        return self.predictive(X).joined(members)

    def check_rows(self, X: Matrix) -> None:
        for posterior in self.posteriors:
            posterior.check_rows(X)

    def check(self, n_features: int, n_classes: int | None) -> None:
        if not self.posteriors or any(posterior.label_sets for posterior in self.posteriors):
            raise ValueError("posteriors must be of classes or of numbers, one or more")
        tiny = float(np.finfo(np.float64).tiny)
        check_array("weights", self.weights, (len(self.posteriors),), low=tiny)
        for posterior in self.posteriors:
            posterior.check(n_features, n_classes)
