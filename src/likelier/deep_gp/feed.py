"""Minibatches of a fixed size, from an engine over any number of passes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from likelier.base import Array, Batch, Engine
from likelier.fitting.standardize import Standard


class FeedRows(NamedTuple):
    """Rows of several steps: ``(T, B, D)``, ``(T, B)``, and weights ``(T, B)`` times ``N/|B|``."""

    X: Array
    y: Array
    weight: Array


Piece = tuple[Batch, Array]  # a block and some of its rows


@dataclass
class Feed:
    """The minibatches of a training run; a run that starts at a later step gets the same ones.

    Parameters
    ----------
    engine : Engine
        Passes over the rows; targets are numbers, signs or class numbers.
    standard : Standard
        How inputs are scaled.
    batch_rows, n_inputs : int
        Size of a minibatch and of a row, padded with zeros where there is less.
    dtype : str
    """

    engine: Engine
    standard: Standard
    batch_rows: int
    n_inputs: int
    dtype: str
    _next: int = field(default=0, init=False)
    _pieces: Iterator[list[Piece]] | None = field(default=None, init=False)

    def take(self, first: int, n_steps: int) -> FeedRows:
        """Minibatches of the steps ``first .. first + n_steps - 1``."""
        if self._pieces is None or first != self._next:
            self._pieces = itertools.islice(self._minibatches(), first, None)
        self._next = first + n_steps
        steps = [self._dense(pieces) for pieces in itertools.islice(self._pieces, n_steps)]
        return FeedRows(*(np.stack(parts) for parts in zip(*steps, strict=True)))

    def _minibatches(self) -> Iterator[list[Piece]]:
        """Cut pass after pass into minibatches; one may hold the end of a pass and a start."""
        if self._n_rows() <= self.batch_rows:
            whole = [(block, _rows(block)) for block in self.engine.blocks()]
            yield from itertools.repeat(whole)
        waiting: list[Piece] = []
        missing = self.batch_rows
        for block in itertools.chain.from_iterable(map(self.engine.blocks, itertools.count())):
            rows = _rows(block)
            while len(rows) >= missing:
                yield [*waiting, (block, rows[:missing])]
                rows, waiting, missing = rows[missing:], [], self.batch_rows
            if len(rows):
                waiting.append((block, rows))
                missing -= len(rows)

    def _n_rows(self) -> int:
        if self.engine.n_rows is None:
            raise ValueError("the number of rows must be known before training starts")
        return self.engine.n_rows

    def _dense(self, pieces: list[Piece]) -> FeedRows:
        """Standardised rows of one minibatch, padded."""
        X = np.zeros((self.batch_rows, self.n_inputs), dtype=self.dtype)
        y = np.zeros(self.batch_rows, dtype=self.dtype)
        weight = np.zeros(self.batch_rows, dtype=self.dtype)
        used = 0
        for block, rows in pieces:
            place = slice(used, used + len(rows))
            part = self.standard.apply(block.X[rows], self.dtype)
            X[place, : part.shape[1]] = part
            y[place] = np.asarray(block.y)[rows]
            weight[place] = 1.0 if block.weight is None else block.weight[rows]
            used += len(rows)
        weight *= self._n_rows() / used
        return FeedRows(X, y, weight)


def _rows(block: Batch) -> Any:
    return np.arange(block.n_rows) if block.rows is None else block.rows
