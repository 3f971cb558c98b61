"""Every loss, in one place: value, slope, curvature, implicit step, link, declared facts.

Conventions. ``f`` is the raw score ``x^T w + b`` (never its sign). Binary targets are -1 and
+1, ``z = y f``; regression targets are real, ``r = y - f``; classes of a coupled loss are
``0..K-1``. The implicit (proximal) step with ``c >= 0`` solves ``g = -loss'(m + c g)``.
At a kink ``slope`` is zero where zero is a subgradient.

Each loss is a few scalar compiled functions and one class that names them. Compiled loops
receive a loss as an integer ``code`` and a parameter array ``p``, and call `loss_value`,
`loss_derivative`, `loss_curvature` and `loss_prox` (one score) or their `coupled_` twins (one
score per class); those four if-chains are what a new loss extends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, softmax

from likelier.base import Array, Loss
from likelier.jit import njit
from likelier.special import (
    implicit_logistic,
    implicit_poisson,
    log1p_exp,
    sigmoid,
    wright_omega,
)
from likelier.value import make_value, number

LOG_LOSS, HINGE, SQUARED_HINGE, MODIFIED_HUBER = 0, 1, 2, 3
SQUARED_ERROR, SQUARED, HUBER, EPSILON, SQUARED_EPSILON, QUANTILE, POISSON = 4, 5, 6, 7, 8, 9, 10
SOFTMAX, MULTICLASS_HINGE = 100, 101

_compiled = njit(cache=True, nogil=True)


@_compiled
def _clip(x, low, high):
    return min(max(x, low), high)


@_compiled
def _ratio(x, c):
    """``x / c`` with the limit of a clipped step at ``c = 0``; 0/0 is no step."""
    if c > 0.0:
        return x / c
    return 0.0 if x == 0.0 else math.copysign(math.inf, x)


# -- one score per row ------------------------------------------------------------------


@_compiled
def loss_value(code, p, y, f):
    """Loss of one row with a scalar score."""
    if code == LOG_LOSS:
        return log1p_exp(-y * f)
    if code == HINGE:
        return max(0.0, 1.0 - y * f)
    if code == SQUARED_HINGE:
        return max(0.0, 1.0 - y * f) ** 2
    if code == MODIFIED_HUBER:
        z = y * f
        return max(0.0, 1.0 - z) ** 2 if z >= -1.0 else -4.0 * z
    r = y - f
    if code == SQUARED_ERROR:
        return 0.5 * r * r
    if code == SQUARED:
        return r * r
    if code == HUBER:
        return 0.5 * r * r if abs(r) <= p[0] else p[0] * (abs(r) - 0.5 * p[0])
    if code == EPSILON:
        return max(0.0, abs(r) - p[0])
    if code == SQUARED_EPSILON:
        return max(0.0, abs(r) - p[0]) ** 2
    if code == QUANTILE:
        return p[0] * r if r >= 0.0 else (p[0] - 1.0) * r
    if code == POISSON:
        return math.exp(f) - y * f
    return math.nan


@_compiled
def loss_derivative(code, p, y, f):
    """Derivative of `loss_value` with respect to the score."""
    if code == LOG_LOSS:
        return -y * sigmoid(-y * f)
    if code == HINGE:
        return -y if y * f < 1.0 else 0.0
    if code == SQUARED_HINGE:
        return -2.0 * y * max(0.0, 1.0 - y * f)
    if code == MODIFIED_HUBER:
        return -y * _clip(2.0 * (1.0 - y * f), 0.0, 4.0)
    r = y - f
    if code == SQUARED_ERROR:
        return -r
    if code == SQUARED:
        return -2.0 * r
    if code == HUBER:
        return -_clip(r, -p[0], p[0])
    if code == EPSILON:
        return -math.copysign(1.0, r) if abs(r) > p[0] else 0.0
    if code == SQUARED_EPSILON:
        return -2.0 * math.copysign(max(0.0, abs(r) - p[0]), r)
    if code == QUANTILE:
        if r == 0.0:
            return 0.0
        return -p[0] if r > 0.0 else 1.0 - p[0]
    if code == POISSON:
        return math.exp(f) - y
    return math.nan


@_compiled
def loss_curvature(code, p, y, f):
    """Second derivative of `loss_value`; zero for piecewise linear losses."""
    if code == LOG_LOSS:
        s = sigmoid(f)
        return s * (1.0 - s)
    if code == SQUARED_HINGE:
        return 2.0 if y * f < 1.0 else 0.0
    if code == MODIFIED_HUBER:
        return 2.0 if -1.0 <= y * f < 1.0 else 0.0
    if code == SQUARED_ERROR:
        return 1.0
    if code == SQUARED:
        return 2.0
    if code == HUBER:
        return 1.0 if abs(y - f) <= p[0] else 0.0
    if code == SQUARED_EPSILON:
        return 2.0 if abs(y - f) > p[0] else 0.0
    if code == POISSON:
        return math.exp(f)
    return 0.0


@_compiled
def loss_prox(code, p, y, m, c):
    """Implicit step of one row: ``g = -loss'(m + c g)``."""
    if code == LOG_LOSS:
        return y * implicit_logistic(y * m, c)
    if code == HINGE:
        return y * _clip(_ratio(1.0 - y * m, c), 0.0, 1.0)
    if code == SQUARED_HINGE:
        return 2.0 * y * max(1.0 - y * m, 0.0) / (1.0 + 2.0 * c)
    if code == MODIFIED_HUBER:
        return y * _clip(2.0 * (1.0 - y * m) / (1.0 + 2.0 * c), 0.0, 4.0)
    r = y - m
    if code == SQUARED_ERROR:
        return r / (1.0 + c)
    if code == SQUARED:
        return 2.0 * r / (1.0 + 2.0 * c)
    if code == HUBER:
        return _clip(r / (1.0 + c), -p[0], p[0])
    if code == EPSILON:
        return math.copysign(min(1.0, _ratio(max(abs(r) - p[0], 0.0), c)), r)
    if code == SQUARED_EPSILON:
        return 2.0 * math.copysign(max(abs(r) - p[0], 0.0), r) / (1.0 + 2.0 * c)
    if code == QUANTILE:
        return _clip(_ratio(r, c), p[0] - 1.0, p[0])
    if code == POISSON:
        return implicit_poisson(y, m, c)
    return math.nan


@_compiled
def loss_envelope(code, p, y, f, width):
    """Value, slope and curvature of the Moreau envelope of width ``width``.

    The envelope ``min_u loss(u) + (u - f)^2 / (2 width)`` is the smooth stand-in that lets
    second-order methods handle a loss with kinks; it lies below the loss by at most
    ``width * slope^2 / 2``. Width zero is the loss itself.
    """
    if width == 0.0:
        return (
            loss_value(code, p, y, f),
            loss_derivative(code, p, y, f),
            loss_curvature(code, p, y, f),
        )
    g = loss_prox(code, p, y, f, width)
    u = f + width * g
    if code == HINGE or code == EPSILON:
        inside = 0.0 < abs(g) < 1.0
    elif code == QUANTILE:
        inside = p[0] - 1.0 < g < p[0]
    else:
        inside = False
    h = loss_curvature(code, p, y, u)
    curvature = 1.0 / width if inside else h / (1.0 + width * h)
    return loss_value(code, p, y, u) + 0.5 * width * g * g, -g, curvature


# -- one score per class ----------------------------------------------------------------


@_compiled
def coupled_value(code, y, f):
    """Loss of one row with one score per class, ``y`` the class number."""
    top = -math.inf
    for k in range(len(f)):
        if k != y:
            top = max(top, f[k])
    if code == MULTICLASS_HINGE:
        return max(0.0, 1.0 + top - f[y])
    total = 0.0
    top = max(top, f[y])
    for k in range(len(f)):
        total += math.exp(f[k] - top)
    return top - f[y] + math.log(total)


@_compiled
def coupled_gradient(code, y, f, out):
    """Derivative of `coupled_value` with respect to every score, into ``out``."""
    rival = -1
    for k in range(len(f)):
        out[k] = 0.0
        if k != y and (rival < 0 or f[k] > f[rival]):
            rival = k
    if code == MULTICLASS_HINGE:
        if 1.0 + f[rival] - f[y] > 0.0:
            out[rival] = 1.0
            out[y] = -1.0
        return
    top = max(f[rival], f[y])
    total = 0.0
    for k in range(len(f)):
        out[k] = math.exp(f[k] - top)
        total += out[k]
    rest = 0.0  # p_y - 1 as minus the sum of the others: no cancellation when p_y is near 1
    for k in range(len(f)):
        out[k] /= total
        if k != y:
            rest += out[k]
    out[y] = -rest


@_compiled
def coupled_prox(code, y, m, c, out):
    """Implicit step of one row with one score per class, into ``out``."""
    if c == 0.0:
        coupled_gradient(code, y, m, out)
        for k in range(len(m)):
            out[k] = -out[k]
    elif code == MULTICLASS_HINGE:
        _crammer_singer_prox(y, m, c, out)
    else:
        _softmax_prox(y, m, c, out)


@_compiled
def _crammer_singer_prox(y, m, c, out):
    """Projection of the violations ``h_k = 1 + m_k - m_y`` on a simplex of size ``c``.

    Active sets: start from all candidates, drop those below the threshold, repeat; every
    round drops at least one, so at most K rounds.
    """
    K = len(m)
    top = -math.inf
    for k in range(K):
        out[k] = 0.0
        if k != y:
            top = max(top, 1.0 + m[k] - m[y])
    if top <= 0.0:
        return
    if top == math.inf:  # scores that overflow have no step; NaN says so to whoever checks
        for k in range(K):
            out[k] = math.nan
        return
    tau = 0.0
    while True:  # sum of max(h - tau, 0) = tau
        total, count = 0.0, 1
        for k in range(K):
            h = 1.0 + m[k] - m[y]
            if k != y and h > tau:
                total += h
                count += 1
        new = total / count
        if new <= tau * (1.0 + 1e-15):
            break
        tau = new
    if tau <= c:
        for k in range(K):
            if k != y:
                out[k] = -max(1.0 + m[k] - m[y] - tau, 0.0) / c
        out[y] = tau / c
        return
    delta = math.inf
    while True:  # sum of max(delta - (top - h), 0) = c
        total, count = c, 0
        for k in range(K):
            below = top - (1.0 + m[k] - m[y])
            if k != y and below < delta:
                total += below
                count += 1
        new = total / count
        if new >= delta * (1.0 - 1e-15):
            break
        delta = new
    for k in range(K):
        if k != y:
            out[k] = -max(delta - (top - (1.0 + m[k] - m[y])), 0.0) / c
    out[y] = 1.0


@_compiled
def _softmax_rest(y, m, log_c, eta, out):
    """``c p_k = omega(m_k + log c - eta)`` for the other classes; their sum and its slope."""
    total, slope = 0.0, 0.0
    for k in range(len(m)):
        if k != y:
            v = wright_omega(m[k] + log_c - eta)
            out[k] = v
            total += v
            slope += v / (1.0 + v)
    return total, slope


@_compiled
def _softmax_prox(y, m, c, out):
    """Safeguarded Newton in one unknown, chosen so that no digit is lost at any ``c``.

    Right rows (p_y > 1/2 after the step): the unknown is ``D = c g_y``. Wrong rows: it is
    ``log p_y``, since ``1 - D/c`` would underflow.
    """
    log_c = math.log(c)
    coupled_gradient(SOFTMAX, y, m, out)
    wrong = -out[y]  # 1 - p_y before the step; the step can only lower it
    eta_half = m[y] + 0.5 * c + math.log(2.0)
    total, _ = _softmax_rest(y, m, log_c, eta_half, out)
    if total <= 0.5 * c:
        low, high = 0.0, min(0.5 * c, c * wrong)
        D = min(c * wrong / (1.0 + c * wrong * (1.0 - wrong)), high)
        for _ in range(200):
            total, slope = _softmax_rest(y, m, log_c, m[y] + D - math.log1p(-D / c), out)
            gap = D - total  # increasing in D
            if gap > 0.0:
                high = D
            else:
                low = D
            new = D - gap / (1.0 + slope * (1.0 + 1.0 / (c - D)))
            newton = low < new < high
            if not newton:
                new = 0.5 * (low + high)
            done = newton and abs(new - D) <= 1e-9 * D
            D = new
            if done or high - low <= 2e-16 * high:
                break
        total, _ = _softmax_rest(y, m, log_c, m[y] + D - math.log1p(-D / c), out)
        out[y] = D / c
    else:
        low = math.log1p(-wrong) if wrong < 0.5 else -coupled_value(SOFTMAX, y, m)
        high = math.log(0.5)
        log_p = 0.5 * (low + high)
        for _ in range(200):
            P = c * math.exp(log_p)
            total, slope = _softmax_rest(y, m, log_c, m[y] + (c - P) - log_p, out)
            gap = total - (c - P)  # increasing in log p
            if gap > 0.0:
                high = log_p
            else:
                low = log_p
            rise = (1.0 + P) * slope + P  # zero where everything underflows: bisect there
            new = log_p - gap / rise if rise > 0.0 else low
            newton = low < new < high
            if not newton:
                new = 0.5 * (low + high)
            done = newton and abs(new - log_p) <= 1e-9 * abs(log_p)
            log_p = new
            if done or high - low <= 2e-16 * abs(low):
                break
        P = c * math.exp(log_p)
        total, _ = _softmax_rest(y, m, log_c, m[y] + (c - P) - log_p, out)
        out[y] = 1.0 - math.exp(log_p)
    for k in range(len(m)):
        if k != y:
            out[k] = -out[k] / c


# -- over arrays ------------------------------------------------------------------------


@_compiled
def _map_value(code, p, y, f, out):
    for i in range(len(f)):
        out[i] = loss_value(code, p, y[i], f[i])


@_compiled
def _map_derivative(code, p, y, f, out):
    for i in range(len(f)):
        out[i] = loss_derivative(code, p, y[i], f[i])


@_compiled
def _map_curvature(code, p, y, f, out):
    for i in range(len(f)):
        out[i] = loss_curvature(code, p, y[i], f[i])


@_compiled
def _map_prox(code, p, y, m, c, out):
    for i in range(len(m)):
        out[i] = loss_prox(code, p, y[i], m[i], c[i])


@_compiled
def _map_coupled_value(code, y, f, out):
    for i in range(len(f)):
        out[i] = coupled_value(code, y[i], f[i])


@_compiled
def _map_coupled_gradient(code, y, f, out):
    for i in range(len(f)):
        coupled_gradient(code, y[i], f[i], out[i])


@_compiled
def _map_coupled_prox(code, y, m, c, out):
    for i in range(len(m)):
        coupled_prox(code, y[i], m[i], c[i], out[i])


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
        _map_value(self.code, self.parameters, y, f, out := np.empty(len(f)))
        return out.reshape(shape)

    def derivative(self, y: Array, f: Array) -> Array:
        shape, (y, f) = _flat(y, f)
        _map_derivative(self.code, self.parameters, y, f, out := np.empty(len(f)))
        return out.reshape(shape)

    def curvature(self, y: Array, f: Array) -> Array:
        """Second derivative with respect to the score."""
        shape, (y, f) = _flat(y, f)
        _map_curvature(self.code, self.parameters, y, f, out := np.empty(len(f)))
        return out.reshape(shape)

    def prox(self, y: Array, m: Array, c: Array) -> Array:
        shape, (y, m, c) = _flat(y, m, c)
        _check_steps(c)
        _map_prox(self.code, self.parameters, y, m, c, out := np.empty(len(m)))
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
        _map_coupled_value(self.code, y, f, out := np.empty(len(f)))
        return out

    def derivative(self, y: Array, f: Array) -> Array:
        y, f = _rows(y, f)
        _map_coupled_gradient(self.code, y, f, out := np.empty_like(f))
        return out

    def prox(self, y: Array, m: Array, c: Array) -> Array:
        y, m = _rows(y, m)
        c = np.ascontiguousarray(np.broadcast_to(c, m.shape[:1]), dtype=np.float64)
        _check_steps(c)
        _map_coupled_prox(self.code, y, m, c, out := np.empty_like(m))
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
