"""Rows that are buffered until a block of the one-pass classifier is full."""

from __future__ import annotations

from typing import Any

import numpy as np

from likelier.base import Batch
from likelier.engines.rows import stack_rows


def copy_rows(batch: Batch) -> dict[str, Any]:
    """Rows, labels and weights, copied into their own arrays."""
    return {"X": batch.X.copy(), "y": np.array(batch.y), "weight": np.array(batch.weight)}


def append_rows(buffered: dict[str, Any], batch: Batch) -> Batch:
    """The buffered rows, if any, followed by a batch in the precision and layout of the buffer."""
    if not buffered:
        return batch
    X = batch.X.astype(buffered["X"].dtype, copy=False)
    if isinstance(buffered["X"], np.ndarray) and not isinstance(X, np.ndarray):
        X = X.toarray()
    elif isinstance(X, np.ndarray) and not isinstance(buffered["X"], np.ndarray):
        X = type(buffered["X"])(X)
    return Batch(
        stack_rows([buffered["X"], X]),
        np.concatenate([buffered["y"], np.asarray(batch.y)]),
        np.concatenate([buffered["weight"], np.asarray(batch.weight)]),
    )
