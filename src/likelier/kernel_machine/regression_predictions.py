"""Predictions of kernel regressions: means, intervals and uncertainty."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Uncertainty
from likelier.fitting.parameters import check_integer
from likelier.kernel_machine.estimator import by_evidence
from likelier.kernel_machine.particle_posterior import ParticleNumbers, particle_draws
from likelier.kernel_machine.posterior import regressor
from likelier.kernel_machine.regression_posterior import RegressionPosterior
from likelier.kernel_machine.regression_stream import RegressionStream
from likelier.predictive import Gaussian


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

    def _fitted_posterior(self) -> RegressionPosterior | ParticleNumbers:
        self._learn_pending()
        check_is_fitted(self, ["maps_", "particles_"], all_or_any=any)
        return regressor(self)

    def _predictive(self, X: Any) -> Gaussian:
        posterior = self._fitted_posterior()
        return posterior.predictive(self._check_X(X, reset=False))

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
        posterior = self._fitted_posterior()
        return posterior.uncertainty(self._check_X(X, reset=False))

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
        posterior = self._fitted_posterior()
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        if isinstance(posterior, ParticleNumbers):
            return particle_draws(posterior.particles, int(n_draws), rng)
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
        posterior = self._fitted_posterior()
        if isinstance(posterior, ParticleNumbers):  # inference was changed since the fit
            raise AttributeError("particles have no score_samples")
        return posterior.inlier_score(self._check_X(X, reset=False))
