"""`BayesianKernelClassifier`: a kernel classifier that tunes itself and knows what it knows."""

from __future__ import annotations

from typing import Any

from sklearn.base import ClassifierMixin

from likelier.fitting.parameters import check_number_or_auto
from likelier.kernel_machine.class_fit import ClassFit


class BayesianKernelClassifier(ClassifierMixin, ClassFit):
    """Kernel classifier with learned scales, no tuning, and probabilities to be trusted.

    Scores are ``phi(x)^T W + b`` on Nystroem features of ``exp(-1/2 sum_j gamma_j^2 (x_j -
    x'_j)^2)``. The scales ``gamma_j`` climb the evidence of a Gaussian process on random
    subsets; prior precision and common scale are checked on held-out rows; the weights
    minimise ``sum_i omega_i loss_i + alpha/2 |W|^2`` on all rows and have a Gaussian posterior.

    Parameters
    ----------
    loss : {"softmax", "hinge"}, default="softmax"
        Likelihood. "hinge" (multiclass, its maximum rounded) has no likelihood of its own:
        its probabilities are calibrated on held-out rows, and its weights have no posterior.
        Far from all landmarks they are the shares of the classes, all of it epistemic.
    inference : {"evidence", "svgd", "stein_gaussian"}, default="evidence"
        "svgd" moves particles over weights and scales together (Stein variational gradient
        descent), "stein_gaussian" a mixture of Gaussians over them, which keeps its variance;
        see the notes.
    features : {"auto", "nystroem", "fourier", "identity"}, default="auto"
        Features of the kernel; "identity" is the linear case. "auto" is "nystroem" for the
        evidence, "fourier" for particles. Only those of "nystroem" vanish far from all data, so
        that predictions go back to the prior there. "fourier" waves on and "identity" goes on in
        a straight line: what they say far away, and how sure they are of it, means nothing.
    n_components : int or "auto", default="auto"
        Number of features; "auto" is a quarter of the rows, between 512 and 1536, and 256 for
        particles.
    gamma : "auto", float or array of shape (n_features,), default="auto"
        Inverse length scales in the units of the data; "auto" learns them.
    alpha : float or "auto", default="auto"
        Prior precision of the weights of a class, for the sum of the losses: it is N times the
        ``alpha`` of the linear models.
    posterior_scale : float or "auto", default="auto"
        Factor of the posterior's covariance in predictions: 1 is the Gaussian posterior as it
        is; "auto" is what held-out rows like best, at least 0.01 unless they gain much by less.
        Far from all data the prior variance counts in full, whatever the factor (but 0).
    temperature : float, default=1.0
        The data count for N / temperature observations.
    n_particles : int or "auto", default="auto"
        Fits with hyperparameters of their own, whose probabilities are averaged: 1 by default.
        Particles of "svgd" (20), Gaussians of "stein_gaussian" (4).
    n_experts : int or "auto", default="auto"
        Local experts that correct the common machine, rounded down to a power of two; 0 for
        none. "auto", from 20,000 rows on and where gamma, alpha and n_components are "auto": one
        for every 1,024 rows, at most 512, if rows held out in some regions are the better for it.
        There are none, whatever the number, for more than 2,048 inputs, where no region holds
        four rows, and where the time is over before they are chosen.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes.
    max_iter : int, default=100
        Largest number of steps for the weights, three times as many for "hinge"; a step of
        particles is ten minibatches.
    tol : float, default=1e-3
        Of "softmax": stop when the next step is expected to decrease the objective by less than
        this share of it. All further steps together may gain more, some ten times that. Of
        "hinge": stop when the objective is within this share of its optimum for sure; where the
        steps are not enough for that, there is a ``ConvergenceWarning``.
    early_stopping : bool, default=False
        Of "svgd" and "stein_gaussian": hold out rows, some of every class. When their
        log-likelihood has not risen for twenty steps, the rate begins to fall; where it has
        fallen by more than its standard error, the fit stops, and the particles that were best
        count. By the evidence, rows held out choose the prior, and there is nothing to stop.
    validation_fraction : float, default=0.1
        Part of the rows that early stopping holds out, at most 2,048 of them.
    time_budget : float or None, default=None
        Seconds after which the fit ends with what it has. Some rows are timed, and no more
        features are made and rows learned than the time allows; experts are tried only if there
        is time for it, and where one has not been reached, the common machine predicts alone.
        However short it is, one step for the scales, one small fit of 384 features to judge by,
        and 512 features (as many as ``n_components``, where that is a number) of some 2,048 rows
        come first: a few tenths of a second of the processor, and about as much may a longer
        budget be exceeded.
    warm_start : bool, default=False
        Go on with a fit of the same rows that was interrupted, or ended by its time budget: the
        same as if it had not ended, to the last bit, also from a file in another process. With a
        budget, such a fit does what is left to do until time is over, at least one piece of it;
        what the pieces need and no fit can keep (features of all rows) is made again and not
        counted. Until it is finished, the model is an earlier one of fewer rows. A stream is read
        again, its rows in the same order; one that can be read once only is refused
        (``partial_fit`` goes on with those). A fit that was finished is done anew.
    n_jobs : int or None, default=None
        Threads for passes over the rows.
    random_state : int, RandomState or None, default=None
        Seeds subsets and landmarks. The same seed gives the same bits.
    verbose : int, default=0
        Print every step, with the time left where the length of a stage is known.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    gamma_ : ndarray of shape (n_features,)
        Learned inverse length scales in the units of the data (of the first fit of an
        ensemble; geometric mean of particles).
    feature_relevance_ : ndarray of shape (n_features,)
        Share of every input in the scales.
    alpha_, posterior_scale_ : ndarray of shape (n_particles,)
        What was chosen.
    far_scores_ : list of ndarray
        Scores where nothing is known, far from all landmarks: those of the classes' shares.
    far_known_ : ndarray of shape (n_particles,)
        How much the scores there are learned all the same: zero unless ``partial_fit`` has met
        rows far from all landmarks.
    n_components_ : int
        Number of features, without the constant.
    layout_ : {"joint", "reduced", "per_class", "shared"}
        How much of the curvature the posterior of the weights keeps; see the notes.
    experts_ : list of dict
        Local experts of every particle, as arrays; empty where there are none.
    unfinished_ : dict
        What ``warm_start`` needs to go on; empty where the fit was finished.
    n_iter_ : int

    Notes
    -----
    Cost: about 36 Cholesky factors of 300 to 640 rows for the scales whatever the number of
    rows, ten small fits for the hold-out, then ``rows x components x (inputs + components)``.
    The posterior of the weights has the curvature of all classes together, up to 600 weights as one
    matrix, beyond that (and up to 64 classes) in about as many directions as there are features:
    variances of scores are within some percent, for about a tenth of the time of a fit. Batches of
    ``partial_fit`` beyond 4,000 rows add up the curvature of each class alone, local experts one
    that all classes share.
    Few rows (up to 2,000) give the same model in any order. With experts the common machine is
    learned from at most 50,000 rows, and every further row costs
    ``components x inputs + landmarks x (inputs + landmarks)``, landmarks being 256 to 512;
    memory does not depend on the number of rows of a stream.

    "svgd" and "stein_gaussian" cost ``10 max_iter`` gradients of all particles on 256 rows, for
    "hinge" twice. They have no ``partial_fit``, no ``score_samples``, no iterators that can be
    read once only, and ``gamma`` and ``posterior_scale`` must be "auto". In many dimensions the
    particles of "svgd" are an ensemble of nearly equal fits, not draws from the posterior.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from likelier import BayesianKernelClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianKernelClassifier(random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    >>> far = model.predict_proba([[100.0, 100.0, 100.0, 100.0]])
    >>> bool(far.max() < 0.6)
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
                f'posterior_scale must be "auto" with inference={self.inference!r}: particles '
                "are averaged as they are"
            )
