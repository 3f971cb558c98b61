"""``partial_fit`` of the linear classifier; new classes may appear in any batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from likelier.base import Array, Batch, Loss, Matrix
from likelier.fitting.one_class import refuse_constant
from likelier.fitting.probabilities import fit_calibration
from likelier.fitting.rollback import unchanged_on_failure
from likelier.fitting.targets import (
    class_codes,
    class_weights,
    combine_weights,
    require_two_classes,
    union_classes,
)
from likelier.linear.partial_state import StreamLearner
from likelier.linear.recipe import LinearFit

MIN_CALIBRATION_ROWS = 10


class ClassStream(LinearFit):
    """``partial_fit`` of the classifier; outputs are in the order in which classes arrived."""

    class_weight: Any
    probability: bool
    stream_: dict[str, Any]
    arrival_: Array
    calibration_: dict[str, Any]

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn a batch of rows, once, in the given order.

        New classes may appear at any time; ``classes`` announces some in advance, and is required
        if the first batch has a single one. Losses without probabilities are calibrated on the
        scores of each batch before it is learned (after, for the first batch).
        """
        self._validate_params()
        self._check_batches()
        refuse_constant(self)
        with unchanged_on_failure(self):
            X, y, weight = self._check_rows(X, y, sample_weight, not hasattr(self, "coef_"))
            if not hasattr(self, "coef_"):
                self._set_classes(np.unique(y) if classes is None else union_classes(classes, y))
            return self._learn(X, y, weight, classes)

    def _set_classes(self, classes: Array) -> None:
        self.classes_ = require_two_classes(classes)

    def _learn(self, X: Matrix, y: Array, weight: Array | None, classes: Any = None) -> Self:
        loss = self._checked_loss()
        learner, d = self._learner(loss), X.shape[1]
        labels = np.unique(y) if classes is None else union_classes(classes, y)
        if weight is not None:
            X, y, weight = X[weight > 0.0], y[weight > 0.0], weight[weight > 0.0]
        per_label = self._label_weights()
        if hasattr(self, "classes_"):
            union_classes(self.classes_, labels)  # raises for mixed label types
        fresh = not hasattr(self, "stream_")
        self._add_labels(labels, learner, loss, d)
        order = np.argsort(self.arrival_)
        known, K = self.arrival_[order], len(order)
        codes = class_codes(known, y)
        if per_label is not None:  # may include classes not seen yet
            here = {label: per_label[label] for label in known.tolist() if label in per_label}
            per_class = class_weights(here, known, np.arange(float(K)))
            weight = np.asarray(combine_weights(weight, per_class, codes))
            X, codes, weight = X[weight > 0.0], codes[weight > 0.0], weight[weight > 0.0]
        batch = Batch(X, order[codes.astype(np.intp)].astype(np.float64), weight)
        if fresh:
            self.stream_ = learner.remember(self.stream_, batch, getattr(self, "n_rows_seen_", 0))
        if K == 1:  # a single class so far
            if not loss.coupled:
                self.stream_ = learner.learn(self.stream_, batch, K)
            return self
        self._set_classes(known)
        self._calibrate_batch(loss, X, codes, weight)
        self.stream_ = learner.learn(self.stream_, batch, K)
        self._set_coefficients(learner.theta(self.stream_, d, K)[:, order], loss, X.dtype)
        if not self.calibration_:
            self._calibrate_batch(loss, X, codes, weight)
        return self

    def _label_weights(self) -> dict[Any, float] | None:
        if self.class_weight is None:
            return None
        if not isinstance(self.class_weight, Mapping):
            raise ValueError(
                f"class_weight must be a dict of weights or None for partial_fit, "
                f"got {self.class_weight!r}"
            )
        return dict(self.class_weight)

    def _add_labels(self, labels: Array, learner: StreamLearner, loss: Loss, d: int) -> None:
        """Initialise the state, and add outputs for new classes."""
        if not hasattr(self, "stream_"):
            fitted = hasattr(self, "coef_")
            self.arrival_ = self.classes_ if fitted else labels
            theta = self._output_theta(loss) if fitted else None
            self.stream_ = learner.start(d, len(self.arrival_), theta)
        new = np.setdiff1d(labels, self.arrival_)
        if len(new):
            known = len(self.arrival_)
            self.stream_ = learner.add_classes(self.stream_, d, known, len(new))
            self.arrival_ = np.concatenate([self.arrival_, new])

    def _set_coefficients(self, theta: Array, loss: Loss, dtype: Any) -> None:
        """Set the coefficients from one output per class."""
        d = len(theta) - int(self.fit_intercept)
        W, b = theta[:d], theta[d] if self.fit_intercept else np.zeros(theta.shape[1])
        if theta.shape[1] == 2:
            W, b = (W[:, 1:] - W[:, :1], b[1:] - b[:1]) if loss.coupled else (W[:, 1:], b[1:])
        self.coef_ = np.ascontiguousarray(W.T, dtype=dtype)
        self.intercept_ = np.asarray(b, dtype=dtype)
        self.n_features_in_ = d
        self.n_iter_ = getattr(self, "n_iter_", 0) + 1
        self.route_, self.converged_ = "partial_fit", False
        self._store_certificate(None)

    def _calibrate_batch(self, loss: Loss, X: Matrix, codes: Array, weight: Array | None) -> None:
        """Calibrate on the scores of these rows, ideally before they are learned."""
        outputs = 1 if len(self.classes_) == 2 else len(self.classes_)
        current = hasattr(self, "coef_") and len(self.coef_) == outputs
        # a calibration for fewer classes is invalid
        self.calibration_ = getattr(self, "calibration_", {}) if current else {}
        if loss.probabilistic or not self.probability or not current:
            return
        if len(codes) >= MIN_CALIBRATION_ROWS or not self.calibration_:
            scores = np.asarray(X @ self.coef_.T + self.intercept_)
            self.calibration_ = fit_calibration(scores, codes, weight)

    def _output_theta(self, loss: Loss) -> Array:
        """Fitted coefficients with one output per class."""
        W = np.asarray(self.coef_, dtype=np.float64).T
        theta = np.vstack([W, self.intercept_]) if self.fit_intercept else W
        if theta.shape[1] == 1:
            half = 0.5 if loss.coupled else 1.0
            theta = np.hstack([-half * theta, half * theta])
        return theta
