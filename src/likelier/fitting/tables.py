"""Fits on a file or a frame: what kind its target is, and rows in memory while these are few."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from difflib import get_close_matches
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import is_classifier

from likelier.base import Array, Batch, Matrix
from likelier.data import Source, open_table
from likelier.fitting.dataset import store_encoding
from likelier.tables import TableEncoding, block_source

MEMORY_LIMIT = 512 << 20
TASKS = ("auto", "classification", "regression")
# A target of whole numbers is taken for classes if few differ, in at least so many rows each.
MAX_INTEGER_CLASSES = 20
MIN_ROWS_PER_CLASS = 5
LOOK_ROWS = 100_000
OnRows = Callable[[int, bool], None]


def target_source(data: Any, target: str | int | None, **options: Any) -> Source:
    """Source of the rows of a file or a frame with their target, for a fit.

    ``options`` are those of `likelier.tables.block_source`.
    """
    try:
        source = block_source(data, target=target, **options)
    except ValueError as error:
        raise ValueError(f"{error}{_similar_column(data, target, options)}") from error
    encoding: Any = source.encoder
    if isinstance(encoding, TableEncoding) and encoding.target is None:
        columns = ", ".join(encoding.table_columns)
        raise ValueError(f"target must name one of the columns: {columns}")
    return source


def _similar_column(data: Any, name: str | int | None, options: Mapping[str, Any]) -> str:
    """Return a hint if a name that no column has is nearly that of one."""
    reading = {k: v for k, v in options.items() if k not in ("kinds", "exclude", "dense")}
    with suppress(ValueError, TypeError, OSError):
        names = open_table(data, **reading).column_names
        if isinstance(name, str) and name not in names:
            by_lower_case = {column.lower(): column for column in names}
            close = get_close_matches(name.lower(), by_lower_case, n=1)
            return f"; did you mean {by_lower_case[close[0]]!r}?" if close else ""
    return ""


def choose_task(source: Source, task: str = "auto") -> tuple[str, str]:
    """Return the task for the targets of a source, and the reason in words.

    With "auto" text, truth values and few different whole numbers are classes, and anything else is
    a number to predict.
    """
    if task not in TASKS:
        raise ValueError(f"task must be one of {TASKS}, got {task!r}")
    y = _first_targets(source)
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


def fit_source(
    estimator: Any, source: Source, memory_limit: int = MEMORY_LIMIT, on_rows: OnRows | None = None
) -> Any:
    """Fit an estimator on a source, and give it the encoding of the columns; return it.

    Rows are held in memory if they take at most ``memory_limit`` bytes; otherwise every pass reads
    them again. ``on_rows`` is told of every block: its rows, and whether it begins a pass.
    """
    watched = source if on_rows is None else _Watched(source, on_rows)
    encoding: Any = source.encoder
    target = getattr(encoding, "target", None)  # a libsvm file has no names
    name = "label" if target is None else target.name
    batch = _gather(watched, memory_limit)
    with _columns_by_name(encoding):
        if batch is None:
            estimator.fit(watched)
        else:
            _check_targets(np.asarray(batch.y), name, is_classifier(estimator))
            estimator.fit(batch.X, batch.y)
            store_encoding(estimator, source)
    classes = getattr(estimator, "classes_", None)  # None for a regression
    if classes is not None and len(classes) < 2:
        raise ValueError(_single(name, classes[0]))
    return estimator


def _single(name: str, value: Any) -> str:
    return (
        f"the target {name!r} is {str(value)!r} in every row: there is nothing to learn; name "
        "another target"
    )


def _check_targets(y: Array, name: str, classes: bool) -> None:
    """Refuse a target that never changes; warn of classes of a single row."""
    values, counts = np.unique(y, return_counts=True)
    if len(values) == 1:
        raise ValueError(_single(name, values[0]))
    single = values[counts == 1][:5]
    if classes and len(single):
        shown = ", ".join(map(repr, map(str, single)))
        text = f"the target {name!r} has classes of a single row, such as {shown}"
        warnings.warn(text, UserWarning, stacklevel=3)


@contextmanager
def _columns_by_name(encoding: Any) -> Iterator[None]:
    """Let warnings and errors about a column of a matrix name the column."""

    def named(message: object) -> str:
        names = encoding.get_feature_names_out()
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
