"""Compiled log likelihoods and their gradients for many parameter vectors at once.

``scores`` has one row per row of data and one column per parameter vector, so that the inner loops
run over contiguous memory and vectorise. The logarithms of the logistic likelihood are taken of
products of many rows at a time, so that only one exponential per score remains.
"""

from __future__ import annotations

import math

import numpy as np

from likelier.jit import njit
from likelier.loops.exponential import FLAGS, fast_exp

_compiled = njit(cache=True, nogil=True, fastmath=FLAGS)
_FLUSH = 512  # factors between 1 and 2 whose product cannot overflow
_SOFT_FLUSH = 32  # factors between 1 and the number of classes
_ROOT_TWO, _ROOT_TWO_PI = math.sqrt(2.0), math.sqrt(2.0 * math.pi)
# Nodes and weights of a Gauss-Hermite rule for the standard normal distribution.
_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(11)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@_compiled
def logistic_sums(scores, sign, weight, total):
    """Add ``sum_i omega_i log sigma(y_i f_i)`` of every column to ``total``."""
    n_rows, n_points = scores.shape
    product = np.ones(n_points)
    weighted = len(weight) > 0
    for i in range(n_rows):
        row, t = scores[i], sign[i]
        if weighted:
            omega = weight[i]
            for s in range(n_points):
                z = t * row[s]
                total[s] += omega * (min(z, 0.0) - math.log1p(math.exp(-abs(z))))
            continue
        for s in range(n_points):
            z = t * row[s]
            total[s] += min(z, 0.0)
            product[s] *= 1.0 + fast_exp(-abs(z))
        if (i + 1) % _FLUSH == 0:
            for s in range(n_points):
                total[s] -= math.log(product[s])
                product[s] = 1.0
    for s in range(n_points):
        total[s] -= math.log(product[s])


@_compiled
def logistic_gradients(scores, sign, weight, total):
    """The same; the scores are replaced by the derivative of each term."""
    n_rows, n_points = scores.shape
    product = np.ones(n_points)
    weighted = len(weight) > 0
    for i in range(n_rows):
        row, t = scores[i], sign[i]
        if weighted:
            omega = weight[i]
            for s in range(n_points):
                z = t * row[s]
                e = math.exp(-abs(z))
                total[s] += omega * (min(z, 0.0) - math.log1p(e))
                row[s] = omega * t * ((e if z > 0.0 else 1.0) / (1.0 + e))
            continue
        for s in range(n_points):
            z = t * row[s]
            e = fast_exp(-abs(z))
            total[s] += min(z, 0.0)
            product[s] *= 1.0 + e
            row[s] = t * ((e if z > 0.0 else 1.0) / (1.0 + e))
        if (i + 1) % _FLUSH == 0:
            for s in range(n_points):
                total[s] -= math.log(product[s])
                product[s] = 1.0
    for s in range(n_points):
        total[s] -= math.log(product[s])


@_compiled
def hinge_sums(scores, sign, weight, total):
    """Add ``-2 sum_i omega_i max(0, 1 - y_i f_i)`` of every column to ``total``."""
    n_rows, n_points = scores.shape
    for i in range(n_rows):
        row, t = scores[i], sign[i]
        twice = 2.0 * weight[i] if len(weight) else 2.0
        for s in range(n_points):
            total[s] -= twice * max(1.0 - t * row[s], 0.0)


@_compiled
def hinge_gradients(scores, sign, weight, total):
    """The same; the scores are replaced by the derivative of each term."""
    n_rows, n_points = scores.shape
    for i in range(n_rows):
        row, t = scores[i], sign[i]
        twice = 2.0 * weight[i] if len(weight) else 2.0
        for s in range(n_points):
            u = 1.0 - t * row[s]
            total[s] -= twice * max(u, 0.0)
            row[s] = twice * t if u > 0.0 else 0.0


@_compiled
def softmax_sums(scores, code, weight, total, with_gradients):
    """Add ``sum_i omega_i log softmax(f_i)[y_i]``; scores have shape (rows, points, classes).

    With ``with_gradients`` the scores are replaced by the derivative of each term.
    """
    n_rows, n_points, n_classes = scores.shape
    product = np.ones(n_points)
    for i in range(n_rows):
        omega = weight[i] if len(weight) else 1.0
        for s in range(n_points):
            f = scores[i, s]
            top = f[0]
            for k in range(1, n_classes):
                top = max(top, f[k])
            own = f[code[i]] - top
            total_exp = 0.0
            for k in range(n_classes):
                e = fast_exp(f[k] - top)
                total_exp += e
                if with_gradients:
                    f[k] = e
            total[s] += omega * own
            if len(weight):
                total[s] -= omega * math.log(total_exp)
            else:
                product[s] *= total_exp
            if with_gradients:
                for k in range(n_classes):
                    f[k] *= -omega / total_exp
                f[code[i]] += omega
        if (i + 1) % _SOFT_FLUSH == 0:
            for s in range(n_points):
                total[s] -= math.log(product[s])
                product[s] = 1.0
    for s in range(n_points):
        total[s] -= math.log(product[s])


@_compiled
def smoothed_logistic(scores, variance, sign, weight, gradient, curvature):
    """Sum of expected log likelihoods of Gaussian scores, and derivatives.

    The first and the negative second derivatives with respect to the means of the scores are
    written to ``gradient`` and ``curvature``.
    """
    total = 0.0
    for i in range(len(scores)):
        omega = weight[i] if len(weight) else 1.0
        centre, sd, t = sign[i] * scores[i], math.sqrt(variance[i]), sign[i]
        value = first = second = 0.0
        for q in range(len(_POINTS)):
            z = centre + sd * _POINTS[q]
            e = math.exp(-abs(z))
            near = 1.0 / (1.0 + e)
            value += _WEIGHTS[q] * (min(z, 0.0) - math.log1p(e))
            first += _WEIGHTS[q] * (e * near if z > 0.0 else near)
            second += _WEIGHTS[q] * e * near * near
        total += omega * value
        gradient[i] = omega * t * first
        curvature[i] = omega * second
    return total


@_compiled
def smoothed_hinge(scores, variance, sign, weight, gradient, curvature):
    """The same for ``-2 max(0, 1 - y f)``, in closed form."""
    total = 0.0
    for i in range(len(scores)):
        omega = weight[i] if len(weight) else 1.0
        u = 1.0 - sign[i] * scores[i]
        sd = max(math.sqrt(variance[i]), 1e-12)
        ratio = u / sd
        below = 0.5 * math.erfc(-ratio / _ROOT_TWO)
        density = math.exp(-0.5 * ratio * ratio) / (_ROOT_TWO_PI * sd)
        total -= 2.0 * omega * (u * below + sd * sd * density)
        gradient[i] = 2.0 * omega * sign[i] * below
        curvature[i] = 2.0 * omega * density
    return total
