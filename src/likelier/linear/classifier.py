"""`LinearClassifier`: any classification loss, with calibrated probabilities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import assert_all_finite, check_is_fitted

from likelier.base import Array, Batch, Engine, Loss, Matrix, Uncertainty
from likelier.fitting.cross_fit import held_out_scores
from likelier.fitting.dataset import (
    CheckedSource,
    Dataset,
    EncodedSource,
    Summarise,
    Summary,
    stream_classes,
    stream_engine,
)
from likelier.fitting.monitor import Monitor
from likelier.fitting.one_class import or_constant
from likelier.fitting.probabilities import fit_calibration, has_probabilities
from likelier.fitting.targets import (
    check_labels,
    class_weights,
    combine_weights,
    encoded_labels,
    output_codes,
)
from likelier.linear.partial_fit import ClassStream
from likelier.linear.posterior import classifier
from likelier.linear.problem import Problem
from likelier.losses import make_loss
from likelier.predictive import Categorical

STREAM_SAMPLE = 20_000


class LinearClassifier(ClassifierMixin, ClassStream):
    """Linear classifier for any loss, without a learning rate to tune.

    Minimises ``(1/N) sum_i omega_i loss(y_i, x_i^T w + b) + alpha/2 |w|^2`` over the rows of
    positive weight; the intercept is not penalised. A loss of one score is used one-vs-rest
    for more than two classes; ``"softmax"`` and ``"multiclass_hinge"`` treat them jointly.

    Parameters
    ----------
    loss : str or Loss, default="log_loss"
        "log_loss", "hinge", "squared_hinge", "modified_huber", "softmax" or
        "multiclass_hinge", or an object of `likelier.losses`.
    update : {"implicit", "explicit"}, default="implicit"
        Implicit (proximal) SGD steps are stable at every learning rate; explicit steps are
        ordinary SGD.
    penalty : {"l2", "l1", "elasticnet", None}, default="l2"
        Penalty on the coefficients.
    alpha : float or "auto", default="auto"
        Strength of the penalty. "auto" sets it per feature from the data (see Notes); with a
        ``learning_rate`` other than "auto" it is 1e-4.
    l1_ratio : float, default=0.15
        Fraction of L1 in "elasticnet".
    learning_rate : {"auto", "constant", "invscaling"}, default="auto"
        "auto" selects the algorithm and its rates (see Notes); the others are plain SGD with the
        rate ``eta0``, or ``eta0 / sqrt(t)``.
    eta0 : float, default=0.01
        Rate of the plain schedules.
    average : bool or int, default=True
        For plain schedules, predict with the mean of the iterates after each row; an int excludes
        those of the first rows. Stochastic passes under "auto" are always averaged, with weights
        that grow like ``k^3``, so that early iterates lose influence.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    max_iter : int, default=1000
        Maximum number of iterations; an iteration is about one pass over the data.
    tol : float or None, default=1e-3
        Stop when the objective is within this relative distance of its optimum. The distance is
        bounded by the duality gap or the optimality conditions, estimated by the Newton decrement
        without a penalty, and replaced by the improvement per pass on stochastic routes. None runs
        ``max_iter`` iterations.
    shuffle : bool, default=True
        Visit rows in random order.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes.
    early_stopping : bool, default=False
        Hold out ``validation_fraction`` of the rows and stop when their loss has not improved for
        five passes. Uses stochastic passes (rows in memory only), keeps the coefficients of the
        best pass, and does not certify convergence.
    validation_fraction : float, default=0.1
        Fraction of rows held out.
    probability : bool, default=True
        Calibrate probabilities for losses without a link to probabilities (all but "log_loss" and
        "softmax"), by cross-fitting: one extra fit for 2,000 rows or more (more if it holds out
        fewer than 100 rows of one of two classes), five below.
    checkpoint : path-like or None, default=None
        Folder for checkpoints every few seconds. The same fit, run again after an interruption,
        resumes there with a bit-identical result. Needs an int ``random_state``.
    warm_start : bool, default=False
        Start from the previous coefficients, if their shape fits. Rates and averages of stochastic
        passes are not kept.
    n_jobs : int or None, default=None
        Number of threads for checks, for sums over rows, and for the classes of one-vs-rest
        stochastic passes. Results do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the row order. Results are bit-identical for the same seed.
    verbose : int, default=0
        Print every iteration.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
    coef_stderr_ : ndarray of the shape of ``coef_``
        Standard errors, if convergence was certified.
    n_iter_ : int
    objective_ : float
        Last computed value of the objective.
    converged_ : bool
        Whether the tolerance was reached; False on the stochastic route (many features in a stream,
        or with a non-smooth loss), which cannot verify it.
    route_ : str
        Algorithm that was used: see Notes.

    Notes
    -----
    ``learning_rate="auto"`` selects the cheapest algorithm. For few features: Newton's method,
    first on growing subsets (cost per iteration: rows x nonzeros^2), or for non-smooth losses an
    interior point method at the same cost. For a medium number of features: L-BFGS. For many:
    dual coordinate ascent, or with an L1 penalty coordinate descent on an active set. Otherwise:
    averaged stochastic passes (rows x nonzeros each), with a rate per feature times a global rate,
    chosen among eight on a sample. A fit that did not converge is never worse than the zero model
    on its training rows.

    ``alpha="auto"`` weighs as much as one row of data on the scale of each feature,
    ``alpha_j = var(x_j) / N`` (``mean(x_j^2) / N`` without an intercept), and so is invariant to
    rescaling and shifting features. If more than 100 features vary and most entries are zero
    (terms, categories), all features share ``sum_j var(x_j) / (v N)``: as a prior it gives scores
    the variance ``v`` (10 for "log_loss" and "softmax", 1 for other losses).

    ``X`` may also be a path (CSV, Parquet, libsvm; ``y`` names the target column) or an
    iterator of ``(X, y)`` or ``(X, y, sample_weight)`` blocks: memory then does not grow with
    the rows. An iterator that cannot be restarted is learned in one pass.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from likelier import LinearClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = LinearClassifier(random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.97
    True
    >>> model.predict_proba(X[:2]).shape
    (2, 2)
    """

    _tasks = ("binary", "multiclass")

    def __init__(
        self,
        loss: str | Loss = "log_loss",
        *,
        update: str = "implicit",
        penalty: str | None = "l2",
        alpha: float | str = "auto",
        l1_ratio: float = 0.15,
        learning_rate: str = "auto",
        eta0: float = 0.01,
        average: bool | int = True,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float | None = 1e-3,
        shuffle: bool = True,
        class_weight: Any = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        probability: bool = True,
        checkpoint: Any = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.update = update
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.learning_rate = learning_rate
        self.eta0 = eta0
        self.average = average
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.shuffle = shuffle
        self.class_weight = class_weight
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.probability = probability
        self.checkpoint = checkpoint
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_y(self, y: Array) -> Array:
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        check_labels(y)
        return y

    def _memory_targets(
        self, y: Array, weight: Array | None, loss: Loss
    ) -> tuple[Array, Array | None]:
        """Targets of the outputs, and weights that include class weights."""
        classes, codes = encoded_labels(y)  # includes classes of zero-weight rows
        self._set_classes(classes)
        per_class = class_weights(self.class_weight, self.classes_, codes, weight)
        weight = combine_weights(weight, per_class, codes)
        return output_codes(codes, self._outputs(loss), out=codes), weight

    def _stream_targets(
        self, source: Any, summarise: Summarise, loss: Loss
    ) -> tuple[EncodedSource, Summary]:
        """Encoded source and summary: one pass, and another one with class weights."""
        summarise = replace(summarise, squares=True)
        checked = CheckedSource(source, self._check_y)
        summary = stream_engine(checked, 0, False).reduce(
            replace(summarise, labels=True), Summary.__add__
        )
        classes, per_class = stream_classes(summary, self.class_weight)
        self._set_classes(classes)
        encoded = EncodedSource(source, classes, per_class, self._outputs(loss))
        if self.class_weight is not None:  # weights depend on the first pass
            summary = stream_engine(encoded, 0, False).reduce(summarise, Summary.__add__)
        return encoded, summary

    def _finish(self, data: Dataset, loss: Loss, seed: int, monitor: Monitor) -> None:
        """Calibrate on out-of-fold scores."""
        self.calibration_ = {}
        if loss.probabilistic or not self.probability:
            return
        if data.batch is not None:
            held = self._held_out(data, loss, monitor)
        else:  # a stream has far more rows than features: in-sample scores suffice
            held = data.engine.sample(STREAM_SAMPLE, iteration=2)
            scores = np.asarray(held.X @ self.coef_.T + self.intercept_)
            held = Batch(scores, held.y, held.weight)
        codes = output_codes(np.asarray(held.y), self._outputs(loss))  # an involution
        self.calibration_ = fit_calibration(np.asarray(held.X), codes, held.weight)

    def _held_out(self, data: Dataset, loss: Loss, monitor: Monitor) -> Batch:
        """Out-of-fold scores, with the targets and weights of their rows."""

        def score(rest: Engine, X: Matrix, stage: str) -> Array:
            summary = rest.reduce(self._spec(loss).summarise(), Summary.__add__)
            problem, theta = self._quick(Dataset(rest, summary, data.dtype), loss)
            return problem.model.scores(theta, problem.standard.rows(X))

        found = held_out_scores(data.engine, len(self.classes_), monitor, score)
        return found or Batch(np.empty((0, self._outputs(loss))), np.empty(0))

    def _outputs(self, loss: Loss) -> int:
        """One output per class; a single one for two classes unless the loss is coupled."""
        K = len(self.classes_)
        return K if K > 2 or loss.coupled else 1

    def _n_outputs(self) -> int:
        return self._outputs(make_loss(self.loss))

    def _fitted(self, problem: Problem, theta: Array) -> dict[str, Any]:
        d = problem.model.n_features
        theta = problem.standard.outer(theta, problem.model.fit_intercept)
        W = theta[:d]
        b = theta[d] if problem.model.fit_intercept else np.zeros(theta.shape[1])
        if theta.shape[1] == 2:  # two classes of a coupled loss: stored as their difference
            W, b = W[:, 1:] - W[:, :1], b[1:] - b[:1]
        return {
            "coef_": np.ascontiguousarray(W.T, dtype=problem.dtype),
            "intercept_": np.asarray(b, dtype=problem.dtype),
        }

    def _theta_stderr(self) -> Array:
        covariance = self._covariance()
        if len(self.classes_) > 2 or not make_loss(self.loss).coupled:
            return super()._theta_stderr()
        p = covariance.shape[1] // 2  # variance of the difference of two classes
        c = covariance[0].reshape(2, p, 2, p)
        j = np.arange(p)
        variance = c[0, j, 0, j] + c[1, j, 1, j] - 2.0 * c[0, j, 1, j]
        return np.asarray(np.sqrt(np.maximum(variance, 0.0))[None])

    @or_constant
    def decision_function(self, X: Any) -> Array:
        """Decision scores: one per row for two classes, else one per class."""
        check_is_fitted(self, "coef_")
        return classifier(self).scores(self._check_X(X, reset=False))

    @or_constant
    def predict(self, X: Any) -> Array:
        """Class of the largest score of every row."""
        check_is_fitted(self, "coef_")
        return np.asarray(self.classes_[classifier(self).point(self._check_X(X, reset=False))])

    @available_if(has_probabilities)
    @or_constant
    def predict_proba(self, X: Any) -> Array:
        """Probability of every class; the largest is always that of `predict`."""
        return self._predictive(X).probabilities()

    @available_if(has_probabilities)
    @or_constant
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    @available_if(has_probabilities)
    @or_constant
    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Entropy of the predicted classes in nats; a point estimate has no epistemic part."""
        return self._predictive(X).uncertainty()

    def _predictive(self, X: Any) -> Categorical:
        check_is_fitted(self, "coef_")
        return classifier(self).predictive(self._check_X(X, reset=False))
