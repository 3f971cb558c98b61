"""What predictions of estimators have in common: block by block by threads, also of tables."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import wraps
from types import FunctionType
from typing import Any

import numpy as np

from likelier.base import Array, Batch, Matrix
from likelier.fitting.dataset import local_engine
from likelier.predictor.unseen_levels import answers
from likelier.tables.sources import is_table

TABLE_METHODS = {
    "decision_function",
    "is_outlier",
    "predict",
    "predict_interval",
    "predict_joint_log_proba",
    "predict_log_proba",
    "predict_proba",
    "predict_quantiles",
    "predict_uncertainty",
    "score_samples",
}


@dataclass(frozen=True)
class _OnRows:
    """The map of a pass, from a function of the rows alone."""

    compute: Callable[[Matrix], Array]

    def __call__(self, batch: Batch) -> Array:
        return self.compute(batch.X)


def by_blocks(X: Matrix, compute: Callable[[Matrix], Array], n_jobs: int | None) -> Array:
    """Results of a function of rows, one or several numbers for each row.

    Results of a few blocks exist at a time, beside the array that is returned.
    """
    n_rows = int(X.shape[0])
    if not n_rows:
        return compute(X)
    out, start = np.empty(0), 0
    with local_engine(X, None, None, 0, n_jobs, False) as engine:
        results: Any = engine.map_blocks(_OnRows(compute))
        with closing(results):
            for part in results:
                if not start:
                    out = np.empty((n_rows, *part.shape[1:]), dtype=part.dtype)
                out[start : start + len(part)] = part
                start += len(part)
    return out


class TableInput:
    """Lets methods of estimators that were fitted on a file or a frame take such, too.

    Rows with a level that training never saw are predicted as `likelier.predictor` does.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in TABLE_METHODS & vars(cls).keys():
            method = vars(cls)[name]
            if isinstance(method, FunctionType):
                setattr(cls, name, _taking_tables(method))
            else:  # a descriptor of scikit-learn's `available_if`
                method.fn = _taking_tables(method.fn)


def _taking_tables(method: Callable[..., Any]) -> Callable[..., Any]:
    """The same method, which also takes a path or a frame."""

    @wraps(method)
    def taking_tables(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        encoding = vars(self).get("encoding_")
        if encoding is None or not (isinstance(X, str | os.PathLike) or is_table(X)):
            return method(self, X, *args, **options)
        return answers(self, encoding, method.__name__, X, *args, **options)

    return taking_tables
