"""`BayesianKernelClassifier`: kernel classification with automatic relevance determination."""

from __future__ import annotations

from typing import Any

from sklearn.base import ClassifierMixin

from likelier.fitting.parameters import check_number_or_auto
from likelier.kernel_machine.class_fit import ClassFit


class BayesianKernelClassifier(ClassifierMixin, ClassFit):
    """Kernel classifier with automatic relevance determination and calibrated probabilities.

    Scores are ``phi(x)^T W + b`` on Nystroem features of ``exp(-1/2 sum_j gamma_j^2 (x_j -
    x'_j)^2)``. The scales ``gamma_j`` maximise the evidence of a Gaussian process on random
    subsets; prior precision and common scale are validated on held-out rows; the weights minimise
    ``sum_i omega_i loss_i + alpha/2 |W|^2`` on all rows and have a Gaussian posterior.

    Parameters
    ----------
    loss : {"softmax", "hinge"}, default="softmax"
        Likelihood. "hinge" (multiclass, smoothed) has no weight posterior; its probabilities are
        calibrated on held-out rows and revert to the class frequencies out of support.
    inference : {"evidence", "svgd", "stein_gaussian"}, default="evidence"
        "evidence": optimised hyperparameters and a Gaussian posterior of the weights. "svgd": Stein
        variational gradient descent over weights and scales. "stein_gaussian": a mixture of
        Gaussians over them, which keeps its variance.
    features : {"auto", "nystroem", "fourier", "identity"}, default="auto"
        Feature map; "identity" is the linear case. "auto" is "nystroem" for the evidence, "fourier"
        for particles. Only "nystroem" reverts to the prior far from the data; extrapolations of the
        others and their uncertainty are meaningless.
    n_components : int or "auto", default="auto"
        Number of features. "auto": a quarter of the rows, between 512 and 1536; 256 for particles.
    gamma : "auto", float or array of shape (n_features,), default="auto"
        Inverse length scales in the units of the data; "auto" learns them.
    alpha : float or "auto", default="auto"
        Prior precision of the weights, relative to the sum of the losses: N times the ``alpha`` of
        the linear models.
    posterior_scale : float or "auto", default="auto"
        Factor of the posterior covariance in predictions; 1 is the Gaussian posterior. "auto"
        minimises the held-out log loss. Out of support the full prior variance applies unless it
        is 0.
    temperature : float, default=1.0
        The data count as N / temperature observations.
    n_particles : int or "auto", default="auto"
        Ensemble members whose probabilities are averaged (1), particles of "svgd" (20), or
        Gaussians of "stein_gaussian" (4).
    n_experts : int or "auto", default="auto"
        Number of local models that correct the global one, rounded down to a power of two (0
        disables them). "auto", from 20,000 rows on and with automatic gamma, alpha and
        n_components: one per 1,024 rows, at most 512, if this lowers the held-out loss.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes.
    max_iter : int, default=100
        Maximum number of steps for the weights, three times as many for "hinge"; a step of
        particles is ten minibatches.
    tol : float, default=1e-3
        "softmax" stops when a step is expected to decrease the objective by less than this fraction
        (all further steps may gain some ten times that); "hinge" when the objective is certified
        to be within this fraction of the optimum, else there is a ``ConvergenceWarning``.
    early_stopping : bool, default=False
        Stop "svgd" and "stein_gaussian" on held-out rows; see the notes.
    validation_fraction : float, default=0.1
        Fraction of the rows held out for early stopping, at most 2,048 rows.
    time_budget : float or None, default=None
        Seconds for the fit, which is then limited to fewer features, rows and experts; see the
        notes.
    warm_start : bool, default=False
        Resume a fit that was interrupted or ended by its time budget. The result is identical to an
        uninterrupted fit. A completed fit starts anew.
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
        Learned inverse length scales in the units of the data (of the first ensemble member;
        geometric mean of particles).
    feature_relevance_ : ndarray of shape (n_features,)
        Squared relative scales of the inputs, summing to one.
    alpha_, posterior_scale_ : ndarray of shape (n_particles,)
        Selected values.
    extrapolation_scores_ : list of ndarray
        Scores out of support: those of the class frequencies.
    extrapolation_trust_ : ndarray of shape (n_particles,)
        Trust in the learned intercepts out of support: zero unless ``partial_fit`` has seen such
        rows.
    n_components_ : int
        Number of features, without the constant.
    layout_ : {"joint", "reduced", "per_class", "shared"}
        Approximation of the posterior covariance; see the notes.
    experts_ : list of dict
        Local experts of every ensemble member, as arrays; empty if there are none.
    checkpoint_ : dict
        State for ``warm_start``; empty after a completed fit.
    n_iter_ : int

    Notes
    -----
    Cost: about 36 Cholesky factors of 300 to 640 rows for the scales, whatever the
    number of rows, ten small validation fits, then ``rows x components x (inputs + components)``.
    The posterior covers all classes jointly: exactly up to 600 weights, otherwise (up to 64
    classes) within about as many directions as features. Score variances are then within a few
    percent, for about a tenth of the time of a fit. Batches of ``partial_fit`` beyond 4,000 rows
    add up the curvature of each class separately; local experts use one that all classes share. Up
    to 2,000 rows the model does not depend on their order. With experts the global model learns at
    most 50,000 rows, and every further row costs
    ``components x inputs + landmarks x (inputs + landmarks)`` with 256 to 512 landmarks; memory
    does not depend on the length of a stream. There are no experts for more than 2,048 inputs, or
    if no region has four rows.

    "svgd" and "stein_gaussian" cost ``10 max_iter`` gradients of all particles on 256 rows, twice
    that for "hinge". They need automatic ``gamma`` and ``posterior_scale`` and do not support
    ``partial_fit``, ``score_samples`` or one-pass iterators. In many dimensions the particles of
    "svgd" are an ensemble of nearly equal fits, not draws from the posterior.

    Early stopping compares the log-likelihood of held-out rows every step. Without improvement for
    twenty steps the rate starts to decay; once it is worse than the best by more than its standard
    error, the fit stops with the best particles. Evidence fits use held-out rows for the prior and
    do not stop early.

    Time budget: some rows are timed, and features and rows are limited accordingly. Experts are
    tried only if there is time; regions that were not reached are predicted by the global model
    alone. Any fit includes at least one step for the scales, one validation fit of 384 features,
    and 512 features (``n_components`` if given) on about 2,048 rows: some tenths of a second, by
    which a longer budget may also be exceeded.

    Warm start: the checkpoint survives saving and loading. With a time budget a resumed fit
    completes at least one more piece of work; features are recomputed, at no charge to the budget.
    Until the fit is complete, the previous model predicts. Streams are read again in the same
    order; iterators that can be read only once are rejected (use ``partial_fit``).

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

    _losses = ("softmax", "hinge")

    def __init__(
        self,
        loss: str = "softmax",
        *,
        inference: str = "evidence",
        features: str = "auto",
        n_components: int | str = "auto",
        gamma: Any = "auto",
        alpha: float | str = "auto",
        posterior_scale: float | str = "auto",
        temperature: float = 1.0,
        n_particles: int | str = "auto",
        n_experts: int | str = "auto",
        class_weight: Any = None,
        max_iter: int = 100,
        tol: float = 1e-3,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        time_budget: float | None = None,
        warm_start: bool = False,
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
        self.posterior_scale = posterior_scale
        self.temperature = temperature
        self.n_particles = n_particles
        self.n_experts = n_experts
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.time_budget = time_budget
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _validate_parameters(self) -> None:
        super()._validate_parameters()
        if self.posterior_scale != 0.0 or isinstance(self.posterior_scale, bool):
            check_number_or_auto("posterior_scale", self.posterior_scale, 0.0)
        if self.inference != "evidence" and self.posterior_scale != "auto":
            raise ValueError(
                f'posterior_scale must be "auto" with inference={self.inference!r}, which '
                "averages its particles without rescaling"
            )
