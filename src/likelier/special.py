"""Scalar special functions, compiled: the few equations the implicit updates must solve.

Everything here is a pure scalar function for use inside other compiled loops.
"""

from __future__ import annotations

import math

from likelier.jit import njit

_MAX_ROOT_STEPS = 80  # Chebyshev needs 1 to 4; bisection alone would need about 60
_SMALL_STEP = 0.2  # up to this ``c`` two steps from ``z`` are right to rounding
_FAR = 30.0
_FUSED = {"contract"}  # a product and a sum may be rounded once instead of twice
_TAYLOR = 4e-4  # below this step a third-order expansion is right to rounding


@njit(cache=True, nogil=True)
def sigmoid(x):
    """Logistic function, without overflow."""
    if x >= 0.0:
        return 1.0 / (1.0 + math.exp(-x))
    e = math.exp(x)
    return e / (1.0 + e)


@njit(cache=True, nogil=True)
def log1p_exp(x):
    """``log(1 + exp(x))``, without overflow or cancellation."""
    if x > 0.0:
        return x + math.log1p(math.exp(-x))
    return math.log1p(math.exp(x))


@njit(cache=True, nogil=True)
def wright_omega(x):
    """Real Wright omega function: the solution of ``w + log(w) = x``.

    A start that is right to a few percent, then two steps of the fourth-order iteration of
    Fritsch, Shafer and Crowley on ``r = x - w - log(w)``.
    """
    if x < -36.0:  # w = exp(x) (1 - w + ...) and w is below rounding
        return math.exp(x)
    if x > 1e17:  # log(x) is below rounding
        return x
    if x < -1.0:
        e = math.exp(x)
        w = e / (1.0 + e)
    elif x < 2.0:
        # Taylor about x = 1, where w = 1
        h = x - 1.0
        w = 1.0 + h * (0.5 + h * (0.0625 - h * 0.00520833333))
    else:
        log_x = math.log(x)
        w = x - log_x + log_x / x
    for _ in range(2):
        r = x - w - math.log(w)
        a = 1.0 + w
        b = 2.0 * a * (a + 2.0 / 3.0 * r)
        w *= 1.0 + r / a * (b - r) / (b - 2.0 * r)
    return w


@njit(cache=True, nogil=True, fastmath=_FUSED)
def _near_exp(x):
    """``exp(x)`` for ``|x| <= 1/4``: a Taylor polynomial, right to rounding."""
    y = x * x
    y2 = y * y
    low = (1.0 + x) + y * (1 / 2 + x * (1 / 6))
    middle = (1 / 24 + x * (1 / 120)) + y * (1 / 720 + x * (1 / 5040))
    high = (1 / 40320 + x * (1 / 362880)) + y * (1 / 3628800 + x * (1 / 39916800))
    return low + y2 * (middle + y2 * high)


@njit(cache=True, nogil=True, fastmath=_FUSED)
def implicit_logistic(z, c):
    """Return ``sigmoid(-u)`` for the root ``u`` of ``u = z + c sigmoid(-u)``, ``c >= 0``.

    ``h(u) = u - z - c sigmoid(-u)`` is increasing; Chebyshev steps from a start chosen by the
    size of ``c``, with bisection as the fallback inside ``[z, z + c]``. The value returned
    is the probability itself: ``(u - z) / c`` would cancel.
    """
    if c <= _SMALL_STEP and abs(z) < _FAR:
        # Two Chebyshev steps, the second so small that no other exponential is needed. What
        # they take is waiting for one operation after another, so divisions are avoided:
        # inverses of 1 + c q, where c q is at most 1/20, come from short series.
        t = math.exp(z)
        p = 1.0 / (1.0 + t)
        q = t * p * p
        h = c * q
        inverse = (1.0 - h) * (1.0 + h * h)
        step = c * p * inverse
        step += (0.5 * h * (1.0 - 2.0 * p) * inverse) * step * step
        t *= _near_exp(step)
        p = 1.0 / (1.0 + t)
        q = t * p * p
        bend = q * (1.0 - 2.0 * p)
        off = 1.0 - (1.0 + c * q) * inverse
        inverse *= (1.0 + off) * (1.0 + off * off)
        back = (step - c * p) * inverse
        back -= (0.5 * c * bend * inverse) * back * back
        return p + back * (q + 0.5 * bend * back)
    p = sigmoid(-z)
    if c == 0.0:
        return p
    low = z + c * p / (1.0 + 0.25 * c)
    high = z + c * p
    if c < 2.0:
        u = z
        low = z  # so that the first step, from z itself, needs no new exponential
    elif z + 0.5 * c > 0.0:  # the root is positive: sigmoid(-u) is nearly exp(-u)
        x = math.log(c) - z
        u = z + (x - math.log(x) if x > 2.0 else math.log1p(math.exp(x)))
    else:  # the root is negative: 1 - sigmoid(-u) is nearly exp(u)
        x = z + c + math.log(c)
        u = z + c - (x - math.log(x) if x > 2.0 else math.log1p(math.exp(x)))
    if c >= 2.0:
        u = min(max(u, low), high)
        p = sigmoid(-u)
    for _ in range(_MAX_ROOT_STEPS):
        q = p * (1.0 - p)
        bend = q * (1.0 - 2.0 * p)
        h = u - z - c * p
        inverse = 1.0 / (1.0 + c * q)
        if h > 0.0:
            high = u
        else:
            low = u
        step = h * inverse
        step *= 1.0 - 0.5 * c * bend * step * inverse  # Chebyshev: third order, one division
        if abs(step) < _TAYLOR:
            # third-order expansion of the sigmoid, and a Newton step on what it leaves over
            third = q * (1.0 - 2.0 * p) ** 2 - 2.0 * q * q
            near = p + step * (q + step * (0.5 * bend + step * third / 6.0))
            return near + q * (u - step - z - c * near) * inverse
        new = u - step
        if not low <= new <= high:
            new = 0.5 * (low + high)
        if high - low <= 1e-15 * abs(u):
            return sigmoid(-new)
        u = new
        p = sigmoid(-u)
    return p


@njit(cache=True, nogil=True)
def implicit_poisson(y, m, c):
    """Return ``g = y - exp(f)`` for the root of ``f = m + c g``, ``c >= 0``."""
    if c == 0.0:
        return y - math.exp(m)
    v = wright_omega(m + c * y + math.log(c))  # v = c exp(f)
    if c < 1.0 or v < 1.0:  # a small v may underflow to zero, where its logarithm is lost
        return y - v / c
    return (math.log(v / c) - m) / c  # y - v/c would cancel and f = m + c g amplify it
