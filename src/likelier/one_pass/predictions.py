"""Predictions and uncertainty of the one-pass classifier."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.callback import CallbackSupportMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Batch, Loss, Matrix, Uncertainty
from likelier.engines import LocalEngine
from likelier.features.fourier import RandomFourier
from likelier.fitting.probabilities import (
    class_probabilities,
    never_certain,
    split_entropy,
)
from likelier.losses import make_loss
from likelier.matrices import validated_rows
from likelier.one_pass.checks import check_same_parameters
from likelier.one_pass.inference import coordinates
from likelier.predictive import Categorical

DRAWS = 32  # of the scores, for the epistemic uncertainty
LAZY_ATTRIBUTES = ("coef_", "intercept_", "posterior_")
MACKAY = np.pi / 8.0  # E sigma(f) is about sigma(mean / sqrt(1 + MACKAY variance))


class OnePassPredictions(ClassifierMixin, CallbackSupportMixin, BaseEstimator):
    """Predictions from Gaussian weights that share one covariance."""

    update: str
    n_jobs: int | None
    random_state: Any
    classes_: Array
    coef_: Array
    intercept_: Array
    map_: dict[str, Array]
    fixed_params_: dict[str, Any]
    posterior_: dict[str, Any]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # -- lazily computed fitted attributes ------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        if name in LAZY_ATTRIBUTES and (vars(self).get("stats_") or vars(self).get("pending_")):
            self._finalise()
            return vars(self)[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _finalise(self) -> None:
        """Compute weights that were deferred."""
        if "posterior_" not in vars(self):
            check_same_parameters(self)
            self._set_fitted_attributes()

    @abstractmethod
    def _set_fitted_attributes(self) -> None:
        """Set the fitted attributes from the statistics."""

    # -- rows ---------------------------------------------------------------------------
    def _check_X(self, X: Any, reset: bool) -> Matrix:
        rows = validated_rows(self, X, reset)
        if isinstance(rows, np.ndarray) and not rows.flags.forc:
            rows = np.ascontiguousarray(rows)
        return rows

    def _features(self, X: Matrix, frequencies: dict[str, Array]) -> Matrix:
        """Fourier features of the rows, or the rows themselves."""
        return RandomFourier().apply(frequencies, X) if frequencies else X

    def _by_blocks(self, X: Any, compute: Callable[[Matrix], Array]) -> Array:
        """Compute something for every row, block by block in bounded memory."""
        check_is_fitted(self, "classes_")
        X = self._check_X(X, reset=False)
        self._finalise()
        with LocalEngine(X, n_jobs=self.n_jobs) as engine:

            def compute_block(batch: Batch) -> Array:
                return compute(self._features(batch.X, self.map_))

            return np.concatenate(list(engine.map_blocks(compute_block)))

    # -- scores -------------------------------------------------------------------------
    def _scores(self, Phi: Matrix) -> Array:
        coef = np.asarray(self.coef_, dtype=np.float64)
        return np.asarray(Phi @ coef.T + self.intercept_)

    def _variance(self, Phi: Matrix) -> Array:
        """Variance of the score of one class (with two classes: of their difference)."""
        posterior = self.posterior_
        has_intercept = len(posterior["scaling"]) > len(posterior["scale"])
        Z = coordinates(Phi, posterior["centre"], posterior["scale"], has_intercept)
        scaled = Z.astype(np.float64, copy=False) * posterior["scaling"]
        half = solve_triangular(posterior["root"], scaled.T, lower=True, check_finite=False)
        return np.asarray((half**2).sum(axis=0) * self._difference_variance())

    def _difference_variance(self) -> float:
        """Factor from the variance of one output to that of a difference between two classes."""
        return 2.0 if self.fixed_params_["update"] == "streaming" else 1.0

    def _loss(self) -> Loss:
        return make_loss("softmax" if self.fixed_params_["update"] == "streaming" else "log_loss")

    def decision_function(self, X: Any) -> Array:
        """Scores: one per row for two classes, otherwise one per class."""
        scores = self._by_blocks(X, self._scores)
        return scores.ravel() if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """Most probable class of every row."""
        scores = self._by_blocks(X, self._scores)
        if len(self.classes_) == 2:
            best = (scores[:, 0] > 0.0).astype(np.intp)
        else:
            best = scores.argmax(axis=1)
        return np.asarray(self.classes_[best])

    # -- probabilities ------------------------------------------------------------------
    def predict_proba(self, X: Any) -> Array:
        """Probability of every class, averaged over the posterior of the weights.

        The most probable class is always the one that `predict` returns. Costs features^2 per row
        for the variance of the scores.
        """
        return self._by_blocks(X, self._moderated)

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of `predict_proba`."""
        return np.asarray(np.log(self.predict_proba(X)))

    def _moderated(self, Phi: Matrix) -> Array:
        """Probabilities of scores moderated by their variance (MacKay, 1992)."""
        factor = float(self.posterior_["factor"])
        variance = factor**2 * self._variance(Phi)
        moderated = self._scores(Phi) * (factor / np.sqrt(1.0 + MACKAY * variance))[:, None]
        return self._probabilities(moderated)

    def _probabilities(self, scores: Array) -> Array:
        if len(self.classes_) == 1:
            return np.ones_like(scores)
        if len(self.classes_) == 2:
            scores = scores[:, 0]
        return never_certain(class_probabilities(self._loss(), scores, {}))

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Entropy of `predict_proba` in nats, split into aleatoric and epistemic parts.

        The epistemic part, which more data would reduce, is the mutual information between the
        class and the weights, estimated with 32 draws of the scores. All rows share the random
        numbers.
        """
        check_is_fitted(self, "classes_")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        noise = np.random.default_rng([seed, 2]).standard_normal((DRAWS, len(self.coef_)))

        def parts(Phi: Matrix) -> Array:
            factor = float(self.posterior_["factor"])
            scores, std = self._scores(Phi), np.sqrt(self._variance(Phi))
            if len(self.coef_) > 1:  # of a single class, not of a difference
                std = std / np.sqrt(self._difference_variance())
            draws = [self._probabilities(factor * (scores + std[:, None] * e)) for e in noise]
            epistemic = Categorical(np.stack(draws, axis=1)).uncertainty().epistemic
            return np.column_stack([self._moderated(Phi), epistemic])

        both = self._by_blocks(X, parts)
        return split_entropy(both[:, :-1], both[:, -1])

    def coef_covariance(self) -> Array:
        """Covariance of the coefficients of a class, in the original feature units.

        The same for every row of ``coef_``; with an intercept, that comes last. Costs features^3.
        """
        check_is_fitted(self, "classes_")
        posterior = self.posterior_
        d, p = len(posterior["scale"]), len(posterior["scaling"])
        to_rows = np.diag(np.append(1.0 / posterior["scale"], np.ones(p - d)))
        if p > d:
            to_rows[d, :d] = -posterior["centre"] / posterior["scale"]
        half = solve_triangular(
            posterior["root"], (to_rows * posterior["scaling"]).T, lower=True, check_finite=False
        )
        factor = self._difference_variance() if len(self.classes_) == 2 else 1.0
        return np.asarray(half.T @ half * factor)
