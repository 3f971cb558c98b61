"""Fitting of the one-pass classifier: in memory, from a stream, in batches, and by merging."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Batch, Engine
from likelier.fitting.dataset import (
    CheckedSource,
    check_mergeable,
    is_stream,
    local_engine,
    open_source,
    stream_engine,
)
from likelier.fitting.estimator import fitting
from likelier.fitting.extreme_cells import watched
from likelier.fitting.labels import checked_labels, encode_labels, join_classes
from likelier.fitting.monitor import Monitor, with_callbacks
from likelier.fitting.rollback import unchanged_on_failure
from likelier.fitting.targets import check_class_weight, class_weights, union_classes
from likelier.one_pass.checks import (
    check_compatible,
    check_rows,
    check_same_parameters,
    fixed_parameters,
)
from likelier.one_pass.inference import StreamState, update_mean
from likelier.one_pass.merge import merge_streams
from likelier.one_pass.posterior import OnePassPosterior
from likelier.one_pass.predictions import LAZY_ATTRIBUTES, OnePassPredictions
from likelier.one_pass.row_buffer import append_rows, copy_rows
from likelier.one_pass.settings import Settings
from likelier.one_pass.streaming import Finished, Learned, flushed_state, next_block
from likelier.one_pass.updates import (
    ClassSums,
    FrozenUpdate,
    LabelWeights,
    StreamingUpdate,
    announce,
)

MAX_WIDTH = 16_384  # features; their matrix of products takes two gigabytes

Opened = tuple[Engine, Learned, LabelWeights]


@dataclass(frozen=True)
class BlocksLearned:
    """State of a stream after some of its blocks."""

    n_blocks: int
    learned: Learned


class OnePassLearning(OnePassPredictions):
    """`fit`, `partial_fit`, `merge` and `forget` of both updates."""

    update: str
    features: str | None
    prior_precision: float | str
    class_weight: Any
    shuffle: bool
    n_features_in_: int
    n_rows_seen_: int
    rows_summed_: int  # rows that are not buffered
    seed_: int
    stats_: dict[str, Any]
    pending_: dict[str, Any]
    map_: dict[str, Array]
    fixed_params_: dict[str, Any]

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
        with fitting(self, X, y, sample_weight) as monitor:
            opened = self._from_stream if is_stream(X, y) else self._from_memory
            engine, start, per_label = opened(X, y, sample_weight)
            update = self._update(per_label)
            with closing(engine):
                learned = monitor.stage(
                    "rows", lambda: learn_rows_of(engine, update, start, monitor)
                )
            found = monitor.stage("weights", lambda: update.finish(learned, {}))
            self._keep(learned)
            self._publish(found)
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
        learned = self._reset() if is_first else Learned.of(self)
        learned = announce(learned, weightless_labels(rows))
        if classes is not None:
            learned = announce(learned, checked_labels(np.asarray(classes)))
        with closing(self._engine(rows)) as engine:
            learned = self._update(self.class_weight).step(learned, engine)[0]
        self._keep(learned)
        if self.update == "streaming" and learned.n_rows:
            self._defer_weights(learned)
        else:
            self._set_fitted_attributes()

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
        one, two = Learned.of(self), Learned.of(other)
        classes, settings = union_classes(self.classes_, other.classes_), Settings.of(self)
        if not (self.half_life or other.half_life) and fit_initial_batch(one, two, settings):
            rows = append_rows(one.pending, Batch(**two.pending))
            learned = replace(announce(one, classes), pending=copy_rows(rows))
            self._keep(learned)
            self._defer_weights(learned)
            return
        if settings.streaming:
            states = flushed_state(one, settings)[0], flushed_state(two, Settings.of(other))[0]
            stats = merge_streams(*states, settings.prior).to_arrays()
        else:
            sums = ClassSums.of(one).among(classes) + ClassSums.of(two).among(classes)
            stats = {"classes": classes, **sums.to_arrays()}
        n_rows = self.n_rows_seen_ + other.n_rows_seen_
        self._keep(replace(one, stats=stats, pending={}, n_summed=n_rows))
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
        learned, settings = Learned.of(self), Settings.of(self)
        if not settings.streaming:
            sums = ClassSums.of(learned).among(self.classes_).discounted(factor)
            learned = replace(learned, stats={"classes": self.classes_, **sums.to_arrays()})
        elif learned.stats:
            state = StreamState(**learned.stats).discounted(factor)
            learned = replace(learned, stats=update_mean(state, settings.prior).to_arrays())
        if learned.pending:
            rows = {**learned.pending, "weight": learned.pending["weight"] * factor}
            learned = replace(learned, pending=rows)
        self._keep(learned)
        self._set_fitted_attributes()

    # -- opening of rows ----------------------------------------------------------------
    def _from_memory(self, X: Any, y: Any, sample_weight: Any) -> Opened:
        """Rows in memory, in the order in which they are to be learned."""
        rows = check_rows(self, X, y, sample_weight, reset=True)
        start = announce(self._reset(), weightless_labels(rows))
        per_label = self._balanced_weights(rows)
        if self.shuffle:
            order = np.random.default_rng([self._seed(), 1]).permutation(rows.n_rows)
            rows = Batch(rows.X, rows.y, rows.weight, rows=order).compact()
        return self._engine(rows), start, per_label

    def _from_stream(self, X: Any, y: Any, sample_weight: Any) -> Opened:
        """Blocks of rows that are read once."""
        if sample_weight is not None:
            raise ValueError(
                "sample_weight cannot be passed with a stream; yield (X, y, sample_weight) blocks"
            )
        if isinstance(self.class_weight, str):
            raise ValueError(
                "class_weight must be a dict of weights or None for a stream, which is read "
                f"once; got {self.class_weight!r}"
            )
        source = CheckedSource(watched(open_source(self, X, y), self), checked_labels)
        return stream_engine(source, 0, False), self._reset(), self.class_weight

    def _engine(self, rows: Batch) -> Engine:
        return local_engine(rows.X, rows.y, rows.weight, 0, self.n_jobs, False)

    def _validate_parameters(self) -> None:
        self._validate_params()
        check_class_weight(self.class_weight)
        if self.features is not None and self.update == "frozen" and isinstance(self.gamma, str):
            raise ValueError(
                'gamma must be a number with update="frozen" and Fourier features, since '
                f"{self.gamma!r} is computed from the first rows and would depend on their order"
            )

    def _reset(self) -> Learned:
        """Fix what defines the sums; nothing has been learned yet."""
        self._clear_mixing()
        self.fixed_params_, self.seed_ = fixed_parameters(self), self._seed()
        width = Settings.of(self).width
        if width > MAX_WIDTH:
            raise ValueError(
                f"X has {width} features (max {MAX_WIDTH}); their matrix of products would take "
                f'{8e-9 * width**2:.0f} GB. Use features="fourier" or LinearClassifier'
            )
        return Learned()

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _update(self, per_label: LabelWeights) -> StreamingUpdate | FrozenUpdate:
        update = StreamingUpdate if self.update == "streaming" else FrozenUpdate
        return update(Settings.of(self), per_label)

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

    # -- fitted attributes --------------------------------------------------------------
    def _keep(self, learned: Learned) -> None:
        """Store what has been learned."""
        self.stats_, self.pending_, self.map_ = learned.stats, learned.pending, learned.frequencies
        self.rows_summed_, self.row_dtype_ = learned.n_summed, learned.dtype
        self.n_rows_seen_ = learned.n_rows
        self.__dict__.pop("announced_", None)
        if learned.announced is not None:
            self.announced_ = learned.announced

    def _defer_weights(self, learned: Learned) -> None:
        """Set ``classes_`` only; weights are computed on demand, since more rows may come."""
        labels = np.unique(learned.pending["y"]) if learned.pending else learned.stats["classes"]
        self.classes_ = join_classes(learned.stats.get("classes"), learned.announced, labels)
        for name in ("posterior_", *LAZY_ATTRIBUTES):
            self.__dict__.pop(name, None)

    def _set_fitted_attributes(self) -> None:
        """Set the fitted attributes from the statistics."""
        cached = vars(self).get("mixing_", {})
        self._publish(self._update(None).finish(Learned.of(self), cached))

    def _publish(self, found: Finished | None) -> None:
        if found is None:
            return
        posterior = OnePassPosterior.of(found, self.update == "streaming")
        self.classes_, self.map_ = found.classes, found.frequencies
        self.coef_, self.intercept_ = posterior.coef, posterior.intercept
        names = ("root", "scaling", "centre", "scale", "factor")
        self.posterior_ = {name: getattr(posterior, name) for name in names}
        if found.mixing:
            self.mixing_ = found.mixing

    def _clear_mixing(self) -> None:
        self.__dict__.pop("mixing_", None)


def learn_rows_of(engine: Engine, update: Any, start: Learned, monitor: Monitor) -> Learned:
    """Learn all rows; where they are learned block by block, the state after blocks is kept."""
    if not update.local_only:
        after: Learned = update.step(start, engine)[0]
        return after
    state = monitor.state("rows") or BlocksLearned(0, start)
    blocks: Any = engine.blocks()
    with closing(blocks):
        try:
            for number, batch in enumerate(blocks):
                if number < state.n_blocks:
                    continue  # learned before the fit was killed
                state = BlocksLearned(number + 1, update.after(state.learned, batch))
                if monitor.tick("block", f"{state.learned.n_rows} rows", lambda: None):
                    break
                monitor.keep("rows", state)
        except KeyboardInterrupt:
            monitor.keep("rows", state, now=True)
            raise
    return state.learned


def fit_initial_batch(one: Learned, two: Learned, settings: Settings) -> bool:
    """Whether the rows of two models fit in one initial batch."""
    return not (one.stats or two.stats) and one.n_pending + two.n_pending < next_block(
        one, settings
    )


def weightless_labels(rows: Batch) -> Array:
    """Labels of which all rows have weight zero."""
    y = np.asarray(rows.y)
    if rows.weight is None or rows.weight.all():
        return y[:0]
    labels = np.unique(y)
    return labels[~np.isin(labels, y[rows.weight > 0.0])]
