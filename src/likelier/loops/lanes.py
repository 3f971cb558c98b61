"""Products of rows with weights of 2, 4, 8 or 12 outputs, vectorised over the outputs.

A loop over a number of outputs unknown at compile time checks for aliasing and remainders at every
entry of a row, and keeps its sums in memory. Here the weights of a column are one LLVM vector
(a lane per output) and the sums stay in registers, on any instruction set.

Twelve outputs are stored as two consecutive tables: the first eight outputs of every column, which
fill a cache line, then the other four. A row is read once for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from likelier.base import Array
from likelier.jit import njit
from likelier.loops.memory import touched

WIDTHS = (2, 4, 8)
TABLES = (8, 4)  # widths of the two tables of the largest number of outputs
MOST_LANES = sum(TABLES)
CHAINS = 2  # independent partial sums, to hide the latency of additions
CACHE_LINE = 64  # bytes
# Sums along a row may be reordered; infinities and NaN keep IEEE semantics.
_FREE = ("reassoc", "contract", "nsz", "arcp")  # "reassoc" enables vectorisation
_double, _int64, _int32 = ir.DoubleType(), ir.IntType(64), ir.IntType(32)


def aligned_zeros(sizes: Sequence[int]) -> list[Array]:
    """Arrays of zeros that are aligned to cache lines, so that no vector crosses a line.

    They share one allocation, which can use large pages, and whose pages the calling thread touches
    first (see `likelier.loops.memory`).
    """
    line = CACHE_LINE // 8
    starts = np.cumsum([0, *(-(-size // line) * line for size in sizes)])
    memory = touched(np.zeros(int(starts[-1]) + line))
    first = -memory.ctypes.data % CACHE_LINE // 8
    return [memory[first + a : first + a + size] for a, size in zip(starts, sizes, strict=False)]


def padded(n_lanes: int) -> int:
    """Number of outputs to store: the next vector width, or the number itself beyond these."""
    return next((w for w in (*WIDTHS, MOST_LANES) if 1 < n_lanes <= w), n_lanes)


def tables(weights: Array, n_columns: int, n_lanes: int) -> list[tuple[slice, Array]]:
    """Return the tables of padded weights, one row per column, each with its range of outputs.

    The last outputs of a table may be padding.
    """
    widths = TABLES if len(weights) == n_columns * MOST_LANES else (len(weights) // n_columns,)
    found, first = [], 0
    for width in widths:
        table = weights[n_columns * first : n_columns * (first + width)].reshape(n_columns, width)
        found.append((slice(first, min(first + width, n_lanes)), table))
        first += width
    return found


@dataclass
class _Row:
    """Part of a row and the weights of its columns, during code generation."""

    build: Any
    data: Any
    indices: Any  # None for a dense row
    start: Any
    weights: Any
    vector: Any
    rates: Any = None  # factors of the last columns
    even: Any = None  # number of columns before these
    stride: Any = None  # number of outputs of a column, if the vector covers only some of them
    first: Any = None  # the first output in the vector

    @classmethod
    def of(cls, context: Any, build: Any, kinds: Any, args: Any, width: int) -> _Row:
        data, weights = (_address(context, build, kinds[k], args[k]) for k in (0, 4))
        dense = isinstance(kinds[1], types.NoneType)
        indices = None if dense else _address(context, build, kinds[1], args[1])
        return cls(build, data, indices, args[2], weights, ir.VectorType(_double, width))

    @classmethod
    def listed(cls, context: Any, build: Any, kinds: Any, args: Any, width: int) -> _Row:
        data, places, weights = (_address(context, build, kinds[k], args[k]) for k in (0, 1, 3))
        none, vector = ir.Constant(_int64, 0), ir.VectorType(_double, width)
        return cls(build, data, places, none, weights, vector, stride=args[4], first=args[5])

    @property
    def flags(self) -> tuple[str, ...]:
        """Fast-math flags; without reassociation for a single output, to keep its order of sums."""
        return _FREE if self.vector.count > 1 else _FREE[1:]

    @contextmanager
    def entry(self, p: Any) -> Iterator[tuple[Any, Any]]:
        """The value at position ``p``, times its rate, and its column.

        Zeros of a dense row are skipped: either they are many, or the test is cheap.
        """
        build = self.build
        x = build.load(build.gep(self.data, [p]))
        x = x if x.type is _double else build.fpext(x, _double)
        if self.indices is None:
            with build.if_then(build.fcmp_unordered("!=", x, ir.Constant(_double, 0.0))):
                column = build.sub(p, self.start)
                yield self._rated(x, column), column
            return
        column = build.load(build.gep(self.indices, [p]))
        column = column if column.type.width == _int64.width else build.zext(column, _int64)
        yield self._rated(x, column), column

    def _rated(self, x: Any, column: Any) -> Any:
        if self.rates is None:
            return x
        build = self.build
        product = cgutils.alloca_once_value(build, x)
        with build.if_then(build.icmp_unsigned(">=", column, self.even), likely=False):
            rate = build.load(build.gep(self.rates, [build.sub(column, self.even)]))
            build.store(build.fmul(x, rate), product)
        return build.load(product)

    def place(self, column: Any) -> Any:
        """Address of the weights of a column."""
        if self.stride is None:
            first = self.build.mul(column, ir.Constant(_int64, self.vector.count))
        else:
            first = self.build.add(self.build.mul(column, self.stride), self.first)
        return self.build.bitcast(self.build.gep(self.weights, [first]), self.vector.as_pointer())

    def splat(self, x: Any) -> Any:
        """Broadcast a number to all lanes."""
        empty = ir.Constant(self.vector, ir.Undefined)
        first = self.build.insert_element(empty, x, ir.Constant(_int32, 0))
        same = ir.Constant(ir.VectorType(_int32, self.vector.count), [0] * self.vector.count)
        return self.build.shuffle_vector(first, empty, same)

    def add_product(self, to: Any, one: Any, two: Any) -> Any:
        """``to + one * two``."""
        return self.sum([to, self.build.fmul(one, two, flags=self.flags)])

    def sum(self, values: list[Any]) -> Any:
        """Sum of the values in order."""
        return reduce(lambda a, b: self.build.fadd(a, b, flags=self.flags), values)


def _products(rows: list[_Row], first: Any, stop: Any) -> list[Any]:
    """Sums of ``x_k w[j_k]`` over positions, for the weights of every ``_Row`` of the same row.

    Each is accumulated in several independent chains.
    """
    build, chains = rows[0].build, ir.Constant(_int64, CHAINS)
    zeros = [ir.Constant(row.vector, [0.0] * row.vector.count) for row in rows]
    sums = [[cgutils.alloca_once_value(build, zero) for zero in zeros] for _ in range(CHAINS)]
    even = build.sub(stop, build.urem(build.sub(stop, first), chains))

    def gather(p: Any, totals: list[Any]) -> None:
        with rows[0].entry(p) as (x, column):
            for row, total in zip(rows, totals, strict=True):
                weights = build.load(row.place(column), align=8)
                build.store(row.add_product(build.load(total), row.splat(x), weights), total)

    with _positions(build, first, even, CHAINS) as (p, _):
        for k, totals in enumerate(sums):
            gather(build.add(p, ir.Constant(_int64, k)), totals)
    with _positions(build, even, stop, 1) as (p, _):
        gather(p, sums[0])
    return [
        row.sum([build.load(total) for total in totals])
        for row, totals in zip(rows, zip(*sums, strict=True), strict=True)
    ]


def _address(context: Any, build: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, build, array).data


def _positions(build: Any, first: Any, stop: Any, step: int) -> Any:
    return cgutils.for_range_slice(build, first, stop, ir.Constant(_int64, step))


def _lanes_of(rows: list[_Row], numbers: Any) -> list[Any]:
    """Addresses of the values of every table in a vector of all outputs."""
    build, places, first = rows[0].build, [], 0
    for row in rows:
        place = build.gep(numbers, [ir.Constant(_int64, first)])
        places.append(build.bitcast(place, row.vector.as_pointer()))
        first += row.vector.count
    return places


def _rows(context: Any, build: Any, kinds: Any, args: Any, width: int) -> list[_Row]:
    """The row with the weights of each table."""
    if width < MOST_LANES:
        return [_Row.of(context, build, kinds, args, width)]
    n_weights = context.make_array(kinds[4])(context, build, args[4]).nitems
    columns = build.udiv(n_weights, ir.Constant(_int64, MOST_LANES))
    wide, narrow = (_Row.of(context, build, kinds, args, width) for width in TABLES)
    first = build.mul(columns, ir.Constant(_int64, TABLES[0]))
    return [wide, replace(narrow, weights=build.gep(narrow.weights, [first]))]


def _scores(width: int) -> Any:
    """Compiled ``out[k] = sum_j x_j w[j, k]`` for this number of outputs."""

    def generate(context, build, signature, args):
        rows = _rows(context, build, signature.args, args, width)
        out = _lanes_of(rows, _address(context, build, signature.args[5], args[5]))
        for result, place in zip(_products(rows, args[2], args[3]), out, strict=True):
            build.store(result, place, align=8)
        return context.get_dummy_value()

    @intrinsic
    def scores(_, data, indices, start, stop, weights, out):
        return types.void(data, indices, types.uintp, types.uintp, weights, out), generate

    return scores


def _move(build: Any, rows: list[_Row], args: Any, step: Any) -> None:
    steps = [build.load(place, align=8) for place in _lanes_of(rows, step)]
    with _positions(build, args[2], args[3], 1) as (p, _), rows[0].entry(p) as (x, column):
        for row, one in zip(rows, steps, strict=True):
            place = row.place(column)
            moved = row.add_product(build.load(place, align=8), row.splat(x), one)
            build.store(moved, place, align=8)


def _add(width: int) -> Any:
    """Compiled ``w[j, k] += x_j step[k]`` for this number of outputs."""

    def generate(context, build, signature, args):
        rows = _rows(context, build, signature.args, args, width)
        _move(build, rows, args, _address(context, build, signature.args[5], args[5]))
        return context.get_dummy_value()

    @intrinsic
    def add(_, data, indices, start, stop, weights, step):
        return types.void(data, indices, types.uintp, types.uintp, weights, step), generate

    return add


def _add_rates(width: int) -> Any:
    """Compiled ``w[j, k] += rate_j x_j step[k]`` for this number of outputs.

    The first ``even`` columns have rate 1; ``rates`` are those of the others.
    """

    def generate(context, build, signature, args):
        rows = _rows(context, build, signature.args, args, width)
        step, rates = (_address(context, build, signature.args[k], args[k]) for k in (5, 6))
        rows[0] = replace(rows[0], rates=rates, even=args[7])
        _move(build, rows, args, step)
        return context.get_dummy_value()

    @intrinsic
    def add_rates(_, data, indices, start, stop, weights, step, rates, even):
        number = types.uintp
        return types.void(data, indices, number, number, weights, step, rates, number), generate

    return add_rates


scores_2, scores_4, scores_8, scores_12 = (_scores(width) for width in (*WIDTHS, MOST_LANES))
add_2, add_4, add_8, add_12 = (_add(width) for width in (*WIDTHS, MOST_LANES))
add_rates_2, add_rates_4, add_rates_8, add_rates_12 = (
    _add_rates(width) for width in (*WIDTHS, MOST_LANES)
)


def _scores_among(width: int) -> Any:
    """Compiled ``scores[first + k] += sum_i x_i w[j_i, first + k]`` of ``width`` outputs.

    ``j_i`` are the ``places`` of a listed row and ``stride`` is the number of all outputs.
    """

    def generate(context, build, signature, args):
        row = _Row.listed(context, build, signature.args, args, width)
        out = _address(context, build, signature.args[6], args[6])
        (result,) = _products([row], row.start, args[2])
        place = build.bitcast(build.gep(out, [row.first]), row.vector.as_pointer())
        build.store(row.sum([build.load(place, align=8), result]), place, align=8)
        return context.get_dummy_value()

    @intrinsic
    def scores(_, values, places, n, weights, stride, first, scores):
        number = types.uintp
        return types.void(values, places, number, weights, number, number, scores), generate

    return scores


def _keep_among(width: int) -> Any:
    """Compiled ``w[j_i, k] = keep_i w[j_i, k] + x_i step[k]``, for outputs as above."""

    def generate(context, build, signature, args):
        row = _Row.listed(context, build, signature.args, args, width)
        keep, step = (_address(context, build, signature.args[k], args[k]) for k in (7, 6))
        step = build.bitcast(build.gep(step, [row.first]), row.vector.as_pointer())
        step = build.load(step, align=8)
        every = _positions(build, ir.Constant(_int64, 0), args[2], 1)
        with every as (p, _), row.entry(p) as (x, column):
            kept, place = row.splat(build.load(build.gep(keep, [p]))), row.place(column)
            # rounded separately: which of the two products is fused must not depend on the width
            kept = build.fmul(kept, build.load(place, align=8))
            build.store(row.add_product(kept, row.splat(x), step), place, align=8)
        return context.get_dummy_value()

    @intrinsic
    def keep_and_add(_, values, places, n, weights, stride, first, step, keep):
        number = types.uintp
        return types.void(values, places, number, weights, number, number, step, keep), generate

    return keep_and_add


scores_of_1, scores_of_2, scores_of_4, scores_of_8 = (_scores_among(w) for w in (1, *WIDTHS))
keep_of_1, keep_of_2, keep_of_4, keep_of_8 = (_keep_among(w) for w in (1, *WIDTHS))


@njit(cache=True, nogil=True)
def add_scores(values, places, n, weights, scores):
    """``scores[k] += sum_i values[i] w[places[i], k]`` for any number of outputs.

    The result of an output does not depend on its index or on the number of outputs.
    """
    n_lanes, lane = np.uintp(len(scores)), np.uintp(0)
    while lane + np.uintp(8) <= n_lanes:
        scores_of_8(values, places, n, weights, n_lanes, lane, scores)
        lane += np.uintp(8)
    if lane + np.uintp(4) <= n_lanes:
        scores_of_4(values, places, n, weights, n_lanes, lane, scores)
        lane += np.uintp(4)
    if lane + np.uintp(2) <= n_lanes:
        scores_of_2(values, places, n, weights, n_lanes, lane, scores)
        lane += np.uintp(2)
    if lane < n_lanes:
        scores_of_1(values, places, n, weights, n_lanes, lane, scores)


@njit(cache=True, nogil=True)
def keep_and_add(values, places, n, weights, step, keep):
    """``w[places[i], k] = keep[i] w[places[i], k] + values[i] step[k]``, as above."""
    n_lanes, lane = np.uintp(len(step)), np.uintp(0)
    while lane + np.uintp(8) <= n_lanes:
        keep_of_8(values, places, n, weights, n_lanes, lane, step, keep)
        lane += np.uintp(8)
    if lane + np.uintp(4) <= n_lanes:
        keep_of_4(values, places, n, weights, n_lanes, lane, step, keep)
        lane += np.uintp(4)
    if lane + np.uintp(2) <= n_lanes:
        keep_of_2(values, places, n, weights, n_lanes, lane, step, keep)
        lane += np.uintp(2)
    if lane < n_lanes:
        keep_of_1(values, places, n, weights, n_lanes, lane, step, keep)
