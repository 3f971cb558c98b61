"""What the one-pass classifier does once it has learned something: predict, and say how surely."""

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
from likelier.features.fourier import FourierFeatures
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

DRAWS = 32  # of the scores, for the epistemic part of the uncertainty
ON_DEMAND = ("coef_", "intercept_", "posterior_")
LOGISTIC = np.pi / 8.0  # a logistic score of variance v is as good as one shrunk by this


class OnePassPredictions(ClassifierMixin, CallbackSupportMixin, BaseEstimator):
    """Predictions from Gaussian weights that share one covariance."""

    update: str
    n_jobs: int | None
    random_state: Any
    classes_: Array
    coef_: Array
    intercept_: Array
    map_: dict[str, Array]
    words_: dict[str, Any]
    posterior_: dict[str, Any]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # -- fitted attributes that may still have to be computed ----------------------------
    def __getattr__(self, name: str) -> Any:
        if name in ON_DEMAND and (vars(self).get("stats_") or vars(self).get("pending_")):
            self._settle()
            return vars(self)[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _settle(self) -> None:
        """Compute weights that were postponed."""
        if "posterior_" not in vars(self):
            check_same_parameters(self)
            self._publish()

    @abstractmethod
    def _publish(self) -> None:
        """Show what has been learned as fitted attributes."""

    # -- rows ---------------------------------------------------------------------------
    def _check_X(self, X: Any, reset: bool) -> Matrix:
        rows = validated_rows(self, X, reset)
        if isinstance(rows, np.ndarray) and not rows.flags.forc:
            rows = np.ascontiguousarray(rows)
        return rows

    def _features(self, X: Matrix, made: dict[str, Array]) -> Matrix:
        """Rows as the weights see them."""
        return FourierFeatures().apply(made, X) if made else X

    def _by_blocks(self, X: Any, compute: Callable[[Matrix], Array]) -> Array:
        """Compute something for every row, block by block: nothing large is copied."""
        check_is_fitted(self, "classes_")
        X = self._check_X(X, reset=False)
        self._settle()
        with LocalEngine(X, n_jobs=self.n_jobs) as engine:

            def one(batch: Batch) -> Array:
                return compute(self._features(batch.X, self.map_))

            return np.concatenate(list(engine.map_blocks(one)))

    # -- scores -------------------------------------------------------------------------
    def _scores(self, Phi: Matrix) -> Array:
        coef = np.asarray(self.coef_, dtype=np.float64)
        return np.asarray(Phi @ coef.T + self.intercept_)

    def _variance(self, Phi: Matrix) -> Array:
        """Variance of the score of one class (of two classes: of their difference)."""
        found = self.posterior_
        has_intercept = len(found["units"]) > len(found["scale"])
        Z = coordinates(Phi, found["centre"], found["scale"], has_intercept)
        scaled = Z.astype(np.float64, copy=False) * found["units"]
        half = solve_triangular(found["root"], scaled.T, lower=True, check_finite=False)
        return np.asarray((half**2).sum(axis=0) * self._outputs_apart())

    def _outputs_apart(self) -> float:
        """Outputs whose independent errors make up that of a difference between classes."""
        return 2.0 if self.words_["update"] == "streaming" else 1.0

    def _loss(self) -> Loss:
        return make_loss("softmax" if self.words_["update"] == "streaming" else "log_loss")

    def decision_function(self, X: Any) -> Array:
        """Scores: one per row for two classes, else one per class."""
        scores = self._by_blocks(X, self._scores)
        return scores.ravel() if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """Most probable class of every row: the one of the largest score."""
        scores = self._by_blocks(X, self._scores)
        if len(self.classes_) == 2:
            best = (scores[:, 0] > 0.0).astype(np.intp)
        else:
            best = scores.argmax(axis=1)
        return np.asarray(self.classes_[best])

    # -- probabilities ------------------------------------------------------------------
    def predict_proba(self, X: Any) -> Array:
        """Probability of every class, averaged over what is not known of the weights.

        The largest is always that of the class `predict` gives. A row costs features^2, for the
        variance of its score.
        """
        return self._by_blocks(X, self._moderated)

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of `predict_proba`."""
        return np.asarray(np.log(self.predict_proba(X)))

    def _moderated(self, Phi: Matrix) -> Array:
        """Probabilities of scores shrunk by their own uncertainty."""
        factor = float(self.posterior_["factor"])
        variance = factor**2 * self._variance(Phi)
        shrunk = self._scores(Phi) * (factor / np.sqrt(1.0 + LOGISTIC * variance))[:, None]
        return self._probabilities(shrunk)

    def _probabilities(self, scores: Array) -> Array:
        if len(self.classes_) == 1:
            return np.ones_like(scores)
        if len(self.classes_) == 2:
            scores = scores[:, 0]
        return never_certain(class_probabilities(self._loss(), scores, {}))

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Entropy of `predict_proba` in nats; epistemic: what more rows would settle.

        The epistemic part is what 32 draws of the scores say about the class (their mutual
        information), with the same random numbers for every row.
        """
        check_is_fitted(self, "classes_")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        noise = np.random.default_rng([seed, 2]).standard_normal((DRAWS, len(self.coef_)))

        def parts(Phi: Matrix) -> Array:
            factor = float(self.posterior_["factor"])
            scores, spread = self._scores(Phi), np.sqrt(self._variance(Phi))
            if len(self.coef_) > 1:  # each class on its own, not a difference of two
                spread = spread / np.sqrt(self._outputs_apart())
            made = [self._probabilities(factor * (scores + spread[:, None] * e)) for e in noise]
            found = Categorical(np.stack(made, axis=1)).uncertainty().epistemic
            return np.column_stack([self._moderated(Phi), found])

        both = self._by_blocks(X, parts)
        return split_entropy(both[:, :-1], both[:, -1])

    def coef_covariance(self) -> Array:
        """Covariance of the coefficients of a class, in the units of the rows.

        The same for every row of ``coef_``; with an intercept, that comes last. Costs features^3.
        """
        check_is_fitted(self, "classes_")
        found = self.posterior_
        d, p = len(found["scale"]), len(found["units"])
        to_rows = np.diag(np.append(1.0 / found["scale"], np.ones(p - d)))
        if p > d:
            to_rows[d, :d] = -found["centre"] / found["scale"]
        half = solve_triangular(
            found["root"], (to_rows * found["units"]).T, lower=True, check_finite=False
        )
        apart = self._outputs_apart() if len(self.classes_) == 2 else 1.0
        return np.asarray(half.T @ half * apart)
