"""Dual coordinate ascent, written with the proximal (implicit) step.

With ``w = sum_i omega_i dual_i x_i / (lambda N)`` each visit removes the last contribution of row i
(``m = f - c dual_i``), solves the scalar equation of the implicit update,
``g = -loss'(m + c g)`` with ``c = omega_i (|x_i|^2 / (lambda N) + k)``, and sets ``dual_i = g``.
There is no learning rate, and the weights converge to the optimum.
"""

from __future__ import annotations

import numpy as np

from likelier.glm.loops.sgd import output_target
from likelier.jit import njit
from likelier.loops.lanes import MOST_LANES
from likelier.loops.rows import (
    prefetch_ahead,
    prefetch_weights,
    row_add_rates,
    row_axpy,
    row_axpy_rates,
    row_dot,
    row_start,
    table_add,
    table_scores,
)
from likelier.losses.compiled import coupled_prox, coupled_value, loss_prox, loss_value

LEVELS = 65  # possible numbers of binary digits of a column index, including zero


@njit(cache=True, nogil=True)
def dual_pass(
    data,
    indices,
    indptr,
    n_columns,
    rows,
    y,
    weight,
    norms,
    code,
    p,
    coupled,
    classes,
    dual,
    points,
    weights,
    intercept,
    scale,
    intercept_rate,
    rates,
    threshold,
    active,
):
    """Visit the rows once. ``scale`` is ``1 / (lambda N)``.

    With ``rates`` every feature has its own penalty, ``lambda / rate_j``; the norms are then sums
    of ``rate_j x_j^2``. Fewer rates than columns are those of the last columns.

    ``dual[i]`` holds the last ``g`` of row i and ``points[i]`` the score at which it is minus the
    derivative. ``active[i]`` is set if the row should be visited again: if the part of an output in
    the duality gap, ``|change of the dual| |f - point|``, exceeds ``threshold``. Returns the sum of
    these parts: about the gap before the pass.

    Weights may be padded to more outputs than there are intercepts; padding stays zero. The largest
    number of outputs is stored in two tables (`likelier.loops.lanes`), unless the loss is coupled.
    """
    n_outputs, width = len(intercept), len(weights) // n_columns
    split = width == MOST_LANES and not coupled
    single = width == 1 and not coupled  # all in registers
    m, g, f, step = np.empty(n_outputs), np.empty(n_outputs), np.zeros(width), np.zeros(width)
    total = 0.0
    for r in range(len(rows)):
        i = rows[r]
        prefetch_ahead(data, indices, indptr, n_columns, rows, r)
        prefetch_weights(indices, indptr, n_columns, rows, r, weights, width, split)
        omega = weight[i] if len(weight) else 1.0
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        size = omega * (norms[i] * scale + intercept_rate)
        if single:
            before = dual[i, 0]
            score = row_dot(data, indices, start, stop, weights) + intercept[0]
            new = loss_prox(code, p, output_target(classes, y[i], 0), score - size * before, size)
            change = new - before
            part = omega * abs(change * (score - points[i, 0]))
            total += part
            dual[i, 0] = new
            points[i, 0] = score + size * change
            active[i] = part > threshold
            if change != 0.0:
                intercept[0] += omega * intercept_rate * change
                if rates is None:
                    row_axpy(data, indices, start, stop, weights, omega * scale * change)
                else:
                    step[0] = omega * scale * change
                    if len(rates) == n_columns:
                        row_axpy_rates(data, indices, start, stop, weights, rates, step[0])
                    else:
                        row_add_rates(data, indices, start, stop, weights, step, rates)
            continue
        table_scores(data, indices, start, stop, weights, f, split)
        for k in range(n_outputs):
            m[k] = f[k] + intercept[k] - size * dual[i, k]
        if coupled:
            coupled_prox(code, np.int64(y[i]), m, size, g)
        else:
            for k in range(n_outputs):
                g[k] = loss_prox(code, p, output_target(classes, y[i], k), m[k], size)
        largest, changed = 0.0, False
        for k in range(n_outputs):
            change = g[k] - dual[i, k]
            part = omega * abs(change * (m[k] + size * dual[i, k] - points[i, k]))
            largest = max(largest, part)
            total += part
            dual[i, k] = g[k]
            points[i, k] = m[k] + size * g[k]
            step[k] = omega * scale * change
            intercept[k] += omega * intercept_rate * change
            changed |= change != 0.0
        active[i] = largest > threshold
        if not changed:
            continue
        table_add(data, indices, start, stop, weights, step, rates, split)
    return total


@njit(cache=True, nogil=True)
def duality_gap(
    data,
    indices,
    indptr,
    n_columns,
    rows,
    y,
    weight,
    code,
    p,
    coupled,
    classes,
    dual,
    points,
    weights,
    intercept,
    threshold,
    active,
):
    """Sum of the losses, and the sum over rows of ``loss(f) - loss(u) - dual (u - f)``.

    Each term of the second sum is non-negative because the dual is minus a subgradient at the
    point ``u``; without an intercept, or if the duals sum to zero, it is the duality gap.
    ``active[i]`` is set if the part of an output exceeds ``threshold`` (of all outputs together for
    a coupled loss).
    """
    n_outputs, width = len(intercept), len(weights) // n_columns
    split = width == MOST_LANES and not coupled
    f = np.zeros(width)
    total, gap = 0.0, 0.0
    for r in range(len(rows)):
        i = rows[r]
        prefetch_ahead(data, indices, indptr, n_columns, rows, r)
        prefetch_weights(indices, indptr, n_columns, rows, r, weights, width, split)
        omega = weight[i] if len(weight) else 1.0
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        table_scores(data, indices, start, stop, weights, f, split)
        for k in range(n_outputs):
            f[k] += intercept[k]
        if coupled:
            loss = coupled_value(code, np.int64(y[i]), f[:n_outputs])
            below = coupled_value(code, np.int64(y[i]), points[i])
            for k in range(n_outputs):
                below += dual[i, k] * (points[i, k] - f[k])
            part = omega * max(loss - below, 0.0)
            total += omega * loss
            gap += part
            active[i] = part > threshold
            continue
        largest = 0.0
        for k in range(n_outputs):
            t = output_target(classes, y[i], k)
            loss = loss_value(code, p, t, f[k])
            below = loss_value(code, p, t, points[i, k]) + dual[i, k] * (points[i, k] - f[k])
            part = omega * max(loss - below, 0.0)
            total += omega * loss
            gap += part
            largest = max(largest, part)
        active[i] = largest > threshold
    return total, gap


@njit(cache=True, nogil=True)
def output_losses(
    data,
    indices,
    indptr,
    n_columns,
    rows,
    y,
    weight,
    code,
    p,
    coupled,
    classes,
    weights,
    intercept,
):
    """Summed loss of every output; of all together for a coupled loss."""
    n_outputs, width = len(intercept), len(weights) // n_columns
    split = width == MOST_LANES and not coupled
    f, total = np.zeros(width), np.zeros(1 if coupled else n_outputs)
    for r in range(len(rows)):
        i = rows[r]
        prefetch_ahead(data, indices, indptr, n_columns, rows, r)
        prefetch_weights(indices, indptr, n_columns, rows, r, weights, width, split)
        omega = weight[i] if len(weight) else 1.0
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        table_scores(data, indices, start, stop, weights, f, split)
        for k in range(n_outputs):
            f[k] += intercept[k]
            if not coupled:
                total[k] += omega * loss_value(code, p, output_target(classes, y[i], k), f[k])
        if coupled:
            total[0] += omega * coupled_value(code, np.int64(y[i]), f[:n_outputs])
    return total


@njit(cache=True, nogil=True)
def column_frequencies(indices, n_columns):
    """Number of stored entries of every column."""
    out = np.zeros(n_columns, dtype=np.int64)
    for p in range(len(indices)):
        out[np.uintp(indices[p])] += 1
    return out


@njit(cache=True, nogil=True)
def labels_by_rank(rank, n_ranks, label):
    """Number the columns by decreasing rank, with ties in their original order."""
    first = np.zeros(n_ranks + 1, dtype=np.int64)
    for j in range(len(rank)):
        first[n_ranks - 1 - rank[j] + 1] += 1
    for k in range(n_ranks):
        first[k + 1] += first[k]
    for j in range(len(rank)):
        position = n_ranks - 1 - rank[j]
        label[j] = first[position]
        first[position] += 1


@njit(cache=True, nogil=True)
def arrange_rows(data, indices, indptr, rows, label, level, rates, out, first, last):
    """Copy the listed rows from ``first`` to ``last`` in this order, with relabelled columns.

    ``out`` are the arrays of the new matrix (with its ``indptr`` set) and the squared norms, each
    square times the rate of its column. ``level`` is the number of binary digits of a label: within
    a row, entries are sorted by it.
    """
    new_data, new_indices, new_indptr, norms = out
    position = np.empty(LEVELS + 1, dtype=np.uintp)
    for r in range(first, last):
        start, stop = np.uintp(indptr[rows[r]]), np.uintp(indptr[rows[r] + 1])
        position[:] = 0
        for p in range(start, stop):
            position[level[np.uintp(indices[p])] + 1] += np.uintp(1)
        position[0] = np.uintp(new_indptr[r])
        for k in range(LEVELS):
            position[k + 1] += position[k]
        total = 0.0
        for p in range(start, stop):
            j = np.uintp(indices[p])
            square = np.float64(data[p]) * data[p]
            total += square if rates is None else square * rates[j]
            q = position[level[j]]
            new_data[q] = data[p]
            new_indices[q] = label[j]
            position[level[j]] = q + np.uintp(1)
        norms[r] = total


@njit(cache=True, nogil=True)
def take_labelled(weights, label, out):
    """``out[j] = weights[label[j]]``: the weights in the original order of the columns."""
    n_outputs = out.shape[1]
    for j in range(len(label)):
        row = np.uintp(label[j])
        for k in range(n_outputs):
            out[j, k] = weights[row, k]
