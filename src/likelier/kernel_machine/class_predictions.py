"""Predictions of kernel classifiers: classes, probabilities and uncertainty."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logit
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Uncertainty
from likelier.fitting.one_class import or_constant
from likelier.fitting.parameters import check_integer
from likelier.kernel_machine.class_posterior import ClassPosterior
from likelier.kernel_machine.class_stream import ClassStream
from likelier.kernel_machine.estimator import by_evidence
from likelier.kernel_machine.particle_posterior import ParticleClasses, particle_draws
from likelier.kernel_machine.posterior import classifier


def _has_draws(model: Any) -> bool:
    """Whether there is a weight posterior to draw from."""
    if model.loss == "hinge" and model.inference == "evidence":
        raise AttributeError('loss="hinge" has no weight posterior; use loss="softmax"')
    return True


class ClassPredictions(ClassStream):
    """Predictions by the posterior."""

    def _fitted_posterior(self) -> ClassPosterior | ParticleClasses:
        self._learn_pending()
        check_is_fitted(self, "gamma_")
        return classifier(self)

    @or_constant
    def predict_proba(self, X: Any) -> Array:
        """Class probabilities, averaged over the posterior."""
        posterior = self._fitted_posterior()
        return posterior.predictive(self._check_X(X, reset=False)).probabilities()

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
        posterior = self._fitted_posterior()
        return posterior.uncertainty(self._check_X(X, reset=False))

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
        posterior = self._fitted_posterior()
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        if isinstance(posterior, ParticleClasses):
            return particle_draws(posterior.particles, int(n_draws), rng)
        draws = [machine.weights.draw(int(n_draws), rng) for machine in posterior.machines]
        return np.stack([draws[i % len(draws)][i] for i in range(n_draws)])

    @available_if(by_evidence)
    def score_samples(self, X: Any) -> Array:
        """Inlier score: how well the training data cover each row; low for outliers.

        Minus the logarithm of the posterior-to-prior variance ratio of the scores: about zero out
        of support. This needs features that vanish there ("nystroem"); "fourier" and "identity"
        cannot detect outliers.
        """
        posterior = self._fitted_posterior()
        if isinstance(posterior, ParticleClasses):  # inference was changed since the fit
            raise AttributeError("particles have no score_samples")
        return posterior.inlier_score(self._check_X(X, reset=False))
