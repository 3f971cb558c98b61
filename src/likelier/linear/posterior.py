"""Posteriors of fitted linear models, on the original scale of rows and targets.

``fitted`` is an estimator, or the contents of a model file under the same names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from likelier.base import Array, Loss, Matrix, Posterior, Uncertainty
from likelier.calibration import restore
from likelier.files.declared import check_array, check_number
from likelier.fitting.probabilities import class_probabilities
from likelier.losses import make_loss
from likelier.predictive import Categorical, Counts, Gaussian, NumberPredictive

# of the score of a count: a standard normal at five points, exact for polynomials up to degree 9
NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(5)


@dataclass(frozen=True)
class ClassifierPosterior(Posterior):
    """Coefficients (one row per output) and the calibration of the scores.

    Two classes have a single output, and scores are then a vector.
    """

    loss: Loss
    coef: Array
    intercept: Array
    calibration: dict[str, Any] = field(default_factory=dict)

    def scores(self, X: Matrix) -> Array:
        """Score of every output; a vector for a single one."""
        scores = np.asarray(X @ self.coef.T + self.intercept)
        return scores.ravel() if scores.shape[1] == 1 else scores

    def point(self, X: Matrix) -> Array:
        """Index of the class of the largest score; also for losses without probabilities."""
        scores = self.scores(X)
        return (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)

    def check(self, n_features: int, n_classes: int | None) -> None:
        K = n_classes or 0
        n_outputs = 1 if K == 2 else K
        check_array("coef_", self.coef, (n_outputs, n_features))
        check_array("intercept_", self.intercept, (n_outputs,))
        if self.loss.task not in ("binary", "multiclass"):
            raise ValueError(f"loss={self.loss.name!r} is not one of a classifier")
        if self.calibration:
            restore(self.calibration)  # checks its parts

    def predictive(self, X: Matrix) -> Categorical:
        if not (self.loss.probabilistic or self.calibration):
            raise ValueError(
                f"loss={self.loss.name!r} has no probabilities, and the model was fitted without "
                "calibrating its scores; use predict, or fit with probability=True"
            )
        return Categorical(class_probabilities(self.loss, self.scores(X), self.calibration))


@dataclass(frozen=True)
class RegressorPosterior(Posterior):
    """Coefficients, their covariance if certified, and the noise of squared losses.

    Counts are Poisson given their score. If the coefficients are certain, so is the rate.
    """

    loss: Loss
    coef: Array
    intercept: Array
    noise: float = float("nan")
    covariance: Array = field(default_factory=lambda: np.empty(0))
    fit_intercept: bool = True

    def scores(self, X: Matrix) -> Array:
        """Score of every row."""
        return np.asarray(X @ self.coef + self.intercept[0])

    def point(self, X: Matrix) -> Array:
        """Point prediction of the loss: mean, quantile, or rate of counts."""
        return np.asarray(self.loss.link(self.scores(X)))

    def coefficient_variance(self, X: Matrix) -> Array:
        """Variance of the score due to the coefficients; zero if it is not available."""
        if not self.covariance.size:
            return np.zeros(X.shape[0])
        c, d = self.covariance[0], len(self.coef)
        product = np.asarray(X @ c[:d, :d])
        own = product * X if isinstance(X, np.ndarray) else X.multiply(product)
        variance = np.asarray(own.sum(axis=1)).ravel()
        if self.fit_intercept:
            variance = variance + 2.0 * np.asarray(X @ c[:d, d]) + c[d, d]
        return np.asarray(np.maximum(variance, 0.0))

    def uncertainty(self, X: Matrix) -> Uncertainty:
        """Variance of the target: noise (aleatoric) and coefficients (epistemic)."""
        if self.loss.task == "count":
            return super().uncertainty(X)
        total, epistemic = super().uncertainty(X).total, self.coefficient_variance(X)
        return Uncertainty(total, total - epistemic, epistemic)

    def check(self, n_features: int, n_classes: int | None) -> None:
        check_array("coef_", self.coef, (n_features,))
        check_array("intercept_", self.intercept, (1,))
        if self.loss.task not in ("regression", "count"):
            raise ValueError(f"loss={self.loss.name!r} is not one of a regression")
        if self.covariance.size:
            p = n_features + int(self.fit_intercept)
            check_array("covariance_", self.covariance, (1, p, p))
        if not np.isnan(self.noise):  # no likelihood, or interrupted: there are no intervals
            check_number("noise_", self.noise, 0.0)

    def predictive(self, X: Matrix) -> NumberPredictive:
        if not self.loss.probabilistic:
            raise ValueError(
                f"loss={self.loss.name!r} has no distribution of the targets; use predict, or "
                'fit with loss="squared_error"'
            )
        if self.loss.task == "count":
            return self._counts(X)
        if np.isnan(self.noise):
            raise ValueError("the fit was interrupted before the noise was estimated")
        variance = self.noise**2 + self.coefficient_variance(X)
        return Gaussian(self.scores(X).astype(np.float64), np.sqrt(variance))

    def _counts(self, X: Matrix) -> Counts:
        scores = self.scores(X).astype(np.float64)
        if not self.covariance.size:
            return Counts(self.loss.link(scores))
        spread = np.sqrt(self.coefficient_variance(X))
        rates = self.loss.link(scores[:, np.newaxis] + spread[:, np.newaxis] * NODES)
        return Counts(rates, weights=NODE_WEIGHTS)


def classifier(fitted: Any) -> ClassifierPosterior:
    """Posterior of a `LinearClassifier`."""
    calibration = getattr(fitted, "calibration_", {})
    return ClassifierPosterior(make_loss(fitted.loss), fitted.coef_, fitted.intercept_, calibration)


def regressor(fitted: Any) -> RegressorPosterior:
    """Posterior of a `LinearRegressor`."""
    return RegressorPosterior(
        make_loss(fitted.loss),
        fitted.coef_,
        fitted.intercept_,
        float(getattr(fitted, "noise_", np.nan)),
        getattr(fitted, "covariance_", np.empty(0)),
        bool(fitted.fit_intercept),
    )
