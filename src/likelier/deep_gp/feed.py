"""Minibatches of a fixed size, from repeated passes of an engine over the rows."""

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


Slice = tuple[Batch, Array]  # a block and some of its rows


@dataclass
class Feed:
    """The minibatches of a training run, as a function of the step, so that runs can resume.

    Parameters
    ----------
    engine : Engine
        Source of the rows; targets are continuous, signs or class indices.
    standard : Standard
        Standardisation of the inputs.
    batch_rows, n_inputs : int
        Padded number of rows of a minibatch and of inputs.
    dtype : str
    """

    engine: Engine
    standard: Standard
    batch_rows: int
    n_inputs: int
    dtype: str
    _next: int = field(default=0, init=False)
    _slices: Iterator[list[Slice]] | None = field(default=None, init=False)

    def gives_as(self, other: Feed) -> bool:
        """Whether the other one, of the same standardisation, gives the same minibatches."""
        shape = (self.batch_rows, self.n_inputs, self.dtype)
        return self.engine is other.engine and shape == (
            other.batch_rows, other.n_inputs, other.dtype
        )  # fmt: skip

    def take(self, first: int, n_steps: int) -> FeedRows:
        """Minibatches of the steps ``first .. first + n_steps - 1``."""
        if self._slices is None or first != self._next:
            self._slices = itertools.islice(self._minibatches(), first, None)
        self._next = first + n_steps
        steps = [self._dense(slices) for slices in itertools.islice(self._slices, n_steps)]
        return FeedRows(*(np.stack(parts) for parts in zip(*steps, strict=True)))

    def _minibatches(self) -> Iterator[list[Slice]]:
        """Cut the sequence of passes into minibatches, which may span two passes."""
        if self._n_rows() <= self.batch_rows:
            whole = [(block, _rows(block)) for block in self.engine.blocks()]
            yield from itertools.repeat(whole)
        waiting: list[Slice] = []
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
            raise ValueError("engine must know its number of rows before training starts")
        return self.engine.n_rows

    def _dense(self, slices: list[Slice]) -> FeedRows:
        """Standardised rows of one minibatch, padded."""
        X = np.zeros((self.batch_rows, self.n_inputs), dtype=self.dtype)
        y = np.zeros(self.batch_rows, dtype=self.dtype)
        weight = np.zeros(self.batch_rows, dtype=self.dtype)
        used = 0
        for block, rows in slices:
            target = slice(used, used + len(rows))
            part = self.standard.apply(block.X[rows], self.dtype)
            X[target, : part.shape[1]] = part
            y[target] = np.asarray(block.y)[rows]
            weight[target] = 1.0 if block.weight is None else block.weight[rows]
            used += len(rows)
        weight *= self._n_rows() / used
        return FeedRows(X, y, weight)


def _rows(block: Batch) -> Any:
    return np.arange(block.n_rows) if block.rows is None else block.rows
