"""Checks of feature values, the same when fitting and when predicting."""

from __future__ import annotations

from typing import Any

import numpy as np

from likelier.base import Array, Matrix

MAX_VALUE = 1e153  # of a feature; sums of squares of larger values may overflow


def check_features(X: Matrix, kind: str, names: Array | None, guessed: bool = False) -> None:
    """Raise unless the features are valid for the distribution.

    Parameters
    ----------
    X : array or CSR matrix
        Rows.
    kind : str
        "bernoulli" requires 0 and 1, "multinomial" non-negative values; others accept any.
    names : array or None
        Names of the columns.
    guessed : bool
        Whether the distribution was inferred from the first rows.
    """
    if kind not in ("bernoulli", "multinomial"):
        return
    values: Any = X if isinstance(X, np.ndarray) else X.data
    wrong = values < 0 if kind == "multinomial" else (values != 0) & (values != 1)
    if not wrong.any():
        return
    column, value = _first_wrong(X, wrong, names)
    required = "0 or 1" if kind == "bernoulli" else "non-negative values"
    setting = (
        f"mixture.features='auto' has chosen '{kind}', which"
        if guessed
        else f"mixture.features='{kind}'"
    )
    raise ValueError(
        f"{setting} requires {required}, but column {column} contains {value:g}. Transform the "
        "column, or use mixture.features='gaussian' from the first fit"
    )


def check_magnitude(X: Matrix, names: Array | None) -> None:
    """Raise if a value is so large that its square would overflow."""
    values: Any = X if isinstance(X, np.ndarray) else X.data
    wrong = np.abs(values) > np.float64(MAX_VALUE)  # float64: beyond the range of float32
    if wrong.any():
        column, value = _first_wrong(X, wrong, names)
        raise ValueError(
            f"column {column} of X contains {value:g}, which is too large (max {MAX_VALUE:g}); "
            "rescale the column"
        )


def _first_wrong(X: Matrix, wrong: Array, names: Array | None) -> tuple[str, float]:
    """Name of the first column with an invalid value, and that value."""
    if isinstance(X, np.ndarray):
        column = int(wrong.any(axis=0).argmax())
        value = X[wrong[:, column].argmax(), column]
    else:
        rows: Any = X
        column = int(rows.indices[wrong].min())
        value = rows.data[wrong & (rows.indices == column)][0]
    return str(column) if names is None else repr(names[column]), float(value)
