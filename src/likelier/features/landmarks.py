"""Landmarks: which rows a Nystroem map compares all others with.

==========  ====================================================================
uniform     any row, with a probability proportional to its weight
kmeans++    rows far from the landmarks chosen so far, in the kernel's own
            distance ``k(x,x) + k(z,z) - 2 k(x,z)``; a quarter of as many as there
            are already is drawn at a time, so that kernel values come in blocks
leverage    rows that the others explain badly: ridge leverage scores
            ``(w_i/lambda) (k_ii - k_iS (K_SS + lambda I)^{-1} k_Si)``, at most 1,
            relative to a random weighted subset ``S`` of the rows, ``lambda`` being
            what half as many directions as landmarks leave over, divided by their
            number
==========  ====================================================================

Equal rows are one candidate with the sum of their weights: a landmark met twice adds nothing,
and a row of weight two is the same as two rows, bit for bit.

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
DENSE_KEYS = 1 << 22  # numbers in sparse rows that are compared as dense ones


class Candidates(NamedTuple):
    """Different rows that may become landmarks: their numbers and their weights."""

    numbers: Array
    weight: Array


def find_candidates(
    X: Matrix, weight: Array | None, count: int, stream: np.random.Generator
) -> Candidates:
    """Different rows of positive weight; of very many rows a random part."""
    given = np.ones(X.shape[0]) if weight is None else weight
    present = np.flatnonzero(given > 0)
    share = given[present]
    most = max(MIN_CANDIDATES, CANDIDATES_PER_LANDMARK * count)
    if len(present) > most:
        # drawn by weight, they count alike afterwards
        order = draw_distinct(share, most, stream)
        present, share = np.sort(present[order]), np.ones(most)
    _, first, group = np.unique(_row_keys(X, present), return_index=True, return_inverse=True)
    return Candidates(present[first], np.bincount(group, weights=share))


def choose_landmarks(
    kernel: Kernel,
    rows: Matrix,
    weight: Array,
    count: int,
    method: str,
    stream: np.random.Generator,
) -> Array:
    """Numbers of at most ``count`` landmarks among the candidate rows, in increasing order.

    Parameters
    ----------
    kernel : Kernel
    rows : ndarray or CSR matrix
        The candidates; with a precomputed kernel its values among them.
    weight : ndarray
        Positive weights.
    count : int
    method : {"uniform", "kmeans++", "leverage"}
    stream : Generator

    Notes
    -----
    For ``n`` candidates: nothing for "uniform", ``n count`` kernel values for "kmeans++", the
    same and ``n count^2`` multiplications for "leverage".
    """
    if len(weight) <= count:
        return np.arange(len(weight))
    if method == "uniform":
        chosen = draw_distinct(weight, count, stream)
    elif method == "kmeans++":
        chosen = _spread_out(kernel.prepare(rows), weight, count, stream)
    else:
        scores = _leverage_scores(kernel.prepare(rows), weight, count, stream)
        chosen = draw_distinct(scores, count, stream)
        rest = weight.copy()  # where all else is explained, any row will do
        rest[chosen] = 0.0
        chosen = np.append(chosen, draw_distinct(rest, count - len(chosen), stream))
    return np.sort(chosen)


def draw_distinct(weight: Array, count: int, stream: np.random.Generator) -> Array:
    """At most ``count`` different positions, by weight; those of weight zero never."""
    positive = np.flatnonzero(weight > 0) if count > 0 else np.empty(0, dtype=np.intp)
    if len(positive) <= count:
        return positive
    share = weight[positive] / weight[positive].sum()
    return positive[stream.choice(len(positive), count, replace=False, p=share, shuffle=False)]


def _spread_out(rows: Prepared, weight: Array, count: int, stream: np.random.Generator) -> Array:
    """Draw landmarks by their squared distance to the nearest one there is."""
    diagonal = rows.diagonal().astype(np.float64)
    chosen = draw_distinct(weight, 1, stream)
    nearest = np.full(rows.n_rows, np.inf)
    # what cancellation leaves of a distance is not one
    noise = 16.0 * float(np.finfo(rows.dtype).eps) * float(np.abs(diagonal).max())
    fresh = chosen
    while True:
        for start in range(0, len(fresh), BLOCK):
            part = fresh[start : start + BLOCK]
            values = rows.rows(part)
            distance = (diagonal[part] - 2.0 * values.T).min(axis=1) + diagonal
            np.minimum(nearest, distance, out=nearest)
        nearest[nearest <= noise] = 0.0
        nearest[chosen] = 0.0
        if len(chosen) >= count:
            return chosen
        fresh = draw_distinct(
            weight * nearest, min(max(1, len(chosen) // 4), count - len(chosen)), stream
        )
        if not len(fresh):
            return chosen
        chosen = np.concatenate([chosen, fresh])


def _leverage_scores(
    rows: Prepared, weight: Array, count: int, stream: np.random.Generator
) -> Array:
    """Approximate ridge leverage scores of all candidates; exact if the subset is all of them."""
    size = max(count, MIN_SUBSET)
    subset = np.sort(draw_distinct(weight, size, stream))
    # a row of the subset stands for its weight divided by the chance of being in it
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
    """A string of bytes for every row, the same for equal rows only."""
    chosen = X[rows]
    if not isinstance(chosen, np.ndarray) and chosen.shape[0] * chosen.shape[1] <= DENSE_KEYS:
        chosen = chosen.toarray()  # then candidates come in the order of dense rows
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
