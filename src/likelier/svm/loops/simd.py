"""SIMD code of the two searches of a pair update, eight rows at a time.

A search for the best row needs its index as well as its value, and the compiler does not vectorise
such a loop. So both searches are written with LLVM vectors of fixed width, which the compiler maps
to the registers of any processor: lane ``l`` processes rows ``l``, ``l + 8``, ... and keeps its own
best; the lanes are compared at the end. Of equal rows the first is taken. The remainder is
processed as a last full stride that overlaps the rows before it.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from likelier.jit import njit

HUGE = 1e300  # beyond every residual; fast-math flags do not allow infinity
TINY_CURVATURE = 1e-12
LANES = 8
CHAINS = 2  # independent chains of comparisons, for instruction-level parallelism
STRIDE = LANES * CHAINS
# Residuals are finite: sums may be reordered, and comparisons may ignore NaN.
FREE = ("nnan", "nsz", "contract", "reassoc")
FLAGS = set(FREE)
_double, _single, _int64, _int32 = ir.DoubleType(), ir.FloatType(), ir.IntType(64), ir.IntType(32)


def _same(kind: Any, value: float) -> Any:
    """A constant in every lane."""
    return ir.Constant(ir.VectorType(kind, LANES), [value] * LANES)


@dataclass
class _Best:
    """The best value of each lane and its row, for one of the chains."""

    build: Any
    value: Any  # stack slots of the vectors, which the compiler promotes to registers
    row: Any

    @classmethod
    def start(cls, build: Any, kind: Any, worst: float) -> _Best:
        """Initialise; row indices are integers as wide as the values."""
        counter = _int64 if kind is _double else _int32
        pointers = [cgutils.alloca_once_value(build, c)
                  for c in (_same(kind, worst), _same(counter, 0))]  # fmt: skip
        return cls(build, *pointers)

    def offer(self, value: Any, start: Any) -> None:
        """Compare the rows that begin at ``start``."""
        build, best, row = self.build, self.build.load(self.value), self.build.load(self.row)
        counter = row.type.element
        start = start if counter is _int64 else build.trunc(start, counter)
        better = build.fcmp_ordered(">", value, best, flags=FREE)
        build.store(build.select(better, value, best), self.value)
        build.store(build.select(better, _splat(build, start), row), self.row)

    def join(self, other: _Best) -> None:
        """Merge another chain: its value wins if it is better, or equal and of an earlier row."""
        build = self.build
        value, row = build.load(self.value), build.load(self.row)
        its_value, its_row = build.load(other.value), build.load(other.row)
        better = _comes_first(build, its_value, its_row, value, row)
        build.store(build.select(better, its_value, value), self.value)
        build.store(build.select(better, its_row, row), self.row)

    def winner(self) -> tuple[Any, Any]:
        """The best value of all lanes and its row; of equal values the first row."""
        build, values, rows = self.build, self.build.load(self.value), self.build.load(self.row)
        counter = rows.type.element
        rows = build.add(rows, ir.Constant(rows.type, list(range(LANES))))
        while values.type.count > 1:
            (value, other), (row, its_row) = _halves(build, values), _halves(build, rows)
            better = _comes_first(build, other, its_row, value, row)
            values = build.select(better, other, value)
            rows = build.select(better, its_row, row)
        value, row = _lane(build, values, 0), _lane(build, rows, 0)
        return value, row if counter is _int64 else build.sext(row, _int64)


def _comes_first(build: Any, value: Any, row: Any, than: Any, its_row: Any) -> Any:
    """Whether a value is larger, or equal and of an earlier row."""
    equal = build.fcmp_ordered("==", value, than, flags=FREE)
    earlier = build.and_(equal, build.icmp_signed("<", row, its_row))
    return build.or_(build.fcmp_ordered(">", value, than, flags=FREE), earlier)


def _lane(build: Any, vector: Any, number: int) -> Any:
    return build.extract_element(vector, ir.Constant(_int32, number))


def _halves(build: Any, vector: Any) -> list[Any]:
    """The lower and the upper lanes, for a tree reduction."""
    half = vector.type.count // 2
    kind = ir.VectorType(_int32, half)
    lanes = [ir.Constant(kind, list(range(k * half, (k + 1) * half))) for k in range(2)]
    return [build.shuffle_vector(vector, vector, some) for some in lanes]


def _winner(chains: list[_Best]) -> tuple[Any, Any]:
    """The best of all chains."""
    for chain in chains[1:]:
        chains[0].join(chain)
    return chains[0].winner()


def _splat(build: Any, value: Any) -> Any:
    """A scalar in every lane."""
    empty = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    first = build.insert_element(empty, value, ir.Constant(_int32, 0))
    return build.shuffle_vector(
        first, empty, ir.Constant(ir.VectorType(_int32, LANES), [0] * LANES)
    )


@dataclass
class _Column:
    """An array that is read and written eight values at a time."""

    build: Any
    data: Any
    kind: Any

    @classmethod
    def of(cls, context: Any, build: Any, kind: Any, array: Any) -> _Column:
        element = _double if kind.dtype == types.float64 else _single
        return cls(build, context.make_array(kind)(context, build, array).data, element)

    @classmethod
    def of_row(cls, context: Any, build: Any, kind: Any, matrix: Any, number: Any) -> _Column:
        """A row of a matrix."""
        table = cls.of(context, build, kind, matrix)
        shape = context.make_array(kind)(context, build, matrix).shape
        begin = build.mul(number, build.extract_value(shape, 1))
        return cls(build, build.gep(table.data, [begin]), table.kind)

    def _place(self, start: Any) -> Any:
        vector = ir.VectorType(self.kind, LANES)
        return self.build.bitcast(self.build.gep(self.data, [start]), vector.as_pointer())

    @property
    def _align(self) -> int:
        return 8 if self.kind is _double else 4

    def load(self, start: Any) -> Any:
        return self.build.load(self._place(start), align=self._align)

    def wide(self, start: Any) -> Any:
        """Load in double precision."""
        value = self.load(start)
        if self.kind is _double:
            return value
        return self.build.fpext(value, ir.VectorType(_double, LANES))

    def store(self, value: Any, start: Any) -> None:
        self.build.store(value, self._place(start), align=self._align)


@contextmanager
def _strides(build: Any, stop: Any) -> Any:
    """Loop over the rows before ``stop``, a multiple of `STRIDE`; yields starts of vectors."""
    first, step = ir.Constant(_int64, 0), ir.Constant(_int64, STRIDE)
    with cgutils.for_range_slice(build, first, stop, step) as (start, _):
        yield [build.add(start, ir.Constant(_int64, k * LANES)) for k in range(CHAINS)]


def _last(build: Any, count: Any) -> list[Any]:
    """Starts of the vectors of the last `STRIDE` rows."""
    return [build.sub(count, ir.Constant(_int64, STRIDE - k * LANES)) for k in range(CHAINS)]


def _whole(build: Any, count: Any) -> Any:
    """``count`` rounded down to a multiple of `STRIDE`, a power of two."""
    return build.and_(count, ir.Constant(_int64, -STRIDE))


def _pick(build: Any, sign: str, one: Any, two: Any) -> Any:
    """The larger (">") or smaller ("<") of two vectors."""
    return build.select(build.fcmp_ordered(sign, one, two, flags=FREE), one, two)


@intrinsic
def _move_lanes(_, F, up, slots, slot_i, slot_j, step_i, step_j, count):
    result = types.Tuple((types.int64, types.float64))

    def generate(context, build, signature, args):
        kinds = signature.args
        F, up = (_Column.of(context, build, kinds[k], args[k]) for k in (0, 1))
        row_i, row_j = (_Column.of_row(context, build, kinds[2], args[2], args[k]) for k in (3, 4))
        step_i, step_j = _splat(build, args[5]), _splat(build, args[6])
        chains = [_Best.start(build, _double, -10.0 * HUGE) for _ in range(CHAINS)]

        def moved(start: Any) -> Any:
            steps = build.fadd(
                build.fmul(step_i, row_i.wide(start), flags=FREE),
                build.fmul(step_j, row_j.wide(start), flags=FREE),
                flags=FREE,
            )
            return build.fsub(F.load(start), steps, flags=FREE)

        last = _last(build, args[7])
        rest = [moved(start) for start in last]  # before the loop changes overlapping rows
        with _strides(build, _whole(build, args[7])) as starts:
            for best, start in zip(chains, starts, strict=True):
                value = moved(start)
                F.store(value, start)
                best.offer(build.fadd(value, up.load(start), flags=FREE), start)
        for best, start, value in zip(chains, last, rest, strict=True):
            F.store(value, start)
            best.offer(build.fadd(value, up.load(start), flags=FREE), start)
        value, row = _winner(chains)
        return context.make_tuple(build, signature.return_type, [row, value])

    return result(F, up, slots, slot_i, slot_j, step_i, step_j, count), generate


def _gains(build: Any, distance: Any, curvature: Any) -> Any:
    """Twice the gain of the best move of each pair."""
    kind = curvature.type.element
    d = _pick(build, ">", distance, _same(kind, 0.0))
    curvature = _pick(build, ">", curvature, _same(kind, _rounded(kind, TINY_CURVATURE)))
    return build.fdiv(build.fmul(d, d, flags=FREE), curvature, flags=FREE)


def _rounded(kind: Any, value: float) -> float:
    """A constant rounded to its type, as LLVM requires."""
    return value if kind is _double else float(np.float32(value))


@intrinsic
def _partner_lanes(_, F, down, slots, slot, diagonal, own, top, count):
    result = types.Tuple((types.int64, slots.dtype, types.float64))

    def generate(context, build, signature, args):
        kinds = signature.args
        F, down, diagonal = (_Column.of(context, build, kinds[k], args[k]) for k in (0, 1, 4))
        row = _Column.of_row(context, build, kinds[2], args[2], args[3])
        kind, own, top = row.kind, _splat(build, args[5]), _splat(build, args[6])
        chains = [_Best.start(build, kind, -1.0) for _ in range(CHAINS)]
        lowest = cgutils.alloca_once_value(build, _same(_double, 10.0 * HUGE))

        def look(best: _Best, start: Any) -> None:
            cost = build.fadd(F.load(start), down.load(start), flags=FREE)
            build.store(_pick(build, "<", cost, build.load(lowest)), lowest)
            distance = build.fsub(top, cost, flags=FREE)
            if kind is _single:
                distance = build.fptrunc(distance, ir.VectorType(kind, LANES))
            both = build.fadd(own, diagonal.load(start), flags=FREE)
            twice = build.fmul(_same(kind, 2.0), row.load(start), flags=FREE)
            curvature = build.fsub(both, twice, flags=FREE)
            best.offer(_gains(build, distance, curvature), start)

        with _strides(build, _whole(build, args[7])) as starts:
            for best, start in zip(chains, starts, strict=True):
                look(best, start)
        for best, start in zip(chains, _last(build, args[7]), strict=True):
            look(best, start)
        gain, partner = _winner(chains)
        low = build.load(lowest)
        while low.type.count > 1:
            low = _pick(build, "<", *_halves(build, low))
        low = _lane(build, low, 0)
        return context.make_tuple(build, signature.return_type, [partner, gain, low])

    return result(F, down, slots, slot, diagonal, own, top, count), generate


@njit(cache=True, nogil=True, fastmath=FLAGS)
def move_and_find_top(F, up, slots, slot_i, slot_j, step_i, step_j):
    """Update the residuals after a move of two rows; return the row with the largest gain.

    The kernel rows of the two are ``slots[slot_i]`` and ``slots[slot_j]``.
    """
    if len(F) >= STRIDE:
        return _move_lanes(F, up, slots, slot_i, slot_j, step_i, step_j, len(F))
    where, best = 0, -10.0 * HUGE
    for k in range(len(F)):
        F[k] -= step_i * slots[slot_i, k] + step_j * slots[slot_j, k]
        if F[k] + up[k] > best:
            where, best = k, F[k] + up[k]
    return where, best


@njit(cache=True, nogil=True, fastmath=FLAGS)
def find_partner(F, down, slots, slot, diagonal, own, top):
    """Row with the largest gain when it moves against the top row; and the lowest cost.

    ``slots[slot]`` and ``own`` are the kernel row and diagonal of the top row. Gains are compared
    in the precision of the kernel values.
    """
    if len(F) >= STRIDE:
        where, _, lowest = _partner_lanes(F, down, slots, slot, diagonal, own, top, len(F))
        return where, lowest
    kind = slots.dtype.type
    zero, two, tiny = kind(0.0), kind(2.0), kind(TINY_CURVATURE)
    where, best, lowest = 0, kind(-1.0), 10.0 * HUGE
    for k in range(len(F)):
        cost = F[k] + down[k]
        lowest = min(lowest, cost)
        d = max(kind(top - cost), zero)
        gain = d * d / max(own + diagonal[k] - two * slots[slot, k], tiny)
        if gain > best:
            where, best = k, gain
    return where, lowest
