"""What a fitted kernel classifier says about rows: classes, probabilities, how sure it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logit
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Matrix, Uncertainty
from likelier.calibration import restore
from likelier.estimators.kernel_particles import calibrated_link
from likelier.estimators.kernel_stream import ClassStream
from likelier.estimators.kernel_words import _integer, by_evidence
from likelier.inference.laplace import (
    HeadPosterior,
    add_variance,
    class_predictive,
    to_predictive,
)
from likelier.models.kernel_experts import Experts
from likelier.models.kernel_machine import KernelMap, restore_map
from likelier.predictive import ClassPredictive

PREDICT_ROWS = 4096


class ClassPredictions(ClassStream):
    """Predictions from the fitted maps, weights and covariances."""

    def _posteriors(self) -> list[tuple[KernelMap, HeadPosterior]]:
        check_is_fitted(self, "maps_")
        return [
            (
                restore_map(plain),
                HeadPosterior(
                    W, roots, self.layout_, float(self.prior_variance_[i]), self.mean_shift_[i]
                ),
            )
            for i, (plain, W, roots) in enumerate(
                zip(self.maps_, self.weights_, self.roots_, strict=True)
            )
        ]

    def _predictives(self, X: Any) -> list[ClassPredictive]:
        """One predictive for every block of rows."""
        check_is_fitted(self, "gamma_")
        if hasattr(self, "particles_"):
            return self._by_particles(self._check_X(X, reset=False))
        posteriors = self._posteriors()
        X = self._check_X(X, reset=False)
        added = self._corrections(X)
        blocks = [slice(i, i + PREDICT_ROWS) for i in range(0, X.shape[0], PREDICT_ROWS)]
        return [self._of_block(posteriors, added, X[rows], rows) for rows in blocks]

    def _corrections(self, X: Matrix) -> list[tuple[Array, Array] | None]:
        """What the experts of every part of an ensemble add to its scores."""
        return [Experts(**plain).correct(X) if plain else None for plain in self.experts_]

    def _by_particles(self, X: Matrix) -> list[ClassPredictive]:
        posterior, link = self._particle_posterior(), calibrated_link(self.calibration_[0])
        starts = range(0, X.shape[0], PREDICT_ROWS)
        parts: list[Any] = [posterior.predictive(X[i : i + PREDICT_ROWS], link) for i in starts]
        return parts

    def _of_block(self, posteriors: Any, added: Any, X: Any, rows: slice) -> ClassPredictive:
        parts = []
        for i, (made, posterior) in enumerate(posteriors):
            Phi = made(X, X.dtype)
            scores, spread = posterior.scores(Phi), float(self.posterior_scale_[i])
            if self.calibration_[i]:
                parts.append(self._calibrated(scores, self.calibration_[i]))
                continue
            covariance = np.zeros_like(scores)
            if spread > 0.0:
                covariance = posterior.covariance(Phi, made.residual(Phi))
            if added[i] is not None:
                scores = scores + added[i][0][rows]
                covariance = add_variance(covariance, added[i][1][rows])
            parts.append(class_predictive(scores, covariance, spread))
        return to_predictive(parts)

    @staticmethod
    def _calibrated(scores: Array, calibration: dict[str, Any]) -> tuple[Array, Array]:
        probabilities = restore(calibration)
        if scores.shape[1] == 1:
            return probabilities.probabilities(scores[:, 0])[:, None], np.ones(1)
        return probabilities.probabilities(scores)[:, None], np.ones(1)

    def predict_proba(self, X: Any) -> Array:
        """Probability of every class, averaged over the posterior."""
        return np.concatenate([part.probabilities() for part in self._predictives(X)])

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def predict(self, X: Any) -> Array:
        """Most probable class of every row, always that of `predict_proba`."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def decision_function(self, X: Any) -> Array:
        """Log odds of the second of two classes, else log probabilities."""
        p = np.clip(self.predict_proba(X), 1e-300, 1.0)
        return np.asarray(logit(p[:, 1]) if p.shape[1] == 2 else np.log(p))

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Entropy of the class in nats: in all, within the posterior, and between its parts."""
        parts = [part.uncertainty() for part in self._predictives(X)]
        return Uncertainty(
            np.concatenate([part.total for part in parts]),
            np.concatenate([part.aleatoric for part in parts]),
            np.concatenate([part.epistemic for part in parts]),
        )

    def coef_draws(self, n_draws: int, random_state: Any = None) -> Array:
        """Draws of the weights from their posterior.

        Parameters
        ----------
        n_draws : int
        random_state : int, RandomState or None, default=None
            With "svgd" nothing is drawn: its particles come in turn.

        Returns
        -------
        ndarray of shape (n_draws, n_components_ + 1, n_outputs)
            The intercept last. Two classes have one output with ``inference="evidence"``, else
            every class has one. Parts of an ensemble come in turn.
        """
        _integer("n_draws", n_draws, 1)
        check_is_fitted(self, "gamma_")
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        if hasattr(self, "particles_"):
            return self._particle_draws(int(n_draws), rng)
        if self.loss == "hinge":
            raise ValueError('loss="hinge" has no posterior of the weights here; use "softmax"')
        posteriors = [posterior for _, posterior in self._posteriors()]
        draws = [posterior.draw(int(n_draws), rng) for posterior in posteriors]
        return np.stack([draws[i % len(draws)][i] for i in range(n_draws)])

    @available_if(by_evidence)
    def score_samples(self, X: Any) -> Array:
        """How well the training data cover each row; low far from them.

        Minus the logarithm of the share of the prior variance of the scores that the data left
        open: about zero far away, where nothing has been learned.
        """
        posteriors = self._posteriors()
        X = self._check_X(X, reset=False)
        out, added = np.zeros(X.shape[0]), self._corrections(X)
        for start in range(0, X.shape[0], PREDICT_ROWS):
            rows = slice(start, start + PREDICT_ROWS)
            for i, (made, posterior) in enumerate(posteriors):
                Phi = made(X[rows], X.dtype)
                covariance = posterior.covariance(Phi, made.residual(Phi))
                if covariance.ndim == 3:
                    covariance = np.diagonal(covariance, axis1=1, axis2=2)
                left, prior = covariance.mean(axis=1), posterior.prior_variance
                correction = added[i]
                if correction is not None:
                    left = left + correction[1][rows]
                    learned = correction[1][rows] > 0.0
                    prior = prior + self.experts_[i]["prior_variance"] * learned
                share = left / prior
                out[rows] -= np.log(np.maximum(share, 1e-300)) / len(posteriors)
        return out
