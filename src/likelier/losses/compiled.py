"""The losses of one row, compiled: value, derivative, curvature and implicit step, by code.

The four if-chains `loss_value`, `loss_derivative`, `loss_curvature` and `loss_prox` (one score) and
their `coupled_` twins (one score per class) are what a new loss extends. They have a file of their
own because importing Numba takes longer than predicting a small file.
"""

import math

from likelier.jit import njit
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
from likelier.special import (
    implicit_logistic,
    implicit_poisson,
    log1p_exp,
    sigmoid,
    wright_omega,
)

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
