"""Sums over rows for many logistic regressions at once: one column of scores per label.

Scores lie row after row in memory. Loops run over tiles of whole rows that are long enough for
the vector unit also where labels are few; every place of a tile has sums of its own, which are
added up in the end. An unknown label has weight 0.
"""

from __future__ import annotations

import numpy as np

from likelier.jit import njit
from likelier.loops.exponential import FLAGS, fast_exp

TILE = 128  # places of a tile, if a row is shorter

# Without NumPy's rule for divisions a check for zero would keep loops from the vector unit.
_compiled = njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")


@_compiled
def line_sums(F, G, T, W, t, slope, curve):
    """First and second derivative of every label's loss along ``F + t G``, in place.

    ``T`` holds targets and ``W`` weights of all rows and labels. Loops write one array each:
    with more the compiler cannot rule out that they overlap.
    """
    one, zero = F.dtype.type(1), F.dtype.type(0)
    n_labels = F.shape[1]
    width = n_labels * max(1, TILE // n_labels)
    at = np.empty(width, F.dtype)
    for j in range(width):
        at[j] = t[j % n_labels]
    p, first, second = np.empty_like(at), np.zeros_like(at), np.zeros_like(at)
    flat = F.reshape(-1), G.reshape(-1), T.reshape(-1), W.reshape(-1)
    for start in range(0, F.size, width):
        stop = min(start + width, F.size)
        f, g = flat[0][start:stop], flat[1][start:stop]
        target, w = flat[2][start:stop], flat[3][start:stop]
        for j in range(stop - start):
            score = f[j] + at[j] * g[j]
            e = fast_exp(-abs(score))
            p[j] = (one if score >= zero else e) / (one + e)
        for j in range(stop - start):
            first[j] += w[j] * (p[j] - target[j]) * g[j]
        for j in range(stop - start):
            second[j] += w[j] * p[j] * (one - p[j]) * g[j] * g[j]
    _fold(first, slope)
    _fold(second, curve)


@_compiled
def residuals(F, T, W, R, curvature, total):
    """Weighted ``sigma(f) - target`` in ``R``; sums over rows of it and of the curvature.

    The curvature is ``sigma (1 - sigma)``, but at least a quarter of the residuals' size: far
    from the optimum, where sigmoids are flat, steps would be too long otherwise. At a
    calibrated optimum that is half of the former and changes nothing.
    """
    one, zero = F.dtype.type(1), F.dtype.type(0)
    n_labels = F.shape[1]
    width = n_labels * max(1, TILE // n_labels)
    p, sums = np.empty(width, F.dtype), np.zeros(width, F.dtype)
    size, bend = np.zeros_like(sums), np.zeros_like(sums)
    flat = F.reshape(-1), T.reshape(-1), W.reshape(-1), R.reshape(-1)
    for start in range(0, F.size, width):
        stop = min(start + width, F.size)
        f, target = flat[0][start:stop], flat[1][start:stop]
        w, r = flat[2][start:stop], flat[3][start:stop]
        for j in range(stop - start):
            e = fast_exp(-abs(f[j]))
            p[j] = (one if f[j] >= zero else e) / (one + e)
        for j in range(stop - start):
            r[j] = w[j] * (p[j] - target[j])
        for j in range(stop - start):
            bend[j] += w[j] * p[j] * (one - p[j])
        for j in range(stop - start):
            sums[j] += r[j]
        for j in range(stop - start):
            size[j] += abs(r[j])
    _fold(sums, total)
    _fold(bend, curvature)
    _fold(size, bend[:n_labels])
    for c in range(n_labels):
        curvature[c] = max(curvature[c], bend[c] / 4)


@_compiled
def _fold(tile, out):
    """Sums of a tile's rows, in place."""
    out[:] = 0
    for j in range(len(tile)):
        out[j % len(out)] += tile[j]
