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
from likelier.linear.solver import Solver
from likelier.losses import make_loss
from likelier.predictive import Categorical

STREAM_SAMPLE = 20_000


class LinearClassifier(ClassifierMixin, ClassStream):
    """Linear classifier for any loss, without a learning rate to tune.

    Parameters
    ----------
    loss : str or Loss, default="log_loss"
        "log_loss", "hinge", "squared_hinge", "modified_huber", "softmax", "multiclass_hinge", or
        an object of `likelier.losses`.
    alpha : float or "auto", default="auto"
        Strength of the penalty; "auto" sets it per feature from the data.
    l1_ratio : float, default=0.0
        Fraction of the penalty that is L1: 0 for L2 only, 1 for L1 only.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not penalised.
    solver : {"auto", "sgd"} or SGD, default="auto"
        "auto" takes the cheapest way to the optimum; `SGD` makes stochastic passes, as
        ``SGD(learning_rate="constant", eta0=0.1)`` or ``SGD(early_stopping=True)``.
    max_iter : int, default=1000
        Maximum number of iterations, each about one pass over the data.
    tol : float or None, default=1e-3
        Stop within this relative distance of the optimum; None runs ``max_iter`` iterations.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes.
    probability : bool, default=True
        Calibrate probabilities for losses that have none (all but "log_loss" and "softmax"), by
        one extra fit, or five below 2,000 rows.
    checkpoint : path-like or None, default=None
        Folder for checkpoints: the same fit, run again after an interruption, resumes there, to
        the same bits. Needs an int ``random_state``.
    n_jobs : int or None, default=None
        Number of threads; results do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the row order; same seed, same bits.

    Attributes
    ----------
    coef_, intercept_ : ndarray of shape (n_outputs, n_features) and (n_outputs,)
        One output for two classes, else one per class.
    classes_ : ndarray of shape (n_classes,)
    coef_stderr_ : ndarray of the shape of ``coef_``
        Standard errors, if convergence was certified.
    n_iter_, objective_ : int, float
        Iterations, and the last value of the objective.
    converged_ : bool
        Whether the tolerance was reached, as far as ``route_`` can verify it.
    route_ : str
        Algorithm that was used.

    Notes
    -----
    Minimises ``(1/N) sum_i omega_i loss(y_i, x_i^T w + b) + sum_j alpha_j ((1 - r) w_j^2 / 2 +
    r |w_j|)`` with ``r`` the L1 ratio. Losses of one score are used one-vs-rest for more than two
    classes. ``alpha="auto"`` weighs as much as one row, ``alpha_j = var(x_j) / N``, whatever the
    scale of a feature; many sparse features share ``sum_j var(x_j) / (v N)``, with ``v`` 10 for
    "log_loss" and "softmax", else 1. Rates of `SGD` other than "auto" take it as 1e-4.

    ``solver="auto"`` takes Newton's method or interior points (few features), L-BFGS, dual
    coordinate ascent or an active set (L1), otherwise averaged stochastic passes, whose
    convergence is not verified; a fit that did not converge is never worse than the zero model.

    ``X`` may also be a path (``y`` names the target) or an iterator of ``(X, y)`` or ``(X, y,
    sample_weight)`` blocks, in bounded memory; an iterator that cannot be restarted is learned in
    one pass.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from likelier import LinearClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = LinearClassifier(random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.97
    True
    """

    _tasks = ("binary", "multiclass")

    def __init__(
        self,
        loss: str | Loss = "log_loss",
        *,
        alpha: float | str = "auto",
        l1_ratio: float = 0.0,
        fit_intercept: bool = True,
        solver: str | Solver = "auto",
        max_iter: int = 1000,
        tol: float | None = 1e-3,
        class_weight: Any = None,
        probability: bool = True,
        checkpoint: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.class_weight = class_weight
        self.probability = probability
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.random_state = random_state

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
