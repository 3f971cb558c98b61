"""`BayesianLinearClassifier`: MCMC for Bayesian logistic regression and Bayesian SVM."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Matrix, Uncertainty
from likelier.bayesian_linear.posterior import DrawsPosterior, classifier
from likelier.bayesian_linear.recipe import BayesianLinearFit
from likelier.bayesian_linear.settings import MCMC
from likelier.bayesian_linear.summary import SummaryMixin
from likelier.fitting.one_class import or_constant
from likelier.fitting.probabilities import has_probabilities


class BayesianLinearClassifier(ClassifierMixin, SummaryMixin, BayesianLinearFit):
    """Bayesian logistic regression and Bayesian support vector machine by MCMC.

    The posterior of the weights is ``prod_i L(y_i, x_i^T w + b)^omega_i N(w; mean, precision^-1)``
    with the logistic likelihood, or with the pseudo-likelihood ``exp(-2 hinge)``. Predicted
    probabilities average over the posterior draws.

    Parameters
    ----------
    loss : {"log_loss", "softmax", "hinge"}, default="log_loss"
        Likelihood; more than two classes are one-vs-rest, or joint with "softmax". Probabilities
        of the hinge are calibrated on held-out rows.
    prior_precision : "auto", float or array of shape (n_features,), default="auto"
        Precision of the Gaussian prior of each weight; "auto" learns a common one in units of the
        variance of each column.
    prior_mean : float or array of shape (n_features,), default=0.0
        Mean of the prior.
    fit_intercept : bool, default=True
        Whether to fit an intercept, with prior ``N(0, 10^2)`` at the mean row.
    inference : {"mcmc", "independent", "hamiltonian", "gibbs"} or MCMC, default="mcmc"
        How to sample: ``MCMC(n_draws=2000)``, or the name of a sampler.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes; they multiply ``sample_weight``.
    probability : bool, default=True
        Whether to calibrate the hinge, by one short fit or five below 2,000 rows.
    checkpoint : path-like or None, default=None
        Folder for checkpoints: the same fit, run again after an interruption, resumes there, to
        the same bits. Needs an int ``random_state``.
    n_jobs : int or None, default=None
        Threads for sums over rows; draws do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed; results are reproducible bit for bit.
    verbose : int, default=0
        Print progress.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_draws_, intercept_draws_ : ndarray of shape (n_chains, n_draws, n_outputs[, n_features])
        Draws of the weights; one output for two classes, else one per class.
    prior_precision_draws_ : ndarray of shape (n_chains, n_draws, n_problems)
        Draws of the learned precision; ``n_problems`` is 0 for a given one.
    coef_, intercept_ : ndarray
        Posterior means.
    r_hat_, ess_, acceptance_ : float
        Largest R-hat and smallest effective sample size of any parameter; accepted proposals.
    sampler_, n_iter_ : str, int
        Sampler used, and rounds of sampling.

    Notes
    -----
    The learned precision ``tau var(x_j)`` has ``tau ~ Gamma(2, 0.2)``, so the marginal prior of a
    weight is Student-t with 4 degrees of freedom and scale 0.3 per standard deviation.

    The Gaussian approximation takes about 15 passes of rows x features^2, an independent draw rows
    x features, a Gibbs draw rows x features^2; at most 3,000 weights are sampled jointly. All use
    sums over blocks of rows. Predictions use 500 evenly spaced draws.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from likelier import BayesianLinearClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = BayesianLinearClassifier(random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.97 and model.r_hat_ < 1.05)
    True
    """

    def __init__(
        self,
        loss: str = "log_loss",
        *,
        prior_precision: Any = "auto",
        prior_mean: Any = 0.0,
        fit_intercept: bool = True,
        inference: str | MCMC = "mcmc",
        class_weight: Any = None,
        probability: bool = True,
        checkpoint: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.prior_precision = prior_precision
        self.prior_mean = prior_mean
        self.fit_intercept = fit_intercept
        self.inference = inference
        self.class_weight = class_weight
        self.probability = probability
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # -- predictions --------------------------------------------------------------------
    @or_constant
    def decision_function(self, X: Any) -> Array:
        """Log odds of the posterior predictive; for the hinge, mean scores.

        One value per row for two classes; else log probabilities (or scores), one per class.
        """
        return self._posterior().decide(self._rows(X))

    @or_constant
    def predict(self, X: Any) -> Array:
        """Most probable class of every row."""
        codes = self._posterior().point(self._rows(X))
        return np.asarray(self.classes_[codes])

    @available_if(has_probabilities)
    @or_constant
    def predict_proba(self, X: Any) -> Array:
        """Probability of every class; its argmax is always the prediction of `predict`.

        The posterior predictive; for the hinge, calibrated mean scores.
        """
        return self._posterior().predictive(self._rows(X)).probabilities()

    @available_if(has_probabilities)
    @or_constant
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of `predict_proba`."""
        return np.asarray(np.log(self.predict_proba(X)))

    @available_if(has_probabilities)
    @or_constant
    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Entropy of `predict_proba` in nats, split into aleatoric and epistemic.

        The epistemic part is the mutual information of class and weights over the draws; for the
        hinge, the scores of each draw are calibrated by the same map.
        """
        return self._posterior().uncertainty(self._rows(X))

    def _posterior(self) -> DrawsPosterior:
        check_is_fitted(self, "coef_draws_")
        return classifier(self)

    def _rows(self, X: Any) -> Matrix:
        return self._check_X(X, reset=False)
