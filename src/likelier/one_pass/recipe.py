"""Fitting of the one-pass classifier: in memory, from a stream, in batches, and by merging."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.callback import with_callbacks
from sklearn.utils import check_random_state
from sklearn.utils.validation import assert_all_finite, check_is_fitted

from likelier.base import Array, Batch, Matrix
from likelier.engines import LocalEngine, StreamEngine
from likelier.engines.rows import take_rows
from likelier.fitting.dataset import (
    check_mergeable,
    is_stream,
    open_source,
    require_targets,
)
from likelier.fitting.extreme_cells import watched
from likelier.fitting.labels import checked_labels, encode_labels, join_classes
from likelier.fitting.rollback import unchanged_on_failure
from likelier.fitting.targets import check_class_weight, class_weights, union_classes
from likelier.one_pass.checks import (
    check_compatible,
    check_rows,
    check_same_parameters,
    fixed_parameters,
)
from likelier.one_pass.inference import StreamState, stream_weights, update_mean
from likelier.one_pass.merge import merge_streams
from likelier.one_pass.model import FrozenModel, FrozenSums, Weights, frozen_weights
from likelier.one_pass.predictions import LAZY_ATTRIBUTES
from likelier.one_pass.row_buffer import append_rows, copy_rows
from likelier.one_pass.streaming import OnePassBlocks

MAX_WIDTH = 16_384  # features; their matrix of products takes two gigabytes
FROZEN_BLOCK_VALUES = 1 << 19


class OnePassLearning(OnePassBlocks):
    """`fit`, `partial_fit`, `merge` and `forget` of both updates."""

    prior_precision: float | str
    class_weight: Any
    shuffle: bool
    n_rows_seen_: int

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit in one pass, in the order of the rows unless ``shuffle=True``.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), path or iterator
            Training rows. A path (CSV, Parquet, libsvm) or an iterator of ``(X, y)`` or
            ``(X, y, sample_weight)`` blocks is read once, in bounded memory.
        y : array-like of shape (n_samples,), or the target column of a path
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            Non-negative weights; a row of weight 0 is ignored.
        """
        self._validate_parameters()
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        if is_stream(X):
            self._fit_stream(X, y, sample_weight)
        else:
            rows = check_rows(self, X, y, sample_weight, reset=True)
            self._reset(rows.X.dtype)
            if self.shuffle:
                order = np.random.default_rng([self._seed(), 1]).permutation(rows.n_rows)
                rows = Batch(rows.X, rows.y, rows.weight, rows=order).compact()
            try:
                self._learn(rows, balanced=self._balanced_weights(rows))
            finally:  # keep the blocks learned before an interruption
                self._set_fitted_attributes()
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn a batch of rows; new classes may appear at any time.

        ``classes`` may announce classes before their first row. The result does not depend on how
        the rows are split into batches. A call that fails or is interrupted leaves the model
        unchanged.
        """
        with unchanged_on_failure(self):
            self._learn_batch(X, y, classes, sample_weight)
        return self

    def _learn_batch(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> None:
        self._validate_parameters()
        if isinstance(self.class_weight, str):
            raise ValueError(
                "class_weight must be a dict of weights or None in partial_fit, "
                f"got {self.class_weight!r}"
            )
        is_first = not hasattr(self, "pending_")
        if not is_first:
            check_same_parameters(self)
        rows = check_rows(self, X, y, sample_weight, reset=is_first)
        join_classes(
            getattr(self, "classes_", None), classes, np.asarray(rows.y)[:1]
        )  # check the type
        if is_first:
            self._reset(rows.X.dtype)
        self._learn(rows, announced=classes)
        learned = self.stats_ or self.pending_
        (
            self._defer_weights
            if self.update == "streaming" and learned
            else self._set_fitted_attributes
        )()

    def merge(self, other: Any) -> Self:
        """Add the rows learned by another model of the same kind, in place.

        With ``update="frozen"`` the result is exactly the model of all rows. With streaming it is
        exact as long as all rows fit in one initial batch; as long as they fit in the sample
        (16,384 rows, 16 megabytes) they are refitted to convergence, independent of how they were
        distributed over the models. Beyond that, merging costs a little accuracy; models of
        different classes get weights that are fitted on both samples. Fits on samples take up to
        200 steps of rows x features x classes; see the notes of the class.
        """
        check_mergeable(self, other)
        with unchanged_on_failure(self):
            self._merge(other)
        return self

    def _merge(self, other: Any) -> None:
        check_same_parameters(self)
        check_same_parameters(other)
        self._finalise()
        other._finalise()
        check_compatible(self, other)
        classes = union_classes(self.classes_, other.classes_)
        if self._fits_initial_batch(other):
            self._announce(classes)
            self.pending_ = copy_rows(append_rows(self.pending_, Batch(**other.pending_)))
            self._defer_weights()
            return
        if self.update == "frozen":
            stats: Any = self._frozen_sums(classes) + other._frozen_sums(classes)
        else:
            stats = merge_streams(self._flushed_state(), other._flushed_state(), self._precision())
        self.stats_, self.pending_ = {"classes": classes, **stats.to_arrays()}, {}
        self.rows_summed_ = self.n_rows_seen_ + other.n_rows_seen_
        self._clear_mixing()
        self._set_fitted_attributes()

    def forget(self, factor: Any) -> Self:
        """Multiply the weight of everything learned so far by ``factor``, for data that drift."""
        check_is_fitted(self, "classes_")
        is_bool = isinstance(factor, bool | np.bool_)
        if is_bool or not isinstance(factor, Real) or not 0.0 < float(factor) <= 1.0:
            raise ValueError(f"factor must be a number above 0 and at most 1, got {factor!r}")
        check_same_parameters(self)
        with unchanged_on_failure(self):
            self._discount(float(factor))
        return self

    def _discount(self, factor: float) -> None:
        self._clear_mixing()
        if self.update == "frozen":
            stats: Any = self._frozen_sums(self.classes_).discounted(factor)
            self.stats_ = {"classes": self.classes_, **stats.to_arrays()}
        elif self.stats_:
            state = StreamState(**self.stats_).discounted(factor)
            self.stats_ = update_mean(state, self._precision()).to_arrays()
        if self.pending_:
            self.pending_ = {**self.pending_, "weight": self.pending_["weight"] * factor}
        self._set_fitted_attributes()

    # -- both updates -------------------------------------------------------------------
    def _validate_parameters(self) -> None:
        self._validate_params()
        check_class_weight(self.class_weight)
        if self.features is not None and self.update == "frozen" and isinstance(self.gamma, str):
            raise ValueError(
                'gamma must be a number with update="frozen" and Fourier features, since '
                f"{self.gamma!r} is computed from the first rows and would depend on their order"
            )

    def _reset(self, dtype: Any) -> None:
        self.stats_, self.pending_, self.map_ = {}, {}, {}
        self.__dict__.pop("announced_", None)
        self._clear_mixing()
        self.rows_summed_, self.fixed_params_ = 0, fixed_parameters(self)
        self.seed_ = self._seed()
        self.row_dtype_ = np.dtype(dtype).str
        width = self.n_components if self.features == "fourier" else self.n_features_in_
        if width > MAX_WIDTH:
            raise ValueError(
                f"X has {width} features (max {MAX_WIDTH}); their matrix of products would take "
                f'{8e-9 * width**2:.0f} GB. Use features="fourier" or LinearClassifier'
            )

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _learn(self, rows: Batch, balanced: dict[Any, float] | None = None,
               announced: Any = None) -> None:  # fmt: skip
        """Learn validated rows."""
        y = np.asarray(rows.y)
        weight = np.ones(len(y)) if rows.weight is None else np.asarray(rows.weight)
        weight = weight * self._row_class_weights(y, balanced)
        X = rows.X.astype(self.row_dtype_, copy=False)
        if not weight.all():
            kept, labels = np.flatnonzero(weight), np.unique(y)
            unweighted = labels[~np.isin(labels, y[kept])]
            if len(unweighted):  # classes whose rows all have weight 0
                self._announce(unweighted)
            X, y, weight = take_rows(X, kept), y[kept], weight[kept]
        if announced is not None:
            self._announce(checked_labels(np.asarray(announced)))
        if not len(y):
            return
        learn = self._learn_frozen if self.update == "frozen" else self._learn_blocks
        learn(X, y, weight)

    def _announce(self, labels: Array) -> None:
        """Add classes that have no rows yet."""
        self.announced_ = union_classes(getattr(self, "announced_", labels), labels)

    def _row_class_weights(self, y: Array, balanced: dict[Any, float] | None) -> Any:
        per_label = self.class_weight if isinstance(self.class_weight, Mapping) else balanced
        if per_label is None:
            return 1.0
        labels, codes = encode_labels(y)
        return np.array([float(per_label.get(c, 1.0)) for c in labels.tolist()])[codes]

    def _balanced_weights(self, rows: Batch) -> dict[Any, float] | None:
        """Weights of the classes, from rows in memory."""
        if self.class_weight is None:
            return None
        y, weight = np.asarray(rows.y), rows.weight
        if weight is not None:
            y, weight = y[weight > 0.0], weight[weight > 0.0]
        labels, codes = encode_labels(y)
        per_class = class_weights(self.class_weight, labels, codes, weight)
        return None if per_class is None else dict(zip(labels.tolist(), per_class, strict=True))

    def _set_fitted_attributes(self) -> None:
        """Set the fitted attributes from the statistics."""
        if self.update == "frozen":
            if not self.stats_:
                return
            classes = join_classes(self.stats_["classes"], getattr(self, "announced_", None),
                                   self.stats_["classes"])  # fmt: skip
            weights = frozen_weights(
                self._frozen_sums(classes), self._precision(), self.fit_intercept
            )
            factor = 1.0
        else:
            state = self._flushed_state()
            if not len(state.classes):
                return
            classes, weights = state.classes, stream_weights(state, self._precision(), self._mixing)
            factor = float(np.exp(state.calibration[0]))
        self._set_coefficients(classes, weights, factor)

    def _defer_weights(self) -> None:
        """Set ``classes_`` only; weights are computed on demand, since more rows may come."""
        labels = np.unique(self.pending_["y"]) if self.pending_ else self.stats_["classes"]
        announced = getattr(self, "announced_", None)
        self.classes_ = join_classes(self.stats_.get("classes"), announced, labels)
        self.n_rows_seen_ = self.rows_summed_ + len(self.pending_.get("y", ()))
        for name in LAZY_ATTRIBUTES:
            self.__dict__.pop(name, None)

    def _set_coefficients(self, classes: Array, weights: Weights, factor: float) -> None:
        coef, intercept = weights.raw()
        if len(classes) == 2:
            if self.update == "streaming":
                coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
            else:
                coef, intercept = coef[1:], intercept[1:]
        self.classes_ = classes
        self.n_rows_seen_ = self.rows_summed_ + len(self.pending_.get("y", ()))
        self.coef_, self.intercept_ = coef, intercept
        self.posterior_ = {
            "root": weights.root, "scaling": weights.scaling, "centre": weights.centre,
            "scale": weights.scale, "factor": factor,
        }  # fmt: skip

    # -- frozen -------------------------------------------------------------------------
    def _frozen_sums(self, classes: Array) -> FrozenSums:
        """Sums so far, expanded to the given classes."""
        known, own = self.stats_["classes"], dict(self.stats_)
        del own["classes"]
        return FrozenSums(**own).expand_classes(np.searchsorted(classes, known), len(classes))

    def _learn_frozen(self, X: Matrix, y: Array, weight: Array) -> None:
        labels, codes = encode_labels(y)
        classes = join_classes(self.stats_.get("classes"), None, labels)
        codes = np.searchsorted(classes, labels)[codes]
        if self.features == "fourier" and not self.map_:
            self.map_ = self._draw_features(X)
        model, width = FrozenModel(len(classes)), int(X.shape[1])
        block_rows = max(64, FROZEN_BLOCK_VALUES // max(width, self.n_components))

        def sums(batch: Batch) -> FrozenSums:
            Phi = self._features(batch.X, self.map_)
            return model.stats(Batch(Phi, batch.y, batch.weight))

        with LocalEngine(X, codes, weight * self._age_weights(len(y)), n_jobs=self.n_jobs,
                         block_rows=block_rows) as engine:  # fmt: skip
            total = engine.reduce(sums, FrozenSums.__add__)
        if self.stats_:
            total = self._frozen_sums(classes).discounted(self._decay_factor(len(y))) + total
        self.stats_ = {"classes": classes, **total.to_arrays()}
        self.rows_summed_ += len(y)

    # -- streams ------------------------------------------------------------------------
    def _fit_stream(self, X: Any, y: Any, sample_weight: Any) -> None:
        """One pass over blocks; an interruption keeps the blocks learned so far."""
        if sample_weight is not None:
            raise ValueError(
                "sample_weight cannot be passed with a stream; yield (X, y, sample_weight) blocks"
            )
        if isinstance(self.class_weight, str):
            raise ValueError(
                "class_weight must be a dict of weights or None for a stream, which is read "
                f"once; got {self.class_weight!r}"
            )
        source = watched(open_source(self, X, y), self)
        started = False
        try:
            for batch in StreamEngine(source, seed=0, shuffle=False).blocks():
                labels = checked_labels(require_targets(batch))
                values = batch.X if isinstance(batch.X, np.ndarray) else batch.X.data
                assert_all_finite(values, input_name="X")
                if not started:
                    self._reset(batch.X.dtype)
                    started = True
                self._learn(Batch(batch.X, labels, batch.weight))
        finally:
            if started:
                self._set_fitted_attributes()
