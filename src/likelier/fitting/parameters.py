"""Constructor parameters: those that are values, and checks that name what a parameter may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np

from likelier.value import Value


class ValueParameters:
    """For an estimator, before `BaseEstimator`: parameters that are values or their plain names.

    ``_values`` says for each of them how it becomes a value. ``set_params(solver__eta0=0.1)``
    replaces the solver by a changed copy, so no other estimator with the same value is affected;
    ``_validate_params`` checks them beside what ``_parameter_constraints`` declares.
    """

    _values: ClassVar[Mapping[str, Callable[[Any], Value]]] = {}

    def set_params(self, **params: Any) -> Self:
        """Set parameters; those such as ``loss__tau`` replace a value by a changed copy."""
        own: dict[str, Any] = {}
        inside: dict[str, dict[str, Any]] = {name: {} for name in self._values}
        for key, item in params.items():
            name, _, inner = key.partition("__")
            if inner and name in inside:
                inside[name][inner] = item
            else:
                own[key] = item
        parent: Any = super()
        parent.set_params(**own)
        for name, changes in inside.items():
            if changes:
                setattr(self, name, self._value(name).set_params(**changes))
        return self

    def _value(self, name: str) -> Any:
        """The value of a parameter, also where its plain name was given."""
        return type(self)._values[name](getattr(self, name))

    def _validate_params(self) -> None:
        """Raise for the first invalid parameter; those inside of a value were checked with it."""
        parent: Any = super()
        parent._validate_params()
        for name in self._values:
            self._value(name)


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
