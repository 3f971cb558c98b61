"""Distributions over classes: mixtures of categorical or Bernoulli laws."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import kl_div, xlogy

from likelier.base import Array, Uncertainty
from likelier.predictive.mixture import (
    Predictive,
    average,
    component_array,
    log,
    mixture_weights,
)


@dataclass(frozen=True, eq=False)
class ClassPredictive(Predictive):
    """Distribution over classes ``0..K-1``."""

    @abstractmethod
    def _components(self) -> Array:
        """Class probabilities of every component, ``(n, M, K)``."""

    def probabilities(self) -> Array:
        """Probability of each class, ``(n, K)``: the average of probabilities, never of scores."""
        parts = self._components()
        p = parts[:, 0] if parts.shape[1] == 1 else np.einsum("nm,nmk->nk", self.weights, parts)
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def mode(self) -> Array:
        """Most probable class of each row; the first of several."""
        return np.asarray(self.probabilities().argmax(axis=1))

    def point(self) -> Array:
        """The most probable class."""
        return self.mode()

    def log_density(self, y: npt.ArrayLike) -> Array:
        """Log probability of the class number ``y`` of each row."""
        p = self.probabilities()
        codes = np.asarray(y)
        if codes.shape != p.shape[:1]:
            raise ValueError(f"y must hold one class for each of {len(p)} rows")
        if not ((codes >= 0) & (codes < p.shape[1]) & (codes == np.floor(codes))).all():
            raise ValueError(f"y must hold class numbers 0..{p.shape[1] - 1}")
        return log(p[np.arange(len(p)), codes.astype(np.intp)])

    def uncertainty(self) -> Uncertainty:
        """Entropy in nats of the mixture, mean entropy of the components, their difference."""
        # the difference is the mean divergence from the mixture; as such never negative
        parts, p = self._components(), self.probabilities()
        aleatoric = -average(self.weights, xlogy(parts, parts).sum(axis=2))
        aleatoric = np.maximum(aleatoric, 0.0) + 0.0  # no minus zero for a certain row
        apart = np.maximum(kl_div(parts, p[:, np.newaxis]).sum(axis=2), 0.0)
        epistemic = average(self.weights, apart)
        return Uncertainty(aleatoric + epistemic, aleatoric, epistemic)


@dataclass(frozen=True, eq=False)
class Categorical(ClassPredictive):
    """Mixture of categorical laws.

    Parameters
    ----------
    probs : array of shape (n, K) or (n, M, K)
        Class probabilities of each component; rows sum to one.

    Examples
    --------
    >>> import numpy as np
    >>> from likelier.predictive import Categorical
    >>> two_draws = Categorical(np.array([[[0.9, 0.1], [0.5, 0.5]]]))
    >>> two_draws.probabilities()
    array([[0.7, 0.3]])
    """

    probs: Array

    def __post_init__(self) -> None:
        probs = component_array(self.probs, "probs", 3)
        if probs.shape[2] < 1 or not ((probs >= 0.0) & (probs <= 1.0 + 1e-8)).all():
            raise ValueError("probs must hold probabilities between 0 and 1, one per class")
        if not (abs(probs.sum(axis=2) - 1.0) <= 1e-5).all():
            raise ValueError("probs must sum to one over the classes (the last axis)")
        self._set(probs=probs, weights=mixture_weights(self.weights, *probs.shape[:2]))

    def _components(self) -> Array:
        return self.probs


@dataclass(frozen=True, eq=False)
class Bernoulli(ClassPredictive):
    """Mixture of Bernoulli laws: two classes, given by the probability of class 1.

    Parameters
    ----------
    prob : array of shape (n,) or (n, M)
        Probability of class 1 of each component.
    """

    prob: Array

    def __post_init__(self) -> None:
        prob = component_array(self.prob, "prob", 2)
        if not ((prob >= 0.0) & (prob <= 1.0)).all():
            raise ValueError("prob must lie between 0 and 1")
        self._set(prob=prob, weights=mixture_weights(self.weights, *prob.shape))

    def _components(self) -> Array:
        return np.stack([1.0 - self.prob, self.prob], axis=2)
