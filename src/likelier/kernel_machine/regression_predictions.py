"""Predictions of kernel regressions: means, intervals and uncertainty."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Matrix, Uncertainty
from likelier.fitting.parameters import check_integer
from likelier.kernel_machine.estimator import by_evidence
from likelier.kernel_machine.expert_model import Experts
from likelier.kernel_machine.extrapolation import OutOfSupport
from likelier.kernel_machine.features import restore_map
from likelier.kernel_machine.noise import NoiseShape, noise_mixture
from likelier.kernel_machine.regression import Weights
from likelier.kernel_machine.regression_experts import corrected_global_variance
from likelier.kernel_machine.regression_stream import RegressionStream
from likelier.predictive import Gaussian

PREDICT_ROWS = 4096


def has_covariance(estimator: Any) -> bool:
    """Whether methods that need a weight posterior are available."""
    if estimator.loss == "gaussian":
        return by_evidence(estimator)
    raise AttributeError(
        f"loss={estimator.loss!r} has no weight posterior, hence no score_samples or coef_draws; "
        'use loss="gaussian"'
    )


def _has_draws(model: Any) -> bool:
    """Whether there is a weight posterior to draw from: particles, or a Gaussian."""
    return model.inference != "evidence" or has_covariance(model)


class RegressionPredictions(RegressionStream):
    """Predictions from the fitted feature maps, weights and experts."""

    noise_centres_: list[Array]
    noise_widths_: list[Array]
    noise_weights_: list[Array]

    def _require_fit(self) -> None:
        self._learn_pending()
        check_is_fitted(self, ["maps_", "particles_"], all_or_any=any)

    def _moments(self, X: Any) -> tuple[Array, ...]:
        """Mean, variance of the function and of the noise, ``(n, particles)`` each."""
        self._require_fit()
        X = self._check_X(X, reset=False)
        if hasattr(self, "particles_"):
            mean = self.target_mean_ + self.target_scale_ * self._particle_scores(X)[..., 0].T
            return mean, np.zeros_like(mean), np.full_like(mean, self.noise_[0] ** 2)
        return self._moments_of_all(X)[:3]

    def _moments_of_all(self, X: Matrix) -> tuple[Array, ...]:
        parts = [self._moments_of(i, X) for i in range(len(self.maps_))]
        return tuple(np.stack(columns, axis=1) for columns in zip(*parts, strict=True))

    def _moments_of(self, i: int, X: Matrix) -> tuple[Array, Array, Array, Array, Array]:
        """Moments by one ensemble member.

        Also returns the posterior-to-prior variance ratio of the function and the extrapolation
        degree.
        """
        feature_map = restore_map(self.maps_[i])
        weights = Weights(self.weights_[i], self.roots_[i], float(self.ratio_[i]))
        mean, inside, outside = np.empty((3, X.shape[0]))
        for start in range(0, X.shape[0], PREDICT_ROWS):
            rows = slice(start, start + PREDICT_ROWS)
            Phi = feature_map(X[rows], np.float64)
            mean[rows] = Phi @ weights.mean
            inside[rows] = weights.variance(Phi, np.zeros(len(Phi)))
            outside[rows] = feature_map.residual(Phi) / weights.ratio
        noise = np.full(X.shape[0], (self.noise_[i] / self.target_scale_) ** 2)
        variance, prior = noise * (inside + outside), noise / weights.ratio
        unlearned: Any = 1.0 - self.extrapolation_trust_[i]
        if self.experts_[i]:
            experts, scale = Experts(**self.experts_[i]), float(self.global_scale_[i])
            # double precision, so that predictions do not depend on the other rows
            added, expert_variance = experts.correct(X, np.float64)
            learned, global_noise = expert_variance > 0.0, float(self.global_noise_[i])
            mean = mean + added[:, 0]
            global_part = corrected_global_variance(
                inside, outside, expert_variance / experts.prior_variance
            )
            prior_sum = scale / weights.ratio + experts.prior_variance
            variance = np.where(
                learned,
                noise * (scale * global_part + expert_variance),
                global_noise * (inside + outside),
            )
            prior = np.where(learned, noise * prior_sum, global_noise / weights.ratio)
            noise = np.where(learned, noise, global_noise)
            remaining = np.minimum(expert_variance / experts.prior_variance, 1.0)
            unlearned = unlearned * np.where(learned, remaining, 1.0)
        support = OutOfSupport(outside * weights.ratio, unlearned)
        ratio, constant = variance / prior, float(weights.mean[-1])
        mean = mean - support.mean_correction(constant)
        variance = variance + support.variance(
            constant, float(self.extrapolation_std_[i]), prior + noise
        )
        square = self.target_scale_**2
        mean = self.target_mean_ + self.target_scale_ * mean
        return mean, square * variance, square * noise, ratio, support.degree

    def _predictive(self, X: Any) -> Gaussian:
        self._require_fit()
        if hasattr(self, "particles_"):
            mean, inside, noise = self._moments(X)
            return Gaussian(mean, np.sqrt(inside + noise), weights=np.ones(mean.shape[1]))
        X = self._check_X(X, reset=False)
        mean, inside, noise, _, degree = self._moments_of_all(X)
        parts = zip(self.noise_widths_, self.noise_weights_, self.noise_centres_, strict=True)
        shapes = [NoiseShape(*part) for part in parts]
        return noise_mixture(mean, np.sqrt(inside + noise), shapes, degree)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predictive mean; with ``return_std`` also the standard deviation."""
        predictive = self._predictive(X)
        return (predictive.mean(), predictive.std()) if return_std else predictive.mean()

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Central predictive interval of each row, ``(n, 2)``."""
        return self._predictive(X).interval(coverage)

    def predict_quantiles(self, X: Any, alpha: Any = (0.05, 0.5, 0.95)) -> Array:
        """Predictive quantiles of each row."""
        return self._predictive(X).quantiles(alpha)

    def log_predictive_density(self, X: Any, y: Any) -> Array:
        """Log predictive density of each target."""
        return self._predictive(X).log_density(y)

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Predictive variance: of the noise (aleatoric) and of the function (epistemic)."""
        mean, inside, noise = self._moments(X)
        epistemic = inside.mean(axis=1) + mean.var(axis=1)
        return Uncertainty(noise.mean(axis=1) + epistemic, noise.mean(axis=1), epistemic)

    @available_if(_has_draws)
    def coef_draws(self, n_draws: int, random_state: Any = None) -> Array:
        """Draw weights from their posterior, for targets standardised to unit variance.

        Parameters
        ----------
        n_draws : int
        random_state : int, RandomState or None, default=None
            Ignored by "svgd", which cycles through its particles.

        Returns
        -------
        ndarray of shape (n_draws, n_components_ + 1, 1)
            Intercept last. Ensembles cycle through their members. Among the data, the functions of
            these draws have the predictive distribution; out of support, predictions drop the
            intercept.
        """
        check_integer("n_draws", n_draws, 1)
        self._require_fit()
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        if hasattr(self, "particles_"):
            return self._particle_draws(int(n_draws), rng)
        out = np.empty((n_draws, len(self.weights_[0]), 1))
        for i in range(n_draws):
            part = i % len(self.weights_)
            # the scale that predictions use, also with experts
            sd = self.noise_[part] * self.global_scale_[part] ** 0.5 / self.target_scale_
            noise = rng.standard_normal(len(self.roots_[part])) @ self.roots_[part]
            out[i, :, 0] = self.weights_[part] + sd * noise
        return out

    @available_if(has_covariance)
    def score_samples(self, X: Any) -> Array:
        """Inlier score: how well the training data cover each row; low for outliers.

        Minus the logarithm of the posterior-to-prior variance ratio of the function: about zero out
        of support.
        """
        self._require_fit()
        ratio = self._moments_of_all(self._check_X(X, reset=False))[3]
        return np.asarray(-np.log(np.maximum(ratio, 1e-300)).mean(axis=1))
