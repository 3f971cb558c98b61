"""A model of a table: an estimator together with how its training file was read.

It goes from a file to predictions and back to the names and labels of that file, which is
what a command line or a service needs. Rows are held in memory while they are few, and
streamed when they are not.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Batch, Matrix
from likelier.data import Source, open_table
from likelier.predictor.unseen_levels import mixed_interval, mixed_prediction, mixed_probability
from likelier.tables import TableEncoding, block_source
from likelier.tables.sources import Encoded, encoded_blocks

MEMORY_LIMIT = 512 << 20
TASKS = ("auto", "classification", "regression")
# How a target of whole numbers is told to be classes: few different ones, in these many rows.
MAX_INTEGER_CLASSES = 20
MIN_ROWS_PER_CLASS = 5
LOOK_ROWS = 100_000
OnRows = Callable[[int, bool], None]


@dataclass(frozen=True)
class Predictions:
    """Predictions for one block of rows.

    ``label`` is the predicted class or number, ``probability`` has one column per class (None
    for regression), ``interval`` the columns lower and upper where the model offers them,
    ``y`` the true target where the file holds it.
    """

    label: Array
    probability: Array | None
    interval: Array | None
    y: Array | None


class TabularModel(BaseEstimator):
    """An estimator for a file of named columns, or of sparse rows.

    Parameters
    ----------
    classifier, regressor : estimator, optional
        What to fit for each task; only the one for the task at hand is needed.
    target : str or int, optional
        Target column, by name or position; None for libsvm files, which hold their labels.
    task : {"auto", "classification", "regression"}
        With "auto" text, truth values and few different whole numbers are classes, and
        anything else is a number to predict; ``task_reason_`` says which it was.
    kinds : dict of str to str, optional
        What columns hold, by name, where it should not be found out; see `TableFeatures`.
    exclude : sequence of str or int
        Columns to leave out.
    memory_limit : int
        Rows that take at most this many bytes are held in memory; beyond, every pass reads
        the file again.

    Attributes
    ----------
    estimator_ : estimator
        The fitted one.
    encoder_ : TableEncoding or LibsvmLayout
        How columns become features.
    task_, task_reason_ : str
        The task and why it was chosen.
    target_ : str
        Name of the target.
    in_memory_ : bool
        Whether the rows were held in memory.
    has_intervals_ : bool
        Whether the estimator gives intervals of its predictions.
    """

    def __init__(
        self,
        classifier: Any = None,
        regressor: Any = None,
        *,
        target: str | int | None = None,
        task: str = "auto",
        kinds: Mapping[str, str] | None = None,
        exclude: Sequence[str | int] = (),
        memory_limit: int = MEMORY_LIMIT,
    ) -> None:
        self.classifier = classifier
        self.regressor = regressor
        self.target = target
        self.task = task
        self.kinds = kinds
        self.exclude = exclude
        self.memory_limit = memory_limit

    def fit(self, data: str | os.PathLike[str] | Any, **reading: Any) -> Self:
        """Fit on a file or a data frame; see `prepare` for the arguments."""
        return self.learn(self.prepare(data, **reading))

    def prepare(self, data: str | os.PathLike[str] | Any, **reading: Any) -> Source:
        """Read the data once, to learn its columns and choose the task.

        Parameters
        ----------
        data : path or data frame
            CSV, Parquet or libsvm file, or a frame.
        **reading
            How to read a file: ``format``, ``delimiter``, ``header``, ``encoding``, ``decimal``,
            ``also_missing``. What was said about the file counts for later files too.

        Returns
        -------
        Source
            The blocks of rows, for `learn`.
        """
        if self.task not in TASKS:
            raise ValueError(f"task must be one of {TASKS}, got {self.task!r}")
        try:
            source = block_source(
                data,
                target=self.target,
                kinds=self.kinds,
                exclude=self.exclude,
                dense=any(map(_wants_dense, (self.classifier, self.regressor))),
                **reading,
            )
        except ValueError as error:
            raise ValueError(f"{error}{_similar_column(data, self.target, reading)}") from error
        encoder: Any = source.encoder
        self.encoder_ = encoder
        self.target_ = "label"
        if isinstance(encoder, TableEncoding):
            if encoder.target is None:
                raise ValueError(
                    f"target must name one of the columns: {', '.join(encoder.table_columns)}"
                )
            self.target_ = encoder.target.name
        self.task_, self.task_reason_ = _choose_task(_first_targets(source), self.task)
        return source

    def learn(self, source: Source, on_rows: OnRows | None = None) -> Self:
        """Fit the estimator for the chosen task on what `prepare` returned.

        ``on_rows`` is told of every block that is read: its number of rows, and whether it is
        the first of a pass.
        """
        chosen = self.classifier if self.task_ == "classification" else self.regressor
        if chosen is None:
            raise ValueError(self._no_estimator())
        estimator = clone(chosen)
        if on_rows is not None:
            source = _Watched(source, on_rows)
        batch = _gather(source, self.memory_limit)
        self.in_memory_ = batch is not None
        with _columns_by_name(self.encoder_):
            if batch is None:
                estimator.fit(source)
            else:
                self._check_targets(np.asarray(batch.y))
                estimator.fit(batch.X, batch.y)
        if self.task_ == "classification" and len(estimator.classes_) < 2:
            raise ValueError(
                f"the target {self.target_!r} has a single class, {str(estimator.classes_[0])!r}, "
                "in every row: there is nothing to tell apart; name another target"
            )
        self.estimator_ = estimator
        self.has_intervals_ = self.task_ == "regression" and _offers_intervals(estimator)
        return self

    def _check_targets(self, y: Array) -> None:
        """Refuse a target that never changes; warn of classes of a single row."""
        values, counts = np.unique(y, return_counts=True)
        if len(values) == 1:
            raise ValueError(
                f"the target {self.target_!r} is {str(values[0])!r} in every row: there is nothing "
                "to learn; name another target"
            )
        single = values[counts == 1][:5]
        if self.task_ == "classification" and len(single):
            shown = ", ".join(map(repr, map(str, single)))
            text = f"the target {self.target_!r} has classes of a single row, such as {shown}"
            warnings.warn(text, UserWarning, stacklevel=3)

    def _no_estimator(self) -> str:
        """What to do where there is none for the task."""
        other = self.regressor if self.classifier is None else self.classifier
        if other is None:
            return f"no estimator was given for {self.task_}"
        task = "classification" if self.regressor is None else "regression"
        reason = "" if self.task != "auto" else f", because {self.task_reason_}"
        return (
            f"{type(other).__name__} is for {task}, and the task is {self.task_}{reason}: "
            f"say task='{task}' if the target is meant so, or choose a model for {self.task_}"
        )

    @property
    def classes_(self) -> Array:
        """Class labels, for a classification."""
        return np.asarray(self.estimator_.classes_)

    def feature_names(self) -> Array:
        """Names of the features, after categories became columns of their own."""
        check_is_fitted(self)
        return np.asarray(self.encoder_.get_feature_names_out())

    def predict_blocks(
        self,
        data: str | os.PathLike[str] | Any,
        coverage: float = 0.9,
        *,
        labelled: bool = True,
        **reading: Any,
    ) -> Iterator[Predictions]:
        """Yield the predictions for a file block by block, in the order of its rows.

        Parameters
        ----------
        data : path or data frame
            Rows with the columns of the training data; the target may be absent.
        coverage : float
            Probability with which an interval should hold the target.
        labelled : bool
            Whether to read the targets too, where there are any; otherwise they may be anything.
        **reading
            How to read a file; see `prepare`.
        """
        check_is_fitted(self)
        source = block_source(data, encoder=self.encoder_, **reading)
        if not labelled:
            source = source.unlabelled()
        block = None
        for block in encoded_blocks(source):
            yield self._predict(block, coverage)
        if block is None:
            raise ValueError(f"{data!s} holds no rows")

    def predict(self, data: str | os.PathLike[str] | Any, **reading: Any) -> Array:
        """Return the predicted class or number of every row of a file or a data frame."""
        return np.concatenate([block.label for block in self._predicted(data, reading)])

    def predict_proba(self, data: str | os.PathLike[str] | Any, **reading: Any) -> Array:
        """Return the probability of every class, for every row of a file or a data frame."""
        check_is_fitted(self)
        if self.task_ != "classification":
            raise ValueError("predict_proba is for classes; this model predicts numbers")
        blocks = self._predicted(data, reading)
        return np.concatenate([np.asarray(block.probability) for block in blocks])

    def _predicted(self, data: Any, reading: Mapping[str, Any]) -> Iterator[Predictions]:
        return self.predict_blocks(data, labelled=False, **reading)

    def _predict(self, block: Encoded, coverage: float) -> Predictions:
        estimator, X = self.estimator_, block.X
        rows, copies = np.zeros(0, dtype=np.int64), X[:0]
        if block.strange:
            rows, copies = self.encoder_.alternatives(X, block.strange)
        if self.task_ == "classification":
            if not hasattr(estimator, "predict_proba"):
                raise ValueError(
                    f"{estimator!r} has no probabilities: fit it with a loss that has them, with "
                    "probability=True, or on more rows"
                )
            label = np.asarray(estimator.predict(X))
            probability = np.asarray(estimator.predict_proba(X))
            if len(rows):
                probability[rows] = mixed_probability(estimator, copies)
                label[rows] = estimator.classes_[probability[rows].argmax(axis=1)]
            return Predictions(label, probability, None, block.y)
        label, interval = np.asarray(estimator.predict(X)), None
        if self.has_intervals_:
            interval = np.asarray(estimator.predict_interval(X, coverage=coverage))
        if len(rows):
            label[rows] = mixed_prediction(estimator, copies)
            if interval is not None:
                interval[rows] = mixed_interval(estimator, copies, coverage)
        return Predictions(label, None, interval, block.y)


def _wants_dense(estimator: Any) -> bool:
    """Whether an estimator learns better from a few dense columns than from many sparse ones."""
    return bool(getattr(type(estimator), "dense_inputs", False))


@contextmanager
def _columns_by_name(encoder: Any) -> Iterator[None]:
    """Let warnings and errors about a column of a matrix name the column."""

    def named(message: object) -> str:
        names = encoder.get_feature_names_out()
        pattern = r"\b(?:column|input) (\d+) of X\b"
        return re.sub(pattern, lambda m: f"column {str(names[int(m[1])])!r}", str(message))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        except ValueError as error:
            raise ValueError(named(error)) from error
    for one in caught:
        warnings.warn(named(one.message), one.category, stacklevel=3)


class _Watched(Source):
    """The same blocks, told of one by one."""

    def __init__(self, source: Source, on_rows: OnRows) -> None:
        self._source = source
        self._on_rows = on_rows
        self.repeatable = source.repeatable
        self.background = source.background
        self.encoder = source.encoder

    @property
    def n_features(self) -> int:
        return self._source.n_features

    def __call__(self) -> Generator[Batch, None, None]:
        with closing(self._source()) as batches:
            for batch in batches:
                self._on_rows(batch.n_rows, batch.index == 0)
                yield batch


def _similar_column(data: Any, name: str | int | None, reading: Mapping[str, Any]) -> str:
    """Return a hint if a name that no column has is nearly that of one."""
    with suppress(ValueError, TypeError, OSError):
        names = open_table(data, **reading).column_names
        if isinstance(name, str) and name not in names:
            by_lower_case = {column.lower(): column for column in names}
            close = get_close_matches(name.lower(), by_lower_case, n=1)
            return f"; did you mean {by_lower_case[close[0]]!r}?" if close else ""
    return ""


def _first_targets(source: Source) -> Array:
    """Return the targets of the first rows."""
    found: list[Array] = []
    with closing(source()) as batches:
        for batch in batches:
            if batch.y is None:
                raise ValueError("the rows have no labels to learn from")
            found.append(batch.y)
            if sum(map(len, found)) >= LOOK_ROWS:
                break
    if not found:
        raise ValueError("the data hold no rows")
    return np.concatenate(found)


def _choose_task(y: Array, task: str) -> tuple[str, str]:
    """Return the task for these targets, and the reason in words."""
    textual = y.dtype.kind in "USO"
    if task == "regression" and textual:
        raise ValueError(f"the target is text ({str(y[0])!r}); regression needs numbers")
    if task != "auto":
        return task, "as asked for"
    if textual:
        return "classification", "the target is text"
    if y.dtype.kind == "b":
        return "classification", "the target is true or false"
    different = np.unique(y)
    if not np.array_equal(different, np.round(different)):
        return "regression", "the target has numbers that are not whole"
    words = f"different whole numbers ({len(different)} in {len(y)} rows)"
    few = len(different) <= MAX_INTEGER_CLASSES and len(different) * MIN_ROWS_PER_CLASS <= len(y)
    if few or len(different) <= 2:
        return "classification", f"the target has few {words}"
    return "regression", f"the target has many {words}"


def _offers_intervals(estimator: Any) -> bool:
    """Whether a fitted regressor gives intervals, which may depend on its loss."""
    if not hasattr(estimator, "predict_interval"):  # optional, as scikit-learn's methods are
        return False
    try:
        estimator.predict_interval(np.zeros((1, estimator.n_features_in_)))
    except ValueError:
        return False
    return True


def _gather(source: Source, limit: int) -> Batch | None:
    """Return all rows as one batch, or None if they take more bytes than the limit."""
    matrices: list[Matrix] = []
    targets: list[Array] = []
    size = 0
    with closing(source()) as batches:
        for batch in batches:
            size += _bytes(batch.X)
            if size > limit:
                return None
            matrices.append(batch.X)
            targets.append(np.asarray(batch.y))
        del batch  # or the last part could not be let go
    return Batch(_stack(matrices), np.concatenate(targets))


def _bytes(X: Matrix) -> int:
    if sparse.issparse(X):
        return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)
    return int(X.nbytes)


def _stack(parts: list[Any]) -> Any:
    """Return the rows of all parts, which are let go one by one: memory is needed once."""
    if sparse.issparse(parts[0]):
        return sparse.vstack(parts, format="csr")
    whole = np.empty((sum(map(len, parts)), parts[0].shape[1]), dtype=parts[0].dtype)
    start = 0
    while parts:
        part = parts.pop(0)
        whole[start : start + len(part)] = part
        start += len(part)
    return whole
