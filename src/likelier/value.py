"""Frozen values that an estimator takes as one parameter: losses, kernels, algorithms.

A value is a frozen dataclass whose fields declare what they may be::

    @dataclass(frozen=True)
    class SVGD(Inference):
        name: ClassVar[str] = "svgd"
        n_particles: int = integer(20, "[1, inf)")
        step_size: float | str = number("auto", "(0, inf)", "auto")
        kernel: str = one_of("rbf", "matern52")

It is checked when it is made, so a value that exists is valid. Its plain name stands for its
defaults: ``inference="svgd"`` is ``inference=SVGD()``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self, TypeVar

import numpy as np


@dataclass(frozen=True)
class Value:
    """A parameter with parameters of its own; ``kind`` is the parameter of estimators it is for."""

    kind: ClassVar[str]
    name: ClassVar[str]

    def __post_init__(self) -> None:
        for item in fields(self):
            if "check" in item.metadata:
                item.metadata["check"](f"{self.kind}.{item.name}", getattr(self, item.name))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name, as scikit-learn expects them."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Return a copy with some parameters changed; the value itself never changes."""
        known = self.get_params()
        for key in params:
            if key not in known:
                raise ValueError(
                    f"{self.kind} {self.name!r} has no parameter {key!r}; "
                    f"it has {sorted(known) or 'none'}"
                )
        return replace(self, **params)

    def to_json(self) -> dict[str, Any]:
        """Plain form: the name and the parameters."""
        return {"name": self.name, **self.get_params()}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`."""
        return cls().set_params(**{key: item for key, item in plain.items() if key != "name"})


AnyValue = TypeVar("AnyValue", bound=Value)


def make_value(
    given: Any, kind: type[AnyValue], names: Mapping[str, Callable[[], AnyValue]]
) -> AnyValue:
    """Return the value that a parameter was given: itself, or what its plain name stands for."""
    if isinstance(given, kind):
        return given
    if not isinstance(given, str):
        raise TypeError(f"{kind.kind} must be a name or a {kind.__name__}, got {given!r}")
    if given not in names:
        raise ValueError(f"{kind.kind}={given!r} is not known; choose one of {sorted(names)}")
    return names[given]()


# -- fields ---------------------------------------------------------------------------------------


def number(default: Any, interval: str, *others: Any, kind: type = Real) -> Any:
    """A field for a number in an interval such as "(0, 1]", or one of the other values."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    ends = {value for value, open in ((low, "("), (high, ")")) if open not in interval}
    noun = "an integer" if kind is Integral else "a number"
    allowed = " or ".join([*map(repr, others), f"{noun} in {interval}"])

    def check(name: str, value: Any) -> None:
        if any(type(value) is type(other) and value == other for other in others):
            return
        is_number = isinstance(value, kind) and not isinstance(value, bool)
        if not is_number or not (low < value < high or value in ends):
            known = is_number or type(value) in map(type, others)
            raise (ValueError if known else TypeError)(f"{name} must be {allowed}, got {value!r}")

    return field(default=default, metadata={"check": check})


def integer(default: Any, interval: str, *others: Any) -> Any:
    """A field for an integer in an interval such as "[1, inf)", or one of the other values."""
    return number(default, interval, *others, kind=Integral)


def one_of(*names: str) -> Any:
    """A field for one of some names; the first is the default."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, str) or value not in names:
            raise ValueError(f"{name} must be one of {list(names)}, got {value!r}")

    return field(default=names[0], metadata={"check": check})


def flag(default: bool) -> Any:
    """A field for True or False; a text such as "no" would count as true."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, bool | np.bool_):
            raise TypeError(f"{name} must be True or False, got {value!r}")

    return field(default=default, metadata={"check": check})
