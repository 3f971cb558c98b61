"""Stochastic gradient passes, one row at a time, explicit or implicit.

`scheduled_pass` has one rate for all coordinates and a lazily scaled weight vector, the fastest
form, and the mean of all iterates. `adaptive_pass` has a rate per coordinate and several global
rates side by side. Both follow the proximal step: with ``s = 1 / (1 + a lambda)``,
``m = s x^T w + b``, ``c = a omega (s |x|^2 + k)``, ``g = -loss'(m + c g)``,
``w <- s (w + a omega g x)`` and ``b <- b + k a omega g``.

Targets are class numbers for classifiers (lane k of a scalar loss sees +1 for class k, -1
otherwise) and plain numbers for regression, which has one output.
"""

from __future__ import annotations

import math

import numpy as np

from likelier.glm.loops.averages import add_owed, forget
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
from likelier.losses import (
    coupled_gradient,
    coupled_prox,
    coupled_value,
    loss_derivative,
    loss_prox,
    loss_value,
)

WATCH = 8  # a single rate needs its loss on one row in so many
SMALLEST_SCALE = 1e-120  # far from underflow, and squares of it still are normal numbers
SMALLEST_AVERAGED = 1e-2  # a mean loses digits as the factor shrinks: about two at most


@njit(cache=True, nogil=True)
def output_target(classes, y, k):
    """Target of output ``k``: +-1 for classes, the number itself otherwise."""
    if classes:
        return 1.0 if y == k else -1.0
    return y


@njit(cache=True, nogil=True)
def steps(code, p, coupled, implicit, classes, y, m, c, out):
    """``g`` for each lane; lanes of a coupled loss come in groups of ``len(out)``."""
    if coupled:
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
    clock,
    lazy,
    alpha,
    eta0,
    power,
    intercept_rate,
    average_from,
    watch_every,
):
    """One pass with the rate ``eta0 / t^power`` of the weights ``lazy[0] * weights``.

    ``clock`` holds (steps taken, iterates summed) and goes on counting from call to call, as
    the common factor ``lazy[0]`` goes on shrinking: folding it in costs a visit to every weight.
    From step ``average_from`` on iterates are summed: their sum is ``average + lazy[1] * weights``,
    ``lazy[1]`` the sum of the factors. A step that adds ``u`` to ``weights`` takes ``lazy[1] u``
    off ``average`` to leave the earlier iterates as they were, so it visits the row's columns only.
    ``norms`` are the squared norms of the rows; one that is negative is computed on the way.
    Returns the sum of the weighted losses met at every ``watch_every``-th row, each before the
    row was learned.
    """
    n_lanes = len(intercept)
    single = n_lanes == 1 and not coupled  # two classes, or regression: all in registers
    m, g, step, c = np.empty(n_lanes), np.empty(n_lanes), np.empty(n_lanes), np.empty(n_lanes)
    scale, summed, progressive, t = lazy[0], lazy[1], 0.0, clock[0]
    smallest = SMALLEST_AVERAGED if len(average) else SMALLEST_SCALE
    until_watch = watch_every
    a, s = eta0, shrinkage(eta0, alpha, implicit)
    for r in range(len(rows)):
        i = rows[r]
        prefetch_ahead(data, indices, indptr, n_columns, rows, r)
        t += 1
        until_watch -= 1
        omega = weight[i] if len(weight) else 1.0
        if power != 0.0:
            a = eta0 / t**power
            s = shrinkage(a, alpha, implicit)
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        shrink = s * scale if implicit else scale
        if implicit and norms[i] < 0.0:
            norms[i] = row_square(data, start, stop)
        size = a * omega * (s * norms[i] + intercept_rate)
        after = 1.0 if s == 0.0 else scale * s  # zero: an explicit step onto nothing at all
        # implicit: s (w + a omega g x); explicit: s w + a omega g x
        factor = a * omega * (s if implicit else 1.0) / after
        if single:
            score = shrink * row_dot(data, indices, start, stop, weights) + intercept[0]
            target = output_target(classes, y[i], 0)
            if until_watch == 0:
                progressive += omega * loss_value(code, p, target, score)
            if implicit:
                pull = loss_prox(code, p, target, score, size)
            else:
                pull = -loss_derivative(code, p, target, score)
            if s == 0.0:
                summed = forget(weights, average, summed)
            if pull != 0.0:
                row_axpy(data, indices, start, stop, weights, factor * pull)
                if summed != 0.0:
                    row_axpy(data, indices, start, stop, average, -summed * factor * pull)
                intercept[0] += intercept_rate * a * omega * pull
        else:
            row_scores(data, indices, start, stop, weights, m)
            for k in range(n_lanes):
                m[k] = shrink * m[k] + intercept[k]
                c[k] = size
            if until_watch == 0:
                progressive += omega * outputs_value(code, p, coupled, classes, y[i], m)
            steps(code, p, coupled, implicit, classes, y[i], m, c, g)
            if s == 0.0:
                summed = forget(weights, average, summed)
            for k in range(n_lanes):
                step[k] = factor * g[k]
                intercept[k] += intercept_rate * a * omega * g[k]
            row_add(data, indices, start, stop, weights, step)
            if summed != 0.0:
                for k in range(n_lanes):
                    step[k] *= -summed
                row_add(data, indices, start, stop, average, step)
        scale = after
        if len(average) and t >= average_from:
            summed += scale
            clock[1] += 1
            for k in range(n_lanes):
                average_intercept[k] += intercept[k]
        if not (smallest < abs(scale) < 1.0 / smallest):
            summed = add_owed(weights, average, summed)
            weights *= scale
            scale = 1.0
        if until_watch == 0:
            until_watch = watch_every
    lazy[0], lazy[1] = scale, summed
    clock[0] = t
    return progressive


@njit(cache=True, nogil=True)
def shrinkage(a, alpha, implicit):
    """What the penalty leaves of the weights in one step of rate ``a``."""
    return 1.0 / (1.0 + a * alpha) if implicit else 1.0 - a * alpha


@njit(cache=True, nogil=True)
def outputs_value(code, p, coupled, classes, y, m):
    """Loss of one row, summed over its lanes."""
    if coupled:
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
def catch_up(weights, first, n_lanes, etas, elapsed, l2, l1):
    """Penalty of one coordinate for the steps since its last visit, as one proximal step."""
    for lane in range(n_lanes):
        tau = etas[lane] * elapsed
        w = weights[first + lane]
        if l1 > 0.0:
            w = soft(w, tau * l1)
        weights[first + lane] = w / (1.0 + tau * l2)


@njit(cache=True, nogil=True)
def nonzeros(data, indices, start, stop, entries):
    """List the columns and the values of a row that are not zero; how many there are.

    No branch depends on a value: where zeros are many, guessing them takes longer than the row.
    """
    places, values = entries[0], entries[1]
    n = np.uintp(0)
    for pos in range(start, stop):
        x = np.float64(data[pos])
        places[n] = column(indices, start, pos)
        values[n] = x
        n += np.uintp(x != 0.0)
    return n


@njit(cache=True, nogil=True)
def one_rate(entries, n, rates, seen, l2, eta, schedule, total, pay_now):
    """What a row's step does to its weights where all lanes have one rate and L2 penalties.

    ``entries``: columns and values of the row; then, to be filled, what is left of each weight
    after the penalties it owes and that of this step, and by how much it moves per unit of the
    lanes' steps. Returns ``sum s a x^2``, as in `adaptive_pass`.
    """
    places, values, left, moves = entries
    spread = 0.0
    for k in range(n):
        j, x = places[k], values[k]
        own = left[k] = 1.0
        if pay_now:
            before = 1.0 + eta * rates[j] * (total - schedule - seen[j]) * l2[j]
            left[k] = 1.0 / ((1.0 + eta * schedule * rates[j] * l2[j]) * before)
            own = left[k] * before
            seen[j] = total
        moves[k] = own * rates[j] * x
        spread += moves[k] * x
    return eta * schedule * spread


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
    pay_now,
    power,
    intercept_rate,
    clock,
    progressive,
):
    """One pass with a rate per coordinate, for several global rates ``etas`` (one per lane).

    Coordinate j of lane l moves with rate ``etas[l] rates[j] / t^power``. The penalty of
    coordinates a sparse row does not touch is owed until their next visit (``seen[j]`` is
    the ``elapsed[0]`` of the last one) and then paid at once by one implicit step; unless
    ``pay_now``, all penalties of this call stay owed until `settle`. The penalty of the step
    itself is part of the proximal point: with ``a = eta rate_j`` and ``s = 1 / (1 + a l2_j)``,
    ``m = sum s x_j w_j + b``, ``q = sum s a x_j^2 + k``, ``w_j <- s (w_j + a omega g x_j)``. (An L1
    penalty has no such form: it is paid just before.)
    Lanes come in groups of ``n_outputs``, one group per global rate; ``progressive[group]``
    gathers the losses met before learning.
    """
    n_lanes = np.uintp(len(intercept))
    n_groups = len(intercept) // n_outputs
    single = len(intercept) == 1 and not coupled and not pay_now
    watched = len(rows) / -(-len(rows) // WATCH) if len(rows) else 1.0
    m, q, g = np.empty(n_lanes), np.empty(n_lanes), np.empty(n_lanes)
    # with one rate, what depends on it is the same for all lanes
    alike = implicit and (etas == etas[0]).all() and not l1.any()
    room = n_columns + 1 if alike else 0
    places = np.empty(room, dtype=np.uintp)
    values, left, moves = np.empty(room), np.empty(room), np.empty(room)
    entries = (places, values, left, moves)
    total = elapsed[0]
    for r in range(len(rows)):
        i = rows[r]
        prefetch_ahead(data, indices, indptr, n_columns, rows, r)
        clock[0] += 1
        omega = weight[i] if len(weight) else 1.0
        schedule = 1.0 / clock[0] ** power if power != 0.0 else 1.0
        total += schedule
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        if single:
            score, spread = row_dot_rates(data, indices, start, stop, weights, rates)
            score += intercept[0]
            eta = omega * etas[0] * schedule
            target = output_target(classes, y[i], 0)
            if r % WATCH == 0:  # nothing to compare it with: an estimate will do
                progressive[0] += watched * omega * loss_value(code, p, target, score)
            if implicit:
                pull = loss_prox(code, p, target, score, eta * (spread + intercept_rate))
            else:
                pull = -loss_derivative(code, p, target, score)
            if pull != 0.0:
                row_axpy_rates(data, indices, start, stop, weights, rates, eta * pull)
                intercept[0] += intercept_rate * eta * pull
            continue
        for lane in range(n_lanes):
            m[lane] = intercept[lane]
            q[lane] = etas[lane] * schedule * intercept_rate
        if alike:
            n = nonzeros(data, indices, start, stop, entries)
            spread = one_rate(entries, n, rates, seen, l2, etas[0], schedule, total, pay_now)
            for k in range(n):
                values[k] *= left[k]
            add_scores(values, places, n, weights, m)
            for lane in range(n_lanes):
                q[lane] += spread
            stop = start  # nothing is left to do for the loops over its entries
        for pos in range(start, stop):
            x = np.float64(data[pos])
            if x == 0.0:
                continue
            j = column(indices, start, pos)
            first = j * n_lanes
            rate = schedule * rates[j]
            joint = 0.0  # strength of the penalty that is part of this step
            if pay_now:
                joint = l2[j] if implicit and l1[j] == 0.0 else 0.0
                owed = rates[j] * (total - seen[j] - (schedule if joint > 0.0 else 0.0))
                seen[j] = total
                catch_up(weights, first, n_lanes, etas, owed, l2[j], l1[j])
            for lane in range(n_lanes):
                a = etas[lane] * rate
                s = 1.0 / (1.0 + a * joint)
                m[lane] += s * x * weights[first + lane]
                q[lane] += s * a * x * x
        for group in range(n_groups):
            here = slice(group * n_outputs, (group + 1) * n_outputs)
            value = outputs_value(code, p, coupled, classes, y[i], m[here])
            progressive[group] += omega * value
            q[here] *= omega
            steps(code, p, coupled, implicit, classes, y[i], m[here], q[here], g[here])
        for lane in range(n_lanes):
            g[lane] *= omega * etas[lane] * schedule
            intercept[lane] += intercept_rate * g[lane]
        if alike:
            keep_and_add(moves, places, n, weights, g, left)
        for pos in range(start, stop):
            x = data[pos]
            if x == 0.0:
                continue
            j = column(indices, start, pos)
            move = x * rates[j]
            first = j * n_lanes
            if pay_now and implicit and l1[j] == 0.0:
                for lane in range(n_lanes):
                    s = 1.0 / (1.0 + etas[lane] * schedule * rates[j] * l2[j])
                    weights[first + lane] = s * (weights[first + lane] + move * g[lane])
            else:
                for lane in range(n_lanes):
                    weights[first + lane] += move * g[lane]
    elapsed[0] = total


@njit(cache=True, nogil=True)
def settle(weights, n_lanes, etas, rates, seen, elapsed, l2, l1):
    """Pay every penalty still owed, so that the weights can be read."""
    for j in range(len(rates)):
        owed = rates[j] * (elapsed[0] - seen[j])
        seen[j] = elapsed[0]
        if owed > 0.0:
            catch_up(weights, np.uintp(j * n_lanes), np.uintp(n_lanes), etas, owed, l2[j], l1[j])
