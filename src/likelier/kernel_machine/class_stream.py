"""Kernel classifiers on streams: whole passes, or one batch at a time.

In `partial_fit` the first rows are buffered until there are enough to learn scales and landmarks.
After that the features are fixed, and the posterior after one batch is the prior of the next:
memory depends on the number of features, not of rows. A large fit continues in the same way; a
small one buffers its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if

from likelier.base import Array, Batch, Matrix
from likelier.calibration import SignPreserving, Temperature
from likelier.engines.threads import one_blas_thread
from likelier.fitting.dataset import (
    EncodedSource,
    Summary,
    require_targets,
    stream_classes,
    stream_engine,
    summarise,
)
from likelier.fitting.moments import ColumnMoments
from likelier.fitting.one_class import refuse_constant
from likelier.fitting.rows import NO_WEIGHT, Rows
from likelier.fitting.standardize import Standard
from likelier.fitting.targets import (
    OneClassError,
    check_class_weight,
    class_codes,
    union_classes,
)
from likelier.kernel_machine.estimator import by_evidence
from likelier.kernel_machine.expert_fit import MAX_INPUTS, GlobalClassifier
from likelier.kernel_machine.expert_model import Experts, with_classes
from likelier.kernel_machine.expert_rows import take
from likelier.kernel_machine.expert_stream import ExpertStream
from likelier.kernel_machine.features import restore_map
from likelier.kernel_machine.laplace import (
    TRUST_ROWS,
    WeightPosterior,
    class_curvature,
    extrapolation_degree,
    posterior_from_blocks,
)
from likelier.kernel_machine.recipe import FIT_BLOCK_ROWS
from likelier.kernel_machine.row_buffer import (
    GROWTH,
    START_ROWS,
    RowBuffer,
    precision_of,
    precision_outside,
    same_format,
)
from likelier.kernel_machine.search import weight_prior
from likelier.kernel_machine.softmax_weights import (
    Prior,
    WeightProblem,
    fit_output_weights,
    in_memory_reduction,
    stored_features,
)


class ClassStream(RowBuffer, ExpertStream):
    """Streams in which new classes may appear at any time."""

    weights_: list[Array]
    roots_: list[Array]
    bases_: list[Array | None]
    outside_: list[Array | None]
    mean_shift_: list[Array]
    extrapolation_scores_: list[Array]
    prior_variance_: Array
    calibration_: list[dict[str, Any]]

    # -- experts ------------------------------------------------------------------------
    _expert_loss = "softmax"

    def _targets(self, y: Array) -> Array:
        return class_codes(self.classes_, y)

    def _target_encoding(self) -> Array:
        return np.asarray(self.classes_)

    def _fitted_global_model(self, n_learned: int = 0) -> GlobalClassifier:
        variance = float(self.prior_variance_[0])
        posterior = WeightPosterior(
            self.weights_[0], self.roots_[0], self.layout_, variance, None, self.bases_[0],
            self.outside_[0],
        )  # fmt: skip
        return GlobalClassifier(self._landmarks(), posterior, self._class_loss())

    def _set_uncertainty(self, uncertainty: float | None) -> None:
        """Set the posterior scale chosen on held-out rows together with the experts."""
        if uncertainty is not None and self.posterior_scale == "auto":
            self.posterior_scale_ = np.array([uncertainty])

    def _add_classes_to_experts(self, n_before: int, places: Array, n_classes: int) -> None:
        """Add outputs for new classes to the experts."""
        self._flush_experts()
        grown = with_classes(Experts(**self.experts_[0]), n_before, places, n_classes)
        self.experts_ = [grown.to_arrays()]

    # -- whole passes -------------------------------------------------------------------
    def _open_encoded(self, source: Any, seed: int) -> tuple[Any, int, Standard]:
        """One pass for classes and scales; return a source of class codes."""
        weights = self.class_weight if isinstance(self.class_weight, Mapping) else {}
        zero_weight_classes = [label for label, weight in weights.items() if weight == 0.0]

        def map_block(batch: Batch) -> tuple[Summary, ColumnMoments]:
            y = self._check_y(require_targets(batch))
            if not zero_weight_classes:
                return _summary(batch)
            found, moments = _summary(take(batch, np.flatnonzero(~np.isin(y, zero_weight_classes))))
            labels = dict.fromkeys(np.unique(y).tolist(), 0) | (found.labels or {})
            return replace(found, labels=labels), moments  # a class of weight zero is still a class

        engine = stream_engine(source, seed, False)
        summary, moments = engine.reduce(map_block, lambda a, b: (a[0] + b[0], a[1] + b[1]))
        classes, per_class = stream_classes(summary, self.class_weight)
        self._set_classes(classes)
        if not summary.n_rows:
            raise ValueError(NO_WEIGHT)
        standard = Standard.from_moments(moments)
        return EncodedSource(source, classes, per_class, 2), summary.n_rows, standard

    # -- batch by batch -----------------------------------------------------------------
    @available_if(by_evidence)
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Update the model with a batch of rows.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        classes : array-like, optional
            Classes that may appear later; unannounced ones may appear too.
        sample_weight : array-like of shape (n_samples,), optional

        Notes
        -----
        Up to 4,000 rows are buffered and refitted together, whenever their number has grown by half
        and before the model predicts or is saved. Predictions always include all rows; fitted
        attributes other than ``classes_`` may lag behind. After that a batch costs
        ``rows x features^2`` per class. Rows are also buffered for local experts (at most 2^25
        values), which are refitted whenever the rows have doubled, from 20,000 rows on. Then the
        buffer is released, and up to 128 rows of a region wait until its expert is updated.

        After `fit`: below 4,000 rows (and 2^22 values) in memory, the rows were buffered and are
        refitted together with the new ones; otherwise features are fixed, and the posterior is the
        prior of the new rows.
        """
        self._validate_parameters()
        refuse_constant(self)
        fresh = not hasattr(self, "stream_")
        X, y, weight = self._check_rows(X, y, sample_weight, fresh and not hasattr(self, "maps_"))
        seed = self.stream_["seed"] if not fresh else self._seed()
        return self._learn(X, y, weight, seed, classes)

    def _batch_conflict(self) -> str | None:
        if self.inference != "evidence" or self._n_particles() != 1:
            return 'partial_fit and one-pass iterators need n_particles=1 and inference="evidence"'
        check_class_weight(self.class_weight)
        if isinstance(self.class_weight, str):
            return (
                "class_weight must be a dict or None for partial_fit and one-pass iterators, "
                f"got {self.class_weight!r}"
            )
        return None

    def _learn(
        self, X: Matrix, y: Array, weight: Array | None, seed: int, classes: Any = None
    ) -> Self:
        with self._learning_batch(seed) as state:
            X = same_format(X, state)
            omega = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
            rows = Rows(X, y, omega).take(np.flatnonzero(omega))
            labels = np.unique(y) if classes is None else union_classes(classes, y)
            known = state.get("classes", self.classes_ if hasattr(self, "maps_") else None)
            state["classes"] = labels if known is None else union_classes(known, labels)
            if "precision" in state:
                omega = self._with_class_weight(rows.y, np.asarray(rows.weight))
                self._absorb(Rows(rows.X, rows.y, omega).take(np.flatnonzero(omega)))
            else:
                self._buffer_rows(rows)
        return self

    def _buffer_rows(self, rows: Rows) -> None:
        """Buffer rows, and refit once there are enough new ones."""
        state = self.stream_
        self._add_rows(rows.X, rows.y, np.asarray(rows.weight))
        self.classes_ = state["classes"]  # their weights follow at the next refit
        if self._missing_reason() is not None:
            self._subsample_buffer()
            return
        n_buffered = len(state["y"])
        state["n_multiclass"] = state.get("n_multiclass", state["learned"]) + rows.n
        enough = state["n_multiclass"] >= START_ROWS
        if enough or not state["learned"] or n_buffered >= GROWTH * state["learned"]:
            self._learn_buffered()
        if enough:
            self._release_buffer()

    def _missing_reason(self) -> str | None:
        labels: Array = getattr(self, "stream_", {}).get("y", np.empty(0))
        if not len(labels) or (labels != labels[0]).any():
            return None
        return f"y needs at least two classes; the data hold 1 class so far, {labels.tolist()[0]!r}"

    def _subsample_buffer(self) -> None:
        """Subsample a long run of rows of a single class."""
        state, n = self.stream_, len(self.stream_["y"])
        if n <= 2 * START_ROWS:
            return
        rng = np.random.default_rng([state["seed"], state["n_rows"]])
        some = np.sort(rng.permutation(n)[:START_ROWS])
        omega = state["omega"][some]
        omega = omega * (state["omega"].sum() / omega.sum())
        state.update(X=state["X"][some], y=state["y"][some], omega=omega)

    def _finish_stream(self) -> None:
        """Learn the remaining buffered rows; raise if there is only one class."""
        missing = self._missing_reason()
        if missing is not None:
            raise OneClassError(self.stream_["classes"])
        self._learn_pending()
        if "precision" in self.stream_:
            self._finish_experts()

    def _stream_from_fit(self, seed: int) -> dict[str, Any]:
        roots, shape = self.roots_[0], self.weights_[0].shape
        bases, outside = self.bases_[0], self.outside_[0]
        if bases is None or outside is None:
            precision = precision_of(roots, *shape)
        else:
            precision = precision_outside(roots[0], bases, 1.0 / outside)
        n_rows = self.n_rows_seen_
        return {"seed": seed, "n_rows": n_rows, "learned": n_rows, "precision": precision}

    def _encode(self, y: Array, weight: Array | None) -> tuple[Array, Array | None]:
        """Class codes among all classes, seen or announced."""
        self._set_classes(self.stream_["classes"])
        omega = np.ones(len(y)) if weight is None else weight
        return class_codes(self.classes_, y), self._with_class_weight(y, omega)

    def _with_class_weight(self, y: Array, omega: Array) -> Array:
        if not isinstance(self.class_weight, Mapping):
            return omega
        of_rows = [float(self.class_weight.get(label, 1.0)) for label in y.tolist()]
        return np.asarray(omega * np.array(of_rows))

    def _release_buffer(self) -> None:
        """Release the buffered rows; the posterior precision replaces them."""
        state = self.stream_
        omega = self._with_class_weight(state["y"], state["omega"])
        rows = Rows(state["X"], state["y"], omega).present()
        omega = np.asarray(rows.weight)
        _, problem = self._batch_problem(rows.X, rows.y, omega, self._first_prior())
        blocks = class_curvature(problem, self.weights_[0])
        i = np.arange(blocks.shape[1])
        blocks[:, i, i] += self._first_prior().precision
        state["precision"] = blocks
        if self.n_features_in_ <= MAX_INPUTS:
            state["expert_rows"] = [[rows.X, rows.y, omega]]
        state["n_rows"] -= len(state["y"]) - rows.n
        for name in ("X", "y", "omega"):
            del state[name]

    def _first_prior(self) -> Prior:
        start = np.zeros_like(self.weights_[0])
        return weight_prior(restore_map(self.maps_[0]), 1.0 / float(self.prior_variance_[0]), start)

    def _batch_problem(
        self, X: Matrix, y: Array, omega: Array, prior: Prior
    ) -> tuple[float, WeightProblem]:
        """Out-of-support weight of the rows, and their optimisation problem.

        The temperature downweights the rows relative to the prior of `_first_prior`.
        """
        omega = omega / float(self.temperature)
        codes = class_codes(self.classes_, y)
        feature_map = restore_map(self.maps_[0])
        Phi = np.concatenate(
            [
                feature_map(X[s : s + FIT_BLOCK_ROWS], np.float32)
                for s in range(0, X.shape[0], FIT_BLOCK_ROWS)
            ]
        )
        reduce = in_memory_reduction(Phi, codes, omega)
        outside_weight = (
            float(omega @ extrapolation_degree(feature_map.residual(Phi)))
            if feature_map.local
            else 0.0
        )
        return outside_weight, WeightProblem(reduce, stored_features, self._class_loss(), prior)

    def _absorb(self, rows: Rows) -> None:
        """Update the global model or the experts; the current posterior is the prior."""
        state = self.stream_
        self._add_classes(state["classes"])
        if not rows.n:
            return
        X, y, omega = rows.X, rows.y, np.asarray(rows.weight)
        if not self.experts_[0] or np.isin(y, state.get("late", [])).any():
            self._absorb_global(X, y, omega)
        if self.experts_[0]:
            self._update_experts(X, y, omega)
        state["n_rows"] += len(y)
        self._buffer_for_experts(X, y, omega)

    def _absorb_global(self, X: Matrix, y: Array, omega: Array) -> None:
        """Update the global model; its posterior is the prior of these rows."""
        state = self.stream_
        prior = Prior(state["precision"], self.weights_[0])
        with one_blas_thread():
            outside_weight, problem = self._batch_problem(X, y, omega, prior)
            fit = fit_output_weights(problem, self.weights_[0], float(self.tol), int(self.max_iter))
            state["precision"] = state["precision"] + class_curvature(problem, fit.W)
            posterior: WeightPosterior = posterior_from_blocks(
                fit.W, state["precision"], float(self.prior_variance_[0])
            )
        self.weights_, self.roots_ = [posterior.mean], [posterior.roots]
        self.bases_, self.outside_ = [None], [None]
        self.mean_shift_ = [np.zeros_like(posterior.mean)]  # negligible for so many rows
        self.layout_ = posterior.layout
        # the landmarks are fixed, so the intercept gains trust for rows out of their support
        state["outside_weight"] = state.get("outside_weight", 0.0) + outside_weight
        self.extrapolation_trust_ = np.array(
            [state["outside_weight"] / (state["outside_weight"] + TRUST_ROWS)]
        )
        self.objective_, self.converged_ = float(fit.value), fit.converged
        self.n_iter_ += fit.n_iter

    def _add_classes(self, classes: Array) -> None:
        """Add outputs for new classes.

        A new class gets the average precision of the others (all earlier rows were negative
        examples of it), and the prior frequency of one row.
        """
        if len(classes) == len(self.classes_):
            return
        old = np.searchsorted(classes, self.classes_)
        if self.experts_[0]:
            late, new = self.stream_.get("late", []), np.setdiff1d(classes, self.classes_)
            self.stream_["late"] = union_classes(late, new) if len(late) else new
            self._add_classes_to_experts(len(self.classes_), old, len(classes))
        W, H = self.weights_[0], self.stream_["precision"]
        outer_scores = self.extrapolation_scores_[0]
        if len(self.classes_) == 2:  # split one score into two whose difference it is
            W, H = np.hstack([-0.5 * W, 0.5 * W]), np.concatenate([2.0 * H, 2.0 * H])
            self.prior_variance_ = 0.5 * self.prior_variance_
            outer_scores = np.concatenate([-0.5 * outer_scores, 0.5 * outer_scores])
            self.calibration_ = [_for_more_classes(plain) for plain in self.calibration_]
        grown = np.zeros((len(W), len(classes)))
        grown[-1] = W[-1].min() - np.log1p(self.stream_["n_rows"])
        precision = np.repeat(H.mean(axis=0, keepdims=True), len(classes), axis=0)
        grown[:, old], precision[old] = W, H
        grown_scores = np.full(len(classes), outer_scores.min() - np.log1p(self.stream_["n_rows"]))
        grown_scores[old] = outer_scores
        self.extrapolation_scores_ = [grown_scores]
        posterior = posterior_from_blocks(grown, precision, float(self.prior_variance_[0]))
        self.weights_, self.roots_ = [posterior.mean], [posterior.roots]
        self.bases_, self.outside_ = [None], [None]
        self.mean_shift_, self.layout_ = [np.zeros_like(grown)], posterior.layout
        self.stream_["precision"] = precision
        self.classes_ = classes


def _for_more_classes(calibration: dict[str, Any]) -> dict[str, Any]:
    """Calibration of two scores equivalent to that of their difference."""
    if not calibration:
        return {}
    fitted = SignPreserving.from_arrays(calibration)
    return Temperature(0.5 * (fitted.slope_pos + fitted.slope_neg), fitted.scale).to_arrays()


def _summary(batch: Batch) -> tuple[Summary, ColumnMoments]:
    """Labels and moments of a batch."""
    found = summarise(batch, with_squares=False, with_labels=True)
    return found, ColumnMoments.of(batch.X, batch.weight)
