"""Predictions of kernel classifiers: classes, probabilities and uncertainty."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import logit, softmax
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Matrix, Uncertainty
from likelier.calibration import restore
from likelier.fitting.one_class import or_constant
from likelier.fitting.parameters import check_integer
from likelier.kernel_machine.class_stream import ClassStream
from likelier.kernel_machine.estimator import by_evidence
from likelier.kernel_machine.expert_model import Experts
from likelier.kernel_machine.features import KernelMap, restore_map
from likelier.kernel_machine.integrate import N_PAIRS, class_predictive, levels, to_predictive
from likelier.kernel_machine.laplace import (
    WeightPosterior,
    add_variance,
    extrapolation_degree,
    mean_score_variance,
    restore_prior_variance,
)
from likelier.kernel_machine.particles import calibrated_link
from likelier.predictive import ClassPredictive

PREDICT_ROWS = 4096
NODE_VALUES = 1 << 20  # quadrature pairs x classes per block


def _has_draws(model: Any) -> bool:
    """Whether there is a weight posterior to draw from."""
    if model.loss == "hinge" and model.inference == "evidence":
        raise AttributeError('loss="hinge" has no weight posterior; use loss="softmax"')
    return True


class ClassPredictions(ClassStream):
    """Predictions from the fitted feature maps, weights and covariances."""

    def _posteriors(self) -> list[tuple[KernelMap, WeightPosterior]]:
        self._learn_pending()
        check_is_fitted(self, "maps_")
        posteriors = [
            WeightPosterior(
                self.weights_[i], self.roots_[i], self.layout_, float(variance),
                self.mean_shift_[i], self.bases_[i], self.outside_[i],
            )
            for i, variance in enumerate(self.prior_variance_)
        ]  # fmt: skip
        return list(zip(map(restore_map, self.maps_), posteriors, strict=True))

    def _predictives(self, X: Any) -> Iterator[tuple[Any, ClassPredictive]]:
        """Yield (row indices, predictive) in blocks, in bounded memory."""
        self._learn_pending()
        check_is_fitted(self, "gamma_")
        particles = hasattr(self, "particles_")
        posteriors = [] if particles else self._posteriors()
        X = self._check_X(X, reset=False)
        blocks = [slice(i, i + PREDICT_ROWS) for i in range(0, X.shape[0], PREDICT_ROWS)]
        if particles:
            posterior: Any = self._particle_posterior()
            link = calibrated_link(self.calibration_[0])
            for rows in blocks:
                yield rows, posterior.predictive(X[rows], link)
            return
        corrections = self._corrections(X)
        for rows in blocks:
            for indices, predictive in self._predict_block(posteriors, corrections, X[rows], rows):
                yield rows.start + indices, predictive

    def _corrections(self, X: Matrix) -> list[tuple[Array, Array] | None]:
        """Expert corrections to the scores, for every ensemble member."""
        return [Experts(**plain).correct(X) if plain else None for plain in self.experts_]

    def _predict_block(
        self, posteriors: Any, corrections: Any, X: Any, rows: slice
    ) -> Iterator[tuple[Array, ClassPredictive]]:
        """Yield (row indices, predictive) of a block, grouped by quadrature level."""
        scores, covariances = [], []
        level = np.zeros(X.shape[0], dtype=np.intp)
        for i, (feature_map, posterior) in enumerate(posteriors):
            mean, covariance = self._scores(i, feature_map, posterior, X)
            if corrections[i] is not None:
                mean = mean + corrections[i][0][rows]
                covariance = add_variance(covariance, corrections[i][1][rows])
            scores.append(mean)
            covariances.append(covariance)
            if not self.calibration_[i]:
                level = np.maximum(level, levels(covariance, float(self.posterior_scale_[i])))
        for fineness in np.unique(level):
            inside = np.flatnonzero(level == fineness)
            most = max(1, NODE_VALUES // (N_PAIRS[fineness] * len(self.classes_)))
            for start in range(0, len(inside), most):
                indices = inside[start : start + most]
                parts = [
                    self._integrated(i, scores[i][indices], covariances[i][indices], int(fineness))
                    for i in range(len(posteriors))
                ]
                yield indices, to_predictive(parts)

    def _scores(
        self, i: int, feature_map: KernelMap, posterior: WeightPosterior, X: Matrix
    ) -> tuple[Array, Array]:
        """Mean and covariance of the scores by one ensemble member."""
        Phi = feature_map(X, X.dtype)
        scores, scale = posterior.scores(Phi), float(self.posterior_scale_[i])
        residual = feature_map.residual(Phi)
        degree = extrapolation_degree(residual) * (1.0 - self.extrapolation_trust_[i])
        if self.calibration_[i]:  # no covariance: return the extrapolation degree
            return scores, np.repeat(degree[:, None], scores.shape[1], axis=1)
        if feature_map.local:  # only the intercept remains out of support; replace it by the prior
            scores = scores - degree[:, None] * (posterior.mean[-1] - self.extrapolation_scores_[i])
        if not scale > 0.0:
            return scores, np.zeros_like(scores)
        covariance = posterior.covariance(Phi, residual)
        return scores, restore_prior_variance(covariance, degree, posterior.prior_variance, scale)

    def _integrated(
        self, i: int, scores: Array, covariance: Array, level: int
    ) -> tuple[Array, Array]:
        if self.calibration_[i]:
            return self._calibrated(i, scores, covariance[:, 0])
        return class_predictive(scores, covariance, float(self.posterior_scale_[i]), level)

    def _calibrated(self, i: int, scores: Array, degree: Array) -> tuple[Array, Array]:
        """Calibrated probabilities, mixed with the class frequencies out of support.

        Out of support the mixture has one component per class, so that the uncertainty there is
        epistemic rather than aleatoric.
        """
        two, calibrated = scores.shape[1] == 1, restore(self.calibration_[i])
        p = calibrated.probabilities(scores[:, 0] if two else scores)[:, None]
        if not degree.any():
            return p, np.ones(1)
        prior_scores = self.extrapolation_scores_[i]
        frequencies = softmax(np.append(0.0, prior_scores) if two else prior_scores)
        one_hot = np.array([0.0, 1.0]) if two else np.eye(len(frequencies))
        weight = degree.reshape(-1, *[1] * (p.ndim - 1))
        return (1.0 - weight) * p + weight * one_hot, frequencies

    @or_constant
    def predict_proba(self, X: Any) -> Array:
        """Class probabilities, averaged over the posterior."""
        parts = [(rows, part.probabilities()) for rows, part in self._predictives(X)]
        return _in_order(parts)

    @or_constant
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    @or_constant
    def predict(self, X: Any) -> Array:
        """Most probable class of each row, consistent with `predict_proba`."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    @or_constant
    def decision_function(self, X: Any) -> Array:
        """Log odds of the second of two classes, else log probabilities."""
        p = np.clip(self.predict_proba(X), 1e-300, 1.0)
        return np.asarray(logit(p[:, 1]) if p.shape[1] == 2 else np.log(p))

    @or_constant
    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Total, aleatoric and epistemic entropy of the class, in nats."""
        parts = [(rows, part.uncertainty()) for rows, part in self._predictives(X)]
        return Uncertainty(
            _in_order([(rows, part.total) for rows, part in parts]),
            _in_order([(rows, part.aleatoric) for rows, part in parts]),
            _in_order([(rows, part.epistemic) for rows, part in parts]),
        )

    @available_if(_has_draws)
    def coef_draws(self, n_draws: int, random_state: Any = None) -> Array:
        """Draw weights from their posterior.

        Parameters
        ----------
        n_draws : int
        random_state : int, RandomState or None, default=None
            Ignored by "svgd", which cycles through its particles.

        Returns
        -------
        ndarray of shape (n_draws, n_components_ + 1, n_outputs)
            Intercept last. With ``inference="evidence"`` two classes have one output; otherwise
            there is one output per class. Ensembles cycle through their members.
        """
        check_integer("n_draws", n_draws, 1)
        check_is_fitted(self, "gamma_")
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        if hasattr(self, "particles_"):
            return self._particle_draws(int(n_draws), rng)
        posteriors = [posterior for _, posterior in self._posteriors()]
        draws = [posterior.draw(int(n_draws), rng) for posterior in posteriors]
        return np.stack([draws[i % len(draws)][i] for i in range(n_draws)])

    @available_if(by_evidence)
    def score_samples(self, X: Any) -> Array:
        """Inlier score: how well the training data cover each row; low for outliers.

        Minus the logarithm of the posterior-to-prior variance ratio of the scores: about zero out
        of support. This needs features that vanish there ("nystroem"); "fourier" and "identity"
        cannot detect outliers.
        """
        posteriors = self._posteriors()
        X = self._check_X(X, reset=False)
        out, corrections = np.zeros(X.shape[0]), self._corrections(X)
        for start in range(0, X.shape[0], PREDICT_ROWS):
            rows = slice(start, start + PREDICT_ROWS)
            for i, (feature_map, posterior) in enumerate(posteriors):
                Phi = feature_map(X[rows], X.dtype)
                covariance = posterior.covariance(Phi, feature_map.residual(Phi))
                variance, prior = mean_score_variance(covariance), posterior.prior_variance
                correction = corrections[i]
                if correction is not None:
                    variance = variance + correction[1][rows]
                    learned = correction[1][rows] > 0.0
                    prior = prior + self.experts_[i]["prior_variance"] * learned
                ratio = variance / prior
                out[rows] -= np.log(np.maximum(ratio, 1e-300)) / len(posteriors)
        return out


def _in_order(parts: list[tuple[Any, Array]]) -> Array:
    """Gather blocks of values into the order of the rows."""
    n = sum(len(values) for _, values in parts)
    out = np.empty((n, *parts[0][1].shape[1:]))
    for rows, values in parts:
        out[rows] = values
    return out
