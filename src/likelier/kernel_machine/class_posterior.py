"""Posterior of a kernel classifier by the evidence: Gaussian scores, integrated to probabilities.

Local experts add to the scores. A hinge has no covariance: its scores are calibrated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax

from likelier.base import Array, Matrix, Posterior
from likelier.calibration import restore
from likelier.files.declared import check_array, check_number
from likelier.kernel_machine.blockwise import PREDICT_ROWS, BlockwisePredictive
from likelier.kernel_machine.expert_model import Experts
from likelier.kernel_machine.features import KernelMap
from likelier.kernel_machine.integrate import N_PAIRS, class_predictive, levels, to_predictive
from likelier.kernel_machine.weight_posterior import (
    WeightPosterior,
    add_variance,
    extrapolation_degree,
    mean_score_variance,
    restore_prior_variance,
)
from likelier.predictive import ClassPredictive

NODE_VALUES = 1 << 20  # quadrature pairs x classes per block

Correction = tuple[Array, Array] | None  # of the scores by experts, and its variance


@dataclass(frozen=True)
class ClassPosterior(Posterior):
    """What a fit of a classifier knows.

    Attributes
    ----------
    map : KernelMap
    weights : WeightPosterior
    posterior_scale : float
        Factor of the covariance of the scores.
    extrapolation_scores : array of shape (n_outputs,)
        Scores out of support: those of the class frequencies.
    extrapolation_trust : float
        Trust in the learned intercepts out of support.
    calibration : dict
        Of the scores; empty if they are integrated over their covariance.
    experts : Experts, optional
    n_classes : int
    objective : float
        Training objective.
    converged : bool
    """

    map: KernelMap
    weights: WeightPosterior
    posterior_scale: float
    extrapolation_scores: Array
    extrapolation_trust: float
    calibration: dict[str, Any]
    experts: Experts | None
    n_classes: int
    objective: float = float("nan")
    converged: bool = True

    def predictive(self, X: Matrix) -> BlockwisePredictive:
        return BlockwisePredictive(lambda: self._blocks(X), int(X.shape[0]), self.n_classes)

    def inlier_score(self, X: Matrix) -> Array:
        """How well the training data cover each row; low for outliers."""
        out = np.zeros(X.shape[0])
        correction = self._correction(X)
        for start in range(0, X.shape[0], PREDICT_ROWS):
            rows = slice(start, start + PREDICT_ROWS)
            out[rows] = -self._log_variance_ratio(X[rows], _of_rows(correction, rows))
        return out

    def attributes(self) -> dict[str, Any]:
        """What users may want to know, by the names of fitted attributes."""
        precision = 1.0 / self.weights.prior_variance
        return {
            "gamma_": self.map.gamma,
            "n_components_": self.map.n_features - 1,
            "alpha_": precision * (2.0 if self.n_classes == 2 else 1.0),
            "posterior_scale_": self.posterior_scale,
            "objective_": self.objective,
            "converged_": self.converged,
            "n_experts_": 0 if self.experts is None else len(self.experts.counts),
        }

    def check(self, n_features: int, n_classes: int | None) -> None:
        if n_classes is None or n_classes < 2:
            raise ValueError("a kernel classifier needs two classes")
        if self.n_classes != n_classes:
            raise ValueError(f"n_classes must be {n_classes}, and is {self.n_classes!r}")
        n_outputs = 1 if n_classes == 2 else n_classes
        self.map.check(n_features)
        self.weights.check(self.map.n_features, n_outputs)
        check_number("posterior_scale", self.posterior_scale, 0.0)
        check_number("extrapolation_trust", self.extrapolation_trust, 0.0, 1.0)
        check_array("extrapolation_scores", self.extrapolation_scores, (n_outputs,))
        if self.calibration:
            restore(self.calibration)  # checks its parts
        if self.experts is not None:
            self.experts.check(n_features, n_outputs)

    def _correction(self, X: Matrix) -> Correction:
        """Correction of the scores by the experts."""
        return None if self.experts is None else self.experts.correct(X)

    def _blocks(self, X: Matrix) -> Iterator[tuple[Array, ClassPredictive]]:
        """Yield row numbers and their predictive, block by block."""
        correction = self._correction(X)
        for start in range(0, X.shape[0], PREDICT_ROWS):
            rows = slice(start, start + PREDICT_ROWS)
            for indices, predictive in self._of_block(X[rows], _of_rows(correction, rows)):
                yield start + indices, predictive

    def _of_block(
        self, X: Matrix, correction: Correction
    ) -> Iterator[tuple[Array, ClassPredictive]]:
        """Yield row numbers and their predictive, grouped by quadrature level."""
        mean, covariance = self._scores(X)
        if correction is not None:
            mean, covariance = mean + correction[0], add_variance(covariance, correction[1])
        level = np.zeros(X.shape[0], dtype=np.intp)
        if not self.calibration:
            level = levels(covariance, self.posterior_scale)
        for fineness in np.unique(level):
            inside = np.flatnonzero(level == fineness)
            most = max(1, NODE_VALUES // (N_PAIRS[fineness] * self.n_classes))
            for start in range(0, len(inside), most):
                rows = inside[start : start + most]
                part = self._integrated(mean[rows], covariance[rows], int(fineness))
                yield rows, to_predictive(*part)

    def _scores(self, X: Matrix) -> tuple[Array, Array]:
        """Mean and covariance of the scores of a block of rows, without experts.

        If they are calibrated, the extrapolation degree takes the place of the covariance.
        """
        Phi = self.map(X, X.dtype)
        scores, residual = self.weights.scores(Phi), self.map.residual(Phi)
        degree = extrapolation_degree(residual) * (1.0 - self.extrapolation_trust)
        if self.calibration:
            return scores, np.repeat(degree[:, None], scores.shape[1], axis=1)
        if self.map.local:  # only the intercept remains out of support; replace it by the prior
            scores = scores - degree[:, None] * (self.weights.mean[-1] - self.extrapolation_scores)
        if not self.posterior_scale > 0.0:
            return scores, np.zeros_like(scores)
        covariance = self.weights.covariance(Phi, residual)
        return scores, restore_prior_variance(
            covariance, degree, self.weights.prior_variance, self.posterior_scale
        )

    def _integrated(self, scores: Array, covariance: Array, level: int) -> tuple[Array, Array]:
        """Class probabilities at nodes, and the weights of the nodes."""
        if self.calibration:
            return self._calibrated(scores, covariance[:, 0])
        return class_predictive(scores, covariance, self.posterior_scale, level)

    def _calibrated(self, scores: Array, degree: Array) -> tuple[Array, Array]:
        """Calibrated probabilities, mixed with the class frequencies out of support.

        Out of support the mixture has one component per class, so that the uncertainty there is
        epistemic rather than aleatoric.
        """
        two, calibrated = scores.shape[1] == 1, restore(self.calibration)
        p = calibrated.probabilities(scores[:, 0] if two else scores)[:, None]
        if not degree.any():
            return p, np.ones(1)
        prior_scores = self.extrapolation_scores
        frequencies = softmax(np.append(0.0, prior_scores) if two else prior_scores)
        one_hot = np.array([0.0, 1.0]) if two else np.eye(len(frequencies))
        weight = degree.reshape(-1, *[1] * (p.ndim - 1))
        return (1.0 - weight) * p + weight * one_hot, frequencies

    def _log_variance_ratio(self, X: Matrix, correction: Correction) -> Array:
        """Logarithm of the posterior-to-prior variance ratio of the scores of a block of rows."""
        Phi = self.map(X, X.dtype)
        covariance = self.weights.covariance(Phi, self.map.residual(Phi))
        variance = mean_score_variance(covariance)
        prior: Any = self.weights.prior_variance
        if correction is not None and self.experts is not None:
            variance = variance + correction[1]
            prior = prior + self.experts.prior_variance * (correction[1] > 0.0)
        return np.asarray(np.log(np.maximum(variance / prior, 1e-300)))


def _of_rows(correction: Correction, rows: slice) -> Correction:
    """Correction of some rows."""
    return None if correction is None else (correction[0][rows], correction[1][rows])
