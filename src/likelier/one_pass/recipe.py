"""How the one-pass classifier learns: in memory, from a stream, batch by batch, from others."""

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
    check_addable,
    check_rows,
    check_same_parameters,
    lasting_parameters,
)
from likelier.one_pass.inference import StreamState, resolved, stream_weights
from likelier.one_pass.merge import merge_streams
from likelier.one_pass.model import FrozenModel, FrozenSums, Weights, frozen_weights
from likelier.one_pass.pending import joined_rows, kept_rows
from likelier.one_pass.predictions import ON_DEMAND
from likelier.one_pass.streaming import OnePassBlocks

MAX_WIDTH = 16_384  # features: the matrix of their products takes two gigabytes
FROZEN_BLOCK_VALUES = 1 << 19


class OnePassLearning(OnePassBlocks):
    """Learning of both updates."""

    prior_precision: float | str
    class_weight: Any
    shuffle: bool
    n_rows_seen_: int

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn in one pass, in the order of the rows unless ``shuffle=True``.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), path or iterator
            Training rows. A path (CSV, Parquet, libsvm) or an iterator of ``(X, y)`` or
            ``(X, y, sample_weight)`` blocks is read once, in bounded memory.
        y : array-like of shape (n_samples,), or the target column of a path
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            Non-negative; a row of weight 0 is as good as absent.
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
                self._learn(rows, balanced=self._balance(rows))
            finally:  # an interruption keeps the blocks that have been learned
                self._publish()
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn some more rows, once; new classes may appear at any time.

        ``classes`` may announce some. However the rows are cut into batches, the same rows in
        the same order give the same model. A call that fails or is interrupted has learned none
        of its rows: it can be repeated.
        """
        with unchanged_on_failure(self):
            self._learn_more(X, y, classes, sample_weight)
        return self

    def _learn_more(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> None:
        self._validate_parameters()
        if isinstance(self.class_weight, str):
            raise ValueError(
                "class_weight must be a dict of weights (or None) where rows come batch by batch, "
                f"got {self.class_weight!r}"
            )
        fresh = not hasattr(self, "pending_")
        if not fresh:
            check_same_parameters(self)
        rows = check_rows(self, X, y, sample_weight, reset=fresh)
        join_classes(getattr(self, "classes_", None), classes, np.asarray(rows.y)[:1])  # one kind
        if fresh:
            self._reset(rows.X.dtype)
        self._learn(rows, announced=classes)
        learned = self.stats_ or self.pending_
        (self._postpone if self.update == "streaming" and learned else self._publish)()

    def merge(self, other: Any) -> Self:
        """Add everything another model of this kind has learned from other rows, in place.

        With ``update="frozen"`` this is exactly the model of all rows, and so it is with streaming
        where all rows still fit in one opening. While they fit in the sample that is kept (16,384
        rows, 16 megabytes), they are learned from it to convergence, whatever part had which.
        Otherwise a streaming model keeps how sure each part was at the time, which costs a little
        accuracy; where the two have learned different classes, weights that compare them are found
        with the samples of both. Solving on samples takes up to 200 steps of rows x features x
        classes: see the notes of the class.
        """
        check_mergeable(self, other)
        with unchanged_on_failure(self):
            self._add(other)
        return self

    def _add(self, other: Any) -> None:
        check_same_parameters(self)
        check_same_parameters(other)
        self._settle()
        other._settle()
        check_addable(self, other)
        classes = union_classes(self.classes_, other.classes_)
        if self._room_for(other):
            self._announce(classes)
            self.pending_ = kept_rows(joined_rows(self.pending_, Batch(**other.pending_)))
            self._postpone()
            return
        if self.update == "frozen":
            stats: Any = self._frozen(classes) + other._frozen(classes)
        else:
            stats = merge_streams(self._flushed(), other._flushed(), self._precision())
        self.stats_, self.pending_ = {"classes": classes, **stats.to_arrays()}, {}
        self.rows_summed_ = self.n_rows_seen_ + other.n_rows_seen_
        self._forget_mixing()
        self._publish()

    def forget(self, factor: Any) -> Self:
        """Let everything learned so far count ``factor`` times as much, for data that drift."""
        check_is_fitted(self, "classes_")
        truth = isinstance(factor, bool | np.bool_)  # yes and no are no shares
        if truth or not isinstance(factor, Real) or not 0.0 < float(factor) <= 1.0:
            raise ValueError(f"factor must be a number above 0 and at most 1, got {factor!r}")
        check_same_parameters(self)
        with unchanged_on_failure(self):
            self._fade_all(float(factor))
        return self

    def _fade_all(self, factor: float) -> None:
        self._forget_mixing()
        if self.update == "frozen":
            stats: Any = self._frozen(self.classes_).faded(factor)
            self.stats_ = {"classes": self.classes_, **stats.to_arrays()}
        elif self.stats_:
            state = StreamState(**self.stats_).faded(factor)
            self.stats_ = resolved(state, self._precision()).to_arrays()
        if self.pending_:
            self.pending_ = {**self.pending_, "weight": self.pending_["weight"] * factor}
        self._publish()

    # -- both updates -------------------------------------------------------------------
    def _validate_parameters(self) -> None:
        self._validate_params()
        check_class_weight(self.class_weight)
        if self.features is not None and self.update == "frozen" and isinstance(self.gamma, str):
            raise ValueError(
                'gamma must be a number with update="frozen" and Fourier features: taken from the '
                f"first rows ({self.gamma!r}), it would depend on their order"
            )

    def _reset(self, dtype: Any) -> None:
        self.stats_, self.pending_, self.map_ = {}, {}, {}
        self.__dict__.pop("announced_", None)
        self._forget_mixing()
        self.rows_summed_, self.words_ = 0, lasting_parameters(self)
        self.seed_ = self._seed()
        self.row_dtype_ = np.dtype(dtype).str
        width = self.n_components if self.features == "fourier" else self.n_features_in_
        if width > MAX_WIDTH:
            raise ValueError(
                f"X has {width} features, whose products take {8e-9 * width**2:.0f} gigabytes; at "
                f'most {MAX_WIDTH} are possible. Use features="fourier", or LinearClassifier'
            )

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _learn(self, rows: Batch, balanced: dict[Any, float] | None = None,
               announced: Any = None) -> None:  # fmt: skip
        """Learn checked rows."""
        y = np.asarray(rows.y)
        weight = np.ones(len(y)) if rows.weight is None else np.asarray(rows.weight)
        weight = weight * self._weights_of(y, balanced)
        X = rows.X.astype(self.row_dtype_, copy=False)
        if not weight.all():
            kept, labels = np.flatnonzero(weight), np.unique(y)
            lost = labels[~np.isin(labels, y[kept])]
            if len(lost):  # classes all the same
                self._announce(lost)
            X, y, weight = take_rows(X, kept), y[kept], weight[kept]
        if announced is not None:
            self._announce(checked_labels(np.asarray(announced)))
        if not len(y):
            return
        learn = self._learn_frozen if self.update == "frozen" else self._learn_blocks
        learn(X, y, weight)

    def _announce(self, labels: Array) -> None:
        """Classes that will come: known from now on, with no row of their own yet."""
        self.announced_ = union_classes(getattr(self, "announced_", labels), labels)

    def _weights_of(self, y: Array, balanced: dict[Any, float] | None) -> Any:
        per_label = self.class_weight if isinstance(self.class_weight, Mapping) else balanced
        if per_label is None:
            return 1.0
        labels, codes = encode_labels(y)
        return np.array([float(per_label.get(c, 1.0)) for c in labels.tolist()])[codes]

    def _balance(self, rows: Batch) -> dict[Any, float] | None:
        """Weights of the classes of rows in memory."""
        if self.class_weight is None:
            return None
        y, weight = np.asarray(rows.y), rows.weight
        if weight is not None:
            y, weight = y[weight > 0.0], weight[weight > 0.0]
        labels, codes = encode_labels(y)
        of_class = class_weights(self.class_weight, labels, codes, weight)
        return None if of_class is None else dict(zip(labels.tolist(), of_class, strict=True))

    def _publish(self) -> None:
        """Show what has been learned as fitted attributes."""
        if self.update == "frozen":
            if not self.stats_:
                return
            classes = join_classes(self.stats_["classes"], getattr(self, "announced_", None),
                                   self.stats_["classes"])  # fmt: skip
            weights = frozen_weights(self._frozen(classes), self._precision(), self.fit_intercept)
            factor = 1.0
        else:
            state = self._flushed()
            if not len(state.classes):
                return
            classes, weights = state.classes, stream_weights(state, self._precision(), self._mixing)
            factor = float(np.exp(state.calibration[0]))
        self._show(classes, weights, factor)

    def _postpone(self) -> None:
        """Name the classes; weights wait until they are asked for, as more rows may come."""
        labels = np.unique(self.pending_["y"]) if self.pending_ else self.stats_["classes"]
        announced = getattr(self, "announced_", None)
        self.classes_ = join_classes(self.stats_.get("classes"), announced, labels)
        self.n_rows_seen_ = self.rows_summed_ + len(self.pending_.get("y", ()))
        for name in ON_DEMAND:
            self.__dict__.pop(name, None)

    def _show(self, classes: Array, weights: Weights, factor: float) -> None:
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
            "root": weights.root, "units": weights.units, "centre": weights.centre,
            "scale": weights.scale, "factor": factor,
        }  # fmt: skip

    # -- frozen -------------------------------------------------------------------------
    def _frozen(self, classes: Array) -> FrozenSums:
        """Sums so far, among at least the present classes."""
        known, own = self.stats_["classes"], dict(self.stats_)
        del own["classes"]
        return FrozenSums(**own).spread(np.searchsorted(classes, known), len(classes))

    def _learn_frozen(self, X: Matrix, y: Array, weight: Array) -> None:
        labels, codes = encode_labels(y)
        classes = join_classes(self.stats_.get("classes"), None, labels)
        codes = np.searchsorted(classes, labels)[codes]
        if self.features == "fourier" and not self.map_:
            self.map_ = self._draw_map(X)
        model, width = FrozenModel(len(classes)), int(X.shape[1])
        block_rows = max(64, FROZEN_BLOCK_VALUES // max(width, self.n_components))

        def sums(batch: Batch) -> FrozenSums:
            Phi = self._features(batch.X, self.map_)
            return model.stats(Batch(Phi, batch.y, batch.weight))

        with LocalEngine(X, codes, weight * self._ages(len(y)), n_jobs=self.n_jobs,
                         block_rows=block_rows) as engine:  # fmt: skip
            found = engine.reduce(sums, FrozenSums.__add__)
        if self.stats_:
            found = self._frozen(classes).faded(self._fade(len(y))) + found
        self.stats_ = {"classes": classes, **found.to_arrays()}
        self.rows_summed_ += len(y)

    # -- streams ------------------------------------------------------------------------
    def _fit_stream(self, X: Any, y: Any, sample_weight: Any) -> None:
        """One pass over blocks; an interruption keeps what has been learned."""
        if sample_weight is not None:
            raise ValueError(
                "sample_weight of a stream comes with its blocks: yield (X, y, weight)"
            )
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight must be a dict of weights (or None) for a stream, which is read "
                f"once, got {self.class_weight!r}"
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
                self._publish()
