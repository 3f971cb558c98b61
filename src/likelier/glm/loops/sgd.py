"""Stochastic gradient passes, one row at a time, explicit or implicit.

`scheduled_pass` has one rate for all coordinates, a lazily scaled weight vector, which is fastest,
and the mean of all iterates. `adaptive_pass` has a rate per coordinate and several global rates in
parallel. Both use the proximal step: with ``s = 1 / (1 + a lambda)``,
``m = s x^T w + b``, ``c = a omega (s |x|^2 + k)``, ``g = -loss'(m + c g)``,
``w <- s (w + a omega g x)`` and ``b <- b + k a omega g``.

Targets are class indices for classifiers (output k of a scalar loss has target +1 for class k, else
-1) and values for regression, which has one output.
"""

from __future__ import annotations

import math

import numpy as np

from likelier.glm.loops.averages import add_pending, forget
from likelier.jit import njit
from likelier.loops.lanes import add_scores, keep_and_add
from likelier.loops.rows import (
    column,
    prefetch_ahead,
    row_add,
    row_axpy,
    row_axpy_rates,
    row_dot,
    row_dot_rates,
    row_scores,
    row_square,
    row_start,
)
from likelier.losses.compiled import (
    coupled_gradient,
    coupled_prox,
    coupled_value,
    loss_derivative,
    loss_prox,
    loss_value,
)

LOSS_EVERY = 8  # rows between evaluations of the loss, for a single rate
SMALLEST_SCALE = 1e-120  # its square is still a normal number
SMALLEST_AVERAGED = 1e-2  # limits the loss of precision of a mean to about two digits


@njit(cache=True, nogil=True)
def output_target(classes, y, k):
    """Target of output ``k``: +-1 for classes, else the value itself."""
    if classes:
        return 1.0 if y == k else -1.0
    return y


@njit(cache=True, nogil=True)
def steps(code, p, coupled, implicit, classes, y, m, c, out):
    """``g`` of each output; outputs of a coupled loss come in groups of ``len(out)``.

    ``coupled`` is True or None: that is a type, so that only one branch has to be compiled.
    """
    if coupled is not None:
        if implicit:
            coupled_prox(code, np.int64(y), m, c[0], out)
        else:
            coupled_gradient(code, np.int64(y), m, out)
            for k in range(len(out)):
                out[k] = -out[k]
        return
    for k in range(len(out)):
        t = output_target(classes, y, k)
        if implicit:
            out[k] = loss_prox(code, p, t, m[k], c[k])
        else:
            out[k] = -loss_derivative(code, p, t, m[k])


@njit(cache=True, nogil=True)
def scheduled_pass(
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
    implicit,
    classes,
    weights,
    intercept,
    average,
    average_intercept,
    counters,
    lazy,
    alpha,
    eta0,
    power,
    intercept_rate,
    average_from,
    loss_every,
):
    """One pass with the rate ``eta0 / t^power`` of the weights ``lazy[0] * weights``.

    ``counters`` holds (steps taken, iterates summed) and is kept between calls, as is the common
    factor ``lazy[0]``: applying it visits every weight. From step ``average_from`` on, iterates are
    summed: their sum is ``average + lazy[1] * weights``, with ``lazy[1]`` the sum of the factors. A
    step that adds ``u`` to ``weights`` subtracts ``lazy[1] u`` from ``average`` to preserve earlier
    iterates, and so visits only the columns of the row. ``norms`` are the squared norms of the
    rows; negative ones are computed on first use. Returns the sum of the weighted losses at every
    ``loss_every``-th row, each before the row is learned.
    """
    n_outputs = len(intercept)
    single = n_outputs == 1 and coupled is None  # two classes, or regression: all in registers
    m, g = np.empty(n_outputs), np.empty(n_outputs)
    step, c = np.empty(n_outputs), np.empty(n_outputs)
    scale, summed, progressive, t = lazy[0], lazy[1], 0.0, counters[0]
    smallest = SMALLEST_AVERAGED if len(average) else SMALLEST_SCALE
    until_loss = loss_every
    a, s = eta0, shrinkage(eta0, alpha, implicit)
    for r in range(len(rows)):
        i = rows[r]
        prefetch_ahead(data, indices, indptr, n_columns, rows, r)
        t += 1
        until_loss -= 1
        omega = weight[i] if len(weight) else 1.0
        if power != 0.0:
            a = eta0 / t**power
            s = shrinkage(a, alpha, implicit)
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        shrink = s * scale if implicit else scale
        if implicit and norms[i] < 0.0:
            norms[i] = row_square(data, start, stop)
        size = a * omega * (s * norms[i] + intercept_rate)
        after = 1.0 if s == 0.0 else scale * s  # zero: an explicit step that shrinks to zero
        # implicit: s (w + a omega g x); explicit: s w + a omega g x
        factor = a * omega * (s if implicit else 1.0) / after
        if single:
            score = shrink * row_dot(data, indices, start, stop, weights) + intercept[0]
            target = output_target(classes, y[i], 0)
            if until_loss == 0:
                progressive += omega * loss_value(code, p, target, score)
            if implicit:
                g_i = loss_prox(code, p, target, score, size)
            else:
                g_i = -loss_derivative(code, p, target, score)
            if s == 0.0:
                summed = forget(weights, average, summed)
            if g_i != 0.0:
                row_axpy(data, indices, start, stop, weights, factor * g_i)
                if summed != 0.0:
                    row_axpy(data, indices, start, stop, average, -summed * factor * g_i)
                intercept[0] += intercept_rate * a * omega * g_i
        else:
            row_scores(data, indices, start, stop, weights, m)
            for k in range(n_outputs):
                m[k] = shrink * m[k] + intercept[k]
                c[k] = size
            if until_loss == 0:
                progressive += omega * outputs_value(code, p, coupled, classes, y[i], m)
            steps(code, p, coupled, implicit, classes, y[i], m, c, g)
            if s == 0.0:
                summed = forget(weights, average, summed)
            for k in range(n_outputs):
                step[k] = factor * g[k]
                intercept[k] += intercept_rate * a * omega * g[k]
            row_add(data, indices, start, stop, weights, step)
            if summed != 0.0:
                for k in range(n_outputs):
                    step[k] *= -summed
                row_add(data, indices, start, stop, average, step)
        scale = after
        if len(average) and t >= average_from:
            summed += scale
            counters[1] += 1
            for k in range(n_outputs):
                average_intercept[k] += intercept[k]
        if not (smallest < abs(scale) < 1.0 / smallest):
            summed = add_pending(weights, average, summed)
            for j in range(len(weights)):
                weights[j] *= scale
            scale = 1.0
        if until_loss == 0:
            until_loss = loss_every
    lazy[0], lazy[1] = scale, summed
    counters[0] = t
    return progressive


@njit(cache=True, nogil=True)
def shrinkage(a, alpha, implicit):
    """Factor by which the penalty shrinks the weights in a step of rate ``a``."""
    return 1.0 / (1.0 + a * alpha) if implicit else 1.0 - a * alpha


@njit(cache=True, nogil=True)
def outputs_value(code, p, coupled, classes, y, m):
    """Loss of one row, summed over its outputs."""
    if coupled is not None:
        return coupled_value(code, np.int64(y), m)
    total = 0.0
    for k in range(len(m)):
        total += loss_value(code, p, output_target(classes, y, k), m[k])
    return total


@njit(cache=True, nogil=True)
def soft(w, threshold):
    """Proximal step of the absolute value."""
    return math.copysign(max(abs(w) - threshold, 0.0), w)


@njit(cache=True, nogil=True)
def catch_up(weights, first, n_scores, etas, elapsed, l2, l1):
    """Apply the penalty of one coordinate for all steps since its last visit, in one step."""
    for k in range(n_scores):
        tau = etas[k] * elapsed
        w = weights[first + k]
        if l1 > 0.0:
            w = soft(w, tau * l1)
        weights[first + k] = w / (1.0 + tau * l2)


@njit(cache=True, nogil=True)
def nonzeros(data, indices, start, stop, entries):
    """List the columns and values of the nonzeros of a row; returns their number.

    Without branches on values, since mispredicted ones would cost more.
    """
    columns, values = entries[0], entries[1]
    n = np.uintp(0)
    for pos in range(start, stop):
        x = np.float64(data[pos])
        columns[n] = column(indices, start, pos)
        values[n] = x
        n += np.uintp(x != 0.0)
    return n


@njit(cache=True, nogil=True)
def one_rate(entries, n, rates, seen, l2, eta, schedule, total, apply_now):
    """Coefficients of a row's step if all outputs have the same rate and L2 penalties.

    ``entries``: columns and values of the row; then, as output, the factor of each weight by the
    pending penalties and that of this step, and its change per unit step of an output. Returns
    ``sum s a x^2``, as in `adaptive_pass`.
    """
    columns, values, factors, moves = entries
    norm = 0.0
    for k in range(n):
        j, x = columns[k], values[k]
        own = factors[k] = 1.0
        if apply_now:
            before = 1.0 + eta * rates[j] * (total - schedule - seen[j]) * l2[j]
            factors[k] = 1.0 / ((1.0 + eta * schedule * rates[j] * l2[j]) * before)
            own = factors[k] * before
            seen[j] = total
        moves[k] = own * rates[j] * x
        norm += moves[k] * x
    return eta * schedule * norm


@njit(cache=True, nogil=True)
def adaptive_pass(
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
    implicit,
    classes,
    n_outputs,
    weights,
    intercept,
    etas,
    rates,
    seen,
    elapsed,
    l2,
    l1,
    apply_now,
    power,
    intercept_rate,
    counters,
    progressive,
):
    """One pass with a rate per coordinate and a global rate per column of weights (``etas``).

    Weights have ``n_outputs`` columns per global rate, a group; ``progressive[group]`` sums the
    losses before learning. Coordinate j of column o has the rate ``etas[o] rates[j] / t^power``.

    The penalty of coordinates that a sparse row does not touch is pending until their next visit
    (``seen[j]`` is the ``elapsed[0]`` of the last one) and then applied as one implicit step;
    unless ``apply_now``, all penalties of this call remain so until `apply_pending`. The penalty of
    the step itself is part of the proximal point: with ``a = eta rate_j``, ``s = 1 / (1 + a l2_j)``
    it is ``m = sum s x_j w_j + b``, ``q = sum s a x_j^2 + k``, ``w_j <- s (w_j + a omega g x_j)``.
    (An L1 penalty has no such form and is applied just before.)
    """
    n_scores = np.uintp(len(intercept))
    n_groups = len(intercept) // n_outputs
    single = len(intercept) == 1 and coupled is None and not apply_now
    rows_per_loss = len(rows) / -(-len(rows) // LOSS_EVERY) if len(rows) else 1.0
    m, q, g = np.empty(n_scores), np.empty(n_scores), np.empty(n_scores)
    # with one rate, coefficients are the same for all outputs
    same_rate = implicit
    for o in range(n_scores):
        same_rate = same_rate and etas[o] == etas[0]
    for j in range(len(l1)):
        same_rate = same_rate and l1[j] == 0.0
    capacity = n_columns + 1 if same_rate else 0
    columns = np.empty(capacity, dtype=np.uintp)
    values, factors, moves = np.empty(capacity), np.empty(capacity), np.empty(capacity)
    entries = (columns, values, factors, moves)
    total = elapsed[0]
    for r in range(len(rows)):
        i = rows[r]
        prefetch_ahead(data, indices, indptr, n_columns, rows, r)
        counters[0] += 1
        omega = weight[i] if len(weight) else 1.0
        schedule = 1.0 / counters[0] ** power if power != 0.0 else 1.0
        total += schedule
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        if single:
            score, norm = row_dot_rates(data, indices, start, stop, weights, rates)
            score += intercept[0]
            eta = omega * etas[0] * schedule
            target = output_target(classes, y[i], 0)
            if r % LOSS_EVERY == 0:  # no other rate to compare with
                progressive[0] += rows_per_loss * omega * loss_value(code, p, target, score)
            if implicit:
                g_i = loss_prox(code, p, target, score, eta * (norm + intercept_rate))
            else:
                g_i = -loss_derivative(code, p, target, score)
            if g_i != 0.0:
                row_axpy_rates(data, indices, start, stop, weights, rates, eta * g_i)
                intercept[0] += intercept_rate * eta * g_i
            continue
        for o in range(n_scores):
            m[o] = intercept[o]
            q[o] = etas[o] * schedule * intercept_rate
        if same_rate:
            n = nonzeros(data, indices, start, stop, entries)
            norm = one_rate(entries, n, rates, seen, l2, etas[0], schedule, total, apply_now)
            for k in range(n):
                values[k] *= factors[k]
            add_scores(values, columns, n, weights, m)
            for o in range(n_scores):
                q[o] += norm
            stop = start  # the loops over entries are done
        for pos in range(start, stop):
            x = np.float64(data[pos])
            if x == 0.0:
                continue
            j = column(indices, start, pos)
            first = j * n_scores
            rate = schedule * rates[j]
            joint = 0.0  # strength of the penalty that is part of this step
            if apply_now:
                joint = l2[j] if implicit and l1[j] == 0.0 else 0.0
                pending = rates[j] * (total - seen[j] - (schedule if joint > 0.0 else 0.0))
                seen[j] = total
                catch_up(weights, first, n_scores, etas, pending, l2[j], l1[j])
            for o in range(n_scores):
                a = etas[o] * rate
                s = 1.0 / (1.0 + a * joint)
                m[o] += s * x * weights[first + o]
                q[o] += s * a * x * x
        for o in range(n_scores):
            q[o] *= omega
        for group in range(n_groups):
            begin, end = group * n_outputs, (group + 1) * n_outputs
            scores = m[begin:end]
            progressive[group] += omega * outputs_value(code, p, coupled, classes, y[i], scores)
            steps(code, p, coupled, implicit, classes, y[i], scores, q[begin:end], g[begin:end])
        for o in range(n_scores):
            g[o] *= omega * etas[o] * schedule
            intercept[o] += intercept_rate * g[o]
        if same_rate:
            keep_and_add(moves, columns, n, weights, g, factors)
        for pos in range(start, stop):
            x = data[pos]
            if x == 0.0:
                continue
            j = column(indices, start, pos)
            move = x * rates[j]
            first = j * n_scores
            if apply_now and implicit and l1[j] == 0.0:
                for o in range(n_scores):
                    s = 1.0 / (1.0 + etas[o] * schedule * rates[j] * l2[j])
                    weights[first + o] = s * (weights[first + o] + move * g[o])
            else:
                for o in range(n_scores):
                    weights[first + o] += move * g[o]
    elapsed[0] = total


@njit(cache=True, nogil=True)
def apply_pending(weights, n_scores, etas, rates, seen, elapsed, l2, l1):
    """Apply all pending penalties, so that the weights can be read."""
    for j in range(len(rates)):
        pending = rates[j] * (elapsed[0] - seen[j])
        seen[j] = elapsed[0]
        if pending > 0.0:
            catch_up(
                weights, np.uintp(j * n_scores), np.uintp(n_scores), etas, pending, l2[j], l1[j]
            )
