"""What predictions of many rows have in common: they are made block by block, by threads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from likelier.base import Array, Batch, Matrix
from likelier.fitting.dataset import local_engine


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
