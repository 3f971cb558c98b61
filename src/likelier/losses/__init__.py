"""Every loss, in one place: value, slope, curvature, implicit step, link, declared facts.

Conventions. ``f`` is the raw score ``x^T w + b`` (never its sign). Binary targets are -1 and
+1, ``z = y f``; regression targets are real, ``r = y - f``; classes of a coupled loss are
``0..K-1``. The implicit (proximal) step with ``c >= 0`` solves ``g = -loss'(m + c g)``.
At a kink ``slope`` is zero where zero is a subgradient.

Each loss is one class and a few scalar functions in `compiled`, which compiled loops call with an
integer ``code`` and a parameter array ``p``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, softmax

from likelier.base import Array, Loss
from likelier.losses.codes import (
    EPSILON,
    HINGE,
    HUBER,
    LOG_LOSS,
    MODIFIED_HUBER,
    MULTICLASS_HINGE,
    POISSON,
    QUANTILE,
    SOFTMAX,
    SQUARED,
    SQUARED_EPSILON,
    SQUARED_ERROR,
    SQUARED_HINGE,
)
from likelier.value import make_value, number


def _maps() -> Any:
    """The compiled functions of arrays, which load Numba: predictions need neither."""
    from likelier.losses import maps

    return maps


def _flat(*arrays: Any) -> tuple[tuple[int, ...], list[Array]]:
    """Broadcast to one shape; return it and the arrays as contiguous float64 vectors."""
    full = np.broadcast_arrays(*arrays)
    return full[0].shape, [np.ascontiguousarray(a, dtype=np.float64).ravel() for a in full]


def _rows(y: Any, f: Any) -> tuple[Array, Array]:
    """Class numbers and a two-dimensional array of scores, one column per class."""
    f = np.ascontiguousarray(np.atleast_2d(f), dtype=np.float64)
    y = np.broadcast_to(y, f.shape[:1])
    if f.shape[1] < 2 or not ((0 <= y) & (y < f.shape[1]) & (y == np.floor(y))).all():
        raise ValueError(
            "a coupled loss needs at least two scores per row and y in 0..K-1; "
            f"got {f.shape[1]} scores"
        )
    return np.ascontiguousarray(y, dtype=np.int64), f


@dataclass(frozen=True)
class _ScalarLoss(Loss):
    """A loss of one score per row: everything follows from ``code`` and the parameters."""

    def to_json(self) -> dict[str, Any]:
        # a parameter may have come out of an array, and JSON knows no NumPy scalar
        return {"name": self.name, **{key: float(v) for key, v in self.get_params().items()}}

    def value(self, y: Array, f: Array) -> Array:
        shape, (y, f) = _flat(y, f)
        _maps().map_value(self.code, self.parameters, y, f, out := np.empty(len(f)))
        return out.reshape(shape)

    def derivative(self, y: Array, f: Array) -> Array:
        shape, (y, f) = _flat(y, f)
        _maps().map_derivative(self.code, self.parameters, y, f, out := np.empty(len(f)))
        return out.reshape(shape)

    def curvature(self, y: Array, f: Array) -> Array:
        """Second derivative with respect to the score."""
        shape, (y, f) = _flat(y, f)
        _maps().map_curvature(self.code, self.parameters, y, f, out := np.empty(len(f)))
        return out.reshape(shape)

    def prox(self, y: Array, m: Array, c: Array) -> Array:
        shape, (y, m, c) = _flat(y, m, c)
        _check_steps(c)
        _maps().map_prox(self.code, self.parameters, y, m, c, out := np.empty(len(m)))
        return out.reshape(shape)

    def link(self, f: Array) -> Array:
        return np.asarray(f)


@dataclass(frozen=True)
class _CoupledLoss(Loss):
    """A loss of one score per class."""

    coupled: ClassVar[bool] = True
    task: ClassVar[str] = "multiclass"

    def value(self, y: Array, f: Array) -> Array:
        y, f = _rows(y, f)
        _maps().map_coupled_value(self.code, y, f, out := np.empty(len(f)))
        return out

    def derivative(self, y: Array, f: Array) -> Array:
        y, f = _rows(y, f)
        _maps().map_coupled_gradient(self.code, y, f, out := np.empty_like(f))
        return out

    def prox(self, y: Array, m: Array, c: Array) -> Array:
        y, m = _rows(y, m)
        c = np.ascontiguousarray(np.broadcast_to(c, m.shape[:1]), dtype=np.float64)
        _check_steps(c)
        _maps().map_coupled_prox(self.code, y, m, c, out := np.empty_like(m))
        return out

    def link(self, f: Array) -> Array:
        return np.asarray(f)


def _check_steps(c: Array) -> None:
    if not ((c >= 0.0) & (c < math.inf)).all():
        raise ValueError("c must be finite and >= 0 (it is step * weight * squared row norm)")


# -- the losses -------------------------------------------------------------------------


@dataclass(frozen=True)
class LogLoss(_ScalarLoss):
    """``log(1 + exp(-z))``: logistic regression."""

    name: ClassVar[str] = "log_loss"
    max_curvature: ClassVar[float] = 0.25
    code: ClassVar[int] = LOG_LOSS
    task: ClassVar[str] = "binary"
    probabilistic: ClassVar[bool] = True

    def link(self, f: Array) -> Array:
        return np.asarray(expit(f))


@dataclass(frozen=True)
class Hinge(_ScalarLoss):
    """``max(0, 1 - z)``: the linear support vector machine."""

    name: ClassVar[str] = "hinge"
    code: ClassVar[int] = HINGE
    task: ClassVar[str] = "binary"
    smooth: ClassVar[bool] = False


@dataclass(frozen=True)
class SquaredHinge(_ScalarLoss):
    """``max(0, 1 - z)^2``."""

    name: ClassVar[str] = "squared_hinge"
    max_curvature: ClassVar[float] = 2.0
    code: ClassVar[int] = SQUARED_HINGE
    task: ClassVar[str] = "binary"


@dataclass(frozen=True)
class ModifiedHuber(_ScalarLoss):
    """``max(0, 1 - z)^2`` for ``z >= -1``, else ``-4 z``: robust to wrong labels."""

    name: ClassVar[str] = "modified_huber"
    max_curvature: ClassVar[float] = 2.0
    code: ClassVar[int] = MODIFIED_HUBER
    task: ClassVar[str] = "binary"


@dataclass(frozen=True)
class SquaredError(_ScalarLoss):
    """``(y - f)^2 / 2``: least squares."""

    name: ClassVar[str] = "squared_error"
    max_curvature: ClassVar[float] = 1.0
    code: ClassVar[int] = SQUARED_ERROR
    degree: ClassVar[int | None] = 2
    task: ClassVar[str] = "regression"
    probabilistic: ClassVar[bool] = True


@dataclass(frozen=True)
class Squared(_ScalarLoss):
    """``(y - f)^2``, without the half."""

    name: ClassVar[str] = "squared"
    max_curvature: ClassVar[float] = 2.0
    code: ClassVar[int] = SQUARED
    degree: ClassVar[int | None] = 2
    task: ClassVar[str] = "regression"
    probabilistic: ClassVar[bool] = True


@dataclass(frozen=True)
class Huber(_ScalarLoss):
    """Half the square up to ``delta``, linear beyond: robust to outliers."""

    delta: float = number(1.35, "[1e-300, inf)")
    name: ClassVar[str] = "huber"
    max_curvature: ClassVar[float] = 1.0
    code: ClassVar[int] = HUBER
    degree: ClassVar[int | None] = 2
    lengths: ClassVar[tuple[str, ...]] = ("delta",)
    flat_tails: ClassVar[bool] = True
    task: ClassVar[str] = "regression"


@dataclass(frozen=True)
class EpsilonInsensitive(_ScalarLoss):
    """``max(0, |y - f| - epsilon)``: linear support vector regression."""

    epsilon: float = number(0.1, "[0, inf)")
    name: ClassVar[str] = "epsilon_insensitive"
    code: ClassVar[int] = EPSILON
    degree: ClassVar[int | None] = 1
    lengths: ClassVar[tuple[str, ...]] = ("epsilon",)
    task: ClassVar[str] = "regression"
    smooth: ClassVar[bool] = False


@dataclass(frozen=True)
class SquaredEpsilonInsensitive(_ScalarLoss):
    """``max(0, |y - f| - epsilon)^2``."""

    epsilon: float = number(0.1, "[0, inf)")
    name: ClassVar[str] = "squared_epsilon_insensitive"
    max_curvature: ClassVar[float] = 2.0
    code: ClassVar[int] = SQUARED_EPSILON
    degree: ClassVar[int | None] = 2
    lengths: ClassVar[tuple[str, ...]] = ("epsilon",)
    task: ClassVar[str] = "regression"


@dataclass(frozen=True)
class Quantile(_ScalarLoss):
    """``tau r`` for ``r >= 0``, ``(tau - 1) r`` below: regression of the ``tau`` quantile."""

    tau: float = number(0.5, "[0, 1]")
    name: ClassVar[str] = "quantile"
    code: ClassVar[int] = QUANTILE
    degree: ClassVar[int | None] = 1
    task: ClassVar[str] = "regression"
    smooth: ClassVar[bool] = False


@dataclass(frozen=True)
class Poisson(_ScalarLoss):
    """``exp(f) - y f``: counts with a log link."""

    name: ClassVar[str] = "poisson"
    code: ClassVar[int] = POISSON
    task: ClassVar[str] = "count"
    probabilistic: ClassVar[bool] = True

    def link(self, f: Array) -> Array:
        return np.exp(f)


@dataclass(frozen=True)
class Softmax(_CoupledLoss):
    """``-log softmax(f)_y``: multinomial logistic regression."""

    name: ClassVar[str] = "softmax"
    max_curvature: ClassVar[float] = 0.5
    code: ClassVar[int] = SOFTMAX
    probabilistic: ClassVar[bool] = True

    def link(self, f: Array) -> Array:
        return np.asarray(softmax(f, axis=-1))


@dataclass(frozen=True)
class MulticlassHinge(_CoupledLoss):
    """``max(0, 1 + max_{k != y} f_k - f_y)``: the Crammer-Singer support vector machine."""

    name: ClassVar[str] = "multiclass_hinge"
    code: ClassVar[int] = MULTICLASS_HINGE
    smooth: ClassVar[bool] = False


def _leaves(cls: type[Loss]) -> list[type[Loss]]:
    below = [leaf for sub in cls.__subclasses__() for leaf in _leaves(sub)]
    return below or [cls]


LOSSES: dict[str, type[Loss]] = {
    cls.name: cls for base in (_ScalarLoss, _CoupledLoss) for cls in _leaves(base)
}


def make_loss(loss: str | Loss | Mapping[str, Any]) -> Loss:
    """Return a loss from a name, a loss, or the plain form `Loss.to_json` gives."""
    if not isinstance(loss, Mapping):
        return make_value(loss, Loss, LOSSES)  # type: ignore[type-abstract]
    name = loss.get("name")
    if not isinstance(name, str) or name not in LOSSES:
        raise ValueError(f"loss={name!r} is not known; choose one of {sorted(LOSSES)}")
    return LOSSES[name].from_json(loss)
