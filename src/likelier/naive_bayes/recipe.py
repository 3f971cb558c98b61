"""How the naive Bayes estimators learn: one pass of statistics, wherever the rows come from."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.callback import with_callbacks

from likelier.base import Array, Batch, Matrix
from likelier.engines import LocalEngine, StreamEngine
from likelier.fitting.dataset import (
    check_mergeable,
    checked_rows,
    is_stream,
    open_source,
    require_targets,
)
from likelier.fitting.labels import checked_labels, encode_labels, join_classes
from likelier.fitting.rollback import unchanged_on_failure
from likelier.fitting.targets import union_classes
from likelier.naive_bayes.closed_form import (
    ClosedForm,
    ClosedState,
)
from likelier.naive_bayes.held_out import HELD_OUT, OrdinaryRows, RowSample
from likelier.naive_bayes.model import codes_of
from likelier.naive_bayes.predictions import NaiveBayesPredictions, all_finite


class NaiveBayes(NaiveBayesPredictions):
    """Learning: in memory, from a stream, batch by batch, from other models."""

    # -- learning -----------------------------------------------------------------------
    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model in one pass.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), path or iterator
            Training rows. A path (CSV, Parquet, libsvm) or an iterator of ``(X, y)`` or
            ``(X, y, sample_weight)`` blocks is read once, in bounded memory. NaN means missing in
            arrays, frames and blocks; empty cells of a file are an error, so read such a file
            yourself and give its blocks.
        y : array-like of shape (n_samples,), or the target column of a path
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            Non-negative; a row of weight 0 is as good as absent.

        Notes
        -----
        A fit that fails leaves the model as it was. A stream that is interrupted leaves what has
        been learned of it.
        """
        self._validate_params()
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        interruption = None
        with unchanged_on_failure(self):
            if is_stream(X):
                interruption = self._fit_stream(X, y, sample_weight)
            else:
                rows, labels, codes = self._check_rows(X, y, sample_weight, reset=True)
                self._learn(rows, None, labels, codes)
        if interruption is not None:
            raise interruption
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn some more rows; in whatever batches they come, the statistics are the same.

        Classes may appear at any time; ``classes`` may announce some. A batch that is refused
        changes nothing.

        Notes
        -----
        The statistics of Gaussian features agree to about 1e-12 where means are up to 1e4 standard
        deviations from zero, and to 1e-10 where they are 1e6 of them. Only the threshold of
        `is_outlier` depends on the batches: their rows are not kept, so each
        counts with the score it had when it came, unless little was known of its class then. Where
        rows come in random order, about ``1 - coverage`` of further rows are outliers. Else there
        are fewer: rows were strange when they came that are no longer so, where classes drift
        (about a third as many, for means that move by six standard deviations) or come one after
        the other and overlap (from a third to nearly all). `fit` with an iterator of blocks, in
        memory as bounded, scores a sample of all rows at its end, and their order does not matter.
        """
        self._validate_params()
        fitted = hasattr(self, "classes_")
        with unchanged_on_failure(self):
            rows, labels, codes = self._check_rows(X, y, sample_weight, reset=not fitted)
            known = self.classes_ if fitted else None
            joined = join_classes(known, classes, labels)
            codes = np.searchsorted(joined, labels)[codes]
            return self._learn(rows, self._stats(joined) if fitted else None, joined, codes)

    def merge(self, other: NaiveBayes) -> Self:
        """Add everything another fitted model of this kind has learned, in place.

        Both may have seen different classes; of the constructor's words this model's count.

        Notes
        -----
        The threshold of `is_outlier` is that of both sets of rows, each scored by its own model.
        Models of a few dozen rows score worse than they do together, so that fewer rows than asked
        for are outliers until more are learned.
        """
        self._check_mergeable(other)
        classes = union_classes(self.classes_, other.classes_)
        stats = self._stats(classes) + other._stats(classes)
        log_prior = self._prior(len(classes)).log(stats.class_count)
        mine, others = (model._ordinary_among(classes, log_prior) for model in (self, other))
        self._store(classes, stats, mine.joined(others, _thinning_start(self._seed(), stats)))
        return self

    def _check_mergeable(self, other: NaiveBayes) -> None:
        check_mergeable(self, other)

    def _learn(self, rows: Batch, before: Any, classes: Array, codes: Array) -> Self:
        """Add rows to the statistics; nothing of the model changes until all is computed."""
        inference = ClosedForm(self._prior(len(classes)))
        model = self._model(len(classes), int(rows.X.shape[1]))
        seed = self._seed()
        with LocalEngine(
            rows.X, codes, rows.weight, seed=seed, n_jobs=self.n_jobs,
        ) as engine:  # fmt: skip
            state, _ = inference.step(ClosedState(model, before), engine)
            self._check_finite(state.stats, rows.X)
            ordinary = _ordinary_rows(inference, state, engine.sample(HELD_OUT), engine.n_rows)
        if before is not None:
            log_prior = inference.prior.log(state.stats.class_count)
            earlier = self._ordinary_among(classes, log_prior)
            ordinary = earlier.joined(ordinary, _thinning_start(seed, state.stats))
        self._store(classes, state.stats, ordinary)
        return self

    def _fit_stream(self, X: Any, y: Any, sample_weight: Any) -> BaseException | None:
        """One pass over blocks; an interruption keeps what has been learned, and is returned."""
        if sample_weight is not None:
            raise ValueError(
                "sample_weight of a stream comes with its blocks: yield (X, y, weight)"
            )
        source = self._open_source(X, y)
        sample = RowSample(HELD_OUT, np.random.default_rng([self._seed(), 1]))
        classes, stats, n_rows = None, None, 0
        interruption = None
        try:
            for batch in StreamEngine(source, seed=0, shuffle=False).blocks():
                labels, codes = encode_labels(checked_labels(require_targets(batch)))
                joined = join_classes(classes, None, labels)
                codes = np.searchsorted(joined, labels)[codes]
                model = self._model(len(joined), self.n_features_in_)
                found = model.stats(Batch(batch.X, codes, batch.weight))
                if stats is not None and classes is not None:
                    found = stats.spread(np.searchsorted(joined, classes), len(joined)) + found
                sample.offer(batch)
                classes, stats, n_rows = joined, found, n_rows + batch.n_rows
        except (ValueError, TypeError):  # rows that are refused
            raise
        except BaseException as error:
            if classes is None:
                raise
            interruption = error
        if classes is not None:
            self._finish_stream(classes, stats, sample.batch(), n_rows)
        return interruption

    def _finish_stream(self, classes: Array, stats: Any, sample: Batch, n_rows: int) -> None:
        inference = ClosedForm(self._prior(len(classes)))
        state = ClosedState(self._model(len(classes), self.n_features_in_), stats)
        codes = np.searchsorted(classes, np.asarray(sample.y))
        batch = Batch(sample.X, codes, sample.weight)
        self._store(classes, stats, _ordinary_rows(inference, state, batch, n_rows))

    def _store(self, classes: Array, stats: Any, ordinary: OrdinaryRows) -> None:
        model = self._model(len(classes), self.n_features_in_)
        shown = self._publish(model, stats)
        self.classes_ = classes
        self.stats_ = stats.to_arrays()
        self.ordinary_ = ordinary.to_arrays()
        for name, value in shown.items():
            setattr(self, name, value)

    def _ordinary_among(self, classes: Array, log_prior: Array) -> OrdinaryRows:
        """Ordinary rows of this model as those of a model of these classes."""
        places = np.searchsorted(classes, self.classes_)
        after, before = _scaled(log_prior)[places], _scaled(self._log_prior())
        usual = np.isfinite(after) & np.isfinite(before)
        shift = np.subtract(after, before, out=np.zeros(len(places)), where=usual)
        return OrdinaryRows(**self.ordinary_).moved(places, shift)

    def _open_source(self, X: Any, y: Any) -> Any:
        return open_source(self, X, y)

    # -- checks -------------------------------------------------------------------------
    def _check_rows(
        self, X: Any, y: Any, sample_weight: Any, reset: bool
    ) -> tuple[Batch, Array, Array]:
        """Rows of positive weight, the classes of all rows, and the numbers of theirs."""
        X, y, weight = checked_rows(self, X, y, sample_weight, reset, checked_labels)
        labels, codes = encode_labels(np.asarray(y))
        if weight is None or weight.all():
            return Batch(X, y, weight), labels, codes
        there = np.flatnonzero(weight)
        return Batch(X, y, weight, rows=there).compact(), labels, codes[there]

    def _check_finite(self, stats: Any, X: Matrix) -> None:
        """Raise if the statistics are not finite because the rows are not."""
        if not all(map(all_finite, stats.to_arrays().values())):
            self._refuse_infinite(X)


def _ordinary_rows(
    inference: ClosedForm, state: ClosedState, batch: Batch, n_rows: int
) -> OrdinaryRows:
    """Scores of a sample of the ``n_rows`` rows that were learned last."""
    scores, size = inference.held_out(state, batch, n_rows)
    m = len(scores)  # none of a single row
    weight = np.ones(batch.n_rows) if batch.weight is None else np.asarray(batch.weight)
    codes = codes_of(batch)[:m]
    count = state.stats.class_count[codes]
    return OrdinaryRows(scores, weight[:m] * (n_rows / batch.n_rows), codes, count, size)


def _scaled(log_prior: Array) -> Array:
    """Log probabilities that sum to one."""
    return np.asarray(log_prior - np.logaddexp.reduce(log_prior))


def _thinning_start(seed: int, stats: Any) -> float:
    """Random number in [0, 1), another one for every amount of learned rows."""
    amount = int(np.float64(stats.class_count.sum()).view(np.uint64))
    return float(np.random.default_rng([seed, 4, amount]).random())
