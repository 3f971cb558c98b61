"""`BayesianKernelClassifier`: kernel classification with automatic relevance determination."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import logit
from sklearn.base import ClassifierMixin
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Uncertainty
from likelier.fitting.one_class import or_constant
from likelier.kernel_machine.class_task import ClassTask
from likelier.kernel_machine.estimator import (
    COMMON_CONSTRAINTS,
    KernelEstimator,
    by_evidence,
)
from likelier.kernel_machine.posterior import classifier
from likelier.kernel_machine.settings import Evidence, make_inference
from likelier.kernel_machine.targets import ClassTargets


class BayesianKernelClassifier(ClassifierMixin, KernelEstimator):
    """Kernel classifier with automatic relevance determination and calibrated probabilities.

    Scores are ``phi(x)^T W + b`` on Nystroem features of ``exp(-1/2 sum_j gamma_j^2 (x_j -
    x'_j)^2)``. The scales ``gamma_j`` maximise the evidence of a Gaussian process on random
    subsets; prior precision and common scale are validated on held-out rows; the weights minimise
    ``sum_i omega_i loss_i + alpha/2 |W|^2`` on all rows and have a Gaussian posterior.

    Parameters
    ----------
    loss : {"softmax", "hinge"}, default="softmax"
        Likelihood. "hinge" (multiclass, smoothed) has no weight posterior; its probabilities are
        calibrated on held-out rows.
    inference : {"evidence", "svgd", "stein_gaussian"}, Evidence, SVGD or SteinGaussian
        How scales and weights are found, default "evidence"; a value has parameters of its own.
    features : {"auto", "nystroem", "fourier", "identity"}, default="auto"
        Feature map; "identity" is the linear case. "auto" is "nystroem", for particles "fourier".
    n_components : int or "auto", default="auto"
        Number of features. "auto": a quarter of the rows, between 512 and 1536; 256 for particles.
    gamma : "auto", float or array of shape (n_features,), default="auto"
        Inverse length scales in the units of the data; "auto" learns them.
    alpha : float or "auto", default="auto"
        Prior precision of the weights, relative to the sum of the losses.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes.
    time_budget : float or None, default=None
        Seconds for the fit, which is then limited to fewer features, rows and experts.
    checkpoint : path or None, default=None
        Folder in which the fit is recorded, so that it can be resumed if it is interrupted.
    n_jobs : int or None, default=None
        Threads for passes over the rows.
    random_state : int, RandomState or None, default=None
        Seed of subsets and landmarks; the same seed gives bit-identical results.
    verbose : int, default=0
        Print progress.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    gamma_ : ndarray of shape (n_features,)
        Learned inverse length scales in the units of the data (geometric mean of particles).
    feature_relevance_ : ndarray of shape (n_features,)
        Squared relative scales of the inputs, summing to one.
    alpha_, posterior_scale_ : float
        Selected values.
    n_components_ : int
        Number of features, without the constant.
    n_experts_ : int
        Number of local experts.
    n_iter_ : int

    Notes
    -----
    Cost: about 36 Cholesky factors of 300 to 640 rows for the scales, whatever the
    number of rows, ten small validation fits, then ``rows x components x (inputs + components)``.
    The posterior covers all classes jointly: exactly up to 600 weights, otherwise (up to 64
    classes) within about as many directions as features. Up to 2,000 rows the model does not depend
    on their order. From 20,000 rows on, local experts correct the global model, which then learns
    at most 50,000 rows; every further row costs ``components x inputs + landmarks x (inputs +
    landmarks)`` with 256 to 512 landmarks. Experts learn at most 2^26 values, drawn at random, so
    memory does not depend on the length of a stream.

    Only "nystroem" features revert to the prior far from the data; extrapolations of the others and
    their uncertainty are meaningless.

    "svgd" and "stein_gaussian" cost a gradient of all particles on a minibatch per update. They
    support neither ``partial_fit`` nor ``score_samples`` nor one-pass iterators. In many dimensions
    the particles of "svgd" are an ensemble of nearly equal fits, not draws from the posterior.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from likelier import BayesianKernelClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianKernelClassifier(random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    >>> outlier = model.predict_proba([[100.0, 100.0, 100.0, 100.0]])
    >>> bool(outlier.max() < 0.6)
    True
    """

    _restore: ClassVar[Any] = staticmethod(classifier)
    _values: ClassVar[dict[str, Any]] = {"inference": make_inference}
    _losses: ClassVar[tuple[str, ...]] = ("softmax", "hinge")  # also for the command line
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "loss": [StrOptions(set(_losses))],
        **COMMON_CONSTRAINTS,
        "class_weight": [StrOptions({"balanced"}), dict, None],
    }

    def __init__(
        self,
        loss: str = "softmax",
        *,
        inference: Any = "evidence",
        features: str = "auto",
        n_components: int | str = "auto",
        gamma: Any = "auto",
        alpha: float | str = "auto",
        class_weight: Any = None,
        time_budget: float | None = None,
        checkpoint: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.inference = inference
        self.features = features
        self.n_components = n_components
        self.gamma = gamma
        self.alpha = alpha
        self.class_weight = class_weight
        self.time_budget = time_budget
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _targets(self) -> ClassTargets:
        return ClassTargets(self.class_weight)

    def _task(self) -> ClassTask:
        alpha = None if self.alpha == "auto" else float(self.alpha)
        task = ClassTask(len(self.classes_), self.loss == "hinge", alpha)
        inference = self._value("inference")
        if not isinstance(inference, Evidence):
            return task
        scale = inference.posterior_scale
        return replace(
            task, posterior_scale=None if scale == "auto" else float(scale),
            temperature=float(inference.temperature), tol=float(inference.tol),
            max_iter=int(inference.max_iter),
        )  # fmt: skip

    @available_if(by_evidence)
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Update the model with a batch of rows.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        classes : array-like, optional
            Classes that may appear after the first 4,000 rows; among these, any may appear.
        sample_weight : array-like of shape (n_samples,), optional

        Notes
        -----
        The first 4,000 rows are buffered and fitted together, before the model predicts or is
        saved. After that, and after `fit`, features are fixed and the posterior of the weights is
        the prior of the next rows, at ``rows x features^2`` per class and batch. There are no
        local experts.
        """
        return self._learn_batch(X, y, sample_weight, classes)

    # -- predictions --------------------------------------------------------------------
    @or_constant
    def predict_proba(self, X: Any) -> Array:
        """Class probabilities, averaged over the posterior."""
        predictive = self._posterior().predictive(self._check_X(X, reset=False))
        return np.asarray(predictive.probabilities())

    @or_constant
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    @or_constant
    def predict(self, X: Any) -> Array:
        """Most probable class of each row, consistent with `predict_proba`."""
        best = self.predict_proba(X).argmax(axis=1)
        check_is_fitted(self)
        return np.asarray(self.classes_[best])

    @or_constant
    def decision_function(self, X: Any) -> Array:
        """Log odds of the second of two classes, else log probabilities."""
        p = np.clip(self.predict_proba(X), 1e-300, 1.0)
        return np.asarray(logit(p[:, 1]) if p.shape[1] == 2 else np.log(p))

    @or_constant
    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Total, aleatoric and epistemic entropy of the class, in nats."""
        found: Uncertainty = self._posterior().uncertainty(self._check_X(X, reset=False))
        return found
