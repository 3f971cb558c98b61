"""Fitting of the naive Bayes estimators: one pass of statistics over rows from any source."""

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
from likelier.naive_bayes.inliers import MAX_SCORES, InlierScores
from likelier.naive_bayes.model import NaiveBayesModel, codes_of
from likelier.naive_bayes.predictions import NaiveBayesPredictions, all_finite


@dataclass(frozen=True)
class Learned:
    """Result of a pass: classes, their statistics, and a sample of the rows."""

    classes: Array
    stats: Any
    sample: Sample  # with the labels of the rows
    n_rows: int

    def __add__(self, other: Learned) -> Learned:
        classes = union_classes(self.classes, other.classes)
        stats = self._among(classes) + other._among(classes)
        return Learned(classes, stats, self.sample + other.sample, self.n_rows + other.n_rows)

    def _among(self, classes: Array) -> Any:
        if len(classes) == len(self.classes):
            return self.stats
        return self.stats.reindex(np.searchsorted(classes, self.classes), len(classes))


@dataclass(frozen=True)
class LearnBlock:
    """Map of the pass over a block. Labels are class indices if ``classes`` are known."""

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
    """Fitting in memory, from a stream, batch by batch, and by merging models."""

    # -- fitting ------------------------------------------------------------------------
    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model in one pass.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), path or iterator
            Training rows. A path (CSV, Parquet, libsvm) or an iterator of ``(X, y)`` or
            ``(X, y, sample_weight)`` blocks is read once, in bounded memory. NaN means missing in
            arrays, frames and blocks. Empty cells of a file are an error; pass blocks instead.
        y : array-like of shape (n_samples,), or the target column of a path
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            Non-negative; rows of weight 0 are ignored.

        Notes
        -----
        A fit that fails or is interrupted leaves the model unchanged.
        """
        self._validate_params()
        with fitting(self, X, y, sample_weight) as monitor:
            if is_stream(X, y):
                self._learn_stream(X, y, sample_weight, monitor)
            else:
                rows, labels, codes = self._check_rows(X, y, sample_weight, reset=True)
                self._learn(rows, None, labels, codes, monitor)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add a batch of rows; the statistics do not depend on the partition into batches.

        New classes may appear at any time; ``classes`` can announce some. An invalid batch leaves
        the model unchanged.

        Notes
        -----
        Statistics of Gaussian features agree to about 1e-12 for means up to 1e4 standard deviations
        from zero, and to 1e-10 for 1e6. Only the threshold of `is_outlier` depends on the batches:
        rows are not stored, so each is scored once, on arrival, and dropped if its class had few
        rows by then. For rows in random order, a fraction of about ``1 - coverage`` of further rows
        is flagged. Fewer are flagged if classes drift (about a third, for means that move by six
        standard deviations) or arrive one after the other and overlap (from a third to nearly all).
        `fit` with an iterator of blocks also needs bounded memory, and scores a sample of all rows
        at the end, so that their order does not matter.
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
        """Add the statistics of another fitted model of the same class, in place.

        The models may have different classes; the parameters of this model are kept.

        Notes
        -----
        The threshold of `is_outlier` uses the rows of both models, each scored by its own model.
        Models of a few dozen rows give lower scores than the merged one, so that fewer rows are
        flagged until more are added.
        """
        self._check_mergeable(other)
        classes = union_classes(self.classes_, other.classes_)
        stats = self._stats(classes) + other._stats(classes)
        log_prior = self._prior(len(classes)).log(stats.class_count)
        mine, others = (model._inliers_among(classes, log_prior) for model in (self, other))
        self._store(classes, stats, mine.merge(others, _thinning_start(self._seed(), stats)))
        return self

    def _check_mergeable(self, other: NaiveBayes) -> None:
        check_mergeable(self, other)

    def _learn(
        self, rows: Batch, before: Any, classes: Array, codes: Array, monitor: Monitor
    ) -> Self:
        """Add rows to the statistics; the model is updated only at the end."""
        seed = self._seed()
        with local_engine(rows.X, codes, rows.weight, seed, self.n_jobs, False) as engine:
            learned = self._pass(engine, classes, monitor)
        self._check_finite(learned.stats, rows.X)
        stats = learned.stats if before is None else before + learned.stats
        inliers = self._inlier_scores(learned, learned.sample.batch, stats)
        if before is not None:
            log_prior = self._prior(len(classes)).log(stats.class_count)
            earlier = self._inliers_among(classes, log_prior)
            inliers = earlier.merge(inliers, _thinning_start(seed, stats))
        self._store(classes, stats, inliers)
        return self

    def _learn_stream(self, X: Any, y: Any, sample_weight: Any, monitor: Monitor) -> None:
        """Learn a stream of blocks with classes unknown in advance."""
        if sample_weight is not None:
            raise ValueError(
                "sample_weight of a stream must be part of its blocks: yield (X, y, weight)"
            )
        engine = stream_engine(self._open_source(X, y), self._seed(), False)
        learned = self._pass(engine, None, monitor)
        sample = learned.sample.batch
        codes = np.searchsorted(learned.classes, np.asarray(sample.y))
        inliers = self._inlier_scores(learned, Batch(sample.X, codes, sample.weight), learned.stats)
        self._store(learned.classes, learned.stats, inliers)

    def _pass(self, engine: Engine, classes: Array | None, monitor: Monitor) -> Learned:
        """The one pass over all rows."""
        model = self._model(1 if classes is None else len(classes), engine.n_features)
        work = LearnBlock(model, engine.sampler(MAX_SCORES), classes)
        return monitor.stage("statistics", lambda: engine.reduce(work, Learned.__add__))

    def _inlier_scores(self, learned: Learned, sample: Batch, stats: Any) -> InlierScores:
        """Out-of-fold scores of the sample of the last pass."""
        n_classes = len(stats.class_count)
        inference = ClosedForm(self._prior(n_classes))
        state = ClosedState(self._model(n_classes, self.n_features_in_), stats)
        return _inlier_scores(inference, state, sample, learned.n_rows)

    def _store(self, classes: Array, stats: Any, inliers: InlierScores) -> None:
        model = self._model(len(classes), self.n_features_in_)
        attributes = self._publish(model, stats)
        self.classes_ = classes
        self.stats_ = stats.to_arrays()
        self.inliers_ = inliers.to_arrays()
        for name, value in attributes.items():
            setattr(self, name, value)

    def _inliers_among(self, classes: Array, log_prior: Array) -> InlierScores:
        """Inlier scores of this model over the given classes and priors."""
        positions = np.searchsorted(classes, self.classes_)
        after, before = _normalised(log_prior)[positions], _normalised(self._posterior().log_prior)
        finite = np.isfinite(after) & np.isfinite(before)
        shift = np.subtract(after, before, out=np.zeros(len(positions)), where=finite)
        return InlierScores(**self.inliers_).reindex(positions, shift)

    def _open_source(self, X: Any, y: Any) -> Any:
        return open_source(self, X, y)

    # -- checks -------------------------------------------------------------------------
    def _check_rows(
        self, X: Any, y: Any, sample_weight: Any, reset: bool
    ) -> tuple[Batch, Array, Array]:
        """Rows of positive weight, the classes of all rows, and the class indices."""
        X, y, weight = checked_rows(self, X, y, sample_weight, reset, checked_labels)
        labels, codes = encode_labels(np.asarray(y))
        if weight is None or weight.all():
            return Batch(X, y, weight), labels, codes
        present = np.flatnonzero(weight)
        return Batch(X, y, weight, rows=present).compact(), labels, codes[present]

    def _check_finite(self, stats: Any, X: Matrix) -> None:
        """Raise if the statistics are not finite because of infinite values."""
        if not all(map(all_finite, stats.to_arrays().values())):
            self._refuse_infinite(X)


def _inlier_scores(
    inference: ClosedForm, state: ClosedState, batch: Batch, n_rows: int
) -> InlierScores:
    """Out-of-fold scores of a sample of the ``n_rows`` rows of the last pass."""
    scores, size = inference.out_of_fold_scores(state, batch, n_rows)
    m = len(scores)  # zero for a single row
    weight = np.ones(batch.n_rows) if batch.weight is None else np.asarray(batch.weight)
    codes = codes_of(batch)[:m]
    count = state.stats.class_count[codes]
    return InlierScores(scores, weight[:m] * (n_rows / batch.n_rows), codes, count, size)


def _normalised(log_prior: Array) -> Array:
    """Log probabilities, normalised."""
    return np.asarray(log_prior - np.logaddexp.reduce(log_prior))


def _thinning_start(seed: int, stats: Any) -> float:
    """Random number in [0, 1) that depends on the total weight of the rows."""
    amount = int(np.float64(stats.class_count.sum()).view(np.uint64))
    return float(np.random.default_rng([seed, 4, amount]).random())
