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
    loss : {"log_loss", "hinge"}, default="log_loss"
        Likelihood. Probabilities of the hinge are calibrated on held-out rows.
    prior_precision : "auto", float or array of shape (n_features,), default="auto"
        Precision of the Gaussian prior of each weight. "auto" learns ``tau`` of ``tau var(x_j)``,
        with ``tau ~ Gamma(prior_shape, prior_rate)``, which is invariant to feature scaling.
    prior_mean : float or array of shape (n_features,), default=0.0
        Mean of the prior.
    prior_shape, prior_rate : float, default=2.0 and 0.2
        Parameters of the gamma distribution of ``tau``. The marginal prior of a weight is Student-t
        with ``2 prior_shape`` degrees of freedom and scale ``sqrt(prior_rate / prior_shape)`` per
        standard deviation.
    fit_intercept : bool, default=True
        Whether to fit an intercept, with prior ``N(0, 10^2)`` at the mean row.
    multi_class : {"ovr", "multinomial"}, default="ovr"
        For more than two classes: one-vs-rest, each with its own ``tau``, or softmax.
    sampler : {"auto", "independent", "hamiltonian", "gibbs"}, default="auto"
        Sampling algorithm, see Notes. All have the same target distribution.
    n_chains : int, default=4
        Number of chains, with dispersed starting points, for convergence diagnostics.
    n_draws : int, default=500
        Draws per chain after warm-up and thinning.
    n_warmup : int or None, default=None
        Warm-up draws per chain; None uses the default of the sampler.
    thin : int, default=1
        Keep every ``thin``-th draw.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes; they multiply ``sample_weight``.
    probability : bool, default=True
        Whether to calibrate the hinge on held-out folds, see Notes.
    checkpoint : path-like or None, default=None
        Folder where a fit under way is recorded every few seconds; the same fit, run again after
        it was killed, resumes there and ends with the same bits. Needs an int ``random_state``.
    n_jobs : int or None, default=None
        Threads for sums over rows; draws do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed; results are reproducible bit for bit.
    verbose : int, default=0
        Print progress.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_draws_ : ndarray of shape (n_chains, n_draws, n_outputs, n_features)
        Draws of the weights; one output for two classes, else one per class.
    intercept_draws_ : ndarray of shape (n_chains, n_draws, n_outputs)
    prior_precision_draws_ : ndarray of shape (n_chains, n_draws, n_problems)
        Draws of ``tau``; ``n_problems`` is 0 for a given precision.
    coef_, intercept_ : ndarray
        Posterior means.
    r_hat_, ess_ : float
        Largest R-hat and smallest effective sample size of any parameter.
    sampler_ : str
        Sampler used, if "auto" its choice.
    acceptance_ : float
        Acceptance rate of the proposals.
    n_iter_ : int
        Rounds of sampling.

    Notes
    -----
    "independent" is an independence Metropolis-Hastings sampler: it proposes from a Gaussian
    approximation of the posterior, a few hundred points in one matrix product, for nearly
    independent draws at a cost of rows x features each. "hamiltonian" is Hamiltonian Monte Carlo,
    for posteriors that are far from Gaussian (few rows, separable classes). "auto" chooses by the
    sampling efficiency of the proposals in the worst covered tail of the posterior. "gibbs" is data
    augmentation with Polya-Gamma or inverse Gaussian variables, rows x features^2 per draw; it
    mixes slowly if positives are rare. All use sums over blocks of rows. The Gaussian takes about
    15 passes of rows x features^2; at most 3,000 weights can be sampled jointly.

    The hinge is calibrated on scores of short fits, each without a fifth of the rows: five fits
    below 2,000 rows, else one, or more until there are 100 held-out rows of either of two classes.
    For streams of more than 20,000 rows there is one such fit, and none with 50 rows per feature or
    more: the scores of the training rows are then used.

    Predictions use 500 evenly spaced draws.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from likelier import BayesianLinearClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = BayesianLinearClassifier(random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.97 and model.r_hat_ < 1.05)
    True
    >>> model.coef_interval(0.9).shape
    (1, 30, 2)
    """

    def __init__(
        self,
        loss: str = "log_loss",
        *,
        prior_precision: Any = "auto",
        prior_mean: Any = 0.0,
        prior_shape: float = 2.0,
        prior_rate: float = 0.2,
        fit_intercept: bool = True,
        multi_class: str = "ovr",
        sampler: str = "auto",
        n_chains: int = 4,
        n_draws: int = 500,
        n_warmup: int | None = None,
        thin: int = 1,
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
        self.prior_shape = prior_shape
        self.prior_rate = prior_rate
        self.fit_intercept = fit_intercept
        self.multi_class = multi_class
        self.sampler = sampler
        self.n_chains = n_chains
        self.n_draws = n_draws
        self.n_warmup = n_warmup
        self.thin = thin
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
