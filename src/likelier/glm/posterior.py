"""Posteriors of linear models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from likelier.base import Array, Matrix, Posterior
from likelier.glm.model import LinearModel
from likelier.predictive import Bernoulli, Categorical, Counts, Gaussian, Predictive


@dataclass(frozen=True)
class LinearPosterior(Posterior):
    """A point estimate of ``theta``; ``noise`` is the standard deviation of regression targets."""

    model: LinearModel
    theta: Array
    noise: float = 1.0

    def scores(self, X: Matrix) -> Array:
        """Scores of the rows of ``X``."""
        return self.model.scores(self.theta, X)

    def predictive(self, X: Matrix) -> Predictive:
        """Distribution of the target of each row, where the loss is a likelihood.

        A single output of a classifier gives a `Bernoulli` of being its positive class, several
        give a `Categorical`; squared losses a `Gaussian` of standard deviation ``noise``; counts
        give `Counts`.

        Raises
        ------
        ValueError
            For losses that do not define probabilities.
        """
        loss, scores = self.model.loss, self.scores(X)
        if not loss.probabilistic:
            raise ValueError(
                f"loss={loss.name!r} does not define a distribution of the target in "
                "likelier.predictive; use `scores`, or calibrate them"
            )
        if loss.task == "count":
            return Counts(np.asarray(loss.link(scores[:, 0])))
        if loss.task == "regression":
            return Gaussian(scores[:, 0], np.full(len(scores), self.noise))
        if scores.shape[1] == 1:
            return Bernoulli(prob=np.asarray(loss.link(scores[:, 0])))
        prob = np.asarray(loss.link(scores))
        if not loss.coupled:  # one-vs-rest: normalised
            prob = np.maximum(prob, np.finfo(float).tiny)
            prob = prob / prob.sum(axis=1, keepdims=True)
        return Categorical(prob)
