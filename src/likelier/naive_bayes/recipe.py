"""How the naive Bayes estimators learn: one pass of statistics, wherever the rows come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from likelier.base import Array, Batch, Engine, Matrix
from likelier.engines.samples import Sample
from likelier.fitting.dataset import (
    check_mergeable,
    checked_rows,
    is_stream,
    local_engine,
    open_source,
    require_targets,
    stream_engine,
)
from likelier.fitting.estimator import fitting
from likelier.fitting.labels import checked_labels, encode_labels, join_classes
from likelier.fitting.monitor import Monitor, with_callbacks
from likelier.fitting.rollback import unchanged_on_failure
from likelier.fitting.targets import union_classes
from likelier.naive_bayes.closed_form import (
    ClosedForm,
    ClosedState,
)
from likelier.naive_bayes.held_out import HELD_OUT, OrdinaryRows
from likelier.naive_bayes.model import NaiveBayesModel, codes_of
from likelier.naive_bayes.predictions import NaiveBayesPredictions, all_finite


@dataclass(frozen=True)
class Learned:
    """What one pass has learned: classes, their statistics, and a sample of the rows."""

    classes: Array
    stats: Any
    sample: Sample  # labelled as the rows are
    n_rows: int

    def __add__(self, other: Learned) -> Learned:
        classes = union_classes(self.classes, other.classes)
        stats = self._among(classes) + other._among(classes)
        return Learned(classes, stats, self.sample + other.sample, self.n_rows + other.n_rows)

    def _among(self, classes: Array) -> Any:
        if len(classes) == len(self.classes):
            return self.stats
        return self.stats.spread(np.searchsorted(classes, self.classes), len(classes))


@dataclass(frozen=True)
class LearnBlock:
    """The map of the pass. Labels are class numbers where the ``classes`` are known before it."""

    model: NaiveBayesModel
    sampler: Callable[[Batch], Sample]
    classes: Array | None = None

    def __call__(self, batch: Batch) -> Learned:
        sample = self.sampler(batch)
        if self.classes is not None:
            stats = self.model.stats(batch)
            return Learned(self.classes, stats, sample, batch.n_rows)
        labels, codes = encode_labels(checked_labels(require_targets(batch)))
        model: Any = replace(self.model, n_classes=len(labels))  # type: ignore[type-var]
        stats = model.stats(Batch(batch.X, codes, batch.weight))
        return Learned(labels, stats, sample, batch.n_rows)


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
        A fit that fails or is interrupted leaves the model as it was.
        """
        self._validate_params()
        with fitting(self, X, y, sample_weight) as monitor:
            if is_stream(X):
                self._learn_stream(X, y, sample_weight, monitor)
            else:
                rows, labels, codes = self._check_rows(X, y, sample_weight, reset=True)
                self._learn(rows, None, labels, codes, monitor)
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
            before = self._stats(joined) if fitted else None
            return self._learn(rows, before, joined, codes, Monitor())

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

    def _learn(
        self, rows: Batch, before: Any, classes: Array, codes: Array, monitor: Monitor
    ) -> Self:
        """Add rows to the statistics; nothing of the model changes until all is computed."""
        seed = self._seed()
        with local_engine(rows.X, codes, rows.weight, seed, self.n_jobs, False) as engine:
            learned = self._pass(engine, classes, monitor)
        self._check_finite(learned.stats, rows.X)
        stats = learned.stats if before is None else before + learned.stats
        ordinary = self._ordinary_rows(learned, learned.sample.batch, stats)
        if before is not None:
            log_prior = self._prior(len(classes)).log(stats.class_count)
            earlier = self._ordinary_among(classes, log_prior)
            ordinary = earlier.joined(ordinary, _thinning_start(seed, stats))
        self._store(classes, stats, ordinary)
        return self

    def _learn_stream(self, X: Any, y: Any, sample_weight: Any, monitor: Monitor) -> None:
        """Learn blocks of rows whose classes show while they pass."""
        if sample_weight is not None:
            raise ValueError(
                "sample_weight of a stream comes with its blocks: yield (X, y, weight)"
            )
        engine = stream_engine(self._open_source(X, y), self._seed(), False)
        learned = self._pass(engine, None, monitor)
        sample = learned.sample.batch
        codes = np.searchsorted(learned.classes, np.asarray(sample.y))
        ordinary = self._ordinary_rows(
            learned, Batch(sample.X, codes, sample.weight), learned.stats
        )
        self._store(learned.classes, learned.stats, ordinary)

    def _pass(self, engine: Engine, classes: Array | None, monitor: Monitor) -> Learned:
        """The one pass over all rows."""
        model = self._model(1 if classes is None else len(classes), engine.n_features)
        work = LearnBlock(model, engine.sampler(HELD_OUT), classes)
        return monitor.stage("statistics", lambda: engine.reduce(work, Learned.__add__))

    def _ordinary_rows(self, learned: Learned, sample: Batch, stats: Any) -> OrdinaryRows:
        """Scores of the sample of the rows that were learned last."""
        n_classes = len(stats.class_count)
        inference = ClosedForm(self._prior(n_classes))
        state = ClosedState(self._model(n_classes, self.n_features_in_), stats)
        return _ordinary_rows(inference, state, sample, learned.n_rows)

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
        after, before = _scaled(log_prior)[places], _scaled(self._posterior().log_prior)
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
