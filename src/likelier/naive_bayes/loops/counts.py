"""Feature counts per class, their logarithms, and scores of rows.

Tables of logarithms have one row per feature and one column per class, so that the classes of a
feature are contiguous. Most counts are small integers, whose logarithms are precomputed.
"""

from __future__ import annotations

import math

import numpy as np

from likelier.jit import njit
from likelier.loops.rows import column, prefetch, row_start

_SHORT = 16  # factors up to which a rising factorial is a product
_KNOWN = 4096  # size of the lookup table of logarithms of integers
_TILE = 64  # features per tile, so that reads and writes stay in the cache
_AHEAD = 16  # entries to prefetch ahead: a row of text reads scattered rows of the table
_LINE = 8  # doubles per cache line
_NEVER = -745.0  # exp underflows to zero below
_REORDER = {"reassoc", "contract", "nsz", "arcp"}


@njit(cache=True, nogil=True)
def add_counts(data, indices, indptr, n_columns, order, codes, weight, presence, threshold, counts):
    """Add the listed rows to the counts of their class.

    With ``presence`` an entry counts as one if it is above the threshold, else as zero.
    """
    for r in range(len(order)):
        i = order[r]
        w = weight[i] if len(weight) > 0 else 1.0
        target = counts[codes[i]]
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        if presence:
            for p in range(start, stop):
                target[column(indices, start, p)] += w if data[p] > threshold else 0.0
        else:
            for p in range(start, stop):
                target[column(indices, start, p)] += w * data[p]


@njit(cache=True, nogil=True, fastmath=_REORDER)
def mark_presence(data, threshold, out):
    """Write the indicator of values above the threshold; return the sum of all values.

    The sum is not finite if a value is missing or infinite.
    """
    total = 0.0
    for p in range(len(data)):
        x = np.float64(data[p])
        total += x
        out[p] = 1.0 if x > threshold else 0.0
    return total


@njit(cache=True, nogil=True)
def add_missing(data, indices, indptr, n_columns, codes, weight, missing_weight):
    """Add the weight of missing values to the table of their class and feature."""
    for i in range(len(codes)):
        w = weight[i] if len(weight) > 0 else 1.0
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        for p in range(start, stop):
            if data[p] != data[p]:
                missing_weight[codes[i], column(indices, start, p)] += w


@njit(cache=True, nogil=True)
def _log(x):
    return math.log(x) if x > 0.0 else -np.inf


@njit(cache=True, nogil=True)
def _known_logs(alpha, n_known):
    """``log(c + alpha)`` for ``c = 0, 1, ...``; empty if every feature has its own alpha."""
    logs = np.empty(n_known if len(alpha) == 1 else 0)
    for c in range(len(logs)):
        logs[c] = _log(c + alpha[0])
    return logs


@njit(cache=True, nogil=True)
def log_counts(counts, alpha, shift, out):
    """``out[j, k] = log(counts[k, j] + alpha[j]) - shift[k]``."""
    n_classes, n_features = counts.shape
    logs = _known_logs(alpha, min(_KNOWN, counts.size))
    n_known = len(logs)
    for first in range(0, n_features, _TILE):
        last = min(first + _TILE, n_features)
        for k in range(n_classes):
            s = shift[k]
            for j in range(first, last):
                c = counts[k, j]
                whole = np.int64(c)
                if whole < n_known and whole == c:
                    out[j, k] = logs[whole] - s
                else:
                    out[j, k] = _log(c + alpha[j if len(alpha) > 1 else 0]) - s


@njit(cache=True, nogil=True)
def log_odds(counts, seen, alpha, skip, out, base):
    """Log odds, ``out[j, k] = log p - log(1 - p)``; adds ``log(1 - p)`` to ``base``.

    ``p = (c + alpha_j) / (seen + 2 alpha_j)``, where ``seen`` has one column, or one per feature.
    ``base`` leaves out features of probability one (with ``alpha = 0``), and those marked in
    ``skip`` (of length 0: none). An ``out`` of length 0 is not written. The logarithms of zero
    counts, the most frequent ones, are computed once per class.
    """
    n_classes, n_features = counts.shape
    same = len(alpha) == 1 and seen.shape[1] == 1
    written, skipping = len(out) > 0, len(skip) > 0
    logs = _known_logs(alpha, min(_KNOWN, counts.size))
    n_known = len(logs)
    for first in range(0, n_features, _TILE):
        last = min(first + _TILE, n_features)
        for k in range(n_classes):
            n, a, total = seen[k, 0], alpha[0], 0.0
            zero_yes, zero_no, log_total = _log(a), _log(n + a), _log(n + 2.0 * a)
            for j in range(first, last):
                c = counts[k, j]
                if not same:
                    a = alpha[j if len(alpha) > 1 else 0]
                    n = seen[k, j if seen.shape[1] > 1 else 0]
                    yes, no, log_total = _log(c + a), _log(max(n - c, 0.0) + a), _log(n + 2.0 * a)
                elif c == 0.0:
                    yes, no = zero_yes, zero_no
                else:
                    whole, rest = np.int64(c), max(n - c, 0.0)
                    yes = logs[whole] if whole < n_known and whole == c else _log(c + a)
                    whole = np.int64(rest)
                    no = logs[whole] if whole < n_known and whole == rest else _log(rest + a)
                if written:
                    out[j, k] = yes - no if max(yes, no) > -np.inf else 0.0
                if no > -np.inf and not (skipping and skip[j]):
                    total += no - log_total
            base[k] += total


@njit(cache=True, nogil=True, fastmath=_REORDER)
def sparse_scores(data, indices, indptr, table, out):
    """``out = X @ table`` for CSR rows; the table is flattened."""
    n_classes, end = np.uintp(out.shape[1]), np.uintp(indptr[out.shape[0]])
    for i in range(out.shape[0]):
        row = out[i]
        row[:] = 0.0
        for p in range(np.uintp(indptr[i]), np.uintp(indptr[i + 1])):
            if p + np.uintp(_AHEAD) < end:
                soon = np.uintp(indices[p + np.uintp(_AHEAD)]) * n_classes
                for k in range(np.uintp(0), n_classes, np.uintp(_LINE)):
                    prefetch(table, soon + k)
            x, first = data[p], np.uintp(indices[p]) * n_classes
            if x != 0.0:
                for k in range(n_classes):
                    row[k] += x * table[first + k]


@njit(cache=True, nogil=True)
def normalise_rows(joint, fallback, logarithm, out):
    """Class probabilities of every row, or their logarithms, from log joint probabilities.

    A row that is impossible under every class uses ``fallback``.
    """
    n_classes = joint.shape[1]
    for i in range(joint.shape[0]):
        row = joint[i]
        top = row[0]
        for k in range(n_classes):
            top = max(top, row[k])
        if not top > -np.inf:
            row = fallback
            top = row.max()
        total = 0.0
        for k in range(n_classes):
            below = row[k] - top
            p = math.exp(below) if below > _NEVER else 0.0
            total += p
            out[i, k] = below if logarithm else p
        scale = math.log(total) if logarithm else 1.0 / total
        for k in range(n_classes):
            out[i, k] = out[i, k] - scale if logarithm else out[i, k] * scale


@njit(cache=True, nogil=True)
def best_columns(joint, out):
    """Column of the largest value of every row, the first of several; -1 if none is above -inf."""
    for i in range(joint.shape[0]):
        top, best = -np.inf, -1
        for k in range(joint.shape[1]):
            if joint[i, k] > top:
                top, best = joint[i, k], k
            elif joint[i, k] != joint[i, k]:  # NaN: marked, so that the caller checks the row
                top, best = np.inf, -1
        out[i] = best


@njit(cache=True, nogil=True)
def best_rows(scores, out):
    """`best_columns` for scores with one row per class, vectorised over the rows of data."""
    top = scores[0].copy()
    out[:] = 0
    for k in range(1, scores.shape[0]):
        row = scores[k]
        for i in range(len(top)):
            better = row[i] > top[i]
            top[i] = row[i] if better else top[i]
            out[i] = k if better else out[i]
    for i in range(len(top)):
        if not top[i] > -np.inf:
            out[i] = -1


@njit(cache=True, nogil=True)
def log_sum_rows(joint, out):
    """Logarithm of the sum of exponentials of every row."""
    for i in range(joint.shape[0]):
        top = joint[i].max()
        total = 0.0
        for k in range(joint.shape[1]):
            if joint[i, k] - top > _NEVER:
                total += math.exp(joint[i, k] - top)
        out[i] = top + math.log(total) if top > -np.inf else top


@njit(cache=True, nogil=True)
def _log_rising(a, x):
    """``log(Gamma(a + x) / Gamma(a))``; for small integers a product, without cancellation."""
    if x <= _SHORT and x == math.floor(x):
        total, product = 0.0, 1.0
        for step in range(int(x)):
            product *= a + step
            if product > 1e250:
                total += math.log(product)
                product = 1.0
        return total + math.log(product)
    return math.lgamma(a + x) - math.lgamma(a)


@njit(cache=True, nogil=True)
def dirichlet_scores(data, indices, indptr, n_columns, pseudo, total, out):
    """Log probability of rows of counts under Dirichlet-multinomials, without the coefficient.

    ``pseudo[k, j]`` are the parameters and ``total`` their sums per class.
    """
    for i in range(out.shape[0]):
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        length = 0.0
        for p in range(start, stop):
            length += data[p]
        for k in range(out.shape[1]):
            score = -_log_rising(total[k], length)
            for p in range(start, stop):
                x = np.float64(data[p])
                if x != 0.0:
                    score += _log_rising(pseudo[k, column(indices, start, p)], x)
            out[i, k] = score


@njit(cache=True, nogil=True)
def log_coefficients(data, indices, indptr, n_columns, out):
    """Logarithm of the multinomial coefficient ``n! / prod x_j!``."""
    for i in range(len(out)):
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        length, score = 0.0, 0.0
        for p in range(start, stop):
            x = np.float64(data[p])
            length += x
            if x != 0.0 and x != 1.0:
                score -= math.lgamma(x + 1.0)
        out[i] = score + math.lgamma(length + 1.0)
