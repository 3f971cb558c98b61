"""Sums that samplers need, for many parameter vectors at once: log likelihoods and slopes.

``scores`` holds one row per row of data and one column per parameter vector (a *lane*), so the
inner loops run over contiguous memory and use the vector unit. The logarithms of the logistic
likelihood are taken of products of many rows at a time: one exponential per score is left.
"""

from __future__ import annotations

import math

import numpy as np

from likelier.jit import njit
from likelier.loops.exponential import FLAGS, fast_exp

_compiled = njit(cache=True, nogil=True, fastmath=FLAGS)
_FLUSH = 512  # factors between 1 and 2 whose product is still far from overflow
_SOFT_FLUSH = 32  # factors between 1 and the number of classes
_ROOT_TWO, _ROOT_TWO_PI = math.sqrt(2.0), math.sqrt(2.0 * math.pi)
# Points and weights of a Gauss-Hermite rule for the standard normal law.
_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(11)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@_compiled
def logistic_sums(scores, sign, weight, total):
    """Add ``sum_i omega_i log sigma(y_i f_i)`` of every lane to ``total``."""
    n_rows, n_lanes = scores.shape
    product = np.ones(n_lanes)
    weighted = len(weight) > 0
    for i in range(n_rows):
        row, t = scores[i], sign[i]
        if weighted:
            omega = weight[i]
            for s in range(n_lanes):
                z = t * row[s]
                total[s] += omega * (min(z, 0.0) - math.log1p(math.exp(-abs(z))))
            continue
        for s in range(n_lanes):
            z = t * row[s]
            total[s] += min(z, 0.0)
            product[s] *= 1.0 + fast_exp(-abs(z))
        if (i + 1) % _FLUSH == 0:
            for s in range(n_lanes):
                total[s] -= math.log(product[s])
                product[s] = 1.0
    for s in range(n_lanes):
        total[s] -= math.log(product[s])


@_compiled
def logistic_slopes(scores, sign, weight, total):
    """The same, and the scores are replaced by the derivative of each term."""
    n_rows, n_lanes = scores.shape
    product = np.ones(n_lanes)
    weighted = len(weight) > 0
    for i in range(n_rows):
        row, t = scores[i], sign[i]
        if weighted:
            omega = weight[i]
            for s in range(n_lanes):
                z = t * row[s]
                e = math.exp(-abs(z))
                total[s] += omega * (min(z, 0.0) - math.log1p(e))
                row[s] = omega * t * ((e if z > 0.0 else 1.0) / (1.0 + e))
            continue
        for s in range(n_lanes):
            z = t * row[s]
            e = fast_exp(-abs(z))
            total[s] += min(z, 0.0)
            product[s] *= 1.0 + e
            row[s] = t * ((e if z > 0.0 else 1.0) / (1.0 + e))
        if (i + 1) % _FLUSH == 0:
            for s in range(n_lanes):
                total[s] -= math.log(product[s])
                product[s] = 1.0
    for s in range(n_lanes):
        total[s] -= math.log(product[s])


@_compiled
def hinge_sums(scores, sign, weight, total):
    """Add ``-2 sum_i omega_i max(0, 1 - y_i f_i)`` of every lane to ``total``."""
    n_rows, n_lanes = scores.shape
    for i in range(n_rows):
        row, t = scores[i], sign[i]
        twice = 2.0 * weight[i] if len(weight) else 2.0
        for s in range(n_lanes):
            total[s] -= twice * max(1.0 - t * row[s], 0.0)


@_compiled
def hinge_slopes(scores, sign, weight, total):
    """The same, and the scores are replaced by the derivative of each term."""
    n_rows, n_lanes = scores.shape
    for i in range(n_rows):
        row, t = scores[i], sign[i]
        twice = 2.0 * weight[i] if len(weight) else 2.0
        for s in range(n_lanes):
            u = 1.0 - t * row[s]
            total[s] -= twice * max(u, 0.0)
            row[s] = twice * t if u > 0.0 else 0.0


@_compiled
def softmax_sums(scores, code, weight, total, with_slopes):
    """Add ``sum_i omega_i log softmax(f_i)[y_i]``; scores have shape (rows, lanes, classes).

    With ``with_slopes`` the scores are replaced by the derivative of each term.
    """
    n_rows, n_lanes, n_classes = scores.shape
    product = np.ones(n_lanes)
    for i in range(n_rows):
        omega = weight[i] if len(weight) else 1.0
        for s in range(n_lanes):
            f = scores[i, s]
            top = f[0]
            for k in range(1, n_classes):
                top = max(top, f[k])
            own = f[code[i]] - top
            share = 0.0
            for k in range(n_classes):
                e = fast_exp(f[k] - top)
                share += e
                if with_slopes:
                    f[k] = e
            total[s] += omega * own
            if len(weight):
                total[s] -= omega * math.log(share)
            else:
                product[s] *= share
            if with_slopes:
                for k in range(n_classes):
                    f[k] *= -omega / share
                f[code[i]] += omega
        if (i + 1) % _SOFT_FLUSH == 0:
            for s in range(n_lanes):
                total[s] -= math.log(product[s])
                product[s] = 1.0
    for s in range(n_lanes):
        total[s] -= math.log(product[s])


@_compiled
def smoothed_logistic(scores, variance, sign, weight, slope, curvature):
    """Expected log likelihood, and its derivatives, of scores with Gaussian uncertainty.

    ``slope`` and ``curvature`` get the first and the negative second derivative with respect to
    the mean of the score; the sum of the expected terms is returned.
    """
    total = 0.0
    for i in range(len(scores)):
        omega = weight[i] if len(weight) else 1.0
        centre, spread, t = sign[i] * scores[i], math.sqrt(variance[i]), sign[i]
        value = first = second = 0.0
        for q in range(len(_POINTS)):
            z = centre + spread * _POINTS[q]
            e = math.exp(-abs(z))
            near = 1.0 / (1.0 + e)
            value += _WEIGHTS[q] * (min(z, 0.0) - math.log1p(e))
            first += _WEIGHTS[q] * (e * near if z > 0.0 else near)
            second += _WEIGHTS[q] * e * near * near
        total += omega * value
        slope[i] = omega * t * first
        curvature[i] = omega * second
    return total


@_compiled
def smoothed_hinge(scores, variance, sign, weight, slope, curvature):
    """The same for ``-2 max(0, 1 - y f)``, in closed form."""
    total = 0.0
    for i in range(len(scores)):
        omega = weight[i] if len(weight) else 1.0
        u = 1.0 - sign[i] * scores[i]
        spread = max(math.sqrt(variance[i]), 1e-12)
        ratio = u / spread
        below = 0.5 * math.erfc(-ratio / _ROOT_TWO)
        density = math.exp(-0.5 * ratio * ratio) / (_ROOT_TWO_PI * spread)
        total -= 2.0 * omega * (u * below + spread * spread * density)
        slope[i] = 2.0 * omega * sign[i] * below
        curvature[i] = 2.0 * omega * density
    return total
