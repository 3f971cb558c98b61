"""Posterior draws of a linear classifier, on the scale of the caller's rows: all that predicts.

``fitted`` has the parameters and fitted attributes by their names: an estimator, or what a model
file holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import log_expit, logsumexp

from likelier.base import Array, Matrix, Posterior, Uncertainty
from likelier.calibration import restore
from likelier.files.declared import check_array
from likelier.fitting.probabilities import SMALLEST, split_entropy
from likelier.predictive import Categorical

PREDICT_DRAWS = 500  # evenly spaced draws that predictions average over
CHUNK_VALUES = 1 << 21  # probabilities in memory at a time


@dataclass(frozen=True)
class DrawsPosterior(Posterior):
    """Draws of the weights, their means, and the calibration of the scores of the hinge.

    Attributes
    ----------
    coef : array of shape (chains, draws, outputs, features)
    intercept : array of shape (chains, draws, outputs)
    mean_coef, mean_intercept : arrays of shape (outputs, features) and (outputs,)
    hinge : bool
        The likelihood is the hinge's: scores are means over the draws, and probabilities come
        from the calibration.
    joint : bool
        The outputs are those of a softmax; else each is one class against the rest.
    """

    coef: Array
    intercept: Array
    mean_coef: Array
    mean_intercept: Array
    hinge: bool = False
    joint: bool = False
    calibration: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, theta: Array, n_features: int, hinge: bool, joint: bool) -> DrawsPosterior:
        """From draws (chains, draws, outputs, parameters), the intercept last if there is one."""
        coef = np.ascontiguousarray(theta[..., :n_features])
        has_intercept = theta.shape[3] > n_features
        ends = theta[..., -1] if has_intercept else np.zeros(theta.shape[:3])
        means = coef.mean(axis=(0, 1)), ends.mean(axis=(0, 1))
        return cls(coef, np.ascontiguousarray(ends), *means, hinge, joint)

    def decide(self, X: Matrix) -> Array:
        """Log odds of the posterior predictive, or its log probabilities; mean scores of the hinge.

        One value per row for two classes, else one per class.
        """
        if self.hinge:
            scores = self.mean_scores(X)
            return scores.ravel() if scores.shape[1] == 1 else scores
        found = np.concatenate([logsumexp(part, axis=1) for part in self._log_chunks(X)])
        return found[:, 1] - found[:, 0] if found.shape[1] == 2 else found

    def mean_scores(self, X: Matrix) -> Array:
        """Scores (rows, outputs) of the mean weights."""
        return np.asarray(X @ self.mean_coef.T + self.mean_intercept, dtype=np.float64)

    def point(self, X: Matrix) -> Array:
        """Number of the most probable class, for a hinge without probabilities too."""
        scores = self.decide(X)
        return (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)

    def predictive(self, X: Matrix) -> Categorical:
        """The average over the draws; of the hinge, calibrated mean scores."""
        if self.hinge:
            return _never_certain(self._calibrated(self.mean_scores(X)))
        scores = self.decide(X)
        if scores.ndim == 1:
            scores = np.column_stack([log_expit(-scores), log_expit(scores)])
        return _never_certain(np.exp(scores - logsumexp(scores, axis=1, keepdims=True)))

    def uncertainty(self, X: Matrix) -> Uncertainty:
        """Entropy in nats; the epistemic part is the information of the class on the weights."""
        parts = [self._mixture(part).uncertainty().epistemic for part in self._score_chunks(X)]
        return split_entropy(self.predictive(X).probabilities(), np.concatenate(parts))

    def check(self, n_features: int, n_classes: int | None) -> None:
        K = n_classes or 0
        outputs = 1 if K == 2 else K
        check_array("coef_draws_", self.coef, (None, None, outputs, n_features))
        check_array("intercept_draws_", self.intercept, (*self.coef.shape[:2], outputs))
        check_array("coef_", self.mean_coef, (outputs, n_features))
        check_array("intercept_", self.mean_intercept, (outputs,))
        if not self.coef.shape[0] * self.coef.shape[1]:
            raise ValueError("coef_draws_ holds no draws")
        if self.calibration:
            self._calibrated(np.zeros((1, outputs)))  # checks its parts and its kind

    def _score_chunks(self, X: Matrix) -> Iterator[Array]:
        """Scores (rows, draws, outputs), some rows at a time."""
        outputs, d = self.coef.shape[2:]
        coef, intercepts = self.coef.reshape(-1, outputs, d), self.intercept.reshape(-1, outputs)
        chosen = np.unique(np.linspace(0, len(coef) - 1, PREDICT_DRAWS).astype(np.intp))
        flat, intercept = coef[chosen].reshape(-1, d).T, intercepts[chosen].ravel()
        size = max(1, CHUNK_VALUES // flat.shape[1])
        for first in range(0, max(1, X.shape[0]), size):
            scores = np.asarray(X[first : first + size] @ flat, dtype=np.float64) + intercept
            yield scores.reshape(len(scores), len(chosen), outputs)

    def _log_chunks(self, X: Matrix) -> Iterator[Array]:
        """Log probabilities (rows, draws, classes) minus the log number of draws."""
        for scores in self._score_chunks(X):
            yield self._log_classes(scores) - np.log(scores.shape[1])

    def _log_classes(self, scores: Array) -> Array:
        if scores.shape[2] == 1:
            return np.concatenate([log_expit(-scores), log_expit(scores)], axis=2)
        logs = scores if self.joint else np.asarray(log_expit(scores))
        return np.asarray(logs - logsumexp(logs, axis=2, keepdims=True))

    def _mixture(self, scores: Array) -> Categorical:
        """The distribution of each draw; the scores of the hinge are calibrated by the same map."""
        if not self.hinge:
            return Categorical(np.exp(self._log_classes(scores)))
        flat = self._calibrated(scores.reshape(-1, scores.shape[2]))
        return Categorical(flat.reshape(*scores.shape[:2], -1))

    def _calibrated(self, scores: Array) -> Array:
        """Probabilities (rows, classes) of scores (rows, outputs) of the hinge."""
        if not self.calibration:
            raise ValueError(
                "loss='hinge' has no distribution of the target where it is not calibrated"
            )
        found = restore(self.calibration)
        if scores.shape[1] > 1:
            return found.probabilities(scores)
        positive = found.probabilities(scores[:, 0])
        return np.stack([1.0 - positive, positive], axis=1)


LOSSES = ("log_loss", "softmax", "hinge")


def _never_certain(probabilities: Array) -> Categorical:
    """No finite sample makes a class impossible."""
    return Categorical(np.maximum(probabilities, SMALLEST))


def classifier(fitted: Any) -> DrawsPosterior:
    """Posterior of a `BayesianLinearClassifier`."""
    if fitted.loss not in LOSSES:
        raise ValueError(f"loss must be one of {LOSSES}")
    return DrawsPosterior(
        fitted.coef_draws_,
        fitted.intercept_draws_,
        fitted.coef_,
        fitted.intercept_,
        fitted.loss == "hinge",
        fitted.loss == "softmax",
        getattr(fitted, "calibration_", {}),
    )
