"""What the arrays of a posterior must be, so that whatever is loaded can predict."""

from __future__ import annotations

from typing import Any

import numpy as np

KINDS = {"float": "f", "int": "iu", "bool": "b"}


def check_array(
    name: str,
    value: Any,
    shape: tuple[int | None, ...],
    *,
    kind: str = "float",
    low: float | None = None,
    high: float | None = None,
    finite: bool = True,
) -> None:
    """Raise a ValueError unless a value is an array of this shape, kind and range.

    Parameters
    ----------
    name : str
        What the message calls the array.
    value : object
        What was loaded.
    shape : tuple of int or None
        Lengths of the axes; None stands for any length.
    kind : {"float", "int", "bool"}
        Kind of its numbers, of any number of bits.
    low, high : float, optional
        Least and largest value allowed.
    finite : bool
        Whether NaN and infinity are refused.
    """
    if not isinstance(value, np.ndarray) or value.dtype.kind not in KINDS[kind]:
        found = getattr(value, "dtype", type(value).__name__)
        raise ValueError(f"{name} must be an array of {kind} numbers, and is {found}")
    lengths = zip(value.shape, shape, strict=False)
    if value.ndim != len(shape) or any(n not in (None, m) for m, n in lengths):
        raise ValueError(f"{name} has shape {value.shape}, not {shape}")
    if finite and kind == "float" and not np.isfinite(value).all():
        raise ValueError(f"{name} holds NaN or infinity")
    if (low is not None and (value < low).any()) or (high is not None and (value > high).any()):
        raise ValueError(f"{name} has values outside [{low}, {high}]")


def check_number(name: str, value: Any, low: float = -np.inf, high: float = np.inf) -> None:
    """Raise a ValueError unless a value is a number of this range."""
    is_number = isinstance(value, int | float | np.integer | np.floating)
    if not is_number or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} must be a number in [{low}, {high}], and is {value!r}")
