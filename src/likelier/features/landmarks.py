"""Selection of Nystroem landmarks.

==========  ====================================================================
uniform     any row, with probability proportional to its weight
kmeans++    rows far from the landmarks chosen so far, in the kernel distance
            ``k(x,x) + k(z,z) - 2 k(x,z)``; batches grow by a quarter of the
            current number, so that kernel values are computed in blocks
leverage    ridge leverage scores
            ``(w_i/lambda) (k_ii - k_iS (K_SS + lambda I)^{-1} k_Si)``, clipped at 1,
            relative to a random weighted subset ``S``; ``lambda`` is the sum of the
            eigenvalues beyond the leading ``count / 2``, over that number
==========  ====================================================================

Equal rows form one candidate with the sum of their weights, so a row of weight two is bit-identical
to two rows.

References
----------
Arthur and Vassilvitskii, "k-means++", 2007. Musco and Musco, "Recursive sampling for the
Nystroem method", 2017.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import linalg

from likelier.base import Array, Matrix
from likelier.kernels import Kernel, Prepared

METHODS = ("uniform", "kmeans++", "leverage")
MIN_CANDIDATES = 10_000
CANDIDATES_PER_LANDMARK = 8
MIN_SUBSET = 256
BLOCK = 512
DENSE_KEYS = 1 << 22  # values; smaller sparse matrices are compared as dense ones


class Candidates(NamedTuple):
    """Distinct rows that may become landmarks: their indices and weights."""

    indices: Array
    weight: Array


def find_candidates(
    X: Matrix, weight: Array | None, count: int, stream: np.random.Generator
) -> Candidates:
    """Distinct rows of positive weight, subsampled if there are very many."""
    given = np.ones(X.shape[0]) if weight is None else weight
    present = np.flatnonzero(given > 0)
    weights = given[present]
    most = max(MIN_CANDIDATES, CANDIDATES_PER_LANDMARK * count)
    if len(present) > most:
        # drawn by weight, hence equal weights afterwards
        order = draw_distinct(weights, most, stream)
        present, weights = np.sort(present[order]), np.ones(most)
    _, first, group = np.unique(_row_keys(X, present), return_index=True, return_inverse=True)
    return Candidates(present[first], np.bincount(group, weights=weights))


def choose_landmarks(
    kernel: Kernel,
    rows: Matrix,
    weight: Array,
    count: int,
    method: str,
    stream: np.random.Generator,
) -> Array:
    """Indices of at most ``count`` landmarks among the candidates, in increasing order.

    Parameters
    ----------
    kernel : Kernel
    rows : ndarray or CSR matrix
        The candidates; for a precomputed kernel, its values among them.
    weight : ndarray
        Positive weights.
    count : int
    method : {"uniform", "kmeans++", "leverage"}
    stream : Generator

    Notes
    -----
    For ``n`` candidates "kmeans++" costs ``n count`` kernel values, "leverage" additionally
    ``n count^2`` multiplications.
    """
    if len(weight) <= count:
        return np.arange(len(weight))
    if method == "uniform":
        chosen = draw_distinct(weight, count, stream)
    elif method == "kmeans++":
        chosen = _kmeans_plus_plus(kernel.prepare(rows), weight, count, stream)
    else:
        scores = _leverage_scores(kernel.prepare(rows), weight, count, stream)
        chosen = draw_distinct(scores, count, stream)
        rest = weight.copy()  # fill up with any rows if the scores vanish elsewhere
        rest[chosen] = 0.0
        chosen = np.append(chosen, draw_distinct(rest, count - len(chosen), stream))
    return np.sort(chosen)


def draw_distinct(weight: Array, count: int, stream: np.random.Generator) -> Array:
    """At most ``count`` distinct indices, drawn by weight; never one of weight zero."""
    positive = np.flatnonzero(weight > 0) if count > 0 else np.empty(0, dtype=np.intp)
    if len(positive) <= count:
        return positive
    probabilities = weight[positive] / weight[positive].sum()
    return positive[
        stream.choice(len(positive), count, replace=False, p=probabilities, shuffle=False)
    ]


def _kmeans_plus_plus(
    rows: Prepared, weight: Array, count: int, stream: np.random.Generator
) -> Array:
    """Draw landmarks by squared distance to the nearest chosen one (k-means++)."""
    diagonal = rows.diagonal().astype(np.float64)
    chosen = draw_distinct(weight, 1, stream)
    nearest = np.full(rows.n_rows, np.inf)
    # distances below this are rounding error
    noise = 16.0 * float(np.finfo(rows.dtype).eps) * float(np.abs(diagonal).max())
    new = chosen
    while True:
        for start in range(0, len(new), BLOCK):
            part = new[start : start + BLOCK]
            values = rows.rows(part)
            distance = (diagonal[part] - 2.0 * values.T).min(axis=1) + diagonal
            np.minimum(nearest, distance, out=nearest)
        nearest[nearest <= noise] = 0.0
        nearest[chosen] = 0.0
        if len(chosen) >= count:
            return chosen
        new = draw_distinct(
            weight * nearest, min(max(1, len(chosen) // 4), count - len(chosen)), stream
        )
        if not len(new):
            return chosen
        chosen = np.concatenate([chosen, new])


def _leverage_scores(
    rows: Prepared, weight: Array, count: int, stream: np.random.Generator
) -> Array:
    """Approximate ridge leverage scores of all candidates; exact if the subset is everything."""
    size = max(count, MIN_SUBSET)
    subset = np.sort(draw_distinct(weight, size, stream))
    # importance weight: row weight over its inclusion probability
    root = np.sqrt(np.maximum(weight[subset], weight.sum() / size))
    if len(subset) == len(weight):
        root = np.sqrt(weight)
    square = rows.rows(subset)[:, subset].astype(np.float64) * root * root[:, None]
    values, vectors = linalg.eigh(0.5 * (square + square.T))
    values = np.maximum(values[::-1], 0.0)
    best = max(1, count // 2)
    ridge = max(values[best:].sum() / best, len(values) * np.finfo(float).eps * values[0])
    ridge = max(ridge, np.finfo(float).tiny)
    shrink = root[:, None] * vectors[:, ::-1] / np.sqrt(values + ridge)
    scores = np.empty(rows.n_rows)
    diagonal = rows.diagonal()
    for start in range(0, rows.n_rows, BLOCK):
        part = slice(start, start + BLOCK)
        explained = ((rows.take(part).block(rows.take(subset)) @ shrink) ** 2).sum(axis=1)
        scores[part] = weight[part] / ridge * (diagonal[part] - explained)
    return np.clip(scores, 0.0, 1.0)


def _row_keys(X: Matrix, rows: Array) -> Array:
    """A byte string per row, equal only for equal rows."""
    chosen = X[rows]
    if not isinstance(chosen, np.ndarray) and chosen.shape[0] * chosen.shape[1] <= DENSE_KEYS:
        chosen = chosen.toarray()  # candidates are then ordered like dense rows
    if isinstance(chosen, np.ndarray):
        chosen = np.ascontiguousarray(chosen + 0.0)  # -0.0 becomes 0.0
        width = chosen.dtype.itemsize * chosen.shape[1]
        return chosen.view(np.dtype((np.void, width))).reshape(-1)
    chosen = chosen.copy()
    chosen.sum_duplicates()
    chosen.eliminate_zeros()
    keys = np.empty(len(rows), dtype=object)
    for i, (first, last) in enumerate(zip(chosen.indptr, chosen.indptr[1:], strict=False)):
        keys[i] = chosen.indices[first:last].tobytes() + b"|" + chosen.data[first:last].tobytes()
    return keys
