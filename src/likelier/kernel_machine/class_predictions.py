"""What a fitted kernel classifier says about rows: classes, probabilities, how sure it is."""

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
    HeadPosterior,
    add_variance,
    far_share,
    open_far,
    open_variance,
)
from likelier.kernel_machine.particles import calibrated_link
from likelier.predictive import ClassPredictive

PREDICT_ROWS = 4096
NODE_VALUES = 1 << 20  # pairs x classes of the points that some rows are integrated at together


def _has_draws(model: Any) -> bool:
    """Whether there is a posterior of the weights to draw from."""
    if model.loss == "hinge" and model.inference == "evidence":
        raise AttributeError('loss="hinge" has no posterior of the weights here; use "softmax"')
    return True


class ClassPredictions(ClassStream):
    """Predictions from the fitted maps, weights and covariances."""

    def _posteriors(self) -> list[tuple[KernelMap, HeadPosterior]]:
        self._settle()
        check_is_fitted(self, "maps_")
        posteriors = [
            HeadPosterior(
                self.weights_[i], self.roots_[i], self.layout_, float(variance),
                self.mean_shift_[i], self.bases_[i], self.outside_[i],
            )
            for i, variance in enumerate(self.prior_variance_)
        ]  # fmt: skip
        return list(zip(map(restore_map, self.maps_), posteriors, strict=True))

    def _predictives(self, X: Any) -> Iterator[tuple[Any, ClassPredictive]]:
        """Some rows at a time, by their places, and their predictive; memory is bounded."""
        self._settle()
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
        added = self._corrections(X)
        for rows in blocks:
            for places, predictive in self._of_block(posteriors, added, X[rows], rows):
                yield rows.start + places, predictive

    def _corrections(self, X: Matrix) -> list[tuple[Array, Array] | None]:
        """What the experts of every part of an ensemble add to its scores."""
        return [Experts(**plain).correct(X) if plain else None for plain in self.experts_]

    def _of_block(
        self, posteriors: Any, added: Any, X: Any, rows: slice
    ) -> Iterator[tuple[Array, ClassPredictive]]:
        """Rows of a block that are integrated equally finely, and their predictive."""
        scores, covariances = [], []
        level = np.zeros(X.shape[0], dtype=np.intp)
        for i, (made, posterior) in enumerate(posteriors):
            mean, covariance = self._scores(i, made, posterior, X)
            if added[i] is not None:
                mean = mean + added[i][0][rows]
                covariance = add_variance(covariance, added[i][1][rows])
            scores.append(mean)
            covariances.append(covariance)
            if not self.calibration_[i]:
                level = np.maximum(level, levels(covariance, float(self.posterior_scale_[i])))
        for fineness in np.unique(level):
            inside = np.flatnonzero(level == fineness)
            most = max(1, NODE_VALUES // (N_PAIRS[fineness] * len(self.classes_)))
            for start in range(0, len(inside), most):
                places = inside[start : start + most]
                parts = [
                    self._integrated(i, scores[i][places], covariances[i][places], int(fineness))
                    for i in range(len(posteriors))
                ]
                yield places, to_predictive(parts)

    def _scores(
        self, i: int, made: KernelMap, posterior: HeadPosterior, X: Matrix
    ) -> tuple[Array, Array]:
        """Mean and covariance of the scores by one part of an ensemble."""
        Phi = made(X, X.dtype)
        scores, spread = posterior.scores(Phi), float(self.posterior_scale_[i])
        residual = made.residual(Phi)
        away = far_share(residual) * (1.0 - self.far_known_[i])
        if self.calibration_[i]:  # without a covariance: how far away a row is, stands for it
            return scores, np.repeat(away[:, None], scores.shape[1], axis=1)
        if made.local:  # the constants alone are left far away: they must not claim anything
            scores = scores - away[:, None] * (posterior.mean[-1] - self.far_scores_[i])
        if not spread > 0.0:
            return scores, np.zeros_like(scores)
        covariance = posterior.covariance(Phi, residual)
        return scores, open_far(covariance, away, posterior.prior_variance, spread)

    def _integrated(
        self, i: int, scores: Array, covariance: Array, level: int
    ) -> tuple[Array, Array]:
        if self.calibration_[i]:
            return self._calibrated(i, scores, covariance[:, 0])
        return class_predictive(scores, covariance, float(self.posterior_scale_[i]), level)

    def _calibrated(self, i: int, scores: Array, away: Array) -> tuple[Array, Array]:
        """Probabilities of calibrated scores; far from all data any class, by its share.

        There it is one class or another, and which one is not known: a part of the mixture for
        each, so that what is open about a row far away is of the model, not of the data.
        """
        two, calibrated = scores.shape[1] == 1, restore(self.calibration_[i])
        p = calibrated.probabilities(scores[:, 0] if two else scores)[:, None]
        if not away.any():
            return p, np.ones(1)
        far = self.far_scores_[i]
        shares = softmax(np.append(0.0, far) if two else far)
        sure = np.array([0.0, 1.0]) if two else np.eye(len(shares))
        share = away.reshape(-1, *[1] * (p.ndim - 1))
        return (1.0 - share) * p + share * sure, shares

    @or_constant
    def predict_proba(self, X: Any) -> Array:
        """Probability of every class, averaged over the posterior."""
        parts = [(rows, part.probabilities()) for rows, part in self._predictives(X)]
        return _in_order(parts)

    @or_constant
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    @or_constant
    def predict(self, X: Any) -> Array:
        """Most probable class of every row, always that of `predict_proba`."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    @or_constant
    def decision_function(self, X: Any) -> Array:
        """Log odds of the second of two classes, else log probabilities."""
        p = np.clip(self.predict_proba(X), 1e-300, 1.0)
        return np.asarray(logit(p[:, 1]) if p.shape[1] == 2 else np.log(p))

    @or_constant
    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Entropy of the class in nats: in all, within the posterior, and between its parts."""
        parts = [(rows, part.uncertainty()) for rows, part in self._predictives(X)]
        return Uncertainty(
            _in_order([(rows, part.total) for rows, part in parts]),
            _in_order([(rows, part.aleatoric) for rows, part in parts]),
            _in_order([(rows, part.epistemic) for rows, part in parts]),
        )

    @available_if(_has_draws)
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
        """How well the training data cover each row; low far from them.

        Minus the logarithm of the share of the prior variance of the scores that the data left
        open: about zero far away, where nothing has been learned. That needs features that
        vanish there, those of "nystroem"; "fourier" and "identity" do not tell such rows.
        """
        posteriors = self._posteriors()
        X = self._check_X(X, reset=False)
        out, added = np.zeros(X.shape[0]), self._corrections(X)
        for start in range(0, X.shape[0], PREDICT_ROWS):
            rows = slice(start, start + PREDICT_ROWS)
            for i, (made, posterior) in enumerate(posteriors):
                Phi = made(X[rows], X.dtype)
                covariance = posterior.covariance(Phi, made.residual(Phi))
                left, prior = open_variance(covariance), posterior.prior_variance
                correction = added[i]
                if correction is not None:
                    left = left + correction[1][rows]
                    learned = correction[1][rows] > 0.0
                    prior = prior + self.experts_[i]["prior_variance"] * learned
                share = left / prior
                out[rows] -= np.log(np.maximum(share, 1e-300)) / len(posteriors)
        return out


def _in_order(parts: list[tuple[Any, Array]]) -> Array:
    """Values of some rows at a time, each at the place of its row."""
    n = sum(len(values) for _, values in parts)
    out = np.empty((n, *parts[0][1].shape[1:]))
    for rows, values in parts:
        out[rows] = values
    return out
