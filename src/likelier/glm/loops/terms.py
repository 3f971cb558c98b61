"""Sums over the rows of a block: losses, derivatives, curvatures, weighted Gram matrices."""

from __future__ import annotations

import math

import numpy as np

from likelier.glm.loops.sgd import output_target
from likelier.jit import njit
from likelier.loops.rows import column, prefetch_ahead, row_start
from likelier.losses.codes import LOG_LOSS, SOFTMAX
from likelier.losses.compiled import (
    coupled_gradient,
    coupled_value,
    loss_curvature,
    loss_derivative,
    loss_envelope,
    loss_value,
)


@njit(cache=True, nogil=True)
def loss_terms(code, p, y, f, width):
    """Value, derivative and curvature of one row; the log loss with a single exponential."""
    if width > 0.0:
        return loss_envelope(code, p, y, f, width)
    if code == LOG_LOSS:
        z = y * f
        e = math.exp(-abs(z))
        high = 1.0 / (1.0 + e)  # probability of the more probable class, and of the other one
        low = e * high
        if z >= 0.0:
            return math.log1p(e), -y * low, low * high
        return math.log1p(e) - z, -y * high, low * high
    return loss_value(code, p, y, f), loss_derivative(code, p, y, f), loss_curvature(code, p, y, f)


@njit(cache=True, nogil=True)
def scalar_terms(code, p, classes, width, y, weight, scores, order, derivative, curvature):
    """Losses summed per output; writes weighted derivatives and curvatures."""
    n_rows, n_outputs = scores.shape
    total = np.zeros(n_outputs)
    for i in range(n_rows):
        omega = weight[i] if len(weight) else 1.0
        for k in range(n_outputs):
            t = output_target(classes, y[i], k)
            f = scores[i, k]
            if order == 0 and width == 0.0:
                total[k] += omega * loss_value(code, p, t, f)
                continue
            value, first, second = loss_terms(code, p, t, f, width)
            total[k] += omega * value
            if order >= 1:
                derivative[i, k] = omega * first
            if order >= 2:
                curvature[i, k] = omega * second
    return total


@njit(cache=True, nogil=True)
def coupled_terms(code, width, y, weight, scores, order, derivative, prob):
    """`scalar_terms` for a coupled loss; ``prob`` receives the class probabilities (softmax).

    ``width`` > 0 replaces a maximum over classes (`MULTICLASS_HINGE`) by the smooth lower bound
    ``width (logsumexp(scores / width) - log K)``, which is at most ``width log K`` below the loss.
    ``prob`` are then those of this softmax.
    """
    total, K = np.zeros(1), scores.shape[1]
    levels = np.empty(K)
    for i in range(scores.shape[0]):
        omega = weight[i] if len(weight) else 1.0
        cls = np.int64(y[i])
        f = scores[i]
        if width > 0.0:
            for k in range(K):
                levels[k] = (f[k] + (0.0 if k == cls else 1.0)) / width
            total[0] += omega * width * (coupled_value(SOFTMAX, cls, levels) - math.log(K))
        else:
            total[0] += omega * coupled_value(code, cls, f)
        if order >= 1:
            if width > 0.0:
                coupled_gradient(SOFTMAX, cls, levels, derivative[i])
            else:
                coupled_gradient(code, cls, f, derivative[i])
            for k in range(K):
                if order >= 2:
                    prob[i, k] = derivative[i, k] + (1.0 if k == cls else 0.0)
                derivative[i, k] *= omega
    return total


@njit(cache=True, nogil=True)
def values_along(code, p, coupled, classes, y, weight, scores, change, step):
    """Losses summed per output at ``scores + step * change``, for line searches."""
    n_rows, n_outputs = scores.shape
    total = np.zeros(1 if coupled else n_outputs)
    f = np.empty(n_outputs)
    for i in range(n_rows):
        omega = weight[i] if len(weight) else 1.0
        for k in range(n_outputs):
            f[k] = scores[i, k] + step[k] * change[i, k]
            if not coupled:
                t = output_target(classes, y[i], k)
                total[k] += omega * loss_value(code, p, t, f[k])
        if coupled:
            total[0] += omega * coupled_value(code, np.int64(y[i]), f)
    return total


@njit(cache=True, nogil=True)
def dense_sums(
    X, rows, y, weight, code, p, classes, width, w, intercept, gradient, diagonal, few, out
):  # fmt: skip
    """Loss, gradient and Hessian diagonal of one output, each dense row read once.

    ``rows`` are the indices of the rows, None for all. ``w``, ``gradient`` and ``diagonal`` end
    with the intercept if there is one; a ``diagonal`` of length zero is not computed. ``few`` is
    the first row that adds to the Hessian, and the stride to the next ones. ``out`` receives the
    derivative of every row, and these rows times the roots of their curvatures, if not empty.
    Returns the loss, and the number of such rows.
    """
    derivatives, roots = out
    n_rows, d = len(X) if rows is None else len(rows), X.shape[1]
    total, n_roots, next_root = 0.0, 0, few[0] if len(roots) else n_rows
    flat = X.reshape(-1)
    for r in range(n_rows):
        i = r
        if rows is not None:
            i = rows[r]
            prefetch_ahead(flat, None, None, d, rows, r)
        omega = weight[i] if len(weight) else 1.0
        row = X[i]
        f = dense_dot(row, w) + (w[d] if intercept else 0.0)
        value, derivative, curvature = loss_terms(
            code, p, output_target(classes, y[i], 0), f, width
        )
        total += omega * value
        derivative *= omega
        curvature *= omega
        derivatives[r] = derivative
        for j in range(d):
            gradient[j] += derivative * row[j]
        if intercept:
            gradient[d] += derivative
        if len(diagonal):
            for j in range(d):
                diagonal[j] += curvature * row[j] * row[j]
            if intercept:
                diagonal[d] += curvature
        if r == next_root:
            scale, root = np.sqrt(curvature), roots[n_roots]
            for j in range(d):
                root[j] = scale * row[j]
            if intercept:
                root[d] = scale
            n_roots += 1
            next_root += few[1]
    return total, n_roots


@njit(cache=True, nogil=True)
def dense_values(X, y, weight, code, p, classes, width, points, intercept):
    """Summed loss of one output at several points (one per row), each dense row read once."""
    n_rows, d = X.shape
    total = np.zeros(len(points))
    for i in range(n_rows):
        omega = weight[i] if len(weight) else 1.0
        t = output_target(classes, y[i], 0)
        for k in range(len(points)):
            f = dense_dot(X[i], points[k]) + (points[k, d] if intercept else 0.0)
            if width > 0.0:
                total[k] += omega * loss_envelope(code, p, t, f, width)[0]
            else:
                total[k] += omega * loss_value(code, p, t, f)
    return total


@njit(cache=True, nogil=True)
def scale_rows(X, factor, out):
    """``out[i] = factor[i] X[i]``; for short rows faster than an array expression."""
    for i in range(len(factor)):
        for j in range(X.shape[1]):
            out[i, j] = factor[i] * X[i, j]


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})
def dense_dot(row, w):
    """``sum_j x_j w_j`` over a row; ``w`` may be longer."""
    total = 0.0
    for j in range(len(row)):
        total += row[j] * w[j]
    return total


@njit(cache=True, nogil=True)
def sparse_gram(data, indices, indptr, n_columns, weight, out):
    """Add ``sum_i weight_i x_i x_i^T`` to ``out``, every pair of columns on one side only.

    The side depends on the order of the row's entries; ``out + out.T`` with the diagonal halved is
    the full matrix.
    """
    for i in range(len(weight)):
        h = weight[i]
        if h == 0.0:
            continue
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        for a in range(start, stop):
            row = out[column(indices, start, a)]
            x = h * data[a]
            for b in range(a, stop):
                row[column(indices, start, b)] += x * data[b]


@njit(cache=True, nogil=True)
def sparse_sums(
    data,
    indices,
    indptr,
    n_columns,
    rows,
    y,
    weight,
    code,
    p,
    classes,
    output,
    width,
    w,
    intercept,
    every,
    gradient,
    hessian,
    diagonal,
):
    """Loss, gradient and Hessian of one output over the listed sparse rows, each row read once.

    ``w`` and ``gradient`` end with the intercept if there is one. Pairs of columns are added on one
    side of ``hessian`` only, as in `sparse_gram`, and for one row in ``every``; ``diagonal`` is the
    exact diagonal from all rows.
    """
    total = 0.0
    d = np.uintp(n_columns)
    for r in range(len(rows)):
        i = rows[r]
        omega = weight[i] if len(weight) else 1.0
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        f = w[d] if intercept else 0.0
        for a in range(start, stop):
            f += data[a] * w[column(indices, start, a)]
        value, derivative, curvature = loss_terms(
            code, p, output_target(classes, y[i], output), f, width
        )
        total += omega * value
        derivative *= omega
        curvature *= omega
        if intercept:
            gradient[d] += derivative
            diagonal[d] += curvature
        for a in range(start, stop):
            j = column(indices, start, a)
            gradient[j] += derivative * data[a]
            diagonal[j] += curvature * data[a] * data[a]
        if r % every:
            continue
        for a in range(start, stop):
            row, x = hessian[column(indices, start, a)], curvature * data[a]
            for b in range(a, stop):
                row[column(indices, start, b)] += x * data[b]
        if intercept:
            hessian[d, d] += curvature
            for a in range(start, stop):
                hessian[column(indices, start, a), d] += curvature * data[a]
    return total


@njit(cache=True, nogil=True)
def sparse_values(
    data,
    indices,
    indptr,
    n_columns,
    rows,
    y,
    weight,
    code,
    p,
    classes,
    output,
    width,
    w,
    intercept,
):
    """Summed loss of one output over the listed sparse rows, without storing scores."""
    total = 0.0
    d = np.uintp(n_columns)
    for i in rows:
        omega = weight[i] if len(weight) else 1.0
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        f = w[d] if intercept else 0.0
        for a in range(start, stop):
            f += data[a] * w[column(indices, start, a)]
        t = output_target(classes, y[i], output)
        if width > 0.0:
            total += omega * loss_envelope(code, p, t, f, width)[0]
        else:
            total += omega * loss_value(code, p, t, f)
    return total
