"""Sums over rows for many logistic regressions at once: one column of scores per label.

Scores are stored row by row. Loops run over tiles of whole rows, long enough for vectorisation
even with few labels; every position of a tile has its own sums, which are added up at the end. An
unknown label has weight 0.
"""

from __future__ import annotations

import numpy as np

from likelier.jit import njit
from likelier.loops.exponential import FLAGS, fast_exp

TILE = 128  # minimum length of a tile

# With Python's division semantics the check for zero would prevent vectorisation.
_compiled = njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")


@_compiled
def line_sums(F, G, T, W, t, derivative, curvature):
    """First and second derivative of every label's loss along ``F + t G``, in place.

    ``T`` holds targets and ``W`` weights of all rows and labels. Each loop writes a single array:
    with more, the compiler cannot rule out aliasing.
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
    _fold(first, derivative)
    _fold(second, curvature)


@_compiled
def residuals(F, T, W, R, curvature, total):
    """Weighted ``sigma(f) - target`` in ``R``; its sum over rows, and that of the curvature.

    The curvature is ``sigma (1 - sigma)``, but at least a quarter of the absolute residuals:
    otherwise steps would be too long far from the optimum, where sigmoids are flat. At a calibrated
    optimum the bound is half of the curvature and has no effect.
    """
    one, zero = F.dtype.type(1), F.dtype.type(0)
    n_labels = F.shape[1]
    width = n_labels * max(1, TILE // n_labels)
    p, sums = np.empty(width, F.dtype), np.zeros(width, F.dtype)
    size, curv = np.zeros_like(sums), np.zeros_like(sums)
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
            curv[j] += w[j] * p[j] * (one - p[j])
        for j in range(stop - start):
            sums[j] += r[j]
        for j in range(stop - start):
            size[j] += abs(r[j])
    _fold(sums, total)
    _fold(curv, curvature)
    _fold(size, curv[:n_labels])
    for c in range(n_labels):
        curvature[c] = max(curvature[c], curv[c] / 4)


@_compiled
def _fold(tile, out):
    """Sums over a tile's rows, in place."""
    out[:] = 0
    for j in range(len(tile)):
        out[j % len(out)] += tile[j]
