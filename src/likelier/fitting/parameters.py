"""Checks of constructor parameters; each names the parameter and what it may be."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np


def check_one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Raise unless ``value`` is one of those allowed."""
    if not any(value is a or value == a for a in allowed):
        raise ValueError(f"{name} must be one of {list(allowed)}, got {value!r}")


def check_within(
    name: str, value: Any, low: float, high: float = np.inf, strict: bool = False
) -> None:
    """Raise unless ``value`` is a number in the interval, its ends included unless ``strict``."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    number = float(value)
    inside = low < number < high if strict else low <= number <= high
    if not inside or not np.isfinite(number):
        brackets = "()" if strict else "[]"
        raise ValueError(f"{name} must lie in {brackets[0]}{low}, {high}{brackets[1]}, got {value}")


def check_above(name: str, value: Any, low: float) -> None:
    """Raise unless ``value`` is a finite number above ``low``."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not (np.isfinite(float(value)) and float(value) > low):
        raise ValueError(f"{name} must be a finite number above {low:g}, got {value}")


def check_integer(name: str, value: Any, low: int) -> None:
    """Raise unless ``value`` is an integer of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value}")


def check_number_or_auto(name: str, value: Any, low: float, integer: bool = False) -> None:
    """Raise unless ``value`` is "auto" or a number above ``low``."""
    if isinstance(value, str):
        if value != "auto":
            raise ValueError(f'{name} must be a number or "auto", got {value!r}')
    elif integer:
        check_integer(name, value, int(low))
    else:
        check_above(name, value, low)
