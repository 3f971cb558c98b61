"""Putting encoded columns side by side, in a dense or a sparse matrix."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array


@dataclass(frozen=True)
class Piece:
    """The ``width`` output columns of one input column.

    Each row has one entry ``values``, in output column ``slots`` (None: the first; -1:
    nowhere). ``mark`` fills the last output column where there is one for missing values.
    Running text has a ``matrix`` of many entries in a row instead.
    """

    values: Array
    slots: Array | None
    mark: Array | None
    width: int
    matrix: Any = None


def dense(pieces: list[Piece]) -> Array:
    """Return the pieces side by side as a C-ordered array."""
    n_rows = len(pieces[0].values)
    matrix = np.zeros((n_rows, sum(piece.width for piece in pieces)))
    first = 0
    for piece in pieces:
        if piece.matrix is not None:
            matrix[:, first : first + piece.matrix.shape[1]] = piece.matrix.toarray()
        elif piece.slots is None:
            matrix[:, first] = piece.values
        else:
            rows = np.flatnonzero(piece.slots >= 0)
            matrix[rows, first + piece.slots[rows]] = piece.values[rows]
        if piece.mark is not None:
            matrix[:, first + piece.width - 1] = piece.mark
        first += piece.width
    return matrix


def csr(pieces: list[Piece]) -> sparse.csr_array:
    """Return the pieces side by side in CSR form, with sorted indices and no stored zero."""
    parts: list[Any] = []
    for has_matrix, group in groupby(pieces, lambda piece: piece.matrix is not None):
        side_by_side = list(group)
        if has_matrix:
            parts += [_text_csr(piece) for piece in side_by_side]
        else:
            parts.append(_plain_csr(side_by_side))
    if len(parts) > 1:
        parts = [sparse.hstack(parts, format="csr")]
    whole: sparse.csr_array = parts[0]
    return whole


def _text_csr(piece: Piece) -> sparse.csr_array:
    if piece.mark is None:
        return sparse.csr_array(piece.matrix)
    mark = sparse.csr_array(piece.mark.astype(float)[:, None])
    return sparse.csr_array(sparse.hstack([piece.matrix, mark], format="csr"))


def _plain_csr(pieces: list[Piece]) -> sparse.csr_array:
    """Return pieces with one entry in each row in CSR form."""
    columns: list[Array] = []
    values: list[Array] = []
    first = 0
    for piece in pieces:
        slots = 0 if piece.slots is None else np.maximum(piece.slots, 0)
        columns.append(np.broadcast_to(first + slots, piece.values.shape))
        values.append(piece.values)
        first += piece.width
        if piece.mark is not None:
            columns.append(np.broadcast_to(first - 1, piece.values.shape))
            values.append(piece.mark.astype(float))
    data, indices = np.column_stack(values), np.column_stack(columns).astype(np.int32)
    filled = data != 0
    indptr = np.append(0, np.cumsum(filled.sum(axis=1))).astype(np.int32)
    return sparse.csr_array((data[filled], indices[filled], indptr), shape=(len(data), first))
