"""Rows that wait for their block of the one-pass classifier to fill, and calls that are undone."""

from __future__ import annotations

from typing import Any

import numpy as np

from likelier.base import Batch
from likelier.engines.rows import stack_rows


def kept_rows(batch: Batch) -> dict[str, Any]:
    """Rows, labels and weights in arrays of their own."""
    return {"X": batch.X.copy(), "y": np.array(batch.y), "weight": np.array(batch.weight)}


def joined_rows(kept: dict[str, Any], batch: Batch) -> Batch:
    """The rows kept, if any, and those after them, of the same precision and layout."""
    if not kept:
        return batch
    X = batch.X.astype(kept["X"].dtype, copy=False)
    if isinstance(kept["X"], np.ndarray) and not isinstance(X, np.ndarray):
        X = X.toarray()
    elif isinstance(X, np.ndarray) and not isinstance(kept["X"], np.ndarray):
        X = type(kept["X"])(X)
    return Batch(
        stack_rows([kept["X"], X]),
        np.concatenate([kept["y"], np.asarray(batch.y)]),
        np.concatenate([kept["weight"], np.asarray(batch.weight)]),
    )
