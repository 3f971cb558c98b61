"""What a fitted kernel regression says about rows: means, intervals, how sure it is."""

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
from likelier.kernel_machine.extrapolation import FarRows
from likelier.kernel_machine.features import restore_map
from likelier.kernel_machine.noise import NoiseShape, with_shapes
from likelier.kernel_machine.number_experts import beside_experts
from likelier.kernel_machine.number_fit import NumberStream
from likelier.kernel_machine.regression import Weights
from likelier.predictive import Gaussian

PREDICT_ROWS = 4096


def has_covariance(estimator: Any) -> bool:
    """Whether a method is there that needs a posterior of the weights."""
    if estimator.loss == "gaussian":
        return by_evidence(estimator)
    raise AttributeError(
        f"loss={estimator.loss!r} has no posterior of the weights and so neither score_samples nor "
        'coef_draws; use loss="gaussian"'
    )


def _has_draws(model: Any) -> bool:
    """Whether there is a posterior of the weights to draw from: particles, or a Gaussian one."""
    return model.inference != "evidence" or has_covariance(model)


class NumberPredictions(NumberStream):
    """Predictions from the fitted maps, weights and experts."""

    noise_centres_: list[Array]
    noise_widths_: list[Array]
    noise_shares_: list[Array]

    def _require_fit(self) -> None:
        self._settle()
        check_is_fitted(self, ["maps_", "particles_"], all_or_any=any)

    def _moments(self, X: Any) -> tuple[Array, ...]:
        """Mean, variance of the function and of the noise, ``(n, particles)`` each."""
        self._require_fit()
        X = self._check_X(X, reset=False)
        if hasattr(self, "particles_"):
            mean = self.target_mean_ + self.target_spread_ * self._particle_scores(X)[..., 0].T
            return mean, np.zeros_like(mean), np.full_like(mean, self.noise_[0] ** 2)
        return self._moments_of_all(X)[:3]

    def _moments_of_all(self, X: Matrix) -> tuple[Array, ...]:
        parts = [self._moments_of(i, X) for i in range(len(self.maps_))]
        return tuple(np.stack(columns, axis=1) for columns in zip(*parts, strict=True))

    def _moments_of(self, i: int, X: Matrix) -> tuple[Array, Array, Array, Array, Array]:
        """The same by one fit of an ensemble.

        And which share of the prior variance of the function is left, and how far away rows are.
        """
        made = restore_map(self.maps_[i])
        weights = Weights(self.weights_[i], self.roots_[i], float(self.ratio_[i]))
        mean, inside, outside = np.empty((3, X.shape[0]))
        for start in range(0, X.shape[0], PREDICT_ROWS):
            rows = slice(start, start + PREDICT_ROWS)
            Phi = made(X[rows], np.float64)
            mean[rows] = Phi @ weights.mean
            inside[rows] = weights.variance(Phi, np.zeros(len(Phi)))
            outside[rows] = made.residual(Phi) / weights.ratio
        noise = np.full(X.shape[0], (self.noise_[i] / self.target_spread_) ** 2)
        variance, prior = noise * (inside + outside), noise / weights.ratio
        unknown: Any = 1.0 - self.far_known_[i]
        if self.experts_[i]:
            experts, scale = Experts(**self.experts_[i]), float(self.common_scale_[i])
            # in double precision, so that no prediction depends on the rows beside it
            added, left = experts.correct(X, np.float64)
            learned, alone = left > 0.0, float(self.common_noise_[i])
            mean = mean + added[:, 0]
            common = beside_experts(inside, outside, left / experts.prior_variance)
            both = scale / weights.ratio + experts.prior_variance
            variance = np.where(
                learned, noise * (scale * common + left), alone * (inside + outside)
            )
            prior = np.where(learned, noise * both, alone / weights.ratio)
            noise = np.where(learned, noise, alone)
            part = np.minimum(left / experts.prior_variance, 1.0)
            unknown = unknown * np.where(learned, part, 1.0)
        far = FarRows(outside * weights.ratio, unknown)
        share, constant = variance / prior, float(weights.mean[-1])
        mean = mean - far.fading(constant)
        variance = variance + far.variance(constant, float(self.far_spread_[i]), prior + noise)
        square = self.target_spread_**2
        mean = self.target_mean_ + self.target_spread_ * mean
        return mean, square * variance, square * noise, share, far.away

    def _predictive(self, X: Any) -> Gaussian:
        self._require_fit()
        if hasattr(self, "particles_"):
            mean, inside, noise = self._moments(X)
            return Gaussian(mean, np.sqrt(inside + noise), weights=np.ones(mean.shape[1]))
        X = self._check_X(X, reset=False)
        mean, inside, noise, _, away = self._moments_of_all(X)
        parts = zip(self.noise_widths_, self.noise_shares_, self.noise_centres_, strict=True)
        shapes = [NoiseShape(*part) for part in parts]
        return with_shapes(mean, np.sqrt(inside + noise), shapes, away)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Mean of the target; with ``return_std`` also its standard deviation."""
        predictive = self._predictive(X)
        return (predictive.mean(), predictive.std()) if return_std else predictive.mean()

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Central interval of the target of each row, ``(n, 2)``."""
        return self._predictive(X).interval(coverage)

    def predict_quantiles(self, X: Any, alpha: Any = (0.05, 0.5, 0.95)) -> Array:
        """Quantiles of the target of each row."""
        return self._predictive(X).quantiles(alpha)

    def log_predictive_density(self, X: Any, y: Any) -> Array:
        """Logarithm of the predictive density at the target of each row."""
        return self._predictive(X).log_density(y)

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Variance of the target: of the noise (aleatoric) and of the function (epistemic)."""
        mean, inside, noise = self._moments(X)
        epistemic = inside.mean(axis=1) + mean.var(axis=1)
        return Uncertainty(noise.mean(axis=1) + epistemic, noise.mean(axis=1), epistemic)

    @available_if(_has_draws)
    def coef_draws(self, n_draws: int, random_state: Any = None) -> Array:
        """Draws of the weights from their posterior, for targets of mean zero and unit variance.

        Parameters
        ----------
        n_draws : int
        random_state : int, RandomState or None, default=None
            With "svgd" nothing is drawn: its particles come in turn.

        Returns
        -------
        ndarray of shape (n_draws, n_components_ + 1, 1)
            The intercept last. Parts of an ensemble come in turn. Draws of the function they
            make are those of the predictions among the data; far away predictions leave the
            intercept out.
        """
        check_integer("n_draws", n_draws, 1)
        self._require_fit()
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        if hasattr(self, "particles_"):
            return self._particle_draws(int(n_draws), rng)
        out = np.empty((n_draws, len(self.weights_[0]), 1))
        for i in range(n_draws):
            part = i % len(self.weights_)
            # as wide as predictions take it, beside experts too
            sd = self.noise_[part] * self.common_scale_[part] ** 0.5 / self.target_spread_
            noise = rng.standard_normal(len(self.roots_[part])) @ self.roots_[part]
            out[i, :, 0] = self.weights_[part] + sd * noise
        return out

    @available_if(has_covariance)
    def score_samples(self, X: Any) -> Array:
        """How well the training data cover each row; low far from them.

        Minus the logarithm of the share of the prior variance of the function that the data
        left open: about zero far away, where nothing has been learned.
        """
        self._require_fit()
        share = self._moments_of_all(self._check_X(X, reset=False))[3]
        return np.asarray(-np.log(np.maximum(share, 1e-300)).mean(axis=1))
