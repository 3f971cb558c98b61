"""Distributions over sets of labels: mixtures of independent Bernoulli laws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from likelier.base import Array, Uncertainty
from likelier.predictive.classes import Bernoulli
from likelier.predictive.mixture import Predictive, component_array, log, mixture_weights


@dataclass(frozen=True, eq=False)
class LabelSets(Predictive):
    """Distribution of the set of labels of each row, each of which may be there or not.

    Labels are independent in a component, so that in a mixture of several they are not.

    Parameters
    ----------
    prob : array of shape (n, L) or (n, M, L)
        Probability of every label in each component.

    Examples
    --------
    >>> import numpy as np
    >>> from likelier.predictive import LabelSets
    >>> both_or_none = LabelSets(np.array([[[0.9, 0.9], [0.1, 0.1]]]))
    >>> both_or_none.probabilities()
    array([[0.5, 0.5]])
    >>> np.exp(both_or_none.log_density([[1, 1]])).round(2)
    array([0.41])
    """

    prob: Array

    def __post_init__(self) -> None:
        prob = component_array(self.prob, "prob", 3)
        if not ((prob >= 0.0) & (prob <= 1.0)).all():
            raise ValueError("prob must lie between 0 and 1")
        self._set(prob=prob, weights=mixture_weights(self.weights, *prob.shape[:2]))

    def probabilities(self) -> Array:
        """Probability of each label, ``(n, L)``."""
        if self.prob.shape[1] == 1:
            return self.prob[:, 0]
        return np.asarray(np.minimum(np.einsum("nm,nml->nl", self.weights, self.prob), 1.0))

    def point(self) -> Array:
        """Indicators of the labels that are more probable than not."""
        return np.asarray(self.probabilities() > 0.5, dtype=np.int64)

    def log_density(self, y: npt.ArrayLike) -> Array:
        """Log probability of the labels that are known in each row of ``y``: 0, 1 or NaN."""
        labels = np.asarray(y, dtype=np.float64)
        n, _, n_labels = self.prob.shape
        if labels.shape != (n, n_labels):
            raise ValueError(f"y must hold {n_labels} labels for each of {n} rows")
        known = np.isfinite(labels)
        if not (np.isnan(labels) | (labels == 0.0) | (labels == 1.0)).all():
            raise ValueError("y must hold 0, 1 or NaN (unknown)")
        labels, known = labels[:, np.newaxis], known[:, np.newaxis]
        with np.errstate(divide="ignore"):
            parts = np.where(labels == 1.0, np.log(self.prob), np.log1p(-self.prob))
        each = np.where(known, parts, 0.0).sum(axis=2)
        return np.asarray(logsumexp(log(self.weights) + each, axis=1))

    def uncertainty(self) -> Uncertainty:
        """Entropy in nats of each label, ``(n, L)``, and its parts as for two classes."""
        n, n_components, n_labels = self.prob.shape
        if not n * n_labels:
            return Uncertainty(*(np.zeros((n, n_labels)) for _ in range(3)))
        prob = np.moveaxis(self.prob, 1, 2).reshape(-1, n_components)
        found = Bernoulli(prob, weights=np.repeat(self.weights, n_labels, axis=0)).uncertainty()
        shape = (n, n_labels)
        return Uncertainty(
            *(part.reshape(shape) for part in (found.total, found.aleatoric, found.epistemic))
        )
